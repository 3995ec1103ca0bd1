"""Column text in, labelled text out: reader, encoder, decoder and writer in one stream."""

from crftool.corpus.reader import read_tokens
from crftool.decode import Lattices, decode, decode_best


def tag_files(model, paths, writer, pool, best=0, posterior=False):
    """Pieces of output for the sequences of the files, in order, each as soon as its input is there.

    `best` > 0 asks for that many labellings of each sequence.
    """
    for path in paths:
        for tokens in read_tokens(path):
            lattices = Lattices(model.encoder.encode(tokens), model.weights, pool)
            yield from (_best_lists if best else _labellings)(lattices, tokens, writer, best, posterior)


def _labellings(lattices, tokens, writer, best, posterior):
    decoded = decode(lattices, posterior, writer.level > 0)
    pieces, offsets = [], tokens.offsets.tolist()
    labels = decoded.labels.tolist()
    for s, (start, end) in enumerate(zip(offsets, offsets[1:])):
        probability = None if decoded.probability is None else decoded.probability[s]
        pieces.append(writer.sequence(tokens, start, labels[start:end], probability, decoded.marginals))
    yield b"".join(pieces)


def _best_lists(lattices, tokens, writer, best, posterior):
    lists, marginals = decode_best(lattices, best)
    for start, labellings in zip(tokens.offsets.tolist(), lists):
        yield b"".join(writer.sequence(tokens, start, path.tolist(), probability, marginals, rank)
                       for rank, (path, probability) in enumerate(labellings))

"""Column text in, labelled text out: reader, encoder, decoder and writer in one stream."""

from dataclasses import dataclass

import numpy as np

from crftool.corpus.constraints import dead_end
from crftool.corpus.reader import display_name
from crftool.corpus.tokens import read_tokens
from crftool.decode import Lattices, decode, decode_best
from crftool.errors import DataError
from crftool.evaluate import boundaries, phrases
from crftool.formats import Details
from crftool.kernels.transitions import Constraint


@dataclass(frozen=True)
class Request:
    """What is wanted of each sequence."""

    best: int = 0                        # that many labellings, best first; 0: one, without rank
    posterior: bool = False              # the most probable label of each token
    inference: str = "auto"
    constraint: Constraint | None = None
    force_column: int | None = None      # labels known in advance; negative: from the end
    min_confidence: float = 0.0          # labels less probable than this are replaced by ...
    abstain: bytes = b"?"
    phrase_confidence: bool = False
    entropy: bool = False

    @property
    def needs_marginals(self):
        return self.posterior or self.min_confidence > 0.0 or self.phrase_confidence


def tag_files(model, paths, writer, pool, request=Request()):
    """Pieces of output for the sequences of the files, in order, each as soon as its input is there."""
    for path in paths:
        for tokens in read_tokens(path):
            yield from tag_tokens(model, tokens, writer, pool, request)


def tag_tokens(model, tokens, writer, pool, request):
    forced = _forced_labels(model, tokens, request)
    lattices = Lattices(model.encoder.encode(tokens), model.weights, pool, request.inference, request.constraint,
                        forced)
    if forced is not None or request.constraint is not None:
        _check_possible(model, tokens, request, forced)
    yield from (_best_lists if request.best else _labellings)(model, lattices, tokens, writer, request)


def _labellings(model, lattices, tokens, writer, request):
    decoded = decode(lattices, request.posterior, writer.level > 0 or request.needs_marginals)
    details = _details(model, lattices, decoded, request)
    pieces, offsets = [], tokens.offsets.tolist()
    labels = decoded.labels.tolist()
    for s, (start, end) in enumerate(zip(offsets, offsets[1:])):
        probability = None if decoded.probability is None else decoded.probability[s]
        pieces.append(writer.sequence(tokens, start, labels[start:end], probability, decoded.marginals,
                                      details=details(s, start, end)))
    yield b"".join(pieces)


def _best_lists(model, lattices, tokens, writer, request):
    lists, marginals = decode_best(lattices, request.best)
    for start, labellings in zip(tokens.offsets.tolist(), lists):
        yield b"".join(writer.sequence(tokens, start, path.tolist(), probability, marginals, rank)
                       for rank, (path, probability) in enumerate(labellings))


def _details(model, lattices, decoded, request):
    """A function (sequence, its first token, its end) -> Details."""
    chosen = None if decoded.marginals is None else decoded.marginals[np.arange(len(decoded.labels)), decoded.labels]
    spans = kinds = confidence = per_token = None
    if request.phrase_confidence:
        spans, kinds = phrases(decoded.labels, lattices.dataset.offsets, model.labels)
        confidence = lattices.segment_probabilities(decoded.labels, spans, *boundaries(model.labels))
        per_token = chosen.copy()                    # outside phrases: that of the label
        for (first, last), share in zip(spans, confidence):
            per_token[first:last + 1] = share
    entropies = lattices.entropies() if request.entropy else None

    def details(s, start, end):
        abstained = {}
        if request.min_confidence > 0.0:
            abstained = {int(t): request.abstain
                         for t in start + np.flatnonzero(chosen[start:end] < request.min_confidence)}
        if spans is None:
            return Details(abstained, entropy=None if entropies is None else entropies[s])
        which = range(*np.searchsorted(spans[:, 0], (start, end)))
        listed = [(int(spans[i, 0]), int(spans[i, 1]), kinds[i], confidence[i]) for i in which]
        return Details(abstained, per_token[start:end].tolist(), listed,
                       None if entropies is None else entropies[s])

    return details


def _forced_labels(model, tokens, request):
    """[N]  label imposed on each token, -1 where its value in the column is no label; None without column."""
    if request.force_column is None:
        return None
    column = request.force_column + tokens.columns * (request.force_column < 0)
    if not 0 <= column < tokens.columns:
        raise DataError(display_name(tokens.path), tokens.line(0),
                        f"no column {request.force_column} among {tokens.columns}", "mend --force-column")
    return tokens.intern(column, model.encoder.label_table, False)


def _check_possible(model, tokens, request, forced):
    """An error with line and labels where no labelling is allowed."""
    Y, offsets = len(model.labels), tokens.offsets
    if forced is None:
        forced = np.full(len(tokens), -1)
    for start, end in zip(offsets, offsets[1:]):
        free = (forced[start:end] < 0).all()
        if request.constraint is None or free and _free_is_possible(request.constraint, end - start):
            continue
        t = dead_end(request.constraint, Y, forced[start:end])
        if t is not None:
            shown = [model.labels[label].decode("utf-8", "backslashreplace") if label >= 0 else "any label"
                     for label in forced[max(start, start + t - 1):start + t + 1]]
            raise DataError(display_name(tokens.path), tokens.line(int(start + t)),
                            f"no labelling is allowed: {' then '.join(shown)} is forbidden here",
                            "mend the forced labels or loosen --constrain")


def _free_is_possible(constraint, T):
    """Quick answer for the usual case: a label that may begin, follow itself, and end."""
    return bool((constraint.start & constraint.end & (constraint.pairs.diagonal() | (T == 1))).any())

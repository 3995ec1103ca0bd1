"""For programs that tag without files.

    >>> model = crftool.Model.load("chunk.model")
    >>> model.tag([[("He", "PRP"), ("reckons", "VBZ")]])
    [['B-NP', 'B-VP']]

A sequence is a list of tokens, a token the list of its columns (or a string, if the template needs only
one). Columns are str, or bytes in any encoding; they may not be empty or hold white space, just as in a file.
"""

import threading

from crftool import model as models
from crftool.corpus.dataset import Encoder
from crftool.corpus.reader import Block
from crftool.corpus.tokens import Tokens
from crftool.corpus.values import ValueIndex
from crftool.decode import Lattices, decode, decode_best
from crftool.kernels.pool import Pool

GAPS = b" \t\r\n"


class Model:
    """A trained labeller. Any number of threads may share one; it can be pickled."""

    def __init__(self, model):
        """See `load` and `from_bytes`."""
        self._model = model
        self._local = threading.local()

    @classmethod
    def load(cls, path):
        """The model in a file, which stays mapped."""
        return cls(models.Model.load(str(path)))

    @classmethod
    def from_bytes(cls, data):
        """The model whose file content is `data`."""
        return cls(models.Model.from_bytes(data))

    def to_bytes(self):
        return self._model.to_bytes()

    def __reduce__(self):
        return Model.from_bytes, (self.to_bytes(),)

    @property
    def labels(self):
        """The labels, in the order of `marginals`."""
        return [_text(label) for label in self._model.labels]

    def tag(self, sequences):
        """The best labels of each sequence: a list of lists of str."""
        lattices, offsets = self._lattices(sequences)
        return [] if lattices is None else _cut(decode(lattices).labels, offsets, self.labels)

    def marginals(self, sequences):
        """p(label | sequence) of each token: an array [tokens][labels] for each sequence."""
        lattices, offsets = self._lattices(sequences)
        if lattices is None:
            return []
        p = lattices.marginals()[0]
        return [p[a:b] for a, b in zip(offsets, offsets[1:])]

    def pair_marginals(self, sequences):
        """p(label before, label | sequence) of each token: an array [tokens][labels][labels] for each sequence,
        with zeros for its first token."""
        lattices, _ = self._lattices(sequences)
        return [] if lattices is None else [lattices.pair_marginals(s) for s in range(lattices.dataset.S)]

    def nbest(self, sequences, n):
        """Up to n pairs (probability, labels) for each sequence, best first."""
        lattices, _ = self._lattices(sequences)
        if lattices is None:
            return []
        names = self.labels
        return [[(float(probability), [names[y] for y in path]) for path, probability in found]
                for found in decode_best(lattices, n)[0]]

    def _lattices(self, sequences):
        rows = [[_columns(token) for token in sequence] for sequence in sequences]
        if not rows:
            return None, None
        counts = {len(row) for sequence in rows for row in sequence}
        if not all(rows) or len(counts) != 1:
            raise ValueError("every sequence needs a token, and every token the same number of columns")
        text = b"\n\n".join(b"\n".join(map(b"\t".join, sequence)) for sequence in rows)
        tokens = Tokens(Block("sequences", 1, text))
        return Lattices(self._encoder().encode(tokens), self._model.weights, Pool(), "auto",
                        self._model.constraint), tokens.offsets

    def _encoder(self):
        """One per thread: an encoder remembers the unknown words it meets."""
        if not hasattr(self._local, "encoder"):
            shared = self._model.encoder
            self._local.encoder = Encoder(shared.template, shared.labels, shared.begin_label,
                                          ValueIndex(shared.template, shared.values.known), shared.unigrams,
                                          shared.bigrams)
        return self._local.encoder


def _text(label):
    return label.decode("utf-8", "surrogateescape")


def _columns(token):
    """The columns of a token as bytes."""
    columns = [token] if isinstance(token, (str, bytes)) else token
    columns = [column.encode("utf-8", "surrogateescape") if isinstance(column, str) else bytes(column)
               for column in columns]
    for column in columns:
        if not column or len(column.translate(None, GAPS)) != len(column):
            raise ValueError(f"a column may not be empty or hold white space: {column!r}")
    return columns


def _cut(labels, offsets, names):
    return [[names[y] for y in labels[a:b]] for a, b in zip(offsets, offsets[1:])]

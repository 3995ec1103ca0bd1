"""Sequences as flat arrays, and the encoder that makes them from columns.

The same encoder serves `learn` and `tag`: a feature cannot mean two things.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from crftool.corpus.observations import NONE, Observations
from crftool.corpus.reader import display_name
from crftool.corpus.template import check_columns
from crftool.corpus.tokens import read_tokens
from crftool.corpus.values import ValueIndex
from crftool.errors import DataError
from crftool.kernels.keys import KeyTable
from crftool.kernels.strings import StringTable

UNKNOWN_LABEL = -1
MAX_LABELS = 32_000


@dataclass(frozen=True)
class FeatureSpace:
    """How many weights there are, and where each lies in theta.

    theta = unigram rows [O][Y], then bigram blocks [Ob][R][Y]; R = Y, or Y + 1 with a begin label.
    """

    Y: int
    O: int                           # noqa: E741  unigram observations
    Ob: int                          # bigram observations
    begin_label: bool

    @property
    def R(self):
        return self.Y + self.begin_label

    @property
    def F(self):
        return self.O * self.Y + self.Ob * self.R * self.Y

    def split(self, theta):
        """Views (mu [O][Y], lam [Ob][R][Y]) of a weight vector."""
        cut = self.O * self.Y
        return theta[:cut].reshape(self.O, self.Y), theta[cut:].reshape(self.Ob, self.R, self.Y)


@dataclass(frozen=True)
class Dataset:
    """Encoded sequences. Positions with the same bigram observations share a transition id."""

    offsets: np.ndarray              # [S + 1] int64  first token of each sequence
    unigrams: np.ndarray             # [N][K]  int32  observation of each U template, NONE if not known
    transition: np.ndarray           # [N]     int32  transition id; unused at a first token w/o begin label
    bigrams: np.ndarray              # [C][Kb] int32  bigram observations of each transition, NONE if not known
    labels: np.ndarray | None = None # [N]     int32  gold labels
    lines: np.ndarray | None = None  # [N]     int64  line of each token in its file, for messages

    @property
    def S(self):
        return len(self.offsets) - 1

    @property
    def N(self):
        return len(self.transition)

    @property
    def nbytes(self):
        return sum(array.nbytes for array in self._arrays() if array is not None)

    def acting(self, begin_label):
        """[N] bool: the tokens at which bigram observations act."""
        acts = np.ones(self.N, bool)
        if not begin_label:
            acts[self.offsets[:-1][np.diff(self.offsets) > 0]] = False
        return acts

    def count_unigrams(self, space, columns=None):
        """[O] int64: how often each unigram observation occurs; in some columns, if not in all."""
        counts = np.zeros(space.O, np.int64)
        for column in self.unigrams.T if columns is None else map(self.unigrams.T.__getitem__, columns):
            counts += np.bincount(column[column >= 0], minlength=space.O)
        return counts

    def count_bigrams(self, space, columns=None):
        """[Ob] int64: how often each bigram observation acts; those of some columns, if not of all."""
        counts = np.zeros(space.Ob, np.int64)
        times = np.bincount(self.transition[self.acting(space.begin_label)], minlength=len(self.bigrams))
        for column in self.bigrams.T if columns is None else map(self.bigrams.T.__getitem__, columns):
            np.add.at(counts, column[column >= 0], times[column >= 0])
        return counts

    def digest(self):
        """A hash of all that a training can see of it."""
        return digest(*self._arrays())

    def _arrays(self):
        return self.offsets, self.unigrams, self.transition, self.bigrams, self.labels


def digest(*arrays):
    """A hash of arrays or bytes; None stands for one that is missing."""
    result = hashlib.blake2b(digest_size=16)
    for array in arrays:
        result.update(f"{None if array is None else np.shape(array) or len(array)};".encode())
        if array is not None:
            result.update(array if isinstance(array, bytes) else np.ascontiguousarray(array))
    return result.hexdigest()


def _transitions(bigrams, offsets, begin_label):
    """(transition [N], distinct rows [C][Kb]) of a matrix of bigram observations [N][Kb]; C >= 1.

    Without a begin label first tokens have no transition; their id is 0 and is not used.
    """
    table = KeyTable(bigrams.shape[1])
    used = np.ones(len(bigrams), bool)
    if not begin_label:
        used[offsets[:-1]] = False
    ids = np.empty(np.count_nonzero(used), np.int32)
    table.intern_rows(np.ascontiguousarray(bigrams[used]), ids)
    transition = np.zeros(len(bigrams), np.int32)
    transition[used] = ids
    rows = np.frombuffer(table.arrays()[0], np.int32).reshape(len(table), bigrams.shape[1])
    return transition, rows.copy() if len(rows) else np.full((1, bigrams.shape[1]), NONE, np.int32)


class Encoder:
    """Columns to observation ids."""

    def __init__(self, template, labels, begin_label, values, unigrams, bigrams, columns=None):
        """`columns`: of the training data, label included, if known."""
        self.template, self.columns = template, columns
        self.labels = labels                         # [Y] bytes
        self.begin_label = begin_label
        self.values = values
        self.unigrams, self.bigrams = unigrams, bigrams
        self.label_table = StringTable()
        for label in labels:
            self.label_table.intern(label)

    @property
    def space(self):
        return FeatureSpace(len(self.labels), self.unigrams.size, self.bigrams.size, self.begin_label)

    def encode(self, tokens, label_column=None):
        """The Dataset of a block of tokens; with a label column, its labels (UNKNOWN_LABEL if new)."""
        check_columns(self.template, tokens.path, tokens.line(0), tokens.columns)
        ids, offsets = self.values.ids(tokens), tokens.offsets
        unigrams = self.unigrams.find(self.values, ids, offsets, True)
        bigrams = self.bigrams.find(self.values, ids, offsets, self.begin_label)
        transition, rows = _transitions(bigrams, offsets, self.begin_label)
        labels = None if label_column is None else tokens.intern(label_column, self.label_table, False)
        return Dataset(offsets, unigrams, transition, rows, labels)

    def weights_per_line(self):
        """[(line, observations, weights)] of every template, U lines first. Shared observations count for
        the first template of their table."""
        census = []
        for kind, width in ((self.unigrams, len(self.labels)), (self.bigrams, self.space.R * len(self.labels))):
            counted = np.zeros(kind.size, bool)
            for k, line in enumerate(kind.lines):
                rows = kind.rows[kind.table_of[k]]
                rows = np.unique(rows[rows >= 0])
                fresh = rows[~counted[rows]]
                counted[fresh] = True
                census.append((line, len(fresh), len(fresh) * width))
        return census


def read_training_data(path, template, begin_label=False, min_count=1, more_labels=(), watch=None):
    """(Encoder, Dataset) of a training file.

    `more_labels`: labels that the model shall know although the file may lack them. `watch(n)` is called
    when n more bytes have been read.
    """
    values = ValueIndex(template)
    unigrams, bigrams = Observations(template.unigrams), Observations(template.bigrams)
    label_table = StringTable()
    parts, N = [], 0
    for tokens in read_tokens(path, watch=watch):
        if not parts:
            _check_training_columns(template, tokens)
            columns = tokens.columns
        ids = values.ids(tokens)
        parts.append((tokens.offsets[:-1] + N, tokens.lines(), tokens.intern(tokens.columns - 1, label_table, True),
                      unigrams.learn(values, ids, tokens.offsets, True),
                      bigrams.learn(values, ids, tokens.offsets, begin_label)))
        N += len(tokens)
    if not parts:
        raise DataError(display_name(path), 1, "no token to learn from", "check the step that writes it")
    offsets, lines, labels, unigram_ids, bigram_ids = (np.concatenate(part) for part in zip(*parts))
    del parts
    found = [label_table.text(i) for i in range(len(label_table))]
    names = sorted({*found, *more_labels})
    if len(names) > MAX_LABELS:
        raise DataError(display_name(path), None, f"{len(names)} different labels in the last column",
                        f"the label must be the last column, with at most {MAX_LABELS} values")
    labels = np.array([names.index(name) for name in found], np.int32)[labels]
    unigrams.number(values, unigram_ids, min_count)
    bigrams.number(values, bigram_ids, min_count)
    offsets = np.append(offsets, N)
    transition, rows = _transitions(bigram_ids, offsets, begin_label)
    encoder = Encoder(template, names, begin_label, values, unigrams, bigrams, columns)
    return encoder, Dataset(offsets, unigram_ids, transition, rows, labels, lines)


def read_labelled_blocks(path, encoder):
    """(Dataset, labels, tokens) of each block of a file whose last column is the gold label, encoded for a
    finished model; labels [Y + more] by index, new ones of the file at the end."""
    label_table, seen = StringTable(), False
    for label in encoder.labels:
        label_table.intern(label)
    for tokens in read_tokens(path):
        if tokens.columns <= encoder.template.columns:
            raise DataError(display_name(path), tokens.line(0),
                            f"{tokens.columns} columns, but {encoder.template.columns} and a label are needed",
                            "add the gold label as the last column")
        if encoder.columns not in (None, tokens.columns):
            raise DataError(display_name(path), tokens.line(0), f"{tokens.columns} columns, but the training data have "
                            f"{encoder.columns}", "give it the same columns, the label last")
        seen = True
        gold = tokens.intern(tokens.columns - 1, label_table, True)
        yield (replace(encoder.encode(tokens), labels=gold), [label_table.text(i) for i in range(len(label_table))],
               tokens)
    if not seen:
        raise DataError(display_name(path), 1, "no token to score", "check the step that writes it")


def read_labelled_data(path, encoder):
    """The whole of such a file: (Dataset, labels)."""
    parts, N, C = [], 0, 0
    for part, names, _ in read_labelled_blocks(path, encoder):
        parts.append((part.offsets[:-1] + N, part.unigrams, part.transition + np.int32(C), part.bigrams, part.labels))
        N, C = N + part.N, C + len(part.bigrams)
    offsets, unigrams, transition, bigrams, labels = (np.concatenate(part) for part in zip(*parts))
    return Dataset(np.append(offsets, N), unigrams, transition, bigrams, labels), names


def _check_training_columns(template, tokens):
    name = display_name(tokens.path)
    if tokens.columns < 2:
        raise DataError(name, tokens.line(0), "only one column",
                        "training data needs columns to learn from and, last, the label")
    if template.columns > tokens.columns - 1:
        line = template.line_needing(tokens.columns - 1)
        last = "the label" if template.columns == tokens.columns else "absent"
        raise DataError(template.path, line.line,
                        f"column {template.columns - 1} is {last} in {name}",
                        f"use columns 0 to {tokens.columns - 2}")

"""Weights in three forms with one face: the flat vector of a trainer, the sparse rows of a trainer with a
virtual feature set, and the compressed rows of a model.

    unigram_scores(dataset, pool)                  mu [N][Y]
    chain(dataset, mode, pool, constraint)         the transitions, as a kernels.chain.Chain
"""

from dataclasses import dataclass

import numpy as np

from crftool.kernels import scoring
from crftool.kernels.sparsity import largest_sparse
from crftool.kernels.transitions import Entries, chain_of_blocks, make_chain, split_blocks


class TrainedWeights:
    """theta, as the trainers know it."""

    def __init__(self, space, theta):
        self.space, self.theta = space, theta

    def _rows(self, weights, rows, pool):
        out = np.empty((len(rows), weights.shape[1]))
        pool.run(scoring.add_dense_rows, weights, rows, out)
        return out

    def unigram_scores(self, dataset, pool):
        return self._rows(self.space.split(self.theta)[0], dataset.unigrams, pool)

    def chain(self, dataset, mode, pool, constraint=None):
        Y, R = self.space.Y, self.space.R
        lam = self.space.split(self.theta)[1].reshape(self.space.Ob, R * Y)
        blocks = self._rows(lam, dataset.bigrams, pool).reshape(-1, R, Y)
        return chain_of_blocks(blocks, mode, pool, constraint)


class SparseWeights:
    """theta without its zeros, for feature sets too large to write down: per kind of observation
    (bounds [O + 1] int64, columns int32, values float64)."""

    def __init__(self, space, unigrams=None, bigrams=None):
        self.space = space
        self.unigrams = _no_entries(space.O) if unigrams is None else unigrams
        self.bigrams = _no_entries(space.Ob) if bigrams is None else bigrams

    @classmethod
    def from_dense(cls, space, theta):
        kinds = []
        for matrix in space.split(theta):
            matrix = matrix.reshape(len(matrix), -1)
            rows, columns = np.nonzero(matrix)
            bounds = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(matrix))))).astype(np.int64)
            kinds.append((bounds, columns.astype(np.int32), matrix[rows, columns]))
        return cls(space, *kinds)

    def to_dense(self, theta):
        """Write the weights to a vector of F numbers."""
        theta[:] = 0.0
        for matrix, (bounds, columns, values) in zip(self.space.split(theta), (self.unigrams, self.bigrams)):
            matrix.reshape(len(matrix), -1)[np.repeat(np.arange(len(matrix)), np.diff(bounds)), columns] = values

    @property
    def active(self):
        return len(self.unigrams[2]) + len(self.bigrams[2])

    def copy(self):
        """The trainer replaces the arrays, and never writes into them."""
        return SparseWeights(self.space, self.unigrams, self.bigrams)

    def stored(self):
        """The same in the form of a model, with rows named by observation."""
        return StoredWeights(self.space, *(
            RowStore(np.empty((0, width), np.float32), bounds, columns, values.astype(np.float32))
            for (bounds, columns, values), width in ((self.unigrams, self.space.Y),
                                                     (self.bigrams, self.space.R * self.space.Y))))

    def unigram_scores(self, dataset, pool):
        return self.stored().unigram_scores(dataset, pool)

    def chain(self, dataset, mode, pool, constraint=None):
        return self.stored().chain(dataset, mode, pool, constraint)


def _no_entries(n):
    return np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0)


@dataclass(frozen=True)
class RowStore:
    """Rows of D weights in single precision, of which only non-zero ones are kept.

    Rows in which at least half of the weights count are stored whole, and come first; the others as
    (column, value) entries.
    """

    dense: np.ndarray                # [A][D]      float32  rows 0 to A - 1
    bounds: np.ndarray               # [B + 1]     int64    rows A to A + B - 1: their entries
    columns: np.ndarray              # [entries]   int32
    values: np.ndarray               # [entries]   float32

    @property
    def size(self):
        return len(self.dense) + len(self.bounds) - 1

    @property
    def active(self):
        """Number of non-zero weights."""
        return int(np.count_nonzero(self.dense)) + int(np.count_nonzero(self.values))

    @classmethod
    def of(cls, matrix):
        """(store, row_of): `row_of` [O] gives each row of the matrix its place in the store, or -1."""
        matrix = matrix.astype(np.float32)
        active = np.count_nonzero(matrix, axis=1)
        whole = np.flatnonzero(2 * active >= max(1, matrix.shape[1]))
        part = np.flatnonzero((active > 0) & (2 * active < matrix.shape[1]))
        row_of = np.full(len(matrix), -1, np.int32)
        row_of[whole] = np.arange(len(whole))
        row_of[part] = len(whole) + np.arange(len(part))
        rows, columns = np.nonzero(matrix[part])
        bounds = np.concatenate(([0], np.cumsum(active[part]))).astype(np.int64)
        return cls(np.ascontiguousarray(matrix[whole]), bounds, columns.astype(np.int32),
                   matrix[part][rows, columns]), row_of

    @classmethod
    def of_entries(cls, bounds, columns, values, D):
        """The same from sparse rows."""
        values = values.astype(np.float32)
        rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        rows, columns, values = (part[values != 0.0] for part in (rows, columns, values))
        active = np.bincount(rows, minlength=len(bounds) - 1)
        whole = np.flatnonzero(2 * active >= max(1, D))
        part = np.flatnonzero((active > 0) & (2 * active < D))
        row_of = np.full(len(active), -1, np.int32)
        row_of[whole] = np.arange(len(whole))
        row_of[part] = len(whole) + np.arange(len(part))
        in_whole = row_of[rows] < len(whole)
        dense = np.zeros((len(whole), D), np.float32)
        dense[row_of[rows[in_whole]], columns[in_whole]] = values[in_whole]
        bounds = np.concatenate(([0], np.cumsum(active[part]))).astype(np.int64)
        return cls(dense, bounds, columns[~in_whole].astype(np.int32), values[~in_whole]), row_of

    def rows(self, rows, pool):
        """Sum [N][D] of the rows that each line of `rows` [N][K] names; -1 names none."""
        out = np.empty((len(rows), self.dense.shape[1]))
        pool.run(scoring.add_stored_rows, self.dense, self.bounds, self.columns, self.values, rows, out)
        return out

    def row_sizes(self):
        """[size]  stored entries of each row; a whole row counts all its weights."""
        return np.concatenate((np.full(len(self.dense), self.dense.shape[1]), np.diff(self.bounds)))

    def entries(self, owners, rows):
        """(owner, column, value) of all entries of the sparse rows `rows` [n], each marked with its owner."""
        starts, ends = self.bounds[rows - len(self.dense)], self.bounds[rows - len(self.dense) + 1]
        lengths = ends - starts
        at = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        return np.repeat(owners, lengths), self.columns[at].astype(np.int64), self.values[at].astype(float)

    def to_dense(self):
        """[size][D] float64"""
        out = np.zeros((self.size, self.dense.shape[1]))
        out[:len(self.dense)] = self.dense
        rows = len(self.dense) + np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        out[rows, self.columns] = self.values
        return out


class StoredWeights:
    """The rows of a model."""

    def __init__(self, space, unigrams, bigrams):
        self.space, self.unigrams, self.bigrams = space, unigrams, bigrams

    def unigram_scores(self, dataset, pool):
        return self.unigrams.rows(dataset.unigrams, pool)

    def chain(self, dataset, mode, pool, constraint=None):
        """Transitions with few weights go from compressed rows to entries, without a block of Y x Y."""
        Y, R, store = self.space.Y, self.space.R, self.bigrams
        limit = -1 if constraint is not None else largest_sparse(Y, mode)
        sizes = np.append(store.row_sizes(), 0)[dataset.bigrams].sum(axis=1)     # -1, no row, finds the 0
        sparse = sizes <= limit
        if store.size and len(store.dense):
            sparse &= ((dataset.bigrams >= len(store.dense)) | (dataset.bigrams < 0)).all(axis=1)
        dense = np.flatnonzero(~sparse)
        slot = np.full(len(sparse), -1)
        slot[dense] = np.arange(len(dense))
        blocks = store.rows(dataset.bigrams[dense], pool).reshape(-1, R, Y)
        if constraint is not None or not sparse.any():
            return chain_of_blocks(blocks, mode, pool, constraint)
        entries, begin = self._entries(dataset.bigrams, np.flatnonzero(sparse))
        if begin is not None:
            begin[dense] = blocks[:, Y]
        kept, few = split_blocks(blocks[:, :Y], limit)               # weights may have cancelled each other
        slot[dense] = kept
        entries = Entries(*(np.concatenate((old, new)) for old, new in zip(
            (entries.transition, entries.previous, entries.label, entries.weight),
            (dense[few.transition], few.previous, few.label, few.weight))))
        return make_chain(Y, slot, blocks, entries, begin, mode, pool)

    def _entries(self, bigrams, sparse):
        """(Entries, begin [C][Y]) of the sparse transitions; weights of a pair from several rows add up."""
        Y, R = self.space.Y, self.space.R
        owners = np.repeat(sparse, bigrams.shape[1])
        rows = bigrams[sparse].reshape(-1)
        transition, pair, value = self.bigrams.entries(owners[rows >= 0], rows[rows >= 0])
        key, where = np.unique(transition * (R * Y) + pair, return_inverse=True)
        weight = np.bincount(where, value, len(key)) if len(key) else np.empty(0)
        transition, previous, label = key // (R * Y), key // Y % R, key % Y
        begin = None
        if R > Y:
            begin = np.zeros((len(bigrams), Y))
            first = previous == Y
            begin[transition[first], label[first]] = weight[first]
            transition, previous, label, weight = (x[~first] for x in (transition, previous, label, weight))
        return Entries(transition, previous, label, weight), begin

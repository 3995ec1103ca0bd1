"""Weights in two forms with one face: the flat vector of a trainer, and the compressed rows of a model.

    unigram_scores(dataset, pool)      mu  [N][Y]
    transition_scores(dataset, pool)   lam [C][R][Y]
"""

from dataclasses import dataclass

import numpy as np

from crftool.kernels import scoring


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

    def transition_scores(self, dataset, pool):
        lam = self.space.split(self.theta)[1].reshape(self.space.Ob, -1)
        width = self.space.R * self.space.Y
        return self._rows(lam.reshape(-1, width), dataset.bigrams, pool).reshape(-1, self.space.R, self.space.Y)


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

    def rows(self, rows, pool):
        """Sum [N][D] of the rows that each line of `rows` [N][K] names; -1 names none."""
        out = np.empty((len(rows), self.dense.shape[1]))
        pool.run(scoring.add_stored_rows, self.dense, self.bounds, self.columns, self.values, rows, out)
        return out

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

    def transition_scores(self, dataset, pool):
        return self.bigrams.rows(dataset.bigrams, pool).reshape(-1, self.space.R, self.space.Y)

"""The CRF's log loss: sum over sequences of log Z(x) - score(x, y).

Its gradient is expected minus observed feature counts (Sokolovska's thesis, eq. 3.5):

    d/d mu[o][y]        = sum over the tokens t that observe o  of  p(y_t = y | x) - 1{y_t = y}
    d/d lam[b][y'][y]   = the same for label pairs

The data are worked through in blocks of fixed size, so that what one phase writes is still in the cache
when the next reads it, and memory does not grow with the corpus.
"""

import math

import numpy as np

from crftool.kernels import gradient, lattice, scoring

BLOCK_TOKENS = 16_384
LANES = 8                            # shares of the transition counts that may be added up at once
LANE_COPY_LIMIT = 1 << 25            # bytes that separate copies per lane may take


class LogLoss:
    """Value and gradient of the log loss over a Dataset; owns the workspaces."""

    def __init__(self, dataset, space, groups, pool, observed_only=False):
        """`groups`: columns of the unigram matrix that may hold the same observation, together."""
        self.dataset, self.space, self.pool = dataset, space, pool
        self.token_errors = 0                        # at the last theta, by the most probable label
        Y, R, C = space.Y, space.R, len(dataset.bigrams)
        self._blocks = self._cut_blocks(dataset.offsets)
        longest = max((int(dataset.offsets[b] - dataset.offsets[a]) for a, b in self._blocks), default=0)
        # [longest block][Y]  see kernels.gradient
        self._v, self._alpha, self._residual = (np.empty((longest, Y)) for _ in range(3))
        self._loss = np.zeros(dataset.S)
        self._errors = np.zeros(dataset.S, np.int64)
        self._lam = np.empty((C, R * Y))             # bigram scores of each transition
        self._psi, self._psi_t, self._shift = np.empty((C, R, Y)), np.empty((C, Y, Y)), np.empty(C)
        copies = LANES if self._lam.nbytes * LANES <= LANE_COPY_LIMIT else 1
        self._expected = np.empty((copies, C, R, Y))
        groups = sorted(groups, key=len, reverse=True)                   # large tasks first
        self._group_bounds = np.cumsum([0] + [len(group) for group in groups]).astype(np.int32)
        self._group_columns = np.array([k for group in groups for k in group], np.int32)
        self._observed_bigrams = self._count_bigrams()
        self._barred = None if not observed_only else self._unobserved_weights()

    @property
    def F(self):
        return self.space.F

    @property
    def candidates(self):
        """How many weights may become non-zero."""
        return self.F if self._barred is None else self.F - int(np.count_nonzero(self._barred))

    def value_and_gradient(self, theta, grad):
        """The loss; its gradient goes to `grad`. NaN when scores leave the range of the recursion."""
        data = self.dataset
        mu, lam = self.space.split(theta)
        mu_grad, lam_grad = self.space.split(grad)
        grad[:] = 0.0
        self._expected[:] = 0.0
        self._exponentiate(lam)
        for a, b in self._blocks:
            self.pool.run(
                gradient.losses, mu, lam, data.unigrams, data.transition, data.bigrams, data.labels,
                data.offsets, a, b, self._psi, self._psi_t, self._shift,
                self._v, self._alpha, self._residual, self._loss, self._errors)
            if not np.isfinite(self._loss[a:b]).all():
                return math.nan
            self.pool.run(
                gradient.accumulate, data.unigrams, data.transition, data.offsets, a, b,
                self._group_bounds, self._group_columns, self._v, self._alpha, self._residual,
                mu_grad, self._expected, LANES)
        gradient.add_expectations(self._expected, self._psi, data.bigrams, lam_grad)
        where, counts = self._observed_bigrams
        lam_grad.reshape(-1)[where] -= counts
        if self._barred is not None:
            grad[self._barred] = 0.0
        self.token_errors = int(self._errors.sum())
        return math.fsum(self._loss)

    def _exponentiate(self, lam):
        """psi = exp(lam) for every distinct transition, once."""
        flat = lam.reshape(self.space.Ob, -1)
        self.pool.run(scoring.add_dense_rows, flat, self.dataset.bigrams, self._lam)
        blocks = self._lam.reshape(self._psi.shape)
        self.pool.run(lattice.exponentiate, blocks, self._psi, self._psi_t, self._shift)

    @staticmethod
    def _cut_blocks(offsets):
        """Ranges of sequences with about BLOCK_TOKENS tokens each."""
        blocks, first = [], 0
        for s in range(1, len(offsets)):
            if offsets[s] - offsets[first] >= BLOCK_TOKENS or s == len(offsets) - 1:
                blocks.append((first, s))
                first = s
        return blocks

    def _previous_labels(self):
        """(tokens with a transition, their previous label; Y = begin)."""
        data, Y = self.dataset, self.space.Y
        previous = np.empty(data.N, np.int64)
        previous[1:] = data.labels[:-1]
        previous[data.offsets[:-1]] = Y
        tokens = np.arange(data.N)
        if not self.space.begin_label:
            tokens = np.flatnonzero(previous != Y)
        return tokens, previous[tokens]

    def _count_bigrams(self):
        """(indices, counts) of the label pairs seen with each bigram observation."""
        data, Y, R = self.dataset, self.space.Y, self.space.R
        tokens, previous = self._previous_labels()
        found = []
        for observation in data.bigrams.T:                               # one B template after the other
            rows = observation[data.transition[tokens]].astype(np.int64)
            index = (rows * R + previous) * Y + data.labels[tokens]
            found.append(index[rows >= 0])
        if not found:
            return np.empty(0, np.int64), np.empty(0)
        where, counts = np.unique(np.concatenate(found), return_counts=True)
        return where, counts.astype(float)

    def _unobserved_weights(self):
        """[F] bool: weights of observations never seen with the label or label pair."""
        barred = np.ones(self.F, bool)
        mu, lam = self.space.split(barred)
        for column in self.dataset.unigrams.T:
            seen = column >= 0
            mu[column[seen], self.dataset.labels[seen]] = False
        lam.reshape(-1)[self._observed_bigrams[0]] = False
        return barred

"""The CRF's log loss: sum over sequences of log Z(x) - score(x, y).

Its gradient is expected minus observed feature counts (Sokolovska's thesis, eq. 3.5):

    d/d mu[o][y]        = sum over the tokens t that observe o  of  p(y_t = y | x) - 1{y_t = y}
    d/d lam[b][y'][y]   = the same for label pairs

The data are worked through in blocks of fixed size, so that what one phase writes is still in the cache
when the next reads it, and memory does not grow with the corpus.
"""

import math

import numpy as np

from crftool.kernels import gradient, scoring
from crftool.kernels.transitions import chain_memory, chain_of_blocks

BLOCK_TOKENS = 16_384
LANES = 8                            # shares of the transition counts that may be added up at once
LANE_COPY_LIMIT = 1 << 25            # bytes that separate copies per lane may take


class LogLoss:
    """Value and gradient of the log loss over a Dataset; owns the workspaces."""

    def __init__(self, dataset, space, groups, pool, observed_only=False, inference="auto", constraint=None):
        """`groups`: columns of the unigram matrix that may hold the same observation, together.
        `inference`: one of kernels.transitions.MODES."""
        self.dataset, self.space, self.pool = dataset, space, pool
        self.inference, self.constraint, self.observed_only = inference, constraint, observed_only
        self.token_errors = 0                        # at the last theta, by the most probable label
        Y, R, C = space.Y, space.R, len(dataset.bigrams)
        self._blocks = self._cut_blocks(dataset.offsets)
        longest = max((int(dataset.offsets[b] - dataset.offsets[a]) for a, b in self._blocks), default=0)
        # [longest block][Y]  see kernels.gradient
        self._v, self._alpha, self._residual = (np.empty((longest, Y)) for _ in range(3))
        self._loss = np.zeros(dataset.S)
        self._errors = np.zeros(dataset.S, np.int64)
        self._lam = np.empty((C, R * Y))             # bigram scores of each transition
        self._psi = chain_memory(C, Y)               # exp of them, and transposed
        groups = sorted(groups, key=len, reverse=True)                   # large tasks first
        self._group_bounds = np.cumsum([0] + [len(group) for group in groups]).astype(np.int32)
        self._group_columns = np.array([k for group in groups for k in group], np.int32)
        self._observed_bigrams = self._count_bigrams()
        self._barred = None if not observed_only else self._unobserved_weights()
        self._candidates, self._pairs = self._candidate_pairs() if observed_only else (None, None)
        size = C * Y * Y if self._pairs is None else len(self._pairs)
        copies = LANES if 8 * LANES * (size + C * Y) <= LANE_COPY_LIMIT else 1
        self._expected, self._begin = np.empty((copies, size)), np.empty((copies, C, Y))

    @property
    def F(self):
        return self.space.F

    @property
    def candidates(self):
        """How many weights may become non-zero."""
        return self.F if self._barred is None else self.F - int(np.count_nonzero(self._barred))

    def value_and_gradient(self, theta, grad):
        """The loss; its gradient goes to `grad`. NaN when scores leave the range of the recursion."""
        mode = self.inference
        value = self._evaluate(theta, grad, mode)
        if math.isnan(value) and mode == "auto":
            value = self._evaluate(theta, grad, "log")
        return value

    def _evaluate(self, theta, grad, mode):
        data = self.dataset
        mu, lam = self.space.split(theta)
        mu_grad, lam_grad = self.space.split(grad)
        for array in (grad, self._expected, self._begin):
            array[:] = 0.0
        pairs = None if mode == "log" else self._pairs
        expected = self._expected
        if pairs is None and self._pairs is not None:            # the log domain works on all pairs
            expected = np.zeros((len(expected), len(data.bigrams) * self.space.Y ** 2))
        chain = self._chain(lam, mode)
        for a, b in self._blocks:
            self.pool.run(
                gradient.losses, chain, mu, lam, data.unigrams, data.transition, data.bigrams, data.labels,
                data.offsets, a, b, self._v, self._alpha, self._residual, self._loss, self._errors)
            if not np.isfinite(self._loss[a:b]).all():
                return math.nan
            self.pool.run(
                gradient.accumulate, chain, data.unigrams, data.transition, data.offsets, a, b,
                self._group_bounds, self._group_columns, self._candidates, pairs,
                self._v, self._alpha, self._residual, mu_grad, expected, self._begin, LANES)
        gradient.add_expectations(chain, expected, self._begin, self._candidates, pairs, data.bigrams, lam_grad)
        where, counts = self._observed_bigrams
        lam_grad.reshape(-1)[where] -= counts
        if self._barred is not None:
            grad[self._barred] = 0.0
        self.token_errors = int(self._errors.sum())
        return math.fsum(self._loss)

    def _chain(self, lam, mode):
        """The transitions with these weights, every distinct one exponentiated once."""
        Y, R = self.space.Y, self.space.R
        self.pool.run(scoring.add_dense_rows, lam.reshape(self.space.Ob, R * Y), self.dataset.bigrams, self._lam)
        return chain_of_blocks(self._lam.reshape(-1, R, Y), mode, self.pool, self.constraint, self._psi)

    @staticmethod
    def _cut_blocks(offsets):
        """Ranges of sequences with about BLOCK_TOKENS tokens each."""
        blocks, first = [], 0
        for s in range(1, len(offsets)):
            if offsets[s] - offsets[first] >= BLOCK_TOKENS or s == len(offsets) - 1:
                blocks.append((first, s))
                first = s
        return blocks

    def _count_bigrams(self):
        """(indices, counts) of the label pairs seen with each bigram observation."""
        data, Y, R = self.dataset, self.space.Y, self.space.R
        follows = np.ones(data.N, bool)
        follows[data.offsets[:-1][np.diff(data.offsets) > 0]] = False
        tokens = np.flatnonzero(follows)
        found = []
        for observation in data.bigrams.T:                               # one B template after the other
            rows = observation[data.transition[tokens]].astype(np.int64)
            index = (rows * R + data.labels[tokens - 1]) * Y + data.labels[tokens]
            found.append(index[rows >= 0])
        if not found:
            return np.empty(0, np.int64), np.empty(0)
        where, counts = np.unique(np.concatenate(found), return_counts=True)
        return where, counts.astype(float)

    def _unobserved_weights(self):
        """[F] bool: weights of observations never seen with the label or label pair."""
        barred = np.ones(self.F, bool)
        mu, lam = self.space.split(barred)
        data = self.dataset
        for column in data.unigrams.T:
            seen = column >= 0
            mu[column[seen], data.labels[seen]] = False
        lam.reshape(-1)[self._observed_bigrams[0]] = False
        if self.space.begin_label:
            first = data.offsets[:-1][np.diff(data.offsets) > 0]
            for observation in data.bigrams.T:
                rows = observation[data.transition[first]]
                lam[rows[rows >= 0], self.space.Y, data.labels[first][rows >= 0]] = False
        return barred

    def _candidate_pairs(self):
        """(bounds [C + 1], pairs [n][2]): the label pairs that some observation of a transition may weigh."""
        C, Y, R = len(self.dataset.bigrams), self.space.Y, self.space.R
        where = self._observed_bigrams[0]
        rows, previous, label = where // (R * Y), where // Y % R, where % Y
        bounds = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=self.space.Ob))))
        found = [np.empty((0, 2), np.int32)]
        counts = np.zeros(C, np.int64)
        for c, observations in enumerate(self.dataset.bigrams):
            spans = [np.arange(bounds[o], bounds[o + 1]) for o in observations if o >= 0]
            at = np.concatenate(spans) if spans else np.empty(0, np.int64)
            pairs = np.unique(previous[at] * Y + label[at])
            found.append(np.stack((pairs // Y, pairs % Y), axis=1).astype(np.int32))
            counts[c] = len(pairs)
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), np.concatenate(found)

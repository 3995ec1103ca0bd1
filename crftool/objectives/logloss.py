"""The CRF's log loss: sum over sequences of log Z(x) - score(x, y).

Its gradient is expected minus observed feature counts (Sokolovska's thesis, eq. 3.5):

    d/d mu[o][y]        = sum over the tokens t that observe o  of  p(y_t = y | x) - 1{y_t = y}
    d/d lam[b][y'][y]   = the same for label pairs

The data are worked through in blocks of fixed size, so that what one phase writes is still in the cache
when the next reads it, and memory does not grow with the corpus.
"""

import copy
import math
from dataclasses import replace

import numpy as np

from crftool.corpus.subset import Columns, Subproblem
from crftool.kernels import gradient, pairs as label_pairs, scoring, twins
from crftool.kernels.transitions import chain_memory, chain_of_blocks
from crftool.objectives.lanes import lanes_of_columns
from crftool.objectives.stochastic import StochasticLoss

BLOCK_TOKENS = 8_192
LANES = 8                            # shares of the transition counts that may be added up at once
LANE_COPY_LIMIT = 1 << 25            # bytes that separate copies per lane may take
LIST_SHARE = 0.1                     # of the label pairs: so many at most are counted one by one, more all together


class LogLoss:
    """Value and gradient of the log loss over a Dataset; owns the workspaces."""

    def __init__(self, dataset, space, groups, pool, observed_only=False, inference="auto", constraint=None,
                 allowed=None):
        """`groups`: columns of the unigram matrix that may hold the same observation, together.
        `inference`: one of kernels.transitions.MODES.
        `allowed` [F] bool: the weights that may become non-zero, if not all; their gradient alone is told."""
        self.dataset, self.space, self.pool = dataset, space, pool
        self.inference, self.constraint, self.groups = inference, constraint, groups
        self.observed_only, self._merged, self._counts = observed_only, False, None
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
        self._lanes = lanes_of_columns(groups, 2 * pool.threads)
        self._observed_bigrams = count_label_pairs(dataset, space)
        # [F] bool  weights that must stay zero, or None
        self.barred = unobserved_weights(dataset, space) if observed_only else None
        if allowed is not None and not allowed.all():
            self.barred = ~allowed if self.barred is None else self.barred | ~allowed
        self._candidates, self._pairs = self._candidate_pairs()
        size = C * Y * Y if self._pairs is None else len(self._pairs)
        copies = LANES if 8 * LANES * (size + C * Y) <= LANE_COPY_LIMIT else 1
        self._expected, self._begin = np.empty((copies, size)), np.empty((copies, C, Y))

    @property
    def F(self):
        return self.space.F

    @property
    def candidates(self):
        """How many weights may become non-zero."""
        return self.F if self.barred is None else self.F - int(np.count_nonzero(self.barred))

    @property
    def counts(self):
        """[O]  how often each unigram observation occurs."""
        if self._counts is None:
            self._counts = self.dataset.count_unigrams(self.space)
        return self._counts

    @property
    def modes(self):
        """Ways of inference to try in turn: logarithms where scores leave the range of scaled numbers."""
        return ("auto", "log") if self.inference == "auto" else (self.inference,)

    def value_and_gradient(self, theta, grad):
        """The loss; its gradient goes to `grad`. NaN when scores leave the range of the recursion."""
        for mode in self.modes:
            grad[:] = 0.0
            value = self.add_gradient(theta, grad, mode)
            if not math.isnan(value):
                break
        return value

    def add_gradient(self, theta, grad, mode):
        """The loss; its gradient is added to `grad`, which is spoilt when the loss is NaN."""
        data = self.dataset
        mu, lam = self.space.split(theta)
        mu_grad, lam_grad = self.space.split(grad)
        for array in (self._expected, self._begin):
            array[:] = 0.0
        pairs = None if mode == "log" else self._pairs
        expected = self._expected
        if pairs is None and self._pairs is not None:            # the log domain works on all pairs
            expected = np.zeros((len(expected), len(data.bigrams) * self.space.Y ** 2))
        chain = self._chain(lam, mode)
        for a, b in self._blocks:
            if not self._forward_backward(chain, mu, lam, a, b, pairs, expected, self._begin):
                return math.nan
            if len(expected) != LANES:
                self._count_pairs(chain, a, b, pairs, expected, self._begin)
            self._accumulate(a, b, mu_grad)
        label_pairs.add_expectations(chain, expected, self._begin, self._candidates, pairs, data.bigrams, lam_grad)
        where, counts = self._observed_bigrams
        lam_grad.reshape(-1)[where] -= counts
        if self.barred is not None:
            grad[self.barred] = 0.0
        self.token_errors = int(self._errors.sum())
        return math.fsum(self._loss)

    def _forward_backward(self, chain, mu, lam, a, b, pairs, expected, begin):
        """Messages, residuals and losses of the sequences a to b - 1, and their label pairs if there is an array
        for each lane; False when scores are out of range."""
        data = self.dataset
        self.pool.run(
            gradient.losses, chain, mu, lam, data.unigrams, data.transition, data.bigrams, data.labels,
            data.offsets, a, b, self._v, self._alpha, self._residual, self._loss, self._errors,
            self._candidates, pairs, expected, begin, LANES)
        return bool(np.isfinite(self._loss[a:b]).all())

    def _count_pairs(self, chain, a, b, pairs, expected, begin):
        """Add the label pairs of the sequences a to b - 1, from the messages."""
        data = self.dataset
        self.pool.run(label_pairs.count_pairs, chain, data.transition, data.offsets, a, b, self._candidates, pairs,
                      self._v, self._alpha, self._residual, expected, begin, LANES)

    def _accumulate(self, a, b, out):
        """Add the residuals of the sequences a to b - 1 to the rows of their observations."""
        data = self.dataset
        self.pool.run(gradient.accumulate, data.unigrams, data.offsets[a], data.offsets[b], *self._lanes,
                      self._residual, out)

    def curvature(self, theta, out):
        """The diagonal of a matrix like the Hessian: sum over tokens of p (1 - p), p the probability of the
        label or the label pair. (Dependence between positions is left out.) False if scores are out of range.
        """
        data, mode = self.dataset, "scaled" if self.inference == "log" else self.inference
        mu, lam = self.space.split(theta)
        mu_out, lam_out = self.space.split(out)
        out[:] = 0.0
        sums = [(np.zeros_like(self._expected), np.zeros_like(self._begin)) for _ in range(2)]
        chain, nothing = self._chain(lam, mode), (np.empty((0, 0)), np.empty((0, 0, 0)))
        for a, b in self._blocks:
            if not self._forward_backward(chain, mu, lam, a, b, self._pairs, *nothing):
                return False
            n = int(data.offsets[b] - data.offsets[a])
            r = np.abs(self._residual[:n])           # p, or 1 - p where the label is the right one
            np.multiply(r, 1.0 - r, out=self._residual[:n])
            self._accumulate(a, b, mu_out)
            for expected, begin in sums:
                self._count_pairs(chain, a, b, self._pairs, expected, begin)
                for messages in (self._v, self._alpha):          # next for the squares of pair probabilities
                    np.square(messages[:n], out=messages[:n])
        label_pairs.add_expectations(chain, *sums[0], self._candidates, self._pairs, data.bigrams, lam_out)
        # psi of doubled weights is psi squared
        squares = chain_of_blocks(2.0 * self._lam.reshape(-1, self.space.R, self.space.Y), mode, self.pool,
                                  self.constraint, self._psi)
        second = np.zeros_like(lam_out)
        sums[1][1][:] = 0.0                          # the begin label's weights are complete
        label_pairs.add_expectations(squares, *sums[1], self._candidates, self._pairs, data.bigrams, second)
        lam_out -= second
        np.maximum(lam_out, 0.0, out=lam_out)        # rounding
        return True

    def screened(self, rho1, theta):
        """This loss without the unigram observations whose weights an l1 penalty keeps at zero: those seen at
        most rho1 times, since the gradient of a weight is below their number. What weights `theta` has for them,
        and for bigram observations that are never seen, become zero."""
        mu, lam = self.space.split(theta)
        rare, never = self.counts <= rho1, self.dataset.count_bigrams(self.space) == 0
        if theta.any():                              # memory of zeros that are not touched costs nothing
            mu[rare] = 0.0
            lam[never] = 0.0
        return self._without(rare)

    def merged(self, theta):
        """This loss with one unigram observation, the first, for all that occur at the same tokens: only the sum
        of their weights matters to it, and a penalty rho1 |theta| is least where all is one weight's. (One of
        rho2 / 2 |theta|^2 is not.) The weights that `theta` has for others go to the first."""
        if self._merged:
            return self
        mu, _ = self.space.split(theta)
        kind = twins.kinds(self.dataset.unigrams, self.space.O)
        first = np.empty(int(kind.max(initial=0)) + 1, np.int32)
        first[kind[::-1]] = np.arange(self.space.O - 1, -1, -1, dtype=np.int32)      # the last to be written stays
        other = np.flatnonzero(first[kind] != np.arange(self.space.O))
        if self.barred is not None:                  # twins that may have other weights are not alike
            barred, _ = self.space.split(self.barred)
            other = other[(barred[other] == barred[first[kind[other]]]).all(axis=1)]
        moved = other[mu[other].any(axis=1)]
        np.add.at(mu, first[kind[moved]], mu[moved])
        mu[moved] = 0.0
        dropped = np.zeros(self.space.O, bool)
        dropped[other] = True
        rest = self._without(dropped)
        rest._merged = True
        return rest

    def _without(self, dropped):
        """This loss without some unigram observations [O] bool, which keep their place in theta."""
        if not dropped.any():
            return self
        kept = np.where(dropped, np.int32(-1), np.arange(self.space.O, dtype=np.int32))
        rest = copy.copy(self)                       # it shares the workspaces
        rest._counts = None
        rest.dataset = replace(self.dataset, unigrams=np.append(kept, np.int32(-1))[self.dataset.unigrams])  # -1: the last
        return rest

    def stochastic(self):
        """The same loss for stochastic gradient descent."""
        return StochasticLoss(self.dataset, self.space, self.groups, self.pool, self.constraint, self.barred)

    def _chain(self, lam, mode):
        """The transitions with these weights, every distinct one exponentiated once."""
        Y, R = self.space.Y, self.space.R
        self.pool.run(scoring.add_dense_rows, lam.reshape(self.space.Ob, R * Y), self.dataset.bigrams, self._lam)
        return chain_of_blocks(self._lam.reshape(-1, R, Y), mode, self.pool, self.constraint, self._psi)

    @staticmethod
    def _cut_blocks(offsets):
        """Ranges of sequences with at least BLOCK_TOKENS tokens each, but the last."""
        blocks, first, S = [], 0, len(offsets) - 1
        while first < S:
            last = min(S, int(np.searchsorted(offsets, offsets[first] + BLOCK_TOKENS)))
            blocks.append((first, last))
            first = last
        return blocks

    def _candidate_pairs(self):
        """(bounds [C + 1], pairs [n][2]): the label pairs that some observation of a transition may weigh;
        (None, None) if these are many."""
        C, Y = len(self.dataset.bigrams), self.space.Y
        barred = None if self.barred is None else self.space.split(self.barred)[1][:, :Y]
        if barred is None or not barred.any():
            return None, None
        rows, previous, label = np.nonzero(~barred)
        bounds = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=self.space.Ob))))
        found = [np.empty((0, 2), np.int32)]
        counts = np.zeros(C, np.int64)
        for c, observations in enumerate(self.dataset.bigrams):
            spans = [np.arange(bounds[o], bounds[o + 1]) for o in observations if o >= 0]
            at = np.concatenate(spans) if spans else np.empty(0, np.int64)
            pairs = np.unique(previous[at] * Y + label[at])
            found.append(np.stack((pairs // Y, pairs % Y), axis=1).astype(np.int32))
            counts[c] = len(pairs)
        if counts.sum() > LIST_SHARE * C * Y * Y:
            return None, None
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), np.concatenate(found)

    def restricted(self, allowed):
        """(Subproblem, LogLoss) with only these weights [F] bool, the others being zero."""
        if self.barred is not None:
            allowed = allowed & ~self.barred
        sub = Subproblem(self.dataset, self.space, self.groups, Columns.of_dataset(self.dataset), allowed, self.counts)
        loss = LogLoss(sub.dataset, sub.space, sub.groups, self.pool, self.observed_only, self.inference,
                       self.constraint, sub.allowed)
        loss._merged, loss._counts = self._merged, self.counts[sub.rows[0]]
        return sub, loss


def count_label_pairs(data, space):
    """(indices into lam, counts) of the label pairs seen with each bigram observation."""
    follows = np.ones(data.N, bool)
    follows[data.offsets[:-1][np.diff(data.offsets) > 0]] = False
    tokens = np.flatnonzero(follows)
    found = []
    for observation in data.bigrams.T:                                   # one B template after the other
        rows = observation[data.transition[tokens]].astype(np.int64)
        index = (rows * space.R + data.labels[tokens - 1]) * space.Y + data.labels[tokens]
        found.append(index[rows >= 0])
    if not found:
        return np.empty(0, np.int64), np.empty(0)
    where, counts = np.unique(np.concatenate(found), return_counts=True)
    return where, counts.astype(float)


def unobserved_weights(data, space):
    """[F] bool: weights of observations never seen with the label or label pair."""
    barred = np.ones(space.F, bool)
    mu, lam = space.split(barred)
    for column in data.unigrams.T:
        seen = column >= 0
        mu[column[seen], data.labels[seen]] = False
    lam.reshape(-1)[count_label_pairs(data, space)[0]] = False
    if space.begin_label:
        first = data.offsets[:-1][np.diff(data.offsets) > 0]
        for observation in data.bigrams.T:
            rows = observation[data.transition[first]]
            lam[rows[rows >= 0], space.Y, data.labels[first][rows >= 0]] = False
    return barred

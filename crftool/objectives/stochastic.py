"""The log loss one sequence at a time, for stochastic gradient descent."""

import numpy as np

from crftool.corpus.dataset import Dataset, FeatureSpace
from crftool.kernels import stochastic


class StochasticLoss:
    def __init__(self, dataset, space, constraint=None, barred=None):
        """`barred` [F] bool: weights that must stay zero, or None."""
        self.dataset, self.space, self.constraint, self.barred = dataset, space, constraint, barred
        self._rules = (None, None, None) if constraint is None else tuple(
            constraint.scores(which) for which in (constraint.pairs, constraint.start, constraint.end))

    def descend(self, theta, order, steps, shrink=0.0, threshold=0.0, paid=None, due=0.0):
        """One step per sequence of `order` [n]; see kernels.stochastic.descend.

        Returns (sum of the losses, each at the weights that its sequence met; sequences left out because
        their scores were out of range; l1 penalty due after the pass).
        """
        data, (mu, lam) = self.dataset, self.space.split(theta)
        paid_mu, paid_lam = (None, None) if paid is None else self.space.split(paid)
        barred_mu, barred_lam = (None, None) if self.barred is None else self.space.split(self.barred.view(np.uint8))
        return stochastic.descend(
            mu, lam, data.unigrams, data.transition, data.bigrams, data.labels, data.offsets, order, steps,
            shrink, threshold, paid_mu, paid_lam, barred_mu, barred_lam, due, *self._rules)

    def sample(self, sequences):
        """(loss of these sequences alone, weights): a problem in their own observations, renumbered;
        `weights` [its F] are the places of its weights in theta."""
        data, space = self.dataset, self.space
        lengths = np.diff(data.offsets)[sequences]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        tokens = np.repeat(data.offsets[sequences] - offsets[:-1], lengths) + np.arange(offsets[-1])
        rows, unigrams = _renumber(data.unigrams[tokens])
        kinds, transition = np.unique(data.transition[tokens], return_inverse=True)
        blocks, bigrams = _renumber(data.bigrams[kinds])
        part = Dataset(offsets, unigrams, transition.reshape(-1).astype(np.int32), bigrams, data.labels[tokens])
        block = space.R * space.Y
        weights = np.concatenate((
            (rows[:, None] * space.Y + np.arange(space.Y)).reshape(-1),
            space.O * space.Y + (blocks[:, None] * block + np.arange(block)).reshape(-1)))
        return StochasticLoss(part, FeatureSpace(space.Y, len(rows), len(blocks), space.begin_label), self.constraint,
                              None if self.barred is None else self.barred[weights]), weights


def _renumber(ids):
    """(distinct ids, the matrix with their indices instead); -1, no observation, stays."""
    known, found = np.unique(ids, return_inverse=True)
    missing = int(len(known) > 0 and known[0] < 0)
    return known[missing:].astype(np.int64), (found.reshape(ids.shape) - missing).astype(np.int32)

"""The log loss one sequence at a time, for stochastic gradient descent."""

import numpy as np

from crftool.corpus.subset import Columns, Subproblem, take_sequences
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
        """(Subproblem, StochasticLoss) of these sequences alone, in the weights of their own observations."""
        part = Subproblem(take_sequences(self.dataset, sequences), self.space, [], Columns.of_dataset(self.dataset),
                          None if self.barred is None else ~self.barred)
        return part, StochasticLoss(part.dataset, part.space, self.constraint,
                                    None if part.allowed is None else ~part.allowed)

"""The log loss a few sequences at a time, for stochastic gradient descent."""

import time

import numpy as np

from crftool.corpus.subset import Columns, Subproblem, take_sequences
from crftool.kernels import stochastic
from crftool.kernels.pool import Pool, Vectors
from crftool.objectives.lanes import lanes_of_columns

GROUP = 4                            # sequences that are read before the weights move
FEWEST_GROUPS = 200                  # that an epoch has, if there are as many sequences
ROOM_LIMIT = 1 << 26                 # bytes that a group's messages may take
SMALLEST_SCALE = 1e-6                # of the weights, before they are multiplied by it
TRIALS = 20                          # one in so many groups shows how many threads are faster


class StochasticLoss:
    def __init__(self, dataset, space, groups, pool, constraint=None, barred=None, group=None):
        """`groups` as for LogLoss; `barred` [F] bool: weights that must stay zero, or None; `group`: sequences
        that are read at a time, if not as many as usual."""
        self.dataset, self.space, self.constraint, self.barred, self._pool = dataset, space, constraint, barred, pool
        self._rules = (None, None, None) if constraint is None else tuple(
            constraint.scores(which) for which in (constraint.pairs, constraint.start, constraint.end))
        lanes = 2 * pool.threads if pool.threads > 1 else 1
        self._groups, self._lanes = groups, lanes_of_columns(groups, lanes)
        longest = int(np.diff(dataset.offsets).max(initial=1))
        sizes = space.Y, space.R, len(dataset.bigrams), longest
        _, integers, doubles = stochastic.room_size(*sizes)
        self.group = group or max(1, min(GROUP, dataset.S // FEWEST_GROUPS, ROOM_LIMIT // (4 * integers + 8 * doubles)))
        self._rooms = stochastic.Rooms(self.group, min(lanes, space.Ob), *sizes)

    def descend(self, theta, order, steps, shrink=0.0, threshold=0.0, paid=None, due=0.0):
        """A step of the size `steps` [n] for each sequence of `order` [n], each at the weights from before its
        group; `shrink` and `threshold`: the shares of a step by which the penalties shrink all weights; `paid`
        [F] float32, `due`: what weights have had, and should have had, of the l1 penalty.

        Returns (sum of the losses, each at the weights that its sequence met; sequences left out because
        their scores were out of range; l1 penalty due after the pass).
        """
        loss, vectors = np.zeros(len(order)), Vectors(self._pool, self.space.F)
        starts = np.arange(0, len(order), self.group)
        kept = np.multiply.reduceat(1.0 - shrink * steps, starts)        # by each group
        dues = due + np.concatenate(([0.0], np.cumsum(threshold * np.add.reduceat(steps, starts))))
        first = 0
        while first < len(starts):
            scale = np.concatenate(([1.0], np.cumprod(kept[first:])))
            n = max(1, int(np.count_nonzero(scale[1:] >= SMALLEST_SCALE)))
            a, b = first * self.group, (first + n) * self.group
            self._visit(theta, order[a:b], steps[a:b], scale[:n + 1], dues[first:first + n + 1], paid, loss[a:b])
            if scale[n] != 1.0:
                vectors.scale(scale[n], theta)
            first += n
        if paid is not None:
            vectors.run(stochastic.settle, theta, paid, dues[-1])
        met = np.isfinite(loss)
        return float(loss[met].sum()), int(np.count_nonzero(~met)), float(dues[-1])

    def _visit(self, theta, order, steps, scale, due, paid, loss):
        """Groups after each other, as kernels.stochastic.descend does. Its threads wait for each other so often that
        one alone is faster while other programs want the processor: a few groups show which."""
        data, split = self.dataset, self.space.split
        paid_mu, paid_lam = (None, None) if paid is None else split(paid)
        barred_mu, barred_lam = (None, None) if self.barred is None else split(self.barred.view(np.uint8))
        settled = None if paid is None and self.barred is None else np.full(self.space.O + self.space.Ob + 1, -1, np.int32)
        groups, trial, first, pace = len(scale) - 1, max(1, (len(scale) - 1) // TRIALS), 0, {}
        pools = [self._pool, Pool()] if self._pool.threads > 1 else [self._pool]
        while first < groups:
            trying = len(pace) < len(pools)
            pool = pools[len(pace)] if trying else min(pace, key=pace.get)
            last = min(groups, first + trial) if trying else groups
            a, b, begun = first * self.group, last * self.group, time.perf_counter()
            pool.run(stochastic.descend, self._rooms, *split(theta), data.unigrams, data.transition, data.bigrams,
                     data.labels, data.offsets, *self._lanes, order[a:b], steps[a:b], scale[first:last + 1],
                     due[first:last + 1], paid_mu, paid_lam, barred_mu, barred_lam, settled, first, *self._rules,
                     loss[a:b], np.zeros(1, np.int64))
            pace[pool] = (time.perf_counter() - begun) / (last - first)
            first = last

    def sample(self, sequences):
        """(Subproblem, StochasticLoss) of these sequences alone, in the weights of their own observations."""
        part = Subproblem(take_sequences(self.dataset, sequences), self.space, self._groups,
                          Columns.of_dataset(self.dataset), None if self.barred is None else ~self.barred)
        return part, StochasticLoss(part.dataset, part.space, part.groups, self._pool, self.constraint,
                                    None if part.allowed is None else ~part.allowed, self.group)

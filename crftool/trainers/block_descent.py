"""Sparse blockwise coordinate descent (SBCD; Sokolovska et al. 2010, algorithm 2).

An iteration is a sweep over blocks, each the weights of one observation. Every FULL_SWEEP-th sweep visits
all blocks, the others only live ones: those with weights, or whose optimality conditions did not hold
when they were last visited. Blocks that the counts alone keep at zero are never visited: a weight's
gradient cannot exceed the number of its occurrences.

After each sweep a leap along the way of the last two, if it lowers the objective (`_leap`).

The norm of the pseudo-gradient is put together from the blocks as they are visited, before each moves.
Where that is small enough to stop, it is computed anew for all blocks at the same weights.
"""

import math

import numpy as np

from crftool.errors import NumericError
from crftool.kernels.blocks import BlockDescent
from crftool.model.weights import SparseWeights
from crftool.objectives.blockloss import BlockLoss
from crftool.trainers.base import Iteration, Result, conclude, resume
from crftool.trainers.checkpoint import sparse_state

FULL_SWEEP = 5
# A block is left alone if all blocks together could be as bad and yet be this share of the limit.
NEGLIGIBLE = 0.3
ROUNDING = 1e-15                     # relative error of the objective
PHASE = "blocks"                     # of a checkpoint
LONGEST_LEAP, SHORTEST_LEAP = 64.0, 0.05     # in steps of the last two sweeps
LONGER, SHORTER, TRIALS = 2.0, 0.3, 3        # the next leap after one that lowers the objective, or does not


def train(problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract. `theta` may also be SparseWeights."""
    return Descent(problem, theta, stop, report, by_coordinate=False).run()


def beyond(old, new, factor, may_cross=False):
    """new + factor (new - old), for SparseWeights. Weights that are zero in `new` stay zero, and no weight
    crosses it unless it may."""
    kinds = []
    for kind in ("unigrams", "bigrams"):
        bounds, columns, values = getattr(new, kind)
        place, keys, before = _keys(bounds, columns), _keys(*getattr(old, kind)[:2]), getattr(old, kind)[2]
        at = np.searchsorted(keys, place)
        known = at < len(keys)
        known[known] = keys[at[known]] == place[known]
        start = np.zeros(len(values))
        start[known] = before[at[known]]
        ahead = values + factor * (values - start)
        if not may_cross:
            ahead[np.sign(ahead) != np.sign(values)] = 0.0
        kept = ahead != 0.0
        rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))[kept]
        bounds = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(bounds) - 1)))).astype(np.int64)
        kinds.append((bounds, columns[kept], ahead[kept]))
    return SparseWeights(new.space, *kinds)


def _keys(bounds, columns):
    """One rising number per entry."""
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)) << 32 | columns


class Descent:
    def __init__(self, problem, theta, stop, report, by_coordinate):
        self.problem, self.theta, self.stop, self.report, self.penalty = problem, theta, stop, report, problem.penalty
        objective = problem.objective
        self.loss = loss = objective if isinstance(objective, BlockLoss) else BlockLoss.of(objective)
        start = theta if isinstance(theta, SparseWeights) else SparseWeights.from_dense(loss.space, theta)
        self._load(start)
        options = loss.options
        self.kernel = BlockDescent(
            loss.pool, loss.messages, loss.occurrences, loss.bases, loss.space.Ob, self.penalty,
            loss.observed_only, options.grow, options.no_revisit, options.exact_hessian)
        self.by_coordinate = by_coordinate
        self.limit = stop.tolerance * stop.scale
        blocks = loss.occurrences.blocks
        self.norms, self.worst = np.zeros(blocks), np.zeros(blocks)      # squared norms, largest entries
        self.all = self._unscreened()
        self.visits, self.last_norm = 0, math.inf
        self.points, self.leap = [], 1.0             # weights before the last two sweeps; how far to go on

    def _unscreened(self):
        """Blocks that may have weights: a gradient lies between -count and occurrences - count."""
        occurrences = self.loss.occurrences
        block = np.repeat(np.arange(occurrences.blocks), np.diff(occurrences.bounds))
        times = np.maximum(occurrences.times_unigram, occurrences.times_bigram)
        reach = np.bincount(block, times, occurrences.blocks)
        return np.flatnonzero((reach > self.penalty.rho1) | self.kernel.active_blocks()).astype(np.int32)

    def run(self):
        number, gain, saved = 0, 0.0, resume(PHASE, self.problem, self.stop)
        if saved is not None:
            number, gain = self._restore(saved)
        value = self._settle(self._objective())
        if math.isnan(value):
            raise NumericError("the scores of the initial weights are out of range; start from zero weights")
        if saved is None:
            self._sweep(self.all, update=False)
        while True:
            iteration = self._iteration(number, value)
            result = conclude(iteration, self.stop, self.report, self.problem, PHASE, lambda: self._state(gain))
            stuck = number % FULL_SWEEP == 1 and gain <= self.kernel.noise and iteration.gradient_norm >= self.last_norm
            self.last_norm = iteration.gradient_norm
            if result is None and stuck:
                result = Result(iteration, "no step lowers the objective any more: rounding errors prevail",
                                iteration.gradient_norm <= 10 * self.limit)
            if result is not None:
                return self._result(result)
            number += 1
            self.kernel.noise = ROUNDING * abs(value)
            gain = self._sweep(self.all if number % FULL_SWEEP == 1 else self._live(), update=True)
            value = self._leap(value - gain)
            if math.sqrt(self.norms.sum()) <= self.limit and not self.kernel.no_revisit:
                self._sweep(self.all, update=False)

    def _arrays(self):
        """What is known of each block."""
        kernel = self.kernel
        return {"norms": self.norms, "worst": self.worst, "damping": np.asarray(kernel.damping),
                "wide_damping": np.asarray(kernel.wide_damping), "visited": np.asarray(kernel.visited)}

    def _state(self, gain):
        points = {name: array for i, point in enumerate(self.points) for name, array in sparse_state(f"{i}.", point).items()}
        return {**sparse_state("", self._weights()), **points, "points": len(self.points), **self._arrays(),
                "all": self.all, "gain": gain, "noise": self.kernel.noise, "leap": self.leap, "visits": self.visits,
                "last_norm": self.last_norm}

    def _restore(self, saved):
        """(number of the iteration, decrease of the objective in its sweep)"""
        space, blocks = self.loss.space, self.loss.occurrences.blocks
        self._load(saved.weights("", space))
        self.points = [saved.weights(f"{i}.", space) for i in range(saved.count("points", 3))]
        for name, array in self._arrays().items():
            saved.fill(name, array)
            saved.require((array >= 0).all())
        self.all = saved.indices("all", np.int32, blocks)
        self.kernel.noise, self.last_norm = saved.value("noise", float), saved.value("last_norm", float)
        self.leap, self.visits = saved.positive("leap"), saved.count("visits")
        return saved.count("number"), saved.value("gain", float)

    def _leap(self, value):
        """Go on from the weights of the last sweep along the line from where the one before it began, if the
        objective falls; the objective is `value` here, and the result. (The method of parallel tangents: on
        a quadratic function, with exact steps, conjugate gradients.) Neighbouring blocks creep towards the
        optimum together, each sweep moving each a little; this makes up for it.
        """
        new = self._weights()
        for _ in range(TRIALS if self.points else 0):
            ahead = self._beyond(new, self.leap)
            self._load(ahead)
            height = self._objective()
            if height < value:
                new, self.leap = ahead, min(LONGEST_LEAP, LONGER * self.leap)
                break
            self.leap = max(SHORTEST_LEAP, SHORTER * self.leap)
        else:
            self._load(new)
            height = self._objective()
        self.points = [*self.points[-1:], new]
        return self._settle(height)

    def _beyond(self, new, length):
        return beyond(self.points[0], new, length, may_cross=self.penalty.rho1 == 0.0)

    def _weights(self):
        return SparseWeights(self.loss.space, self.loss.mu.dump(), self.loss.lam.dump())

    def _load(self, weights):
        self.loss.mu.load(*weights.unigrams)
        self.loss.lam.load(*weights.bigrams)

    def _live(self):
        live = self.kernel.active_blocks()
        return self.all[(live | (self.norms > 0.0))[self.all]]

    def _sweep(self, which, update):
        self.visits += len(which)
        negligible = NEGLIGIBLE * self.limit / math.sqrt(max(1, len(self.all)))
        status, gain = self.kernel.sweep(which, negligible, update, self.by_coordinate, self.norms, self.worst)
        if status == -1:
            raise MemoryError
        if status < 0:
            raise NumericError("weights have grown out of range; raise --rho2 or --rho1")
        return gain

    def _objective(self):
        """The objective at the weights in place, with their forward messages."""
        loss = self.loss.score()
        unigrams, bigrams = self.loss.mu.norms(), self.loss.lam.norms()
        self.active = unigrams[0], bigrams[0]
        groups = self.kernel.group_norms() if self.penalty.rho_group else 0.0
        return loss + self.penalty.value(unigrams[1] + bigrams[1], unigrams[2] + bigrams[2], groups)

    def _settle(self, value):
        """`value`, the objective at the weights in place; completes their messages, and lets the caller's theta follow."""
        weights = self._weights()
        if not self.loss.complete():
            return math.nan
        if isinstance(self.theta, SparseWeights):
            self.theta.unigrams, self.theta.bigrams = weights.unigrams, weights.bigrams
        else:
            weights.to_dense(self.theta)
        return value

    def _iteration(self, number, value):
        mu, lam = self.active
        return Iteration(number, value, mu + lam, self.loss.token_errors, math.sqrt(self.norms.sum()),
                         float(self.worst.max(initial=0.0)), self.visits, active_unigrams=mu, active_bigrams=lam)

    def _result(self, result):
        if not self.kernel.no_revisit:
            return result
        self.kernel.no_revisit = False
        self._sweep(self.all, update=False)
        norm, wrong = math.sqrt(self.norms.sum()), int(np.count_nonzero(self.worst > self.stop.tolerance * self.penalty.rho1))
        right = norm <= self.limit
        reason = result.reason + ("; no-revisit was right" if right else
                                  f"; no-revisit left {wrong} observations with weights that should not be zero (gradient norm {norm:.3g})")
        return Result(result.iteration, reason, result.converged and right)

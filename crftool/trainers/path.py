"""Regularisation paths: the same problem for a falling rho1, each optimum the start of the next.

The largest rho1 worth a look is the smallest one that leaves every weight at zero. At theta = 0 the
conditions of optimality read |gradient| <= rho1 for every weight, so it is the largest |gradient| there.
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from crftool.model.weights import SparseWeights
from crftool.objectives import ElasticNet
from crftool.objectives.blockloss import BlockLoss
from crftool.trainers import block_descent
from crftool.trainers.base import Problem, Result, Stop, start_evaluation

LEAST_BOUND = 0.5                    # share of rho1 below which a gradient is never taken for a sign of life
LARGEST_SHARE = 0.5                  # of the weights that it pays to cut out
BYTES_PER_WEIGHT = 4 * 8             # theta, two gradients and their absolute values, of what is not left out from the start
INNER = 8.0                          # times the tolerance that is asked for will do on the way to the last rho1


@dataclass(frozen=True)
class PathStep:
    """The optimum for one rho1; the weights are those of the path's `theta`."""

    rho1: float
    active_mu: int                   # non-zero weights of unigram
    active_lam: int                  # and of bigram observations
    objective: float
    tolerance: float                 # it was trained to
    seconds: float
    result: Result


def largest_rho1(objective, pool):
    """rho1_max: the smallest rho1 for which the empty model is optimal (whatever rho2)."""
    if isinstance(objective, BlockLoss):
        nothing = Problem(objective, ElasticNet(0.0, 0.0), pool)
        return block_descent.train(nothing, SparseWeights(objective.space), Stop(0.0, 1.0, 0), lambda _: None).iteration.violation
    grad = np.empty(objective.F)
    start_evaluation(Problem(objective, ElasticNet(0.0, 0.0), pool), np.zeros(objective.F), grad)
    return max(float(grad.max(initial=0.0)), -float(grad.min(initial=0.0)))


def geometric_grid(largest, smallest, n):
    """n values from `largest` down to `smallest`, by equal factors; only the latter if it is not smaller."""
    if n < 2 or smallest >= largest:
        return [smallest]
    factor = (smallest / largest) ** (1.0 / (n - 1))
    return [largest * factor ** i for i in range(n - 1)] + [smallest]


class _Walk:
    """What goes from optimum to optimum: `theta`."""

    def __init__(self, train, objective, theta, make_stop, pool, report, seed):
        self._train, self._objective, self._pool, self._seed = train, objective, pool, seed
        self.theta, self._make_stop, self._report = theta, make_stop, report
        self.stopped = False                         # whether `report` has ended a training

    def _listen(self, iteration):
        wish = self._report(iteration)
        self.stopped |= wish is not None
        return wish


class Path(_Walk):
    """Optima for one rho1 after the other, from `theta` on and in place.

    What no step of the path can want is left out from the start: observations too rare for its last rho1, and,
    without an l2 penalty, if `merge`, those that occur just where others do (LogLoss.screened, merged).

    Between neighbouring values few weights change from zero, so each training sees only those that may: the
    non-zero ones, and by the sequential strong rule (Tibshirani et al. 2012) those with

        |gradient at the last optimum| >= 2 rho1 - rho1 of the last optimum.

    An observation with such a weight is taken in as a whole. The rule can err. So the conditions of optimality
    are checked for all weights afterwards, and training goes on with those that violate them until the
    pseudo-gradient of all is as small as asked for.

    From one optimum to the next weights go on much as they did before: the last such step and its change of
    the gradient tell a quasi-Newton method, from its start, the curvature that matters most.
    """

    def __init__(self, train, objective, rho2, theta, make_stop, pool, report, seed=1, least=0.0, merge=False):
        """`train`: a trainer (crftool.trainers.base), `report` its callback. `make_stop(factor)` gives each
        training its own Stop, with `factor` times the tolerance. `seed`: of trainers that make random choices.
        `least`: no rho1 of the path is smaller. `merge`: whether twins may be merged, as the trainer does when it is
        by itself."""
        everything = np.ones(objective.F, bool)
        loss = objective.merged(theta) if merge and least > 0.0 and rho2 == 0.0 else objective
        self._sub, loss = loss.screened(least, theta).restricted(everything)         # to what still occurs
        if not loss.F:                               # trainers want at least one weight
            self._sub, loss = objective.restricted(everything)
        self._result = theta
        super().__init__(train, loss, self._sub.shrink(theta), make_stop, pool, report, seed)
        self._rho2 = rho2
        self._written = None                         # where the caller's theta is not zero
        self._grad = None                            # [F]  of the smooth part, at theta
        self._now = None                             # the Evaluation there, for the rho1 of that time
        self._last = np.inf                          # rho1 of the last optimum
        self._before = None                          # the optimum before it: where not zero, weights, gradient [F]

    def step(self, rho1, factor=1.0):
        """The PathStep of a rho1, smaller than those before. `factor`: of the tolerance."""
        begun, self._factor = time.monotonic(), factor
        problem = Problem(self._objective, ElasticNet(rho1, self._rho2), self._pool, self._seed)
        allowed = self._screen(problem, rho1)
        cold = self._before is None and rho1 < self._last        # the first, and no optimum near
        secant = None if allowed is None else self._secant()
        while True:
            result = self._run(problem, allowed, None if cold else secant)
            if allowed is None:
                self._grad = self._before = None
                break
            self._grad = np.empty(problem.F)
            self._now = problem.evaluate(self.theta, self._grad), rho1
            missing = self._missing(problem, rho1, allowed)
            if self.stopped or not result.converged or not missing.any():
                break
            allowed |= self._whole_observations(missing)
        self._last = rho1
        self._written = self._sub.write(self.theta, self._result, self._written)
        mu, lam = self._objective.space.split(self.theta)
        return PathStep(rho1, int(np.count_nonzero(mu)), int(np.count_nonzero(lam)), result.iteration.objective,
                        self._make_stop(factor).tolerance, time.monotonic() - begun, result)

    def _screen(self, problem, rho1):
        """[F] bool: the weights to train first; None for all."""
        if rho1 == 0.0:
            return None
        if self._grad is None:
            self._grad = np.empty(problem.F)
            self._now = start_evaluation(problem, self.theta, self._grad), rho1
            if not self.theta.any():                 # which is optimal for this rho1 and above
                self._last = float(np.abs(self._grad).max(initial=0.0))
        size = np.abs(self._grad)
        bound = max(2.0 * rho1 - self._last, LEAST_BOUND * rho1)
        allowed = (size >= min(bound, float(size.max(initial=0.0))))
        self._objective.space.split(allowed)[0][self._objective.counts <= rho1] = False
        allowed |= self.theta != 0.0
        allowed[np.argmax(size)] = True              # a problem has at least one weight
        allowed = self._whole_observations(allowed)
        return allowed if np.count_nonzero(allowed) < LARGEST_SHARE * len(allowed) else None

    def _missing(self, problem, rho1, allowed):
        """[F] bool: weights that should have been allowed; none where the pseudo-gradient of all is small enough."""
        pseudo, stop = np.empty(problem.F), self._make_stop(self._factor)
        norm, _ = problem.vectors.pseudo_gradient(self.theta, self._grad, rho1, pseudo)
        return ~allowed & (pseudo != 0.0) & (norm > stop.tolerance * stop.scale)

    def _whole_observations(self, chosen):
        """[F] bool: all weights of the observations with a chosen one. They cost nothing: inference works on
        all labels of an observation at once."""
        for part in self._objective.space.split(chosen):
            part[part.any(axis=tuple(range(1, part.ndim)))] = True
        return chosen

    def _secant(self):
        """(where, s, y): the step to this optimum from the one before, where either is not zero, and its change of the
        gradient there. Without such a step it is nowhere."""
        here = np.flatnonzero(self.theta)
        where, s, y = np.empty(0, np.int64), np.empty(0), np.empty(0)
        if self._before is not None:
            there, values, grad = self._before
            where = np.union1d(here, there)
            s, y = self.theta[where], self._grad[where] - grad[where]
            s[np.searchsorted(where, there)] -= values
        self._before = here, self.theta[here], self._grad
        return where, s, y

    def _run(self, problem, allowed, secant):
        """The Result of a training of the allowed weights."""
        if allowed is None:
            return self._train(problem, self.theta, self._make_stop(self._factor), self._listen)
        sub, objective = self._objective.restricted(allowed)
        theta = sub.shrink(self.theta)
        known = None
        if secant is not None:
            where, *values = secant
            secant = tuple(sub.shrink_at(where, part) for part in values)
            known = self._value_now(problem.penalty), sub.shrink(self._grad)
        problem = Problem(objective, problem.penalty, self._pool, self._seed, secant=secant, known=known)
        result = self._train(problem, theta, self._make_stop(self._factor), self._listen)
        self.theta[:] = sub.expand(theta)
        return result

    def _value_now(self, penalty):
        """The Evaluation at theta under a penalty with another rho1."""
        now, rho1 = self._now
        return replace(now, value=now.value + (penalty.rho1 - rho1) * float(np.abs(self.theta).sum()))


class BlockPath(_Walk):
    """The same for `bcd` and `cd`. Their weights are sparse and stay so: nothing here has the size of the feature
    set. Their sweeps see for themselves which observations matter."""

    def __init__(self, train, objective, penalty, theta, make_stop, pool, report, seed=1):
        """`objective`: a BlockLoss; `penalty`: with any rho1; `theta`: SparseWeights."""
        super().__init__(train, objective, theta, make_stop, pool, report, seed)
        self._penalty = penalty

    def step(self, rho1, factor=1.0):
        begun, stop = time.monotonic(), self._make_stop(factor)
        problem = Problem(self._objective, replace(self._penalty, rho1=rho1), self._pool, self._seed)
        result = self._train(problem, self.theta, stop, self._listen)
        last = result.iteration
        return PathStep(rho1, last.active_unigrams, last.active_bigrams, last.objective, stop.tolerance,
                        time.monotonic() - begun, result)


def follow(path, grid):
    """A PathStep for each rho1 of `grid`, falling; all but the last to INNER times the tolerance. When the path's
    `report` ends a training, the path ends with that step."""
    for rho1 in grid:
        yield path.step(rho1, 1.0 if rho1 == grid[-1] else INNER)
        if path.stopped:
            return

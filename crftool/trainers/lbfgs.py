"""L-BFGS for smooth problems, with or without a diagonal preconditioner.

The direction is that of the two-loop recursion (Nocedal & Wright, alg. 7.4), worked out on coefficients: it
lies in the span of the last steps s, their gradient differences y and the gradient, and only dot
products of these are needed. kernels.history has the two passes over memory that remain. The pairs are
kept in single precision: they only shape the direction.
"""

import math

import numpy as np

from crftool.kernels import history
from crftool.trainers.base import Iteration, Result, conclude, evaluate_again, resume, start_evaluation

MEMORY = 4                           # pairs that are kept; more of them while that costs little:
MOST_MEMORY, CHEAP = 20, 16 << 20    # pairs, bytes
ARMIJO = 1e-4                        # least share of the predicted decrease
WOLFE = 0.9                          # largest share of the slope that may remain
MAX_TRIALS = 30                      # evaluations in one line search
# theta and its gradient in double precision; the pairs and the preconditioner in single
BYTES_PER_WEIGHT = 2 * 8 + (2 * MEMORY + 1) * 4
PHASE = "l-bfgs"                     # of a checkpoint


class History:
    """The last pairs (s, y), in scaled coordinates, and the dot products of them and the gradient."""

    def __init__(self, vectors, w):
        self._vectors, self._w = vectors, w
        self._m = min(MOST_MEMORY, max(MEMORY, CHEAP // (8 * max(1, len(w)))))
        self._pairs = np.zeros((2 * self._m, len(w)), np.float32)
        self._gram = np.zeros((2 * self._m + 1, 2 * self._m + 1))     # s and y of slot j: 2 j, 2 j + 1; last: g
        self._ages = []                              # slots of the pairs, oldest first
        self._newest = 0
        self._mix, self._length = None, 1.0

    def __len__(self):
        return len(self._ages)

    def state(self):
        return {"w": self._w, "pairs": self._pairs, "gram": self._gram, "ages": self._ages, "newest": self._newest}

    def restore(self, saved):
        for name, array in (("w", self._w), ("pairs", self._pairs), ("gram", self._gram)):
            saved.fill(name, array)
        self._ages, self._newest = saved.slots("ages", self._m), saved.count("newest", self._m)

    def clear(self):
        self._ages = []

    def remember(self, grad):
        """Take in the gradient of a new point. (2-norm, largest entry) of it."""
        used = 2 * (max([self._newest, *self._ages]) + 1)
        sums = self._vectors.sums(history.remember, grad, self._w, self._pairs[:used], self._newest, width=3 * used + 3)
        totals = [math.fsum(column) for column in sums.T[:-1]]
        s, y, g = 2 * self._newest, 2 * self._newest + 1, 2 * self._m
        for j in range(used):
            for i, product in zip((s, y, g), totals[3 * j:3 * j + 3]):
                self._gram[i, j] = self._gram[j, i] = product
        self._gram[g, g] = totals[3 * used]
        return math.sqrt(totals[3 * used + 1]), float(sums[:, -1].max())

    def forget(self, grad):
        """Take back `remember`: the step will have another length."""
        self._vectors.run(history.forget, grad, self._w, self._pairs[2 * self._newest + 1])

    def accept(self):
        """Keep the newest pair, unless rounding has spoilt its curvature."""
        s, y = 2 * self._newest, 2 * self._newest + 1
        if self._gram[s, y] > 1e-10 * self._gram[y, y]:
            self._ages.append(self._newest)

    def move(self, theta, grad, scale):
        """Move theta by the quasi-Newton step; its slope. `scale`: of the first, a gradient step."""
        self._mix = self._coefficients(scale)
        slope = float(self._mix @ self._gram[:, -1])
        if not slope < 0.0:
            return slope
        if len(self._ages) == self._m:
            self._newest = self._ages.pop(0)         # its vectors are read before they are overwritten
        else:
            self._newest = min(set(range(self._m)) - set(self._ages))
        used = 2 * (max([self._newest, *self._ages]) + 1)
        self._vectors.run(history.step, theta, grad, self._w, self._pairs[:used],
                          np.append(self._mix[:used], self._mix[-1]), 1.0, self._newest)
        self._length = 1.0
        return slope

    def change_length(self, theta, length):
        """Let the step just made have another length; 1 is the full step."""
        self._vectors.run(history.rescale_step, theta, self._w, self._pairs[2 * self._newest], length / self._length)
        self._length = length

    def new_slope(self):
        """Gradient at the new point times the step of length 1."""
        return self._gram[2 * self._newest, -1] / self._length

    def _coefficients(self, scale):
        """-H g as a combination of the pairs and g, H the inverse Hessian's approximation."""
        gram, mix, alphas = self._gram, np.zeros(2 * self._m + 1), []
        mix[-1] = -1.0
        for j in reversed(self._ages):
            s, y = 2 * j, 2 * j + 1
            alphas.append(mix @ gram[:, s] / gram[s, y])
            mix[y] -= alphas[-1]
        if self._ages:
            s, y = 2 * self._ages[-1], 2 * self._ages[-1] + 1
            scale = gram[s, y] / gram[y, y]
        mix *= scale
        for j in self._ages:
            s, y = 2 * j, 2 * j + 1
            mix[s] += alphas.pop() - mix @ gram[:, y] / gram[s, y]
        return mix


def train(problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract."""
    return descend(problem, theta, stop, report, np.ones(problem.F, np.float32))


def descend(problem, theta, stop, report, w, scale=None, number=0):
    """L-BFGS with the preconditioner w^2. `scale`: of the first step, a multiple of the (preconditioned)
    gradient; by default such that it has length 1. `number`: of the first iteration."""
    grad, past = np.empty(problem.F), History(problem.vectors, w)
    saved = resume(PHASE, problem, stop)
    if saved is None:
        now = start_evaluation(problem, theta, grad)
        norm, violation = past.remember(grad)
    else:
        saved.fill("theta", theta)
        past.restore(saved)
        (norm, violation), number = saved.numbers("norms", 2, 2), saved.count("number")
        scale = saved.value("scale", float) if "scale" in saved else None
        now = evaluate_again(problem, theta, grad)

    def state():
        first = {} if scale is None else {"scale": scale}
        return {"theta": theta, "norms": [norm, violation], **first, **past.state()}

    while True:
        iteration = Iteration(number, now.value, now.active, now.token_errors, norm, violation, problem.evaluations)
        result = conclude(iteration, stop, report, problem, PHASE, state)
        if result is not None:
            return result
        first = scale or 1.0 / norm
        after = _search(problem, theta, grad, past, now.value, first)
        if after is None and len(past):              # the model of the curvature may be at fault
            past.clear()
            start_evaluation(problem, theta, grad)
            past.remember(grad)
            after = _search(problem, theta, grad, past, now.value, first)
        if after is None:
            return Result(iteration, "no step lowers the objective any more: rounding errors prevail",
                          norm <= 10 * stop.tolerance * stop.scale)
        past.accept()
        now, norm, violation = after
        number += 1


def _search(problem, theta, grad, past, value, scale):
    """A step with sufficient decrease and a flatter slope, by bisection and expansion of an interval.

    (Evaluation, norm and largest entry of the gradient) at the new point, where theta and grad are then;
    None, and theta as it was, if no step was found.
    """
    slope = past.move(theta, grad, scale)
    if not slope < 0.0:
        return None
    low, high, length = 0.0, math.inf, 1.0
    for _ in range(MAX_TRIALS):
        after = problem.evaluate(theta, grad)
        if not after.value <= value + ARMIJO * length * slope:           # also when NaN
            high = length
        else:
            norms = past.remember(grad)
            if past.new_slope() >= WOLFE * slope:
                return after, *norms
            past.forget(grad)
            low = length
        length = 2.0 * low if math.isinf(high) else 0.5 * (low + high)
        if math.isfinite(high) and high - low <= 1e-12 * high:
            break
        past.change_length(theta, length)
    if low > 0.0:                                                        # at least it descends
        past.change_length(theta, low)
        after = problem.evaluate(theta, grad)
        if after.value <= value:
            return after, *past.remember(grad)
    past.change_length(theta, 0.0)
    return None

"""L-BFGS for smooth problems, OWL-QN for those with an l1 penalty: one loop.

The direction comes from the two-loop recursion over the last MEMORY pairs (s, y) of steps and gradient
differences. OWL-QN (Andrew & Gao 2007) feeds it the pseudo-gradient, keeps only the coordinates that
agree with it, and searches within the orthant of the current point; the pairs use the gradient of the
smooth part. The pairs are kept in single precision: they only shape the direction, and it halves memory.
"""

import math

import numpy as np

from crftool.trainers.base import Iteration, Result, start_evaluation

MEMORY = 5
ARMIJO = 1e-4                        # least share of the predicted decrease
WOLFE = 0.9                          # largest share of the slope that may remain (l-bfgs)
MAX_TRIALS = 30                      # evaluations in one line search
# theta, two gradients, the trial point and the direction in double precision; the history in single
BYTES_PER_WEIGHT = 5 * 8 + 2 * MEMORY * 4


class History:
    """The last pairs (s, y), and their product with a vector."""

    def __init__(self, vectors, F):
        self._vectors, self._F = vectors, F
        self._pairs = []                             # [(s, y, s.y)], oldest first

    def clear(self):
        self._pairs = []

    def __len__(self):
        return len(self._pairs)

    def add(self, new_theta, theta, new_grad, grad):
        """Remember the step, unless rounding has spoilt its curvature."""
        if len(self._pairs) == MEMORY:
            s, y, _ = self._pairs.pop(0)
        else:
            s, y = np.empty(self._F, np.float32), np.empty(self._F, np.float32)
        self._vectors.store_difference(new_theta, theta, s)
        self._vectors.store_difference(new_grad, grad, y)
        sy, yy = self._vectors.dots_of_pair(s, y)
        if sy > 1e-10 * yy:
            self._pairs.append((s, y, sy))
            self._gamma = sy / yy

    def apply(self, direction):
        """direction = -H direction, H the inverse Hessian's approximation (Nocedal & Wright, alg. 7.4)."""
        vectors, steps = self._vectors, []
        for s, y, sy in reversed(self._pairs):
            steps.append(vectors.dot(s, direction) / sy)
            vectors.add_history(-steps[-1], y, direction)
        vectors.scale(-self._gamma if self._pairs else -1.0, direction)
        for s, y, sy in self._pairs:
            # `direction` is negative here, and so is the correction
            b = vectors.dot(y, direction) / sy
            vectors.add_history(-steps.pop() - b, s, direction)


def train(problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract."""
    vectors, rho1 = problem.vectors, problem.penalty.rho1
    grad, new_theta, new_grad = np.empty(problem.F), np.empty(problem.F), np.empty(problem.F)
    direction = np.empty(problem.F)
    pseudo = np.empty(problem.F) if rho1 > 0.0 else None
    history = History(vectors, problem.F)
    now = start_evaluation(problem, theta, grad)
    for number in range(1 << 62):
        # `direction` first holds the pseudo-gradient
        norm, violation = vectors.pseudo_gradient(theta, grad, rho1, direction)
        iteration = Iteration(number, now.value, now.active, now.token_errors, norm, violation,
                              problem.evaluations)
        ended = stop.check(iteration)
        wish = report(iteration)
        if ended is None and wish is not None:
            ended = wish, False
        if ended is not None:
            return Result(iteration, *ended)
        search = _Search(problem, theta, grad, direction, pseudo, new_theta, new_grad)
        after = search.run(history, now.value, norm)
        if after is None and len(history):           # the model of the curvature may be at fault
            history.clear()
            vectors.pseudo_gradient(theta, grad, rho1, direction)
            after = search.run(history, now.value, norm)
        if after is None:
            return Result(iteration, "no step lowers the objective any more: rounding errors prevail",
                          norm <= 10 * stop.tolerance * stop.scale)
        history.add(new_theta, theta, new_grad, grad)
        theta[:], now = new_theta, after
        grad, new_grad = new_grad, grad


class _Search:
    """One line search from theta; the accepted point and its gradient are left in new_theta, new_grad."""

    def __init__(self, problem, theta, grad, direction, pseudo, new_theta, new_grad):
        self.problem, self.vectors = problem, problem.vectors
        self.theta, self.grad, self.direction, self.pseudo = theta, grad, direction, pseudo
        self.new_theta, self.new_grad = new_theta, new_grad

    def run(self, history, value, norm):
        """The Evaluation of the accepted point; None if no step was found."""
        first = 1.0 if len(history) else 1.0 / norm
        if self.problem.penalty.rho1 > 0.0:
            return self._in_orthant(history, value, first)
        history.apply(self.direction)
        return self._wolfe(value, first)

    def _in_orthant(self, history, value, step):
        """Backtracking along the projected arc: f(x') <= f(x) + ARMIJO pg.(x' - x)."""
        self.pseudo[:] = self.direction
        history.apply(self.direction)
        self.vectors.align(self.direction, self.pseudo)
        for _ in range(MAX_TRIALS):
            predicted = self.vectors.orthant_step(self.theta, step, self.direction, self.pseudo, self.new_theta)
            if predicted >= 0.0:
                return None                          # the step has shrunk to nothing
            after = self.problem.evaluate(self.new_theta, self.new_grad)
            if after.value <= value + ARMIJO * predicted:
                return after
            step *= 0.5 if len(history) else 0.1
        return None

    def _wolfe(self, value, step):
        """A step with sufficient decrease and a flatter slope, by bisection and expansion of an interval."""
        slope = self.vectors.dot(self.grad, self.direction)
        if slope >= 0.0:
            return None
        low, high = 0.0, math.inf
        for _ in range(MAX_TRIALS):
            after = self._evaluate(step)
            if not after.value <= value + ARMIJO * step * slope:         # also when NaN
                high = step
            elif self.vectors.dot(self.new_grad, self.direction) >= WOLFE * slope:
                return after
            else:
                low = step
            step = 2.0 * low if math.isinf(high) else 0.5 * (low + high)
            if high - low <= 1e-12 * high:
                break
        return self._evaluate(low) if low > 0.0 else None                # at least it descends

    def _evaluate(self, step):
        self.vectors.add_scaled(step, self.direction, self.theta, self.new_theta)
        return self.problem.evaluate(self.new_theta, self.new_grad)

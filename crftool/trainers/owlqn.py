"""OWL-QN (Andrew & Gao 2007): L-BFGS for problems with an l1 penalty.

The two-loop recursion is fed the pseudo-gradient; of the direction only the coordinates are kept that agree
with it, and the search stays within the orthant of the current point. The pairs (s, y) use the gradient of
the smooth part and are kept in single precision: they only shape the direction, and it halves memory.
"""

import numpy as np

from crftool.trainers import lbfgs
from crftool.trainers.base import Iteration, Result, conclude, evaluate_again, resume, start_evaluation

MEMORY = 5
ARMIJO = 1e-4                        # least share of the predicted decrease
MAX_TRIALS = 30                      # evaluations in one line search
# theta, two gradients, the trial point, direction and pseudo-gradient in double precision; the pairs in single
BYTES_PER_WEIGHT = 6 * 8 + 2 * MEMORY * 4
PHASE = "owl-qn"                     # of a checkpoint


class History:
    """The last pairs (s, y), and their product with a vector."""

    def __init__(self, vectors, F):
        self._vectors, self._F = vectors, F
        self._pairs = []                             # [(s, y, s.y)], oldest first
        self._gamma = 1.0                            # s.y / y.y of the last one

    def clear(self):
        self._pairs = []

    def __len__(self):
        return len(self._pairs)

    def state(self):
        long = {name: vector for i, pair in enumerate(self._pairs) for name, vector in zip((f"s{i}", f"y{i}"), pair)}
        return {**long, "products": [sy for _, _, sy in self._pairs], "gamma": self._gamma}

    def restore(self, saved):
        self._gamma = saved.positive("gamma")
        for i, sy in enumerate(saved.numbers("products", MEMORY)):
            saved.require(sy > 0.0)
            s, y = (saved.array(f"{name}{i}", np.float32, (self._F,)).copy() for name in "sy")
            self._pairs.append((s, y, sy))

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
    if rho1 == 0.0:
        return lbfgs.train(problem, theta, stop, report)
    grad, new_theta, new_grad, direction, pseudo = (np.empty(problem.F) for _ in range(5))
    history, number = History(vectors, problem.F), 0
    saved = resume(PHASE, problem, stop)
    if saved is None:
        now = start_evaluation(problem, theta, grad)
    else:
        saved.fill("theta", theta)
        history.restore(saved)
        number, now = saved.count("number"), evaluate_again(problem, theta, grad)
    while True:
        norm, violation = vectors.pseudo_gradient(theta, grad, rho1, pseudo)
        iteration = Iteration(number, now.value, now.active, now.token_errors, norm, violation, problem.evaluations)
        result = conclude(iteration, stop, report, problem, PHASE,
                          lambda: {"theta": theta, **history.state()})
        if result is not None:
            return result
        search = (problem, theta, direction, pseudo, new_theta, new_grad)
        after = _search(*search, history, now.value, norm)
        if after is None and len(history):           # the model of the curvature may be at fault
            history.clear()
            after = _search(*search, history, now.value, norm)
        if after is None:
            return Result(iteration, "no step lowers the objective any more: rounding errors prevail",
                          norm <= 10 * stop.tolerance * stop.scale)
        history.add(new_theta, theta, new_grad, grad)
        theta[:], now = new_theta, after
        grad, new_grad = new_grad, grad
        number += 1


def _search(problem, theta, direction, pseudo, new_theta, new_grad, history, value, norm):
    """Backtracking along the projected arc: f(x') <= f(x) + ARMIJO pg.(x' - x).

    The Evaluation of the accepted point, which is left in new_theta, new_grad; None if no step was found.
    """
    vectors, step = problem.vectors, 1.0 if len(history) else 1.0 / norm
    direction[:] = pseudo
    history.apply(direction)
    vectors.align(direction, pseudo)
    for _ in range(MAX_TRIALS):
        predicted = vectors.orthant_step(theta, step, direction, pseudo, new_theta)
        if predicted >= 0.0:
            return None                              # the step has shrunk to nothing
        after = problem.evaluate(new_theta, new_grad)
        if after.value <= value + ARMIJO * predicted:
            return after
        step *= 0.5 if len(history) else 0.1
    return None

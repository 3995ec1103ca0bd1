"""Nonlinear conjugate gradients for smooth problems: the direction is -g + beta times the last one, with

    beta = g.(g - h) / h.h      Polak & Ribiere 1969, but not below zero
    beta = g.g / h.h            Fletcher & Reeves 1964

g the gradient, h the one before; Sokolovska's thesis compares the two. It keeps four long vectors. Every
RESTART iterations, and where the direction does not descend, it begins anew with -g.
"""

import math
from functools import partial

import numpy as np

from crftool.trainers.base import Iteration, Result, conclude, evaluate_again, resume, start_evaluation

ARMIJO = 1e-4                        # least share of the predicted decrease
WOLFE = 0.1                          # largest share of the slope that may remain: conjugacy needs an exact search
MAX_TRIALS = 30
RESTART = 100
BYTES_PER_WEIGHT = 4 * 8             # theta, two gradients, the direction
PHASE = "cg"                         # of a checkpoint


def _polak_ribiere(gg, gh, hh):
    return max(0.0, (gg - gh) / hh)


def _fletcher_reeves(gg, gh, hh):
    return gg / hh


def _train(beta, problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract."""
    vectors = problem.vectors
    grad, old_grad, direction = np.empty(problem.F), np.zeros(problem.F), np.zeros(problem.F)
    number, age, old_squares, rise = 0, 0, 1.0, 1.0
    saved = resume(PHASE, problem, stop)
    if saved is None:
        now = start_evaluation(problem, theta, grad)
    else:
        for name, vector in (("theta", theta), ("old_grad", old_grad), ("direction", direction)):
            saved.fill(name, vector)
        number, age = saved.count("number"), saved.count("age", RESTART)
        old_squares, rise = saved.positive("old_squares"), saved.value("rise", float)
        now = evaluate_again(problem, theta, grad)

    def state():
        return {"theta": theta, "old_grad": old_grad, "direction": direction, "age": age,
                "old_squares": old_squares, "rise": rise}

    while True:
        norm, violation = vectors.pseudo_gradient(theta, grad, 0.0, grad)
        iteration = Iteration(number, now.value, now.active, now.token_errors, norm, violation, problem.evaluations)
        result = conclude(iteration, stop, report, problem, PHASE, state)
        if result is not None:
            return result
        squares = norm * norm
        mix = beta(squares, vectors.dot(grad, old_grad), old_squares) if age else 0.0
        old_grad[:] = grad
        after = None
        for mix in (mix, 0.0):                       # if need be, once more along -g
            vectors.scale(mix, direction)
            vectors.add_scaled(-1.0, old_grad, direction, direction)
            slope = vectors.dot(old_grad, direction)
            if slope < 0.0:
                # the last step times its slope is a good guess of what this one will gain
                after, length = _search(problem, theta, grad, direction, slope, now.value,
                                        rise / -slope if number else 1.0 / norm)
            if after is not None:
                break
            age = 0
        if after is None:
            return Result(iteration, "no step lowers the objective any more: rounding errors prevail",
                          norm <= 10 * stop.tolerance * stop.scale)
        now, number, age = after, number + 1, (age + 1) % RESTART
        old_squares, rise = squares, -slope * length


def _search(problem, theta, grad, direction, slope, value, length):
    """(Evaluation, length of the step) where the slope is nearly flat, by bisection and expansion of an
    interval; theta and grad are those of that point. (None, 0), and theta as it was, if nothing descends."""
    low, high, at = 0.0, math.inf, 0.0
    for trial in range(MAX_TRIALS):
        problem.vectors.add_scaled(length - at, direction, theta, theta)
        at, after = length, problem.evaluate(theta, grad)
        new_slope = problem.vectors.dot(grad, direction)
        good = after.value <= value + ARMIJO * length * slope            # not when NaN
        if good and (abs(new_slope) <= -WOLFE * slope or trial > 5):
            return after, length
        if good and new_slope < 0.0:
            low = length
        else:
            high = length
        length = 2.0 * low if math.isinf(high) else 0.5 * (low + high)
        if math.isfinite(high) and high - low <= 1e-12 * high:
            break
    problem.vectors.add_scaled(-at, direction, theta, theta)
    return None, 0.0


train_polak_ribiere = partial(_train, _polak_ribiere)
train_fletcher_reeves = partial(_train, _fletcher_reeves)

"""Regularisation paths: the same problem for a falling rho1, each optimum the start of the next.

The largest rho1 worth a look is the smallest one that leaves every weight at zero. At theta = 0 the
conditions of optimality read |gradient| <= rho1 for every weight, so it is the largest |gradient| there.
"""

import time
from dataclasses import dataclass

import numpy as np

from crftool.objectives import ElasticNet
from crftool.trainers.base import Problem, Result, start_evaluation


@dataclass(frozen=True)
class PathStep:
    """The optimum for one rho1; the weights are those of the `theta` given to follow_path."""

    rho1: float
    active_mu: int                   # non-zero weights of unigram
    active_lam: int                  # and of bigram observations
    objective: float
    seconds: float
    result: Result


def largest_rho1(objective, pool):
    """rho1_max: the smallest rho1 for which the empty model is optimal (whatever rho2)."""
    grad = np.empty(objective.F)
    start_evaluation(Problem(objective, ElasticNet(0.0, 0.0), pool), np.zeros(objective.F), grad)
    return float(np.abs(grad).max(initial=0.0))


def geometric_grid(largest, smallest, n):
    """n values from `largest` down to `smallest`, by equal factors; only the latter if it is not smaller."""
    if n < 2 or smallest >= largest:
        return [smallest]
    factor = (smallest / largest) ** (1.0 / (n - 1))
    return [largest * factor ** i for i in range(n - 1)] + [smallest]


def follow_path(train, objective, rho2, grid, theta, make_stop, pool, report):
    """Train for each rho1 of `grid` in turn, from `theta` on and in place; yields a PathStep for each.

    `train`: a trainer (crftool.trainers.base). `make_stop()` gives each rho1 its own Stop. `report` is the
    trainer's; when it ends a training, the path ends with that step.
    """
    for rho1 in grid:
        begun, wishes = time.monotonic(), []

        def listen(iteration):
            wish = report(iteration)
            if wish is not None:
                wishes.append(wish)
            return wish

        result = train(Problem(objective, ElasticNet(rho1, rho2), pool), theta, make_stop(), listen)
        mu, lam = objective.space.split(theta)
        yield PathStep(rho1, int(np.count_nonzero(mu)), int(np.count_nonzero(lam)), result.iteration.objective,
                       time.monotonic() - begun, result)
        if wishes:
            return

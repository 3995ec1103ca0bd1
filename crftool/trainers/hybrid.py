"""The fast road to the optimum of a smooth problem: a stochastic start, then preconditioned L-BFGS.

A few epochs of stochastic descent come near the optimum for the price of a few gradients; there the
curvature of each weight is worth knowing, and L-BFGS scaled by it ends the work.
"""

import math

import numpy as np

from crftool.trainers import lbfgs
from crftool.trainers.base import conclude
from crftool.trainers.stochastic import Descent, estimate

MOST_EPOCHS = 8
LEAST_GAIN = 0.03                    # by which an epoch must lower the estimated objective to be followed by one
BYTES_PER_WEIGHT = lbfgs.BYTES_PER_WEIGHT


def train(problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract."""
    number = 0
    if problem.objective.inference != "log" and not theta.any():
        number, result = _start(problem, theta, stop, report)
        if result is not None:
            return result
    w = preconditioner(problem, theta)
    # As many weights move a score together as there are templates: each may take that share of its own step.
    data = problem.objective.dataset
    scale = None if w is None else 1.0 / max(1, data.unigrams.shape[1] + data.bigrams.shape[1])
    return lbfgs.descend(problem, theta, stop, report, np.ones(problem.F, np.float32) if w is None else w, scale, number)


def _start(problem, theta, stop, report):
    """(number of the next iteration, Result if training ends here) after epochs of stochastic descent."""
    descent, before = Descent(problem, theta), math.inf
    for number in range(1, MOST_EPOCHS + 1):
        value, active = descent.epoch()
        if not math.isfinite(value) or descent.skipped:
            theta[:] = 0.0                           # out of range: begin where it is safe
            return number, None
        result = conclude(estimate(number, value, active, problem), stop, report)
        if result is not None or value > (1.0 - LEAST_GAIN) * before:
            return number + 1, result
        before = value
    return MOST_EPOCHS + 1, None


def preconditioner(problem, theta):
    """[F] float32  1 / sqrt(rho2 + curvature) of each weight; None where that is no help."""
    curvature = np.empty(problem.F)
    if problem.objective.inference == "log" or not problem.objective.curvature(theta, curvature):
        return None
    curvature += max(problem.penalty.rho2, 1e-3 * float(curvature.max(initial=0.0)) or 1.0) \
        if problem.penalty.rho2 < 1e-6 else problem.penalty.rho2
    np.sqrt(curvature, out=curvature)
    np.reciprocal(curvature, out=curvature)
    return curvature.astype(np.float32)

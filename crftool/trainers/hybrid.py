"""The fast road to the optimum of a smooth problem: a stochastic start, then preconditioned L-BFGS.

A few epochs of stochastic descent come near the optimum for the price of a few gradients; there the
curvature of each weight is worth knowing, and L-BFGS scaled by it ends the work.
"""

import numpy as np

from crftool.kernels import history
from crftool.trainers import lbfgs
from crftool.trainers.stochastic import start

MOST_EPOCHS = 12
LEAST_GAIN = 0.01                    # by which an epoch must lower the estimated objective to be followed by one
BYTES_PER_WEIGHT = lbfgs.BYTES_PER_WEIGHT


def train(problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract."""
    if problem.checkpoints.at(lbfgs.PHASE):
        return lbfgs.descend(problem, theta, stop, report, np.empty(problem.F, np.float32))
    number, result = start(problem, theta, stop, report, MOST_EPOCHS, LEAST_GAIN)
    if result is not None:
        return result
    w = preconditioner(problem, theta)
    # As many weights move a score together as there are templates: each may take that share of its own step.
    data = problem.objective.dataset
    scale = None if w is None else 1.0 / max(1, data.unigrams.shape[1] + data.bigrams.shape[1])
    return lbfgs.descend(problem, theta, stop, report, np.ones(problem.F, np.float32) if w is None else w, scale, number)


def preconditioner(problem, theta):
    """[F] float32  1 / sqrt(rho2 + curvature) of each weight; None where that is no help."""
    curvature = np.empty(problem.F)
    if problem.objective.inference == "log" or not problem.objective.curvature(theta, curvature):
        return None
    # Where nothing bends, a step must still have an end.
    more, w = max(problem.penalty.rho2, 1e-6 * float(curvature.max(initial=1.0))), np.empty(problem.F, np.float32)
    problem.vectors.run(history.scales, curvature, more, w)
    return w

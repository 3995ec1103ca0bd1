"""Two plain minimisers of an EnumeratedLoss with an elastic net; slow, simple, and not ours to ship."""

import numpy as np


def objective(loss, theta, rho1, rho2):
    return loss.value(theta) + rho1 * np.abs(theta).sum() + 0.5 * rho2 * theta @ theta


def newton(loss, rho2, free=None, tolerance=1e-12):
    """The minimum for rho1 = 0 < rho2, over the `free` weights; the others stay 0."""
    free = np.ones(loss.F, bool) if free is None else free
    theta = np.zeros(loss.F)
    for _ in range(100):
        gradient = (loss.gradient(theta) + rho2 * theta)[free]
        if np.abs(gradient).max(initial=0.0) < tolerance:
            return theta
        hessian = loss.hessian(theta)[np.ix_(free, free)] + rho2 * np.eye(np.count_nonzero(free))
        step = np.zeros(loss.F)
        step[free] = -np.linalg.solve(hessian, gradient)
        theta = theta + _shortened(loss, theta, step, rho2) * step
    raise AssertionError("Newton's method did not converge")


def _shortened(loss, theta, step, rho2):
    """1, halved until the step does not climb; rounding must not stop the last steps."""
    size, start = 1.0, objective(loss, theta, 0.0, rho2)
    while objective(loss, theta + size * step, 0.0, rho2) > start + 1e-12 * abs(start):
        size /= 2
    return size


def soft_threshold(x, bound):
    return np.sign(x) * np.maximum(np.abs(x) - bound, 0.0)


def proximal_gradient(loss, rho1, rho2, free=None, tolerance=1e-10, limit=200_000):
    """The minimum with an l1 penalty: gradient steps of a safe length, each followed by the soft threshold
    (ISTA), with Nesterov's momentum, dropped whenever it points uphill."""
    free = np.ones(loss.F, bool) if free is None else free
    rate = 1.0 / (loss.curvature_bound() + rho2)
    theta = ahead = np.zeros(loss.F)
    momentum = 1.0
    for _ in range(limit):
        gradient = np.where(free, loss.gradient(ahead) + rho2 * ahead, 0.0)
        new = soft_threshold(ahead - rate * gradient, rate * rho1)
        if np.abs(new - ahead).max() < tolerance * rate:
            return new
        if (ahead - new) @ (new - theta) > 0:
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum ** 2)) / 2
        ahead = new + (momentum - 1) / following * (new - theta)
        theta, momentum = new, following
    raise AssertionError("the proximal gradient method did not converge")

"""The fast road to the optimum of a problem with an l1 penalty: a stochastic start, then a proximal
quasi-Newton method on a working set.

Few weights differ from zero or want to: those are the working set, chosen anew in each iteration. On it the
smooth part is modelled by g.d + d.B d / 2 with B the compact form of L-BFGS (Byrd, Nocedal & Schnabel 1994) on
top of the diagonal curvature of the problem, the l1 penalty is kept as it is, and coordinate descent finds the
step (Scheinberg & Tang 2016). History is kept for the weights that have ever been in the working set, so its
size follows the model, not the problem.

What cannot matter is left out from the start. An observation seen c times has gradients between -c and c:
where c <= rho1, its weights are zero at the optimum. Without an l2 penalty, of the observations that occur at
the same tokens one is enough.
"""

import math

import numpy as np

from crftool.kernels import proximal
from crftool.trainers.base import Iteration, Problem, Result, conclude, evaluate_again, resume, start_evaluation
from crftool.trainers.stochastic import start

MOST_EPOCHS = 12
LEAST_GAIN = 0.02                    # by which an epoch must lower the estimated objective to be followed by one
MEMORY = 20
LEAST_CURVATURE = 0.3
ARMIJO = 1e-3
MAX_TRIALS = 25
SWEEPS = 40                          # of coordinate descent on the model
MODEL_TOLERANCE = 0.01
# theta, its gradient, and what the stochastic start keeps or the curvature needs for a moment
BYTES_PER_WEIGHT = 8 + 8 + 8
PHASE = "working-set"                # of a checkpoint


class Model:
    """The quadratic model of the smooth part on the E weights that have ever been candidates."""

    def __init__(self):
        self.ever = np.empty(0, np.int64)            # [E]  which weights, rising
        self._curvature = np.empty(0)                # [E]  diagonal, rho2 included
        self._s, self._y = np.empty((0, 0)), np.empty((0, 0))                    # [m][E]  oldest step first
        self._shs, self._sy = np.empty((0, 0)), np.empty((0, 0))                 # [m][m]  S diag(curvature) S', S Y'
        self._sigma = 1.0                            # what the curvature is multiplied by: B0
        self.caution = 1.0                           # a factor more, after steps that were too long

    def state(self):
        return {"ever": self.ever, "curvature": self._curvature, "s": self._s, "y": self._y, "shs": self._shs,
                "sy": self._sy, "sigma": self._sigma, "caution": self.caution}

    def restore(self, saved, F):
        self.ever = saved.indices("ever", np.int64, F)
        E, m = len(self.ever), len(saved.array("s", float, (None, None)))
        self._curvature = saved.array("curvature", float, (E,)).copy()
        self._s, self._y = (saved.array(name, float, (m, E)).copy() for name in ("s", "y"))
        self._shs, self._sy = (saved.array(name, float, (m, m)).copy() for name in ("shs", "sy"))
        self._sigma, self.caution = saved.positive("sigma"), saved.positive("caution")
        saved.require(m <= MEMORY and (self._curvature > 0.0).all() and all(
            np.isfinite(array).all() for array in (self._curvature, self._s, self._y, self._shs, self._sy)))

    def admit(self, where, curvature):
        """Take in new candidates, with their `curvature` [F]; they did not move in the past, and what they saw of
        it is not known."""
        new = np.setdiff1d(where, self.ever, assume_unique=True)
        if len(new):
            at = np.searchsorted(self.ever, new)
            self.ever = np.insert(self.ever, at, new)
            self._curvature = np.insert(self._curvature, at, curvature[new])
            self._s, self._y = (np.insert(vectors, at, 0.0, axis=1) for vectors in (self._s, self._y))

    def remember(self, s, y):
        """A step and the change of the gradient, [E] each."""
        sy, yy = proximal.dot(s, y), proximal.dot(y, y)
        if sy <= 1e-10 * yy:
            return
        drop = int(len(self._s) == MEMORY)
        self._s, self._y = np.vstack((self._s[drop:], s)), np.vstack((self._y[drop:], y))
        m = len(self._s)
        row, column, across = np.empty(m), np.empty(m), np.empty(m)
        proximal.products(self._s, self._curvature * s, row)
        proximal.products(self._y, s, across)
        proximal.products(self._s, y, column)
        self._shs, self._sy = (np.pad(old[drop:, drop:], (0, 1)) for old in (self._shs, self._sy))
        self._shs[-1], self._shs[:, -1] = row, row
        self._sy[-1], self._sy[:, -1] = across, column
        self._sigma = proximal.dot(y, y / self._curvature) / sy

    def minimise(self, where, x, g, rho1):
        """The step [W] on the candidates `where` that minimises the model with the l1 penalty."""
        at, m = np.searchsorted(self.ever, where), len(self._s)
        base = self._sigma * self.caution * self._curvature
        u, v, d = np.empty((len(where), 2 * m)), np.empty((len(where), 2 * m)), np.empty(len(where))
        if m:
            lower = np.tril(self._sy, -1)
            middle = np.block([[self._sigma * self.caution * self._shs, lower],
                               [lower.T, -np.diag(np.diag(self._sy))]])
            proximal.low_rank(self._s, self._y, base, _inverse(middle), at, u, v)
        proximal.minimise_model(x, g, rho1, base[at], u, v, SWEEPS, MODEL_TOLERANCE, d)
        return d


def _inverse(matrix):
    """(np.linalg.eigh, and pinv with it, would wake the threads of a linear algebra library, which then spin beside
    ours: for 30 rows that costs ten times its own work.)"""
    try:
        return np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(matrix, hermitian=True)


def train(problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract."""
    penalty, loss = problem.penalty, problem.objective
    if stop.max_iterations != 0:                     # else these weights are wanted as they are
        loss = loss.screened(penalty.rho1, theta)
        if penalty.rho1 > 0.0 and penalty.rho2 == 0.0:
            loss = loss.merged(theta)
    if loss is problem.objective:
        return _train(problem, theta, stop, report)
    sub, loss = loss.restricted(np.ones(problem.F, bool))                # to what still occurs
    secant = problem.secant and tuple(map(sub.shrink, problem.secant))
    small, x, active = Problem(loss, penalty, loss.pool, problem.seed, problem.checkpoints, secant), sub.shrink(theta), None

    def listen(iteration):
        nonlocal active
        active = sub.write(x, theta, active)
        return report(iteration)

    result = _train(small, x, stop, listen)
    sub.write(x, theta, active)                      # a run that goes on from its end reports nothing
    problem.evaluations += small.evaluations
    return result


def _train(problem, theta, stop, report):
    number, result = 0, None
    if not problem.checkpoints.at(PHASE):
        number, result = start(problem, theta, stop, report, MOST_EPOCHS, LEAST_GAIN)
    return result or _descend(problem, theta, stop, report, number)


def _candidates(problem, theta, grad):
    """(indices of the candidates, norm and largest entry of the pseudo-gradient)"""
    vectors, rho1 = problem.vectors, problem.penalty.rho1
    sums = vectors.sums(proximal.count_candidates, theta, grad, rho1, width=3)
    bounds = np.concatenate(([0], np.cumsum(sums[:, 0].astype(np.int64))))
    where = np.empty(bounds[-1], np.int64)
    vectors.run(proximal.list_candidates, theta, grad, rho1, bounds[:-1], where)
    return where, math.sqrt(math.fsum(sums[:, 1])), float(sums[:, 2].max())


def _descend(problem, theta, stop, report, number):
    grad, model = np.empty(problem.F), Model()
    saved = resume(PHASE, problem, stop)
    if saved is None:
        curvature = _curvature(problem, theta, grad)             # before the gradient needs its memory
        now = start_evaluation(problem, theta, grad)
        if problem.secant is not None:
            s, y = problem.secant
            model.admit(np.flatnonzero(s), curvature)
            model.remember(s[model.ever], y[model.ever])
    else:
        saved.fill("theta", theta)
        model.restore(saved, problem.F)
        number = saved.count("number")
        curvature = saved.array("diagonal", np.float32, (problem.F,)).copy()
        now = evaluate_again(problem, theta, grad)

    def state():
        return {"theta": theta, "diagonal": curvature, **model.state()}

    while True:
        where, norm, violation = _candidates(problem, theta, grad)
        iteration = Iteration(number, now.value, now.active, now.token_errors, norm, violation, problem.evaluations)
        result = conclude(iteration, stop, report, problem, PHASE, state)
        if result is not None:
            return result
        model.admit(where, curvature)
        before, gradient = theta[model.ever], grad[model.ever]
        now = _search(problem, theta, grad, model, where, now.value)
        if now is None:
            return Result(iteration, "no step lowers the objective any more: rounding errors prevail",
                          norm <= 10 * stop.tolerance * stop.scale)
        model.remember(theta[model.ever] - before, grad[model.ever] - gradient)
        number += 1


def _curvature(problem, theta, work):
    """[F] float32  the diagonal that the model starts from; a little more, for weights that see no curvature yet.
    `work` [F] is written to."""
    if problem.objective.inference == "log" or not problem.objective.curvature(theta, work):
        work[:] = 1.0
    work += problem.penalty.rho2 + LEAST_CURVATURE
    return work.astype(np.float32)


def _search(problem, theta, grad, model, where, value):
    """Move theta along the model's step as far as the objective falls; None, with theta as it was, if it
    does not. `grad` is that of the point last tried."""
    x, g, rho1 = theta[where], grad[where], problem.penalty.rho1
    d = model.minimise(where, x, g, rho1)
    predicted = proximal.dot(g, d) + rho1 * float(np.abs(x + d).sum() - np.abs(x).sum())
    step = 1.0
    for trial in range(MAX_TRIALS):
        if not predicted < 0.0:
            break
        theta[where] = x + step * d if step < 1.0 else np.where(x + d == 0.0, 0.0, x + d)
        after = problem.evaluate(theta, grad)
        if after.value <= value + ARMIJO * step * predicted:
            model.caution = max(1.0, model.caution * (0.8 if trial == 0 else 1.5))
            return after
        step *= 0.5
    theta[where] = x
    return None

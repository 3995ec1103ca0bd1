"""The fast road to the optimum of a problem with an l1 penalty: a stochastic start, then a proximal
quasi-Newton method on a working set.

Few weights differ from zero or want to: those are the working set, chosen anew in each iteration. On it the smooth part is modelled by g.d + d.B d / 2 with B the compact form of L-BFGS
(Byrd, Nocedal & Schnabel 1994) on top of the diagonal curvature of the problem, the l1 penalty is kept as it
is, and coordinate descent finds the step (Scheinberg & Tang 2016). History is kept for the weights that have
ever been in the working set, so its size follows the model, not the problem. Nor does a step need more
than the rows of these weights: the gradient of all others is looked at now and then.

Screening: an observation seen c times has gradients between -c and c. Where c <= rho1, its weights are zero
at the optimum, and it is left out from the start.
"""

import math

import numpy as np

from crftool.kernels import proximal
from crftool.trainers.base import Iteration, Problem, Result, conclude, evaluate_again, resume, start_evaluation
from crftool.trainers.stochastic import start

MOST_EPOCHS = 12
LEAST_GAIN = 0.02                    # by which an epoch must lower the estimated objective to be followed by one
MEMORY = 10
LEAST_CURVATURE = 0.3
ARMIJO = 1e-3
MAX_TRIALS = 25
SWEEPS = 40                          # of coordinate descent on the model
MODEL_TOLERANCE = 0.01
MOST_ROWS = 0.5                      # a part with a larger share of the observations is not worth it
MOST_STEPS = 20                      # steps on a part before a look at the rest;
LOOK = 0.2                           # fewer, when the gradient has fallen to this share of what it was then
CHUNK = 1 << 16                      # numbers converted at once
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
        """Take in new candidates; they did not move in the past, and what they saw of it is not known."""
        new = np.setdiff1d(where, self.ever, assume_unique=True)
        if len(new):
            at = np.searchsorted(self.ever, new)
            self.ever = np.insert(self.ever, at, new)
            self._curvature = np.insert(self._curvature, at, curvature(new))
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
            proximal.low_rank(self._s, self._y, base, np.linalg.pinv(middle, hermitian=True), at, u, v)
        proximal.minimise_model(x, g, rho1, base[at], u, v, SWEEPS, MODEL_TOLERANCE, d)
        return d


def train(problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract."""
    whole = problem.objective
    problem.objective = whole.screened(problem.penalty.rho1)
    try:
        number, result = 0, None
        if not problem.checkpoints.at(PHASE):
            number, result = start(problem, theta, stop, report, MOST_EPOCHS, LEAST_GAIN)
        return result or _descend(problem, theta, stop, report, number)
    finally:
        problem.objective = whole


def _candidates(problem, theta, grad):
    """(indices of the candidates, norm and largest entry of the pseudo-gradient)"""
    vectors, rho1 = problem.vectors, problem.penalty.rho1
    sums = vectors.sums(proximal.count_candidates, theta, grad, rho1, width=3)
    bounds = np.concatenate(([0], np.cumsum(sums[:, 0].astype(np.int64))))
    where = np.empty(bounds[-1], np.int64)
    vectors.run(proximal.list_candidates, theta, grad, rho1, bounds[:-1], where)
    return where, math.sqrt(math.fsum(sums[:, 1])), float(sums[:, 2].max())


class Part:
    """The problem on the rows of some weights and on all transitions, the other weights being zero: a pass costs
    what these rows cost. If they are most of the problem, it is the problem itself."""

    def __init__(self, problem, weights):
        """`weights`: indices, rising."""
        space = problem.objective.space
        cut = space.O * space.Y
        rows = np.unique(weights[weights < cut] // space.Y)
        self.problem, self._names = problem, None
        if len(rows) <= MOST_ROWS * space.O:
            allowed = np.ones(problem.F, bool)
            allowed[:cut] = False
            space.split(allowed)[0][rows] = True
            sub, loss = problem.objective.restricted(allowed)
            width = space.R * space.Y
            self._names = np.concatenate((           # [weights of the part]  their indices, rising
                (sub.rows[0][:, None] * space.Y + np.arange(space.Y)).reshape(-1),
                (cut + sub.rows[1][:, None] * width + np.arange(width)).reshape(-1)))
            self.problem = Problem(loss, problem.penalty, problem.vectors.pool)

    @property
    def whole(self):
        return self._names is None

    def shrink(self, vector):
        return vector if self.whole else vector[self._names]

    def names(self, places):
        """Indices of weights, from those within the part."""
        return places if self.whole else self._names[places]

    def places(self, names):
        """The reverse."""
        return names if self.whole else np.searchsorted(self._names, names)

    def holds(self, names):
        return self.whole or bool((self._names[np.minimum(self.places(names), len(self._names) - 1)] == names).all())


def _descend(problem, theta, stop, report, number):
    """Steps are taken on a Part; now and then the whole gradient shows whether other rows have something to say."""
    grad, model, curvature, part = np.empty(problem.F), Model(), None, None
    seen, since = 1.0, 0                             # norm of the whole gradient, and steps since it was computed
    saved = resume(PHASE, problem, stop)
    if saved is not None:
        saved.fill("theta", theta)
        model.restore(saved, problem.F)
        number, seen, since = saved.count("number"), saved.positive("seen"), saved.count("since")
        if "diagonal" in saved:
            curvature = saved.array("diagonal", np.float32, (problem.F,)).copy()
    if since == 0:
        now = (start_evaluation if saved is None else evaluate_again)(problem, theta, grad)
        where, norm, violation = _candidates(problem, theta, grad)
    else:
        part = Part(problem, model.ever)
        x, g = part.shrink(theta), np.empty(part.problem.F)
        now = evaluate_again(part.problem, x, g)
        where, norm, violation = _candidates(part.problem, x, g)

    def state():
        diagonal = {} if curvature is None else {"diagonal": curvature}
        return {"theta": theta, **diagonal, **model.state(), "seen": seen, "since": since}

    while True:
        iteration = Iteration(number, now.value, now.active, now.token_errors, norm, violation, problem.evaluations)
        result = conclude(iteration, stop, report, problem, PHASE, state)
        if result is not None:
            return result
        if curvature is None:
            curvature = _curvature(problem, theta)
            if problem.secant is not None:
                s, y = problem.secant
                model.admit(np.flatnonzero(s), lambda new: curvature[new])
                model.remember(s[model.ever], y[model.ever])
        model.admit(where if since == 0 else part.names(where), lambda new: curvature[new])
        if since == 0:
            seen = norm
            if part is None or not part.holds(model.ever):
                part = x = g = None                  # give back their memory first
                part = Part(problem, model.ever)
            x, g, where = part.shrink(theta), part.shrink(grad), part.places(where)
        after = _step(problem, part, x, g, model, where, now.value)
        if after is None and since == 0:
            return Result(iteration, "no step lowers the objective any more: rounding errors prevail",
                          norm <= 10 * stop.tolerance * stop.scale)
        theta[part.names(where)] = x[where]
        if after is not None:
            now, number, since = after, number + 1, since + 1
            where, norm, violation = _candidates(part.problem, x, g)
        if part.whole:
            since = 0
        elif after is None or since == MOST_STEPS or norm <= max(LOOK * seen, stop.tolerance * stop.scale):
            now, since = problem.evaluate(theta, grad), 0
            where, norm, violation = _candidates(problem, theta, grad)


def _step(problem, part, x, g, model, where, value):
    """Move the weights x of the part; the Evaluation and its gradient g there. None, and x as it was, if no step
    lowers the objective."""
    ever = part.places(model.ever)
    before, gradient = x[ever], g[ever]
    after = _search(problem, part, x, g, model, where, value)
    if after is not None:
        model.remember(x[ever] - before, g[ever] - gradient)
    return after


def _curvature(problem, theta):
    """[F]  the diagonal that the model starts from; a little more, for weights that see no curvature yet"""
    curvature = np.empty(problem.F)
    if problem.objective.inference == "log" or not problem.objective.curvature(theta, curvature):
        curvature[:] = 1.0
    curvature += problem.penalty.rho2 + LEAST_CURVATURE
    return _in_single_precision(curvature)


def _in_single_precision(x):
    """The same numbers in the first half of the memory of x, whose second half goes back to the system: the peak
    of memory is here."""
    single = x.view(np.float32)
    for i in range(0, len(x), CHUNK):                # what is written lies before what is still to be read
        part = x[i:i + CHUNK].copy()
        single[i:i + len(part)] = part
    del single
    F = len(x)
    x.resize((F + 1) // 2, refcheck=False)
    return x.view(np.float32)[:F]


def _search(problem, part, theta, grad, model, where, value):
    """Move theta along the model's step as far as the objective falls; None, with theta as it was, if it
    does not. `grad` is that of the point last tried."""
    x, g, rho1 = theta[where], grad[where], problem.penalty.rho1
    d = model.minimise(part.names(where), x, g, rho1)
    predicted = float(g @ d) + rho1 * float(np.abs(x + d).sum() - np.abs(x).sum())
    step = 1.0
    for trial in range(MAX_TRIALS):
        if not predicted < 0.0:
            break
        theta[where] = x + step * d if step < 1.0 else np.where(x + d == 0.0, 0.0, x + d)
        after = part.problem.evaluate(theta, grad)
        problem.evaluations += not part.whole        # the part counts for itself
        if after.value <= value + ARMIJO * step * predicted:
            model.caution = max(1.0, model.caution * (0.8 if trial == 0 else 1.5))
            return after
        step *= 0.5
    theta[where] = x
    return None

"""What every trainer shares: the problem, the record of an iteration, when to stop, and the result.

A trainer is a function

    train(problem, theta, stop, report) -> Result

that improves `theta` in place, calls `report(Iteration)` after each iteration and ends when that returns
a reason to stop, or when `stop` finds one. Both happen in `conclude`, which also takes the checkpoints; a
trainer begins with what `resume` gives it, if that is not None.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from crftool.errors import NumericError
from crftool.kernels.pool import Vectors
from crftool.trainers.checkpoint import Checkpoints


class Problem:
    """An objective with its penalty: the function to minimise is

    f(theta) = loss(theta) + rho1 |theta|_1 + rho2 / 2 |theta|^2
    """

    def __init__(self, objective, penalty, pool, seed=1, checkpoints=None, secant=None, known=None):
        """`seed`: of the random choices of a trainer that makes some. `secant`: (s [F], y [F]), a step that led
        to the start and how it changed the smooth gradient, for trainers that can learn from it. `known`:
        (Evaluation, gradient [F]) at the start, if they are known; for the first look at it, before weights move."""
        self.objective, self.penalty, self.seed, self.secant, self.known = objective, penalty, seed, secant, known
        self.checkpoints = checkpoints or Checkpoints()
        self.vectors = Vectors(pool, objective.F)
        self.F = objective.F
        self.evaluations = 0

    def evaluate(self, theta, grad):
        """f(theta), NaN if out of range. `grad` receives the gradient of the smooth part."""
        self.evaluations += 1
        for mode in self.objective.modes:
            l1_norm, squared_norm, active = self.vectors.penalise(theta, self.penalty.rho2, grad)
            loss = self.objective.add_gradient(theta, grad, mode)
            if not math.isnan(loss):
                value = loss + self.penalty.value(l1_norm, squared_norm)
                return Evaluation(value, active, self.objective.token_errors)
        return Evaluation(math.nan, 0, 0)


@dataclass(frozen=True)
class Evaluation:
    value: float
    active: int                      # non-zero weights
    token_errors: int                # tokens whose most probable label is wrong


@dataclass(frozen=True)
class Iteration:
    number: int
    objective: float
    active: int
    token_errors: int | None         # None: not counted
    gradient_norm: float             # 2-norm of the pseudo-gradient; NaN: not known
    violation: float                 # its largest entry: how far the optimality conditions are from holding
    evaluations: int                 # of objective and gradient, so far
    estimated: bool = False          # the objective is a running estimate of a stochastic pass
    active_unigrams: int | None = None   # what `active` is made of, if the trainer knows
    active_bigrams: int | None = None


@dataclass(frozen=True)
class Result:
    iteration: Iteration             # the last one
    reason: str                      # why it stopped, for people
    converged: bool


class Stop:
    """Convergence: the objective has stopped falling AND the pseudo-gradient is small.

    Relative decrease over the last `WINDOW` iterations below `tolerance`, and the 2-norm of the
    pseudo-gradient below `tolerance` times `scale`, the norm of the observed feature counts. (The gradient
    is the difference of expected and observed counts, so this is a relative error that does not depend on
    the size of the corpus.)
    """

    WINDOW = 5

    def __init__(self, tolerance, scale, max_iterations=None):
        self.tolerance, self.scale, self.max_iterations = tolerance, scale, max_iterations
        self._values = deque(maxlen=self.WINDOW + 1)

    @property
    def window(self):
        """The last values of the objective."""
        return list(self._values)

    @window.setter
    def window(self, values):
        self._values = deque(values, maxlen=self.WINDOW + 1)

    def check(self, iteration):
        """(reason, converged), or None to go on."""
        if not iteration.estimated:
            self._values.append(iteration.objective)
        limit = self.tolerance * self.scale
        if iteration.gradient_norm == 0.0:
            return "the gradient is zero", True
        if len(self._values) > self.WINDOW and iteration.gradient_norm <= limit:
            decrease = (self._values[0] - self._values[-1]) / max(1e-300, abs(self._values[-1]))
            if decrease < self.tolerance:
                return (f"converged: decrease {decrease:.1e} over {self.WINDOW} iterations, "
                        f"gradient norm {iteration.gradient_norm:.3g} (limit {limit:.3g})"), True
        if self.max_iterations is not None and iteration.number >= self.max_iterations:
            return f"iteration limit {self.max_iterations} reached", False
        return None


def conclude(iteration, stop, report, problem, phase, state):
    """Report an iteration; the Result if training ends here, else None.

    `state()` is what this phase of the trainer needs to go on from here (see trainers.checkpoint); `resume`
    begins with it, and then comes here again with the same iteration.
    """
    wish, window, checkpoints = None, stop.window, problem.checkpoints
    ended, resumed, checkpoints.resumed = stop.check(iteration), checkpoints.resumed, False
    if not resumed:
        wish = report(iteration)
        checkpoints.offer(phase, lambda: {**state(), "number": iteration.number, "window": window,
                                          "evaluations": problem.evaluations},
                          urgent=wish is not None or ended is not None and not ended[1])
    if ended is None and wish is not None:
        ended = wish, False
    return None if ended is None else Result(iteration, *ended)


def resume(phase, problem, stop):
    """The Saved state of a run that was in this phase, if there is one to go on from."""
    saved = problem.checkpoints.resume(phase)
    if saved is not None:
        stop.window = saved.numbers("window", stop.WINDOW + 1)
        problem.evaluations = saved.count("evaluations")
    return saved


def evaluate_again(problem, theta, grad):
    """f at the point of a resumed run, whose evaluation has been counted."""
    evaluation = start_evaluation(problem, theta, grad)
    problem.evaluations -= 1
    return evaluation


def count_scale(dataset, space):
    """The size of the feature counts: 2-norm of the counts of the unigram observations (whatever their
    label) and of one more per token, for templates without unigrams."""
    counts = dataset.count_unigrams(space).astype(float)
    return float(np.sqrt(np.sum(counts * counts) + dataset.N)) or 1.0


def start_evaluation(problem, theta, grad):
    """f at the start, which must be finite."""
    if problem.known is not None:
        (evaluation, grad[:]), problem.known = problem.known, None
        return evaluation
    evaluation = problem.evaluate(theta, grad)
    if math.isnan(evaluation.value):
        raise NumericError("the scores of the initial weights are out of range; start from zero weights")
    return evaluation

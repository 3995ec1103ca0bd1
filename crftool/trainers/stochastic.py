"""Stochastic gradient descent: a step after every few sequences, in random order (objectives.stochastic).

`sgd` has the l2 penalty and Bottou's schedule: step eta / (1 + eta rho2 k / S) at the k-th of S sequences, so
that it falls as 1 / (rho2 k) in the end. `sgd-l1` has Tsuruoka's cumulative l1 penalty (and the l2 penalty,
if any) and his schedule eta DECAY^(k / S). The first step, eta, is found by trial on a sample.

The objective that is reported on the way is the sum of the losses that the sequences met, plus the penalty:
an estimate, and too high a one. At the end the true one is computed. Optima are approached, not reached.
"""

import math

import numpy as np

from crftool.errors import NumericError
from crftool.kernels import proximal
from crftool.trainers.base import Iteration, Result, conclude, resume

SAMPLE = 24_000                      # tokens of the sequences that the first step is tried on
FIRST_TRIAL = 0.1                    # the first step to try; then others, by these factors
COARSE, FINE = 4.0, 2.0
MOST_TRIALS = 16
BOLDER = 4.0                         # with an l1 penalty; falling steps make up for more noise in the first epochs
DECAY = 0.85                         # of the steps with an l1 penalty, per epoch
WINDOW = 5                           # epochs
# An epoch is worth it while WINDOW of them lower the objective by this many times the tolerance
PATIENCE = 100.0
BYTES_PER_WEIGHT = 8 + 8             # theta; its gradient for the last check
BYTES_PER_WEIGHT_L1 = BYTES_PER_WEIGHT + 4
PHASE = "epochs"                     # of a checkpoint


class Descent:
    """Epochs of stochastic descent on a problem, one after the other."""

    def __init__(self, problem, theta, saved=None):
        """`saved`: the state to go on from."""
        self.problem, self.theta, problem.known = problem, theta, None
        self._loss, self._penalty = problem.objective.stochastic(), problem.penalty
        self._random = np.random.default_rng(problem.seed)
        self._S = self._loss.dataset.S
        self._paid = np.zeros(problem.F, np.float32) if self._penalty.rho1 > 0.0 else None
        self._due, self._visits = 0.0, 0
        self.skipped = 0                             # sequences whose scores were out of range, in the last epoch
        self.values, self.active = [], 0             # objectives of the epochs, estimated; non-zero weights
        self._resumed = saved is not None
        if saved is None:
            self.eta = self._calibrate()
        else:
            self._restore(saved)

    def state(self):
        paid = {} if self._paid is None else {"paid": self._paid}
        return {"theta": self.theta, **paid, "eta": self.eta, "due": self._due, "visits": self._visits,
                "values": self.values, "active": self.active, "random": self._random.bit_generator.state}

    def _restore(self, saved):
        saved.fill("theta", self.theta)
        if self._paid is not None:
            saved.fill("paid", self._paid)
        self.eta, self._due = saved.positive("eta"), saved.value("due", float)
        self._visits, self.active = saved.count("visits"), saved.count("active")
        self.values = saved.numbers("values", saved.count("number"), max(1, saved.count("number")))
        try:
            self._random.bit_generator.state = saved.value("random", dict)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise saved.damaged() from None

    def numbers(self, end):
        """Numbers of the epochs to come, from 1 on; the first may be the one that a resumed run had ended."""
        return range(max(1, len(self.values)), end)

    def epoch(self, last=False):
        """The running estimate of the objective, and the number of non-zero weights. In a `last` one steps fall
        to zero, which takes the noise out of the weights as averaging them would."""
        if not self._resumed:
            value, self.active = self._epoch(last)
            self.values.append(value)
        self._resumed = False
        return self.values[-1], self.active

    def _epoch(self, last):
        order = self._random.permutation(self._S)
        steps = self._steps(self.eta, self._visits + np.arange(self._S))
        if last:
            steps *= 1.0 - np.arange(self._S) / self._S
        self._visits += self._S
        loss, self.skipped, self._due = self._loss.descend(
            self.theta, order, steps, self._penalty.rho2 / self._S, self._penalty.rho1 / self._S, self._paid, self._due)
        l1_norm, squared_norm, active = self.problem.vectors.norms(self.theta)
        return loss + self._penalty.value(l1_norm, squared_norm), active

    def _steps(self, eta, visits):
        """Sizes of the steps at the visits [n], counted from 0."""
        if self._penalty.rho1 > 0.0:
            steps = eta * DECAY ** (visits / self._S)
        else:
            steps = eta / (1.0 + eta * self._penalty.rho2 * visits / self._S)
        return np.minimum(steps, 0.5 * self._S / self._penalty.rho2) if self._penalty.rho2 > 0.0 else steps

    def _calibrate(self):
        """The first step: that which lowers the objective most on a sample, half of which it learns from (Bottou 2010;
        the other half is there so that noise counts)."""
        drawn = self._random.permutation(self._S)
        tokens = np.cumsum(np.diff(self._loss.dataset.offsets)[drawn])
        drawn = drawn[:1 + int(np.searchsorted(tokens, SAMPLE))]
        part, loss = self._loss.sample(drawn)
        judged = np.arange(len(drawn))
        learned = judged[:max(1, len(drawn) // 2)]
        start, tried, eta = part.shrink(self.theta), {}, FIRST_TRIAL

        def value(eta):
            if eta not in tried:
                tried[eta] = self._try(loss, start.copy(), eta, learned, judged)
            return tried[eta]

        # Coarse steps first: where the descent is wild its value says little about the one next to it.
        for factor in (COARSE, FINE):
            direction = factor if value(factor * eta) < value(eta) else 1.0 / factor
            while len(tried) < MOST_TRIALS and (value(direction * eta) < value(eta) or math.isinf(value(eta))):
                eta *= direction
        if math.isinf(value(eta)):
            raise NumericError("no step of stochastic descent keeps scores in range; use -a l-bfgs or -a owl-qn")
        return BOLDER * eta if self._penalty.rho1 > 0.0 else eta

    def _try(self, loss, theta, eta, learned, judged):
        """The objective of the sequences `judged` after an epoch on `learned`; infinite if out of range."""
        penalty, n = self._penalty, len(learned)
        paid = None if self._paid is None else np.zeros(len(theta), np.float32)
        loss.descend(theta, learned, np.full(n, eta), penalty.rho2 / self._S, penalty.rho1 / self._S, paid)
        value, failed, _ = loss.descend(theta, judged, np.zeros(len(judged)))
        value += len(judged) / self._S * penalty.value(float(np.abs(theta).sum()), proximal.dot(theta, theta))
        return math.inf if failed or not math.isfinite(value) else value


def train(problem, theta, stop, report):
    """Minimise as far as it goes; see crftool.trainers.base for the contract."""
    descent = Descent(problem, theta, resume(PHASE, problem, stop))
    values = descent.values
    for number in descent.numbers(1 << 62):
        value, active = descent.epoch()
        if not math.isfinite(value):
            raise NumericError("stochastic descent has left the range of numbers; use -a l-bfgs or -a owl-qn")
        result = conclude(_estimate(number, value, active, problem), stop, report, problem, PHASE, descent.state)
        if result is not None:
            return _true_end(problem, theta, stop, number, result.reason, report)
        if len(values) > WINDOW and values[-1 - WINDOW] - value < PATIENCE * stop.tolerance * abs(value):
            reason = f"epochs of stochastic descent gain less than {PATIENCE * stop.tolerance:.1e} in {WINDOW}"
            return _true_end(problem, theta, stop, number, reason, report)


def start(problem, theta, stop, report, most_epochs, least_gain):
    """(number of the next iteration, Result if training ends here): epochs of stochastic descent from zero
    weights, as a start for another method. After an epoch that lowers the estimated objective by less than the
    share `least_gain` there is one more, the last."""
    if problem.objective.inference == "log" or theta.any() or problem.secant is not None or stop.max_iterations == 0:
        return 0, None
    descent = Descent(problem, theta, resume(PHASE, problem, stop))
    values = descent.values
    for number in descent.numbers(most_epochs + 1):
        # Where an estimate rises, steps are still too large, not too small.
        before, after = values[number - 3:number - 1] if number > 2 else (math.inf, 0.0)
        last = number == most_epochs or 0.0 <= before - after < least_gain * before
        value, active = descent.epoch(last)
        if not math.isfinite(value) or descent.skipped:
            theta[:] = 0.0                           # out of range: begin where it is safe
            return number, None
        result = conclude(_estimate(number, value, active, problem), stop, report, problem, PHASE, descent.state)
        if result is not None or last:
            return number + 1, result


def _estimate(number, value, active, problem):
    return Iteration(number, value, active, None, math.nan, math.nan, problem.evaluations, estimated=True)


def _true_end(problem, theta, stop, number, reason, report):
    """The Result with the true objective and gradient at the end."""
    grad = np.empty(problem.F)
    now = problem.evaluate(theta, grad)
    norm, violation = problem.vectors.pseudo_gradient(theta, grad, problem.penalty.rho1, grad)
    iteration = Iteration(number + 1, now.value, now.active, now.token_errors, norm, violation, problem.evaluations)
    report(iteration)
    limit = stop.tolerance * stop.scale
    return Result(iteration, f"{reason}; objective {now.value:.4f}, gradient norm {norm:.3g} "
                             f"({norm / limit:.0f} times the limit)", norm <= limit)

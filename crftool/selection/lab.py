"""Where models are tried: a Lab trains on parts of the data and scores on others, and remembers the scores.

It has one split into training and test data (a dev file) or several (folds). Splits, and neighbouring
settings, are worked on side by side, with one thread each; one alone gets all threads. Neither changes a
result.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from crftool.decode import Lattices, decode
from crftool.evaluate import Scores, score
from crftool.kernels.pool import Pool
from crftool.model.weights import TrainedWeights
from crftool.objectives import ElasticNet, LogLoss
from crftool.corpus.subset import Columns, Subproblem, fold_of_sequences, take_sequences
from crftool.trainers import TRAINERS, default_trainer
from crftool.trainers.base import Stop, count_scale
from crftool.trainers.path import Path


class Interrupted(Exception):
    """The user has asked to stop."""


@dataclass(frozen=True)
class Outcome:
    """What a setting has earned."""

    error: float                     # wrong tokens, in percent
    f1: float
    deviation: float                 # standard error of the score that decides
    active_u: float                  # non-zero weights of unigram observations, a mean over folds
    active_b: float                  # and of bigram observations
    seconds: float


@dataclass(frozen=True)
class Training:
    """How models are trained, but for their penalties."""

    algorithm: str = "auto"
    tolerance: float = 1e-5
    max_iterations: int = 10_000
    observed_only: bool = False
    inference: str = "auto"


@dataclass(frozen=True)
class Split:
    train: object                    # Dataset
    test: object                     # Dataset, or None


class Lab:
    def __init__(self, encoder, dataset, dev=None, labels=None, folds=None, seed=1, training=Training(),
                 constraint=None, by="error", threads=1, requests=(), memory=None):
        """Either `dev` (Dataset) with its `labels`, or a number of `folds`.

        `requests` is not empty once the user wants to stop. `memory`: a mapping from setting to Outcome,
        which is asked before training and told after.
        """
        self.encoder, self.dataset, self.training, self.constraint = encoder, dataset, training, constraint
        self.by, self.requests = by, requests
        self.unfinished = []                         # why trainings ended that did not reach their optimum
        self.memory = {} if memory is None else memory
        self.space, self.groups = encoder.space, encoder.unigrams.groups()
        self.labels = labels or encoder.labels
        self.pool, self._alone = Pool(threads), Pool(1)
        self._workers = ThreadPoolExecutor(threads) if threads > 1 else None
        if folds:
            fold = fold_of_sequences(dataset.S, folds, seed)
            self.splits = [Split(take_sequences(dataset, np.flatnonzero(fold != k)),
                                 take_sequences(dataset, np.flatnonzero(fold == k))) for k in range(folds)]
        else:
            self.splits = [Split(dataset, dev)]
        self.folds, self._dev = folds, dev

    def close(self):
        self.pool.close()
        if self._workers:
            self._workers.shutdown()

    # Work -----------------------------------------------------------------------------------------------

    def map(self, function, items):
        """[function(item, pool)], side by side."""
        items = list(items)
        if len(items) == 1 or self._workers is None:
            return [function(item, self.pool) for item in items]
        futures = [self._workers.submit(function, item, self._alone) for item in items]
        for future in futures:
            future.exception()                       # all have ended before the first error is raised
        return [future.result() for future in futures]

    def whole(self, dataset=None):
        """The Split that learns from all training data, or from this part of them."""
        return Split(self.dataset if dataset is None else dataset, self._dev)

    def fits(self, **arguments):
        """A Fit for each split."""
        return self.map(lambda split, pool: Fit(self, split, pool, **arguments), self.splits)

    def remember(self, setting, compute):
        """The Outcome of a setting: from memory, or computed now."""
        key = setting.key
        if key not in self.memory:
            begun = time.monotonic()
            outcome = compute()
            self.check_requests()
            self.memory[key] = replace(outcome, seconds=outcome.seconds or time.monotonic() - begun)
        return self.memory[key]

    def trained(self, fits, rho1, rho2, tolerance=None):
        """The Outcome of training the fits of all splits further, to these penalties."""
        def work(fit, pool):
            fit.train(rho1, rho2, tolerance)
            return fit.score()
        return self.outcome(self.map(work, fits), fits)

    def outcome(self, scores, fits, seconds=0.0):
        """The Outcome of (Scores, deviation), one for each split: pooled, with the standard error between folds."""
        total = Scores.empty()
        for part, _ in scores:
            total += part
        deviation = scores[0][1]
        if len(scores) > 1:
            each = [part.f1 if self.by == "f1" else part.token_error for part, _ in scores]
            deviation = float(np.std(each, ddof=1) / np.sqrt(len(each)))
        active = np.mean([fit.active for fit in fits], axis=0)
        return Outcome(total.token_error, total.f1, deviation, float(active[0]), float(active[1]),
                       seconds)

    def check_requests(self):
        if self.requests:
            raise Interrupted

    def better(self, a, b):
        """Whether outcome a beats b: by the score, then by fewer weights."""
        return self._rank(a) < self._rank(b)

    def loss_of(self, outcome):
        """The score that decides, small being good."""
        return -outcome.f1 if self.by == "f1" else outcome.error

    def _rank(self, outcome):
        return self.loss_of(outcome), outcome.active_u + outcome.active_b

    def best(self, rows, one_se=False):
        """The row to choose: the best score, or the fewest weights within one standard error of it."""
        best = min(rows, key=lambda row: self._rank(row.outcome))
        if not one_se:
            return best
        limit = self.loss_of(best.outcome) + best.outcome.deviation
        within = [row for row in rows if self.loss_of(row.outcome) <= limit]
        return min(within, key=lambda row: (row.outcome.active_u + row.outcome.active_b, self.loss_of(row.outcome)))


class Fit:
    """A model in training on one split."""

    def __init__(self, lab, split, pool, columns=None, allowed=None, min_count=1, start=None, least_rho1=0.0):
        """`allowed` [F] bool and `start` [F], initial weights, are of the whole problem. `least_rho1`: it will be
        trained with no smaller one."""
        self.lab, self.split, self._least_rho1 = lab, split, least_rho1
        columns = columns or Columns.all(lab.encoder.template)
        if min_count > 1:
            frequent = frequent_weights(split.train, lab.space, min_count)
            allowed = frequent if allowed is None else allowed & frequent
        self.sub = Subproblem(split.train, lab.space, lab.groups, columns, allowed)
        training = lab.training
        self.objective = LogLoss(self.sub.dataset, self.sub.space, self.sub.groups, pool, training.observed_only,
                                 training.inference, lab.constraint, self.sub.allowed)
        self.theta = np.zeros(self.sub.space.F) if start is None else self.sub.shrink(start)
        if self.sub.allowed is not None:
            self.theta[~self.sub.allowed] = 0.0
        self._test, self._scale = None, count_scale(self.sub.dataset, self.sub.space)
        self.result = self._path = self._path_of = None

    @property
    def pool(self):
        return self.objective.pool

    @property
    def active(self):
        return tuple(int(np.count_nonzero(part)) for part in self.sub.space.split(self.theta))

    def train(self, rho1, rho2, tolerance=None):
        """From the weights there are to the optimum under these penalties; `tolerance` if not that of all trainings."""
        training, penalty = self.lab.training, ElasticNet(rho1, rho2)
        name = default_trainer(penalty) if training.algorithm == "auto" else training.algorithm
        if not self.sub.space.F:
            return                                   # nothing to learn
        if self._path_of != (name, rho2):
            self._path_of = name, rho2
            self._path = Path(
                TRAINERS[name].train, self.objective, rho2, self.theta,
                lambda factor: Stop(factor * training.tolerance, self._scale, training.max_iterations), self.pool,
                lambda iteration: "interrupted" if self.lab.requests else None, least=self._least_rho1,
                merge=TRAINERS[name].screens)
        self.result = self._path.step(rho1, (tolerance or training.tolerance) / training.tolerance).result
        self.lab.check_requests()
        if not self.result.converged:
            self.lab.unfinished.append(self.result.reason)

    def score(self, theta=None):
        """(Scores, standard error of the token error) on the split's test data."""
        if self._test is None:
            self._test = self.sub.encode(self.split.test)
        test, lab = self._test, self.lab
        weights = TrainedWeights(self.sub.space, self.theta if theta is None else theta)
        lattices = Lattices(test, weights, self.pool, lab.training.inference, lab.constraint)
        predicted = decode(lattices).labels
        wrong = np.concatenate(([0], np.cumsum(predicted != test.labels)))
        lengths, errors = np.diff(test.offsets), np.diff(wrong[test.offsets])
        # The error is a ratio of sums over sequences, which are independent; tokens of one are not.
        rest = errors - lengths * (wrong[-1] / max(1, test.N))
        deviation = 100.0 * float(np.sqrt(np.sum(rest * rest))) / max(1, test.N)
        return score(test.labels, predicted, test.offsets, lab.labels), deviation

    def weights(self):
        """[F]  in the numbering of the whole problem."""
        return self.sub.expand(self.theta)


def frequent_weights(dataset, space, min_count):
    """[F] bool: the weights of observations that occur at least min_count times (learn's --min-count)."""
    allowed = np.zeros(space.F, bool)
    mu, lam = space.split(allowed)
    mu[dataset.count_unigrams(space) >= min_count] = True
    lam[dataset.count_bigrams(space) >= min_count] = True
    return allowed

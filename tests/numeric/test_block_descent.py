"""cd and bcd against slow solvers of the enumerated objective, owl-qn, and the conditions of optimality."""

import numpy as np
import pytest
from brute_force import EnumeratedLoss, random_corpus
from slow_solvers import newton, objective, proximal_gradient
from test_trainers import Training, assert_zeros, small_corpus, violation

from crftool.kernels.pool import Pool
from crftool.kernels.transitions import Constraint
from crftool.model.weights import SparseWeights
from crftool.objectives import BlockLoss, ElasticNet
from crftool.objectives.blockloss import BlockOptions
from crftool.trainers import block_descent, coordinate_descent
from crftool.trainers.base import Problem, Stop, count_scale

TRAINERS = {"cd": coordinate_descent.train, "bcd": block_descent.train}
EACH = pytest.mark.parametrize("algorithm", sorted(TRAINERS))
BEGIN = pytest.mark.parametrize("begin_label", [False, True], ids=["plain", "begin"])


class Descent:
    """A finished descent, and what it reported."""

    def __init__(self, corpus, algorithm="bcd", rho1=0.0, rho2=0.0, group=0.0, tolerance=1e-9, max_iterations=3000,
                 theta=None, partner=None, observed_only=False, threads=1, constraint=None, **options):
        dataset, space = corpus.dataset(), corpus.space
        pool = Pool(threads)
        loss = BlockLoss(dataset, space, pool, partner, observed_only, constraint, BlockOptions(**options))
        self.theta, self.iterations = np.zeros(corpus.F) if theta is None else theta.copy(), []
        stop = Stop(tolerance, count_scale(dataset, space), max_iterations)
        self.result = TRAINERS[algorithm](Problem(loss, ElasticNet(rho1, rho2, group), pool), self.theta, stop,
                                          self.iterations.append)
        pool.close()

    @property
    def objectives(self):
        return np.array([iteration.objective for iteration in self.iterations])


def paired(corpus):
    """The first unigram and bigram observations as blocks of both."""
    partner = np.full(corpus.space.O, -1, np.int32)
    n = min(corpus.space.O, corpus.space.Ob)
    partner[:n] = np.arange(n)
    return partner


def assert_falls(descent):
    assert (np.diff(descent.objectives) <= 1e-12 * descent.objectives[0]).all()


@EACH
@BEGIN
@pytest.mark.parametrize("rho1,rho2", [(0.3, 0.1), (1.0, 0.01), (1.0, 1.0), (0.3, 0.0), (0.0, 0.5), (0.0, 5.0)])
@pytest.mark.parametrize("seed", range(3))
def test_optimum(seed, rho1, rho2, begin_label, algorithm):
    corpus = small_corpus(seed, begin_label, Kb=2)
    loss = EnumeratedLoss(corpus)
    descent = Descent(corpus, algorithm, rho1, rho2, partner=paired(corpus))
    best = proximal_gradient(loss, rho1, rho2) if rho1 else newton(loss, rho2)
    assert descent.result.converged
    assert_falls(descent)
    assert objective(loss, descent.theta, rho1, rho2) == pytest.approx(objective(loss, best, rho1, rho2), rel=1e-10)
    assert descent.objectives[-1] == pytest.approx(objective(loss, descent.theta, rho1, rho2), rel=1e-12)
    assert violation(loss, descent.theta, rho1, rho2).max() < 1e-6
    if rho1 and rho2:
        assert_zeros(loss, descent.theta, best, rho1, rho2)

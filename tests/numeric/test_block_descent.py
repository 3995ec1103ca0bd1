"""cd and bcd against slow solvers of the enumerated objective, owl-qn, and the conditions of optimality."""

import hashlib
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from brute_force import Corpus, EnumeratedLoss, random_corpus
from slow_solvers import newton, objective, proximal_gradient
from test_trainers import Training, assert_zeros, small_corpus, violation

from crftool.kernels.pool import Pool
from crftool.kernels.transitions import Constraint
from crftool.kernels.vector import cpu_levels
from crftool.model.weights import SparseWeights
from crftool.objectives import BlockLoss, ElasticNet
from crftool.objectives.blockloss import BlockOptions
from crftool.trainers import block_descent, coordinate_descent
from crftool.trainers.base import Problem, Stop, count_scale

TRAINERS = {"cd": coordinate_descent.train, "bcd": block_descent.train}
EACH = pytest.mark.parametrize("algorithm", sorted(TRAINERS))
FEW = 64                             # of kernels/messages.pxd
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


def largest_gradient(loss):
    return np.abs(loss.gradient(np.zeros(loss.F))).max()


@EACH
@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_penalty_that_empties_the_model(seed, algorithm):
    corpus = small_corpus(seed, True)
    edge = largest_gradient(EnumeratedLoss(corpus))
    above, below = (Descent(corpus, algorithm, rho1, 0.01) for rho1 in (edge * 1.000001, edge * 0.999))
    assert above.result.converged and not above.theta.any()
    assert below.result.converged and below.theta.any()


def test_same_objective_as_owl_qn():
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, rng.integers(1, 30, 60), 5, K=3, Kb=2, rows=20, begin_label=True)
    owl = Training(corpus, 0.5, 0.01, tolerance=1e-8)
    for algorithm in TRAINERS:
        descent = Descent(corpus, algorithm, 0.5, 0.01, partner=paired(corpus), tolerance=1e-7)
        assert descent.result.converged
        assert_falls(descent)
        assert descent.objectives[-1] == pytest.approx(owl.objectives[-1], rel=1e-8)
        differing = (descent.theta != 0.0) != (owl.theta != 0.0)
        assert np.abs(descent.theta[differing]).max(initial=0.0) < 1e-4
        assert np.abs(owl.theta[differing]).max(initial=0.0) < 1e-4


def test_any_number_of_threads_computes_the_same_bits():
    rng = np.random.default_rng(6)
    corpus = random_corpus(rng, rng.integers(1, 12, 300), 6, K=2, Kb=1, rows=3, begin_label=False)
    thetas = [Descent(corpus, rho1=0.5, rho2=0.01, max_iterations=5, threads=threads).theta for threads in (1, 2, 3)]
    assert thetas[0].any()
    assert (thetas[0] == thetas[1]).all() and (thetas[0] == thetas[2]).all()


def digest():
    """A fingerprint of descents with narrow and wide rows; also run in a process of its own."""
    found = hashlib.sha256()
    for Y in (2, 5, 9, 22, 70):
        corpus = random_corpus(np.random.default_rng(Y), [7, 3, 11, 2] * 8, Y, K=2, Kb=2, rows=4, begin_label=True)
        found.update(Descent(corpus, rho1=0.2, rho2=0.01, max_iterations=4, partner=paired(corpus)).theta.tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("level", cpu_levels())
def test_cpu_levels_descend_to_the_same_bits(level):
    here = pathlib.Path(__file__).resolve().parent
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", "import test_block_descent as t; print(t.digest())"],
        env={**os.environ, "CRFTOOL_ISA": level, "PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()


@EACH
def test_from_an_awkward_start(algorithm):
    corpus = small_corpus(1, True)
    start = np.random.default_rng(2).normal(0, 5, corpus.F)
    cold, warm = (Descent(corpus, algorithm, 0.4, 0.5, theta=theta) for theta in (None, start))
    assert_falls(warm)
    np.testing.assert_allclose(warm.theta, cold.theta, atol=1e-6)


def test_twice_the_data_and_twice_the_penalty():
    rng = np.random.default_rng(3)
    corpus = random_corpus(rng, [3, 4, 2, 5], 3, K=2, Kb=1, rows=3, begin_label=False)
    double = Corpus(corpus.Y, corpus.O, corpus.Ob, corpus.begin_label, corpus.sequences * 2, corpus.groups)
    once, twice = Descent(corpus, rho1=0.3, rho2=0.2), Descent(double, rho1=0.6, rho2=0.4)
    np.testing.assert_allclose(once.theta, twice.theta, atol=1e-6)


@EACH
def test_observed_features_only(algorithm):
    corpus = small_corpus(2, True)
    owl = Training(corpus, 0.1, 0.1, observed_only=True)
    descent = Descent(corpus, algorithm, 0.1, 0.1, observed_only=True)
    assert descent.objectives[-1] == pytest.approx(owl.objectives[-1], rel=1e-9)
    np.testing.assert_allclose(descent.theta, owl.theta, atol=1e-5)


@EACH
def test_forbidden_pairs_get_no_weight(algorithm):
    corpus = small_corpus(4)
    data, Y = corpus.dataset(), corpus.space.Y
    seen = np.zeros((Y, Y), bool)
    for first, last in zip(data.offsets[:-1], data.offsets[1:]):
        seen[data.labels[first:last - 1], data.labels[first + 1:last]] = True
    constraint = Constraint(seen, np.ones(Y, bool), np.ones(Y, bool))
    descent = Descent(corpus, algorithm, 0.1, 0.1, constraint=constraint)
    assert descent.result.converged
    lam = corpus.space.split(descent.theta)[1][:, :Y]
    assert not lam[:, ~seen].any()
    assert descent.objectives[-1] < Descent(corpus, algorithm, 0.1, 0.1).objectives[-1]


def test_separate_blocks_end_at_the_same_weights():
    corpus = small_corpus(0)
    together = Descent(corpus, rho1=0.3, rho2=0.1, partner=paired(corpus))
    apart = Descent(corpus, rho1=0.3, rho2=0.1, partner=paired(corpus), separate=True)
    np.testing.assert_allclose(together.theta, apart.theta, atol=1e-6)


# Variants -----------------------------------------------------------------------------------------------


@EACH
def test_no_revisit_is_checked(algorithm):
    corpus = small_corpus(0, Kb=2)
    full = Descent(corpus, algorithm, 0.3, 0.1)
    quick = Descent(corpus, algorithm, 0.3, 0.1, no_revisit=True)
    assert "no-revisit" in quick.result.reason
    if "was right" in quick.result.reason:
        np.testing.assert_allclose(quick.theta, full.theta, atol=1e-5)
    else:
        assert not quick.result.converged and quick.objectives[-1] > full.objectives[-1]
    easy = Descent(corpus, algorithm, 1e3, 0.1, no_revisit=True)          # an empty model needs no second look
    assert easy.result.converged and "was right" in easy.result.reason


def test_bigrams_grow_where_their_unigram_is_active():
    """In the first step of a visit no unigram weight is active yet: with one block, one sweep tells."""
    corpus = small_corpus(0)
    partner = paired(corpus)
    grown, free = (Descent(corpus, rho1=0.3, rho2=0.1, partner=partner, grow=grow, tolerance=1e-6)
                   for grow in (True, False))
    assert grown.objectives[-1] >= free.objectives[-1] - 1e-9
    edge = max(np.abs(gradient).max() for gradient in
               [corpus.space.split(EnumeratedLoss(corpus).gradient(np.zeros(corpus.F)))[0][partner >= 0]])
    none = Descent(corpus, rho1=edge * 1.001, rho2=0.1, partner=partner, grow=True)
    assert not corpus.space.split(none.theta)[1][partner[partner >= 0]].any()


def group_objective(loss, corpus, theta, rho1, rho2, group, partner):
    mu, lam = corpus.space.split(theta)
    alone = set(range(corpus.space.Ob)) - set(partner.tolist())
    norms = [np.sqrt((mu[u] ** 2).sum() + ((lam[b] ** 2).sum() if b >= 0 else 0.0)) for u, b in enumerate(partner)]
    norms += [np.sqrt((lam[b] ** 2).sum()) for b in alone]
    return objective(loss, theta, rho1, rho2) + group * sum(norms)


@pytest.mark.parametrize("rho1", [0.0, 0.1])
def test_group_penalty(rho1):
    corpus = small_corpus(1)
    loss, partner = EnumeratedLoss(corpus), paired(corpus)
    descent = Descent(corpus, rho1=rho1, rho2=0.1, group=1.0, partner=partner, tolerance=1e-8)
    assert_falls(descent)
    best = group_objective(loss, corpus, descent.theta, rho1, 0.1, 1.0, partner)
    assert descent.objectives[-1] == pytest.approx(best, rel=1e-12)
    rng = np.random.default_rng(0)
    for size in (1e-1, 1e-2, 1e-3, 1e-4) * 50:        # a convex function: no direction may descend
        step = rng.normal(0, size, corpus.F) * rng.integers(0, 2, corpus.F)
        assert group_objective(loss, corpus, descent.theta + step, rho1, 0.1, 1.0, partner) > best - 1e-9
        shrunk = descent.theta * (1 - size * rng.integers(0, 2, corpus.F))
        assert group_objective(loss, corpus, shrunk, rho1, 0.1, 1.0, partner) > best - 1e-9
    strong = Descent(corpus, rho1=rho1, rho2=0.1, group=1e3, partner=partner)
    assert strong.result.converged and not strong.theta.any()


@BEGIN
def test_second_derivatives(begin_label):
    """(15) is the diagonal of the Hessian; (16) too where an observation occurs once in a sequence."""
    corpus = small_corpus(3, begin_label, Kb=2)
    hessian = EnumeratedLoss(corpus)
    rng = np.random.default_rng(1)
    theta = rng.normal(0, 1, corpus.F)
    expected_mu, expected_lam = corpus.space.split(np.diag(hessian.hessian(theta)).copy())
    found = {}
    for exact in (True, False):
        loss = BlockLoss(corpus.dataset(), corpus.space, Pool(1))
        weights = SparseWeights.from_dense(corpus.space, theta)
        loss.mu.load(*weights.unigrams)
        loss.lam.load(*weights.bigrams)
        loss.score(), loss.complete()
        kernel = block_descent.BlockDescent(loss.pool, loss.messages, loss.occurrences, loss.bases, corpus.space.Ob,
                                            ElasticNet(), exact=exact)
        Y, P = corpus.space.Y, 8
        for b, (u, l) in enumerate(zip(loss.occurrences.unigram, loss.occurrences.bigram)):
            values = kernel.second_derivatives(b)
            mine = values[:Y] if u >= 0 else values[P:].reshape(-1, P)[:, :Y]
            found[exact, b] = mine
            if exact:
                np.testing.assert_allclose(mine, expected_mu[u] if u >= 0 else expected_lam[l], rtol=1e-9, atol=1e-12)
    assert any(not np.allclose(found[True, b], found[False, b]) for _, b in found)


def test_exact_hessian_ends_at_the_same_weights():
    corpus = small_corpus(1)
    a, b = (Descent(corpus, "cd", 0.3, 0.1, exact_hessian=exact) for exact in (False, True))
    np.testing.assert_allclose(a.theta, b.theta, atol=1e-6)


def test_sparse_weights_pass_through():
    corpus = small_corpus(1, True)
    theta = np.random.default_rng(0).normal(0, 1, corpus.F) * np.random.default_rng(1).integers(0, 2, corpus.F)
    weights, back = SparseWeights.from_dense(corpus.space, theta), np.ones(corpus.F)
    weights.to_dense(back)
    assert (back == theta).all() and weights.active == np.count_nonzero(theta)
    loss = BlockLoss(corpus.dataset(), corpus.space, Pool(1))
    assert loss.score() == pytest.approx(EnumeratedLoss(corpus).value(np.zeros(corpus.F)), rel=1e-12)
    loss.mu.load(*weights.unigrams)
    loss.lam.load(*weights.bigrams)
    assert loss.score() == pytest.approx(EnumeratedLoss(corpus).value(theta), rel=1e-12)
    for mine, given in zip((loss.mu.dump(), loss.lam.dump()), (weights.unigrams, weights.bigrams)):
        assert all((a == b).all() for a, b in zip(mine, given))


@pytest.mark.parametrize("Y, rho1", [(4, 0.2), (10, 0.2), (10, 0.02)])
def test_transitions_beyond_the_base(monkeypatch, Y, rho1):
    """Without room for dense matrices everything is composed from rows, with the same result."""
    from crftool.corpus import occurrences
    rng = np.random.default_rng(8)
    corpus = random_corpus(rng, rng.integers(1, 9, 30), Y, K=2, Kb=3, rows=4, begin_label=True)
    dense = Descent(corpus, rho1=rho1, rho2=0.05, tolerance=1e-8)
    monkeypatch.setattr(occurrences, "BASE_MEMORY", 0)
    sparse = Descent(corpus, rho1=rho1, rho2=0.05, tolerance=1e-8)
    weights = np.count_nonzero(corpus.space.split(sparse.theta)[1], axis=(1, 2))
    assert (weights.max() > FEW) == (Y == 10)   # so that rows meet that are worth a matrix
    assert sparse.objectives[-1] == pytest.approx(dense.objectives[-1], rel=1e-10)
    np.testing.assert_allclose(sparse.theta, dense.theta, atol=1e-5)

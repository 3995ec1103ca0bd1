"""Regularisation paths, and the mask of allowed weights that selection trains under."""

import numpy as np
import pytest
from brute_force import EnumeratedLoss, random_corpus
from slow_solvers import newton, objective, proximal_gradient

from crftool.kernels.pool import Pool
from crftool.model.weights import SparseWeights
from crftool.objectives import ElasticNet, LogLoss
from crftool.objectives.blockloss import BlockLoss, BlockOptions
from crftool.trainers import TRAINERS, path
from crftool.trainers.base import Problem, Stop, count_scale
from crftool.trainers.path import BlockPath, Path, follow, geometric_grid, largest_rho1

TIGHT = 1e-9
L1_TRAINERS = ["working-set", "owl-qn", "cd", "bcd"]         # those that reach the optimum


def small_corpus(seed, begin_label=False):
    rng = np.random.default_rng([seed, begin_label])
    return random_corpus(rng, rng.integers(1, 5, 6), 3, K=2, Kb=1, rows=3, begin_label=begin_label)


def walk(corpus, grid, rho2, name="owl-qn", allowed=None, report=lambda iteration: None):
    """[(step, theta)] along a path."""
    pool, dataset = Pool(), corpus.dataset()
    loss = LogLoss(dataset, corpus.space, corpus.groups, pool, allowed=allowed)
    theta, scale = np.zeros(corpus.F), count_scale(dataset, corpus.space)
    return [(step, theta.copy()) for step in follow(
        Path(TRAINERS[name].train, loss, rho2, theta, lambda factor: Stop(TIGHT, scale, 2000), pool, report), grid)]


@pytest.mark.parametrize("begin_label", [False, True])
@pytest.mark.parametrize("name", L1_TRAINERS)
def test_warm_started_optimum_is_the_cold_one(name, begin_label):
    for seed in range(3):
        corpus = small_corpus(seed, begin_label)
        loss, grid = EnumeratedLoss(corpus), geometric_grid(2.0, 0.1, 6)
        for step, theta in walk(corpus, grid, 0.1, name):
            best = proximal_gradient(loss, step.rho1, 0.1)
            (cold, cold_theta), = walk(corpus, [step.rho1], 0.1, name)
            assert step.result.converged
            assert step.objective == pytest.approx(cold.objective, rel=1e-9)
            assert step.objective == pytest.approx(objective(loss, best, step.rho1, 0.1), rel=1e-9)
            np.testing.assert_allclose(theta, cold_theta, atol=1e-5)
            assert (step.active_mu, step.active_lam) == tuple(map(np.count_nonzero, corpus.space.split(theta)))


def block_walk(corpus, grid, penalty, name="bcd", report=lambda iteration: None, **options):
    """[(step, theta)] along a path whose weights are sparse."""
    pool, dataset = Pool(), corpus.dataset()
    loss = BlockLoss(dataset, corpus.space, pool, options=BlockOptions(**options))
    sparse, scale = SparseWeights(corpus.space), count_scale(dataset, corpus.space)
    found = []
    for step in follow(BlockPath(TRAINERS[name].train, loss, penalty, sparse, lambda factor: Stop(TIGHT, scale, 2000),
                                 pool, report), grid):
        theta = np.empty(corpus.F)
        sparse.to_dense(theta)
        found.append((step, theta))
    return found


@pytest.mark.parametrize("name", ["cd", "bcd"])
@pytest.mark.parametrize("begin_label", [False, True])
def test_a_path_of_sparse_weights_is_the_same(name, begin_label):
    for seed in range(3):
        corpus, pool = small_corpus(seed, begin_label), Pool()
        dense, blocks = LogLoss(corpus.dataset(), corpus.space, corpus.groups, pool), BlockLoss(corpus.dataset(), corpus.space, pool)
        largest = largest_rho1(blocks, pool)
        assert largest == pytest.approx(largest_rho1(dense, pool), rel=1e-12)
        grid = [1.0001 * largest, *geometric_grid(0.9999 * largest, 0.1, 6)]
        steps = block_walk(corpus, grid, ElasticNet(0.0, 0.1), name)
        assert steps[0][0].active_mu + steps[0][0].active_lam == 0 < steps[1][0].active_mu + steps[1][0].active_lam
        for (step, theta), (other, other_theta) in zip(steps, walk(corpus, grid, 0.1)):
            assert step.rho1 == other.rho1 and step.result.converged
            assert step.objective == pytest.approx(other.objective, rel=1e-9)
            np.testing.assert_allclose(theta, other_theta, atol=1e-5)
            assert (step.active_mu, step.active_lam) == tuple(map(np.count_nonzero, corpus.space.split(theta)))


def test_a_path_of_sparse_weights_knows_groups_and_when_to_end():
    corpus, grid, seen = small_corpus(1), geometric_grid(1.0, 0.1, 4), []
    with_group = block_walk(corpus, grid, ElasticNet(0.0, 0.1, 0.5))
    for step, theta in with_group:
        (cold, cold_theta), = block_walk(corpus, [step.rho1], ElasticNet(0.0, 0.1, 0.5))
        np.testing.assert_allclose(theta, cold_theta, atol=1e-5)
    assert with_group[-1][0].objective > block_walk(corpus, grid, ElasticNet(0.0, 0.1))[-1][0].objective

    def report(iteration):
        seen.append(iteration)
        return "enough" if len(seen) == 5 else None
    steps = block_walk(corpus, grid, ElasticNet(0.0, 0.1), report=report)
    assert len(seen) == 5 and steps[-1][0].result.reason == "enough"


@pytest.mark.parametrize("begin_label", [False, True])
@pytest.mark.parametrize("rho2", [0.0, 0.5])
@pytest.mark.parametrize("name", L1_TRAINERS)
def test_empty_just_above_the_largest_rho1_and_not_below(name, rho2, begin_label):
    for seed in range(3):
        corpus, pool = small_corpus(seed, begin_label), Pool()
        largest = largest_rho1(LogLoss(corpus.dataset(), corpus.space, corpus.groups, pool), pool)
        assert largest == pytest.approx(np.abs(EnumeratedLoss(corpus).gradient(np.zeros(corpus.F))).max(), rel=1e-12)
        (above, _), (at, _), (below, _) = walk(corpus, [1.0001 * largest, largest, 0.9999 * largest], rho2, name)
        assert (above.active_mu, above.active_lam) == (at.active_mu, at.active_lam) == (0, 0)
        assert below.active_mu + below.active_lam > 0


def test_largest_rho1_looks_at_allowed_weights_only():
    corpus, pool = small_corpus(1), Pool()
    gradient = np.abs(EnumeratedLoss(corpus).gradient(np.zeros(corpus.F)))
    allowed = gradient < gradient.max()
    loss = LogLoss(corpus.dataset(), corpus.space, corpus.groups, pool, allowed=allowed)
    assert largest_rho1(loss, pool) == pytest.approx(gradient[allowed].max(), rel=1e-12)


@pytest.mark.parametrize("begin_label", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_only_allowed_weights_move(share, begin_label):
    """The optimum among models whose other weights are zero."""
    for seed in range(3):
        corpus = small_corpus(seed, begin_label)
        allowed = np.random.default_rng(seed).random(corpus.F) < share
        (_, theta), = walk(corpus, [0.0], 0.5, "l-bfgs", allowed)
        assert not theta[~allowed].any()
        np.testing.assert_allclose(theta, newton(EnumeratedLoss(corpus), 0.5, allowed), atol=1e-6)


def test_grid():
    grid = geometric_grid(8.0, 1.0, 4)
    np.testing.assert_allclose(grid, [8.0, 4.0, 2.0, 1.0])
    assert grid[0] == 8.0 and grid[-1] == 1.0
    assert geometric_grid(8.0, 1.0, 1) == [1.0]
    assert geometric_grid(1.0, 2.0, 5) == geometric_grid(2.0, 2.0, 5) == [2.0]


def test_the_path_ends_when_told():
    calls = []

    def report(iteration):
        calls.append(iteration)
        return "enough" if len(calls) == 10 else None

    steps = walk(small_corpus(0), geometric_grid(2.0, 0.01, 30), 0.1, report=report)
    assert len(calls) == 10 and len(steps) < 30
    assert steps[-1][0].result.reason == "enough"


@pytest.mark.parametrize("bound", [0.3, 1.5])
@pytest.mark.parametrize("begin_label", [False, True])
def test_screening_never_costs_the_optimum(monkeypatch, bound, begin_label):
    """Even if the rule leaves out weights that count: the check afterwards brings them in."""
    monkeypatch.setattr(path, "LEAST_BOUND", bound)
    monkeypatch.setattr(path, "LARGEST_SHARE", 1.1)
    for seed in range(4):
        corpus = small_corpus(seed, begin_label)
        loss, sizes = EnumeratedLoss(corpus), []
        original = LogLoss.restricted
        monkeypatch.setattr(LogLoss, "restricted", lambda self, allowed: sizes.append(allowed.sum()) or original(self, allowed))
        for step, theta in walk(corpus, [2.0, 0.7, 0.05], 0.1):
            np.testing.assert_allclose(theta, proximal_gradient(loss, step.rho1, 0.1), atol=1e-5)
        monkeypatch.setattr(LogLoss, "restricted", original)
        assert min(sizes) < corpus.F and len(sizes) >= 3
        if bound > 1:
            assert len(sizes) > 3                              # it did err, and did go on


def test_a_path_from_other_weights():
    """From any start, with a mask of allowed weights."""
    corpus, pool = small_corpus(2), Pool()
    dataset = corpus.dataset()
    allowed = np.random.default_rng(1).random(corpus.F) < 0.7
    theta = np.where(allowed, np.random.default_rng(2).normal(size=corpus.F), 0.0)
    loss = LogLoss(dataset, corpus.space, corpus.groups, pool, allowed=allowed)
    follower = Path(TRAINERS["owl-qn"].train, loss, 0.1, theta,
                    lambda factor: Stop(TIGHT, count_scale(dataset, corpus.space), 2000), pool, lambda iteration: None)
    follower.step(0.4)
    np.testing.assert_allclose(theta, proximal_gradient(EnumeratedLoss(corpus), 0.4, 0.1, allowed), atol=1e-5)


@pytest.mark.parametrize("name", ["working-set", "owl-qn"])
def test_a_wrong_secant_costs_no_optimum(name):
    """It is a hint about curvature, no more."""
    corpus, pool, rng = small_corpus(3), Pool(), np.random.default_rng(3)
    dataset, loss = corpus.dataset(), EnumeratedLoss(corpus)
    for y in (1e-3, 1.0, -1.0):
        theta, secant = np.zeros(corpus.F), (rng.normal(size=corpus.F), y * rng.random(corpus.F))
        problem = Problem(LogLoss(dataset, corpus.space, corpus.groups, pool), ElasticNet(0.3, 0.1), pool, secant=secant)
        assert TRAINERS[name].train(problem, theta, Stop(TIGHT, count_scale(dataset, corpus.space), 2000),
                                    lambda iteration: None).converged
        np.testing.assert_allclose(theta, proximal_gradient(loss, 0.3, 0.1), atol=1e-5)


@pytest.mark.parametrize("name", L1_TRAINERS)
def test_every_row_is_an_optimum_to_its_tolerance(name):
    """The pseudo-gradient of all weights, screened ones too; the last row to what was asked for."""
    corpus, pool = small_corpus(4), Pool()
    dataset, loss = corpus.dataset(), EnumeratedLoss(corpus)
    theta, scale, seen = np.zeros(corpus.F), count_scale(dataset, corpus.space), []
    grid = geometric_grid(3.0, 0.05, 8)
    walked = Path(TRAINERS[name].train, LogLoss(dataset, corpus.space, corpus.groups, pool), 0.1, theta,
                  lambda factor: Stop(factor * 1e-4, scale, 2000), pool, lambda iteration: None)
    for step in follow(walked, grid):
        gradient = loss.gradient(theta) + 0.1 * theta
        pseudo = np.where(theta != 0.0, gradient + step.rho1 * np.sign(theta),
                          np.sign(gradient) * np.maximum(0.0, np.abs(gradient) - step.rho1))
        assert step.result.converged and np.linalg.norm(pseudo) <= 1.001 * step.tolerance * scale
        seen.append(step.tolerance)
    assert seen == pytest.approx([path.INNER * 1e-4] * 7 + [1e-4])

"""Observations that occur at the same tokens: found, merged under an l1 penalty, left alone under an l2 penalty."""

from dataclasses import replace

import numpy as np
import pytest
from brute_force import Corpus, EnumeratedLoss, random_corpus
from slow_solvers import proximal_gradient

from crftool.kernels import twins
from crftool.kernels.pool import Pool
from crftool.objectives import ElasticNet, LogLoss
from crftool.trainers import TRAINERS
from crftool.trainers.base import Problem, Stop, count_scale
from crftool.trainers.path import Path, follow


@pytest.mark.parametrize("seed", range(200))
def test_kinds_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    N, K, O = rng.integers(0, 7), rng.integers(0, 5), int(rng.integers(0, 9))        # noqa: E741
    unigrams = rng.integers(-1, max(O, 0), (N, K)).astype(np.int32) if O else np.full((N, K), -1, np.int32)
    kind = twins.kinds(unigrams, O)
    where = [tuple((unigrams == o).sum(axis=1)) for o in range(O)]
    assert [[a == b for b in kind] for a in kind] == [[a == b for b in where] for a in where]


def test_kinds_in_a_large_corpus():
    """Copies of random columns, renumbered, and their numbers mixed: each observation has its one twin."""
    rng = np.random.default_rng(1)
    unigrams = rng.permutation(4000)[:, None] % 1000 + 1000 * np.arange(3)           # each occurs four times
    unigrams = np.concatenate((unigrams, unigrams + 3000), axis=1)
    names = rng.permutation(6000)
    kind = twins.kinds(names[unigrams].astype(np.int32), 6000)
    np.testing.assert_array_equal(kind[names[:1000]], kind[names[3000:4000]])
    # the three columns are the same up to their numbers, so six observations are alike
    assert len(np.unique(kind)) == 1000 and (np.bincount(kind)[np.unique(kind)] == 6).all()


def with_twins(corpus):
    """Every unigram observation o once more, as o + O."""
    sequences = [replace(sequence, unigrams=np.concatenate(
        (sequence.unigrams, np.where(sequence.unigrams >= 0, sequence.unigrams + corpus.O, -1)), axis=1).astype(np.int32))
        for sequence in corpus.sequences]
    K = len(corpus.groups)
    return Corpus(corpus.Y, 2 * corpus.O, corpus.Ob, corpus.begin_label, sequences,
                  corpus.groups + [[k + K for k in group] for group in corpus.groups])


@pytest.fixture(params=[False, True], ids=["", "begin-label"])
def doubled(request):
    single = random_corpus(np.random.default_rng(7), [4, 3, 5, 2, 4, 5], 3, K=2, rows=9, begin_label=request.param)
    return single, with_twins(single)


def train(corpus, rho1, rho2, theta=None, name="working-set", allowed=None):
    pool, dataset = Pool(), corpus.dataset()
    theta = np.zeros(corpus.F) if theta is None else theta.copy()
    result = TRAINERS[name].train(
        Problem(LogLoss(dataset, corpus.space, corpus.groups, pool, allowed=allowed), ElasticNet(rho1, rho2), pool), theta,
        Stop(1e-9, count_scale(dataset, corpus.space), 3000), lambda iteration: None)
    assert result.converged
    return result.iteration.objective, theta


def pseudo_gradient(loss, theta, rho1):
    gradient = loss.gradient(theta)
    return np.where(theta != 0.0, gradient + rho1 * np.sign(theta), np.maximum(np.abs(gradient) - rho1, 0.0))


@pytest.mark.parametrize("start", ["zero", "random"])
def test_one_of_the_twins_has_all_the_weight(doubled, start):
    single, double = doubled
    theta = np.random.default_rng(1).normal(size=double.F) if start == "random" else None
    value, found = train(double, 0.3, 0.0, theta)
    mu, _ = double.space.split(found)
    assert mu[:single.O].any() and not mu[single.O:].any()
    assert value == pytest.approx(train(single, 0.3, 0.0)[0], rel=1e-9)
    assert np.abs(pseudo_gradient(EnumeratedLoss(double), found, 0.3)).max() < 1e-5


def test_the_loss_stays_the_same(doubled):
    _, double = doubled
    theta, grad = np.random.default_rng(2).normal(size=double.F), np.empty(double.F)
    loss = LogLoss(double.dataset(), double.space, double.groups, Pool())
    before, moved = loss.value_and_gradient(theta, grad), theta.copy()
    merged = loss.merged(moved)
    assert np.abs(moved).sum() < np.abs(theta).sum()
    for one in (loss, merged):
        assert one.value_and_gradient(moved, grad) == pytest.approx(before, rel=1e-12)
    assert not double.space.split(grad)[0][double.O // 2:].any()
    assert merged.merged(moved) is merged


def test_an_l2_penalty_shares_the_weight(doubled):
    single, double = doubled
    _, theta = train(double, 0.3, 0.1)
    mu, _ = double.space.split(theta)
    np.testing.assert_allclose(mu[:single.O], mu[single.O:], atol=1e-5)
    np.testing.assert_allclose(theta, proximal_gradient(EnumeratedLoss(double), 0.3, 0.1), atol=1e-5)


def test_twins_that_may_have_other_weights_are_not_alike(doubled):
    single, double = doubled
    allowed = np.ones(double.F, bool)
    mu, _ = double.space.split(allowed)
    mu[:single.O, 0], mu[single.O:, 1:] = False, False
    value, theta = train(double, 0.3, 0.0, allowed=allowed)
    assert value == pytest.approx(train(single, 0.3, 0.0)[0], rel=1e-9) and not theta[~allowed].any()


@pytest.mark.parametrize("name", ["working-set", "owl-qn", "bcd"])
def test_paths_merge_and_screen(doubled, name):
    """Along a path too, with a start whose twins have weights, and with observations too rare for its end."""
    (single, double), merge = doubled, name == "working-set"
    pool, dataset = Pool(), double.dataset()
    theta = np.random.default_rng(3).normal(size=double.F)
    walk = Path(TRAINERS[name].train, LogLoss(dataset, double.space, double.groups, pool), 0.0, theta,
                lambda factor: Stop(1e-8, count_scale(dataset, double.space), 3000), pool, lambda iteration: None, least=1.0,
                merge=merge)
    for step in follow(walk, [3.0, 2.0, 1.0]):
        assert step.objective == pytest.approx(train(single, step.rho1, 0.0)[0], rel=1e-8)
        assert not (merge and double.space.split(theta)[0][single.O:].any())
        assert (step.active_mu, step.active_lam) == tuple(map(np.count_nonzero, double.space.split(theta)))
        assert np.abs(pseudo_gradient(EnumeratedLoss(double), theta, step.rho1)).max() < 1e-4

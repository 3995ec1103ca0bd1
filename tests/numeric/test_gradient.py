"""The log loss and its gradient against enumeration and against finite differences of the enumerated loss."""

import hashlib
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from brute_force import Corpus, EnumeratedLoss, dense_corpus, random_corpus

from crftool.kernels.pool import Pool
from crftool.kernels.vector import cpu_levels
from crftool.objectives import logloss
from crftool.objectives.logloss import LogLoss

BEGIN = pytest.mark.parametrize("begin_label", [False, True], ids=["plain", "begin"])
GROUPS = [[1], [0, 2], [3]]          # the first and third U template share their observations
THREADS = (1, 2, 3)


def small_corpus(seed, Kb=2, begin_label=False):
    rng = np.random.default_rng([seed, Kb, begin_label])
    Y, S = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    return random_corpus(rng, rng.integers(1, 5 if Y < 4 else 4, S), Y, K=4, Kb=Kb, rows=3,
                         begin_label=begin_label, groups=GROUPS)


def weights_for(corpus, seed=0, spread=1.0):
    return np.random.default_rng(seed).normal(0, spread, corpus.F)


MODE = "auto"


@pytest.fixture(autouse=True, params=["auto", "scaled", "sparse", "log"])
def mode(request, monkeypatch):
    """Every test runs with every form of the recursions."""
    monkeypatch.setattr(sys.modules[__name__], "MODE", request.param)
    return request.param


def objective_of(corpus, pool=None, observed_only=False):
    return LogLoss(corpus.dataset(), corpus.space, corpus.groups, pool or Pool(), observed_only, MODE)


def evaluate(objective, theta):
    grad = np.full(objective.F, 99.0)                # what was there before must not matter
    return objective.value_and_gradient(theta, grad), grad


def assert_matches(corpus, theta, pool=None):
    """Value and gradient are those of the enumeration."""
    value, grad = evaluate(objective_of(corpus, pool), theta)
    loss = EnumeratedLoss(corpus)
    assert value == pytest.approx(loss.value(theta), rel=1e-11, abs=1e-11)
    np.testing.assert_allclose(grad, loss.gradient(theta), atol=1e-11)


# Small problems -----------------------------------------------------------------------------------------


def test_twins_agree():
    """The two enumerations, by scores and by feature counts, are independent of each other."""
    corpus = small_corpus(1, Kb=3, begin_label=True)
    theta = weights_for(corpus)
    by_scores = sum(chain.log_z() - float(chain.scores(sequence.labels[None])[0])
                    for chain, sequence in zip(corpus.chains(theta), corpus.sequences))
    assert EnumeratedLoss(corpus).value(theta) == pytest.approx(by_scores, rel=1e-12)
    expected_pairs = np.zeros((corpus.Ob, corpus.R, corpus.Y))
    for chain, sequence in zip(corpus.chains(theta), corpus.sequences):
        for t, pairs in enumerate(chain.pair_marginals()):
            previous = sequence.labels[t - 1] if t > 0 else corpus.Y
            for b in sequence.bigrams[t][sequence.bigrams[t] >= 0]:
                expected_pairs[b] += pairs
                expected_pairs[b, previous, sequence.labels[t]] -= 1.0
    np.testing.assert_allclose(EnumeratedLoss(corpus).gradient(theta)[corpus.O * corpus.Y:],
                               expected_pairs.ravel(), atol=1e-12)


@BEGIN
@pytest.mark.parametrize("Kb", [0, 1, 3])
def test_enumeration(Kb, begin_label):
    for seed in range(12):
        corpus = small_corpus(seed, Kb, begin_label)
        assert_matches(corpus, weights_for(corpus, seed))


@BEGIN
@pytest.mark.parametrize("Kb", [0, 1, 3])
def test_finite_differences(Kb, begin_label):
    for seed in range(4):
        corpus = small_corpus(seed, Kb, begin_label)
        theta = weights_for(corpus, seed)
        grad = evaluate(objective_of(corpus), theta)[1]
        np.testing.assert_allclose(grad, EnumeratedLoss(corpus).differences(theta), atol=1e-8)


def test_only_bigrams():
    corpus = random_corpus(np.random.default_rng(3), [3, 1, 4], 3, K=0, groups=[])
    assert_matches(corpus, weights_for(corpus))


def test_an_observation_may_occur_twice_in_a_token():
    corpus = random_corpus(np.random.default_rng(4), [3, 3], 3, K=2, Kb=2, rows=1, missing=0.0, groups=[[0, 1]])
    assert corpus.sequences[0].unigrams[0].tolist() == [0, 0]
    assert_matches(corpus, weights_for(corpus))


@BEGIN
def test_zero_weights(begin_label):
    """The loss of the uniform model is N log Y."""
    corpus = small_corpus(6, begin_label=begin_label)
    objective = objective_of(corpus)
    value, _ = evaluate(objective, np.zeros(corpus.F))
    assert value == pytest.approx(corpus.dataset().N * math.log(corpus.Y), rel=1e-14)
    assert objective.token_errors == sum(np.count_nonzero(s.labels) for s in corpus.sequences)


@BEGIN
def test_token_errors(begin_label):
    for seed in range(10):
        corpus = small_corpus(seed, 1, begin_label)
        # Positions without any known observation tie; there a different rounding may choose differently.
        corpus.sequences = [s for s in corpus.sequences if (s.unigrams >= 0).any(axis=1).all()]
        if not corpus.sequences:
            continue
        theta = weights_for(corpus, seed)
        objective = objective_of(corpus)
        evaluate(objective, theta)
        assert objective.token_errors == corpus.token_errors(theta)


def test_workspaces_do_not_remember():
    corpus = small_corpus(7, 3, True)
    objective, theta = objective_of(corpus), weights_for(corpus)
    before = evaluate(objective, theta)
    evaluate(objective, weights_for(corpus, 1, spread=5.0))
    evaluate(objective, np.full(corpus.F, np.nan))
    after = evaluate(objective, theta)
    assert before[0] == after[0] and before[1].tobytes() == after[1].tobytes()


@BEGIN
@pytest.mark.parametrize("Y", [3, 8, 11, 20, 70])
def test_a_sequence_does_not_notice_its_neighbours(Y, begin_label):
    """Sequences that move forward together have the very losses, and gradients, that each has alone."""
    rng = np.random.default_rng(Y)
    corpus = random_corpus(rng, rng.integers(1, 10, 70), Y, K=2, Kb=1, rows=3, begin_label=begin_label, groups=[[0, 1]])
    theta = weights_for(corpus)
    lam = corpus.space.split(theta)[1]
    lam *= rng.random(lam.shape) < 0.2
    lam[0, 0] = -30.0                                # in sparse form, sums cancel
    value, grad = evaluate(objective_of(corpus), theta)
    alone, sum_of_grads = [], np.zeros(corpus.F)
    for sequence in corpus.sequences:
        one = Corpus(Y, corpus.O, corpus.Ob, begin_label, [sequence], corpus.groups)
        loss, part = evaluate(objective_of(one), theta)
        alone.append(loss)
        sum_of_grads += part
    assert value == math.fsum(alone)
    np.testing.assert_allclose(grad, sum_of_grads, atol=1e-11)


# Weights that are barred --------------------------------------------------------------------------------


def seen_weights(corpus):
    """Weights of the gold labellings, by walking through them."""
    seen = set()
    for sequence in corpus.sequences:
        seen.update(corpus.features(sequence, sequence.labels.tolist()))
    return np.isin(np.arange(corpus.F), sorted(seen))


@BEGIN
@pytest.mark.parametrize("Kb", [0, 1, 3])
@pytest.mark.parametrize("share", [0.0, 1.0], ids=["together", "listed"])
def test_observed_only(share, Kb, begin_label, monkeypatch):
    monkeypatch.setattr(logloss, "LIST_SHARE", share)
    for seed in range(8):
        corpus = small_corpus(seed, Kb, begin_label)
        seen = seen_weights(corpus)
        theta = np.where(seen, weights_for(corpus, seed), 0.0)
        objective = objective_of(corpus, observed_only=True)
        value, grad = evaluate(objective, theta)
        loss = EnumeratedLoss(corpus)
        assert objective.candidates == np.count_nonzero(seen)
        assert not grad[~seen].any()
        assert value == pytest.approx(loss.value(theta), rel=1e-11, abs=1e-11)
        np.testing.assert_allclose(grad[seen], loss.gradient(theta)[seen], atol=1e-11)


def test_all_features_are_candidates_by_default():
    corpus = small_corpus(2)
    assert objective_of(corpus).candidates == corpus.F


# Threads, blocks, lanes ---------------------------------------------------------------------------------


def large_corpus(begin_label, longest=4, S=150):
    rng = np.random.default_rng(20)
    return random_corpus(rng, rng.integers(1, longest + 1, S), 3, K=4, Kb=2, rows=3, begin_label=begin_label,
                         groups=GROUPS)


def blocks_and_lanes(monkeypatch, block_tokens, copies):
    monkeypatch.setattr(logloss, "BLOCK_TOKENS", block_tokens)
    monkeypatch.setattr(logloss, "LANE_COPY_LIMIT", 1 << 25 if copies else 0)


WAYS = pytest.mark.parametrize("block_tokens,copies", [(16_384, True), (16_384, False), (40, True), (40, False),
                                                       (1, True), (1, False)])


@BEGIN
@WAYS
def test_blocks_and_lanes_by_enumeration(begin_label, block_tokens, copies, monkeypatch):
    blocks_and_lanes(monkeypatch, block_tokens, copies)
    corpus = large_corpus(begin_label)
    objective = objective_of(corpus)
    assert len(objective._blocks) > 1 or block_tokens > 1000
    assert objective._expected.shape[0] == (logloss.LANES if copies else 1)
    assert_matches(corpus, weights_for(corpus), Pool(2))


@BEGIN
@WAYS
def test_threads_give_the_same_bits(begin_label, block_tokens, copies, monkeypatch):
    blocks_and_lanes(monkeypatch, block_tokens, copies)
    corpus = large_corpus(begin_label, longest=25)
    theta, results = weights_for(corpus), set()
    for threads in THREADS:
        pool = Pool(threads)
        objective = objective_of(corpus, pool)
        for _ in range(3):
            value, grad = evaluate(objective, theta)
            results.add((value, objective.token_errors, grad.tobytes()))
        pool.close()
    assert len(results) == 1


@pytest.mark.parametrize("copies", [True, False])
def test_threads_that_really_meet(copies, monkeypatch):
    """Work for milliseconds: two threads that write one row would show."""
    blocks_and_lanes(monkeypatch, 8_000, copies)
    corpus = random_corpus(np.random.default_rng(22), [50] * 400, 20, K=9, Kb=2, rows=2, begin_label=True,
                           missing=0.1, groups=[list(range(8)), [8]])
    theta, results = weights_for(corpus), set()
    for threads in (1, 3, 3, 3, 3):
        pool = Pool(threads)
        value, grad = evaluate(objective_of(corpus, pool), theta)
        results.add((value, grad.tobytes()))
        pool.close()
    assert len(results) == 1


def digest():
    """A fingerprint of a larger evaluation; also run in a process of its own."""
    corpus = random_corpus(np.random.default_rng(21), [40, 1, 13, 7] * 5, 11, K=4, Kb=2, rows=6,
                           begin_label=True, groups=GROUPS)
    value, grad = evaluate(objective_of(corpus), weights_for(corpus))
    return hashlib.sha256(np.append(grad, value).tobytes()).hexdigest()


@pytest.mark.parametrize("level", cpu_levels())
def test_cpu_levels_give_the_same_bits(level):
    here = pathlib.Path(__file__).resolve().parent
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", f"import test_gradient as t; t.MODE = '{MODE}'; print(t.digest())"],
        env={**os.environ, "CRFTOOL_ISA": level, "PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()


# Extreme weights ----------------------------------------------------------------------------------------


def right_or_nan(corpus, theta):
    value, grad = evaluate(objective_of(corpus), theta)
    if math.isnan(value):
        return
    loss = EnumeratedLoss(corpus)
    assert value == pytest.approx(loss.value(theta), rel=1e-11, abs=1e-9)
    np.testing.assert_allclose(grad, loss.gradient(theta), atol=1e-9)


def test_best_path_is_not_lost_by_underflow():
    """See the test of the same name in test_lattice: here the loss of gold AAA is 400, not 0."""
    right_or_nan(*dense_corpus([[0.0, -1000.0], [0.0, 0.0], [0.0, 0.0]], [[-700.0, -1e4], [-1e4, 0.0]]))


@BEGIN
@pytest.mark.parametrize("spread", [50.0, 300.0, 1000.0])
def test_a_value_is_right_or_nan(spread, begin_label):
    """As a line search meets it after a step that is far too long."""
    for seed in range(40):
        corpus = small_corpus(seed, 1, begin_label)
        right_or_nan(corpus, weights_for(corpus, seed, spread))


@BEGIN
def test_weights_beyond_numbers(begin_label):
    corpus = large_corpus(begin_label, S=3)
    used = np.flatnonzero(seen_weights(corpus))
    for bad in (np.nan, np.inf):
        for i in used[::5]:
            theta = np.zeros(corpus.F)
            theta[i] = bad
            assert math.isnan(evaluate(objective_of(corpus), theta)[0])

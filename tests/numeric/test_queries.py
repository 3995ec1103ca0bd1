"""Pair probabilities, entropy, confidence of segments, truncated recursions, constraints and forced labels,
each against the enumeration of all labellings."""

import itertools

import numpy as np
import pytest
from brute_force import random_corpus

from crftool.decode import Lattices
from crftool.kernels import queries
from crftool.kernels.pool import Pool
from crftool.kernels.transitions import Constraint
from crftool.model.weights import TrainedWeights
from crftool.objectives import LogLoss

MODES = pytest.mark.parametrize("mode", ["auto", "scaled", "sparse", "log"])
BEGIN = pytest.mark.parametrize("begin_label", [False, True], ids=["plain", "begin"])


def instances(begin_label, spread=1.5):
    for T, Y in itertools.product(range(1, 5), range(1, 5)):
        rng = np.random.default_rng([T, Y, begin_label])
        corpus = random_corpus(rng, [T, T], Y, Kb=2, begin_label=begin_label)
        yield rng, corpus, rng.normal(0, spread, corpus.F)


def lattices_of(corpus, theta, mode, **options):
    return Lattices(corpus.dataset(), TrainedWeights(corpus.space, theta), Pool(), mode, **options)


def allowed_paths(paths, constraint=None, forced=None):
    """Which rows of `paths` [n][T] a constraint and forced labels [T] leave."""
    keep = np.ones(len(paths), bool)
    if constraint is not None:
        keep &= constraint.start[paths[:, 0]] & constraint.end[paths[:, -1]]
        for t in range(1, paths.shape[1]):
            keep &= constraint.pairs[paths[:, t - 1], paths[:, t]]
    if forced is not None:
        for t, label in enumerate(forced):
            keep &= (label < 0) | (paths[:, t] == label)
    return keep


@MODES
@BEGIN
def test_pair_marginals(mode, begin_label):
    for _, corpus, theta in instances(begin_label):
        lattices = lattices_of(corpus, theta, mode)
        for s, twin in enumerate(corpus.chains(theta)):
            Y = twin.mu.shape[1]
            np.testing.assert_allclose(lattices.pair_marginals(s)[1:], twin.pair_marginals()[1:, :Y], atol=1e-12)


@MODES
@BEGIN
def test_entropy(mode, begin_label):
    for _, corpus, theta in instances(begin_label):
        expected = []
        for twin in corpus.chains(theta):
            p = twin.probabilities()
            expected.append(-np.sum(p * np.log(p)))
        np.testing.assert_allclose(lattices_of(corpus, theta, mode).entropies(), expected, atol=1e-11)


def test_entropy_of_a_certain_and_of_a_free_sequence():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, [3], 4, begin_label=False)
    assert lattices_of(corpus, np.zeros(corpus.F), "auto").entropies() == pytest.approx([3 * np.log(4)])


@MODES
@BEGIN
def test_segments(mode, begin_label):
    """A segment's probability is the sum over the labellings that have it and may start and end it there."""
    for rng, corpus, theta in instances(begin_label):
        lattices = lattices_of(corpus, theta, mode)
        labels = lattices.viterbi()[0]
        Y, offsets = lattices.Y, lattices.dataset.offsets
        starts, ends = rng.random((Y, Y)) < 0.6, rng.random((Y, Y)) < 0.6
        for s, twin in enumerate(corpus.chains(theta)):
            T = offsets[s + 1] - offsets[s]
            for first, last in itertools.combinations_with_replacement(range(T), 2):
                paths = twin.paths
                right = (paths[:, first:last + 1] == labels[offsets[s] + first:offsets[s] + last + 1]).all(axis=1)
                if first > 0:
                    right &= starts[paths[:, first - 1], paths[:, first]]
                if last < T - 1:
                    right &= ends[paths[:, last], paths[:, last + 1]]
                segment = np.array([[offsets[s] + first, offsets[s] + last]])
                found = lattices.segment_probabilities(labels, segment, starts, ends)
                assert found == pytest.approx([twin.probabilities()[right].sum()], abs=1e-12)


@pytest.mark.parametrize("mode", ["scaled", "sparse", "auto"])
@BEGIN
def test_truncated_recursions(mode, begin_label):
    """Between first and last occurrence they give what the whole recursions give."""
    for _, corpus, theta in instances(begin_label):
        lattices = lattices_of(corpus, theta, mode)
        p, log_z = lattices.marginals()
        data = lattices.dataset
        for s in range(data.S):
            here = slice(data.offsets[s], data.offsets[s + 1])
            T = here.stop - here.start
            pairs = lattices.pair_marginals(s)
            psi = np.exp(np.array(lattices.weights.chain(data, "log", Pool()).lam))[:, :lattices.Y]
            for first, last in itertools.combinations_with_replacement(range(T), 2):
                alpha, v, truncated = (np.full((T, lattices.Y), np.nan) for _ in range(3))
                found = queries.truncated_marginals(lattices.chain, lattices.mu[here].copy(), data.transition[here],
                                                    first, last, alpha, v, truncated)
                assert found == pytest.approx(log_z[s], abs=1e-10)
                np.testing.assert_allclose(truncated[first:last + 1], p[here][first:last + 1], atol=1e-12)
                for t in range(max(1, first), last + 1):
                    pair = alpha[t - 1][:, None] * psi[data.transition[here][t]] * v[t][None]
                    np.testing.assert_allclose(pair / pair.sum(), pairs[t], atol=1e-12)


def random_constraint(rng, Y):
    pairs, start, end = rng.random((Y, Y)) < 0.6, rng.random(Y) < 0.7, rng.random(Y) < 0.7
    return Constraint(pairs, start, end)


@MODES
@BEGIN
def test_constraints_and_forced_labels(mode, begin_label):
    tried = 0
    for rng, corpus, theta in instances(begin_label):
        for _ in range(12):
            Y, data = corpus.space.Y, corpus.dataset()
            constraint = random_constraint(rng, Y)
            forced = np.where(rng.random(data.N) < 0.25, rng.integers(0, Y, data.N), -1)
            keeps = [allowed_paths(twin.paths, constraint, forced[a:b])
                     for twin, a, b in zip(corpus.chains(theta), data.offsets, data.offsets[1:])]
            if not all(keep.any() for keep in keeps):
                continue
            tried += 1
            lattices = lattices_of(corpus, theta, mode, constraint=constraint, forced=forced)
            check_constrained(lattices, corpus.chains(theta), keeps)
    assert tried > 50


def check_constrained(lattices, twins, keeps):
    data = lattices.dataset
    p, log_z = lattices.marginals()
    labels, best = lattices.viterbi()
    for s, (twin, keep) in enumerate(zip(twins, keeps)):
        paths, scores = twin.paths[keep], twin.scores(twin.paths)[keep]
        assert log_z[s] == pytest.approx(np.logaddexp.reduce(scores), abs=1e-10)
        assert best[s] == pytest.approx(scores.max(), abs=1e-10)
        here = slice(data.offsets[s], data.offsets[s + 1])
        assert lattices.path_scores(labels)[s] == pytest.approx(scores.max(), abs=1e-10)
        weights = np.exp(scores - log_z[s]).astype(float)
        for t in range(paths.shape[1]):
            expected = np.bincount(paths[:, t], weights, lattices.Y)
            np.testing.assert_allclose(p[here][t], expected, atol=1e-11)
        found, values = lattices.best_paths(s, len(paths) + 3)
        assert len(found) == len(paths)
        np.testing.assert_allclose(values, np.sort(scores)[::-1], atol=1e-10)
        assert np.isclose(lattices.entropies()[s], -np.sum(weights * np.log(weights)), atol=1e-10)


@MODES
@BEGIN
def test_constrained_loss_and_gradient(mode, begin_label):
    """log Z over the allowed labellings minus the score of the gold one; gradient by central differences."""
    for rng, corpus, theta in instances(begin_label, spread=1.0):
        Y, data = corpus.space.Y, corpus.dataset()
        constraint = random_constraint(rng, Y)
        for a, b in zip(data.offsets, data.offsets[1:]):             # the gold labels must be allowed
            gold = data.labels[a:b]
            constraint.pairs[gold[:-1], gold[1:]] = True
            constraint.start[gold[0]] = constraint.end[gold[-1]] = True

        def loss(weights):
            total = 0.0
            for twin, a, b in zip(corpus.chains(weights), data.offsets, data.offsets[1:]):
                scores = twin.scores(twin.paths)[allowed_paths(twin.paths, constraint)]
                total += np.logaddexp.reduce(scores) - twin.scores(data.labels[None, a:b])[0]
            return float(total)

        objective = LogLoss(data, corpus.space, corpus.groups, Pool(), inference=mode, constraint=constraint)
        grad = np.empty(corpus.F)
        assert objective.value_and_gradient(theta, grad) == pytest.approx(loss(theta), abs=1e-10)
        for i in rng.permutation(corpus.F)[:12]:
            h, e = 1e-3, np.eye(1, corpus.F, i)[0]
            slope = (8 * (loss(theta + h * e) - loss(theta - h * e))
                     - (loss(theta + 2 * h * e) - loss(theta - 2 * h * e))) / (12 * h)
            assert grad[i] == pytest.approx(slope, abs=1e-8)


def test_paths_that_cannot_mix_are_not_lost():
    """Two sets of labels that forbid each other: one falls behind by far more than a double can hold, and
    only the last position shows that it was right."""
    T, Y = 400, 4
    rng = np.random.default_rng(1)
    corpus = random_corpus(rng, [T], Y, K=1, rows=1, Kb=1, begin_label=False)
    apart = np.zeros((Y, Y), bool)
    apart[:2, :2] = apart[2:, 2:] = True
    constraint = Constraint(apart, np.ones(Y, bool), np.array([False, False, True, True]))
    lattices = lattices_of(corpus, np.zeros(corpus.F), "auto", constraint=constraint)
    lattices.mu[:] = [0.0, 0.0, -5.0, -5.0]
    p, log_z = lattices.marginals()
    assert log_z == pytest.approx([T * (np.log(2) - 5.0)])
    np.testing.assert_allclose(p, np.tile([0.0, 0.0, 0.5, 0.5], (T, 1)), atol=1e-12)
    assert set(lattices.viterbi()[0]) <= {2, 3}


def test_a_million_tokens():
    rng = np.random.default_rng(2)
    corpus = random_corpus(rng, [3], 3, begin_label=False)
    lattices = lattices_of(corpus, rng.normal(0, 1, corpus.F), "auto")
    N = 1_000_000
    long = type(lattices.dataset)(np.array([0, N]), np.zeros((N, 0), np.int32), np.zeros(N, np.int32),
                                  lattices.dataset.bigrams)
    lattices.dataset, lattices.mu = long, rng.normal(0, 1, (N, 3))
    p, log_z = lattices.marginals()
    assert np.isfinite(log_z).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-9)
    labels, score = lattices.viterbi()
    assert score[0] == pytest.approx(lattices.path_scores(labels)[0])
    assert score[0] <= log_z[0]


def test_many_labels_and_wide_back_pointers():
    """More than 256 labels: the sparse and the dense recursions agree."""
    rng = np.random.default_rng(3)
    Y = 300
    corpus = random_corpus(rng, [5, 4], Y, Kb=1, rows=2, begin_label=False)
    theta = rng.normal(0, 1, corpus.F)
    theta[corpus.space.O * Y:] *= rng.random(corpus.F - corpus.space.O * Y) < 0.01
    dense, sparse = lattices_of(corpus, theta, "scaled"), lattices_of(corpus, theta, "sparse")
    for a, b in zip(dense.marginals(), sparse.marginals()):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert (dense.viterbi()[0] == sparse.viterbi()[0]).all()
    for (a, x), (b, y) in zip((dense.best_paths(s, 7) for s in range(2)), (sparse.best_paths(s, 7) for s in range(2))):
        assert (a == b).all()
        np.testing.assert_allclose(x, y, rtol=1e-12)

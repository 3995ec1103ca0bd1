"""Forward-backward, Viterbi and n-best paths against the enumeration of all labellings."""

import sys

import numpy as np
import pytest
from brute_force import Chain, Corpus, Sequence, dense_corpus, random_corpus

from crftool.decode import Lattices, decode, decode_best
from crftool.errors import NumericError
from crftool.kernels.pool import Pool
from crftool.model.weights import TrainedWeights

SIZES = [(T, Y) for T in range(1, 5) for Y in range(1, 5)]
BEGIN = pytest.mark.parametrize("begin_label", [False, True], ids=["plain", "begin"])
THREADS = (1, 2, 3)


@pytest.fixture(scope="module")
def pools():
    pools = {threads: Pool(threads) for threads in THREADS}
    yield pools
    for pool in pools.values():
        pool.close()


MODE = "auto"


@pytest.fixture(autouse=True, params=["auto", "scaled", "sparse", "log"])
def mode(request, monkeypatch):
    """Every test runs with every form of the recursions."""
    monkeypatch.setattr(sys.modules[__name__], "MODE", request.param)
    return request.param


def lattices_of(corpus, theta, pool=None):
    return Lattices(corpus.dataset(), TrainedWeights(corpus.space, theta), pool or Pool(), MODE)


def blocks(lattices):
    """lam [C][R][Y] of all transitions."""
    return np.array(lattices.weights.chain(lattices.dataset, "log", lattices.pool).lam)


def instances(begin_label, integer=False, Kb=2):
    """Random corpora of three sequences of one shape, with weights."""
    for T, Y in SIZES:
        rng = np.random.default_rng([T, Y, begin_label, integer, Kb])
        corpus = random_corpus(rng, [T] * 3, Y, Kb=Kb, begin_label=begin_label)
        theta = rng.integers(-1, 2, corpus.F).astype(float) if integer else rng.normal(0, 1.5, corpus.F)
        yield corpus, theta


def slices(dataset):
    return [slice(a, b) for a, b in zip(dataset.offsets[:-1], dataset.offsets[1:])]


# The twin itself ----------------------------------------------------------------------------------------


def test_twin_by_hand():
    chain = Chain(np.log([[1.0, 2.0], [3.0, 1.0]]), np.log([[[1.0] * 2] * 2, [[1.0, 4.0], [2.0, 1.0]]]))
    weights = np.array([3.0, 4.0, 12.0, 2.0])                # 1*1*3, 1*4*1, 2*2*3, 2*1*1
    assert chain.log_z() == pytest.approx(np.log(weights.sum()))
    assert chain.probabilities() == pytest.approx(weights / weights.sum())
    assert chain.token_marginals() == pytest.approx(np.array([[7, 14], [15, 6]]) / 21)
    assert chain.pair_marginals()[1] == pytest.approx(weights.reshape(2, 2) / 21)
    assert chain.best_path()[0].tolist() == [1, 0]


def test_twin_prefers_low_labels_from_the_end():
    free = Chain(np.zeros((3, 2)), np.zeros((3, 2, 2)))
    assert free.best_path()[0].tolist() == [0, 0, 0]
    # (0, 1) and (1, 0) are equally good: the last label decides
    crossed = Chain(np.zeros((2, 2)), np.array([[[0.0] * 2] * 2, [[0.0, 1.0], [1.0, 0.0]]]))
    assert crossed.best_path()[0].tolist() == [1, 0]


# Scores, forward-backward -------------------------------------------------------------------------------


@BEGIN
@pytest.mark.parametrize("Kb", [1, 3])
def test_scores(begin_label, Kb):
    for corpus, theta in instances(begin_label, Kb=Kb):
        lattices = lattices_of(corpus, theta)
        transition = lattices.dataset.transition
        for where, chain in zip(slices(lattices.dataset), corpus.chains(theta)):
            np.testing.assert_allclose(lattices.mu[where], chain.mu, rtol=1e-13, atol=1e-13)
            used = slice(where.start if begin_label else where.start + 1, where.stop)
            np.testing.assert_allclose(blocks(lattices)[transition[used]], chain.lam[0 if begin_label else 1:],
                                       rtol=1e-13, atol=1e-13)


def assert_marginals(corpus, theta, pool=None):
    lattices = lattices_of(corpus, theta, pool)
    p, log_z = lattices.marginals()
    chains = corpus.chains(theta)
    np.testing.assert_allclose(log_z, [chain.log_z() for chain in chains], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(p, np.concatenate([chain.token_marginals() for chain in chains]), atol=1e-12)


@BEGIN
def test_marginals(begin_label):
    for corpus, theta in instances(begin_label):
        assert_marginals(corpus, theta)


@BEGIN
def test_no_bigram_template(begin_label):
    """Without B templates, or with none whose observations are known, labels are independent."""
    for corpus, theta in instances(begin_label, Kb=0):
        assert_marginals(corpus, theta)
        assert_viterbi(corpus, theta)


def test_no_unigram_template():
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, [3, 1, 4], 3, K=0, groups=[])
    assert_marginals(corpus, rng.normal(0, 1, corpus.F))


def test_unknown_rows_are_ignored():
    rng = np.random.default_rng(6)
    corpus = random_corpus(rng, [3, 2], 3, missing=1.0)
    p, log_z = lattices_of(corpus, rng.normal(0, 1, corpus.F)).marginals()
    np.testing.assert_allclose(p, 1 / 3, rtol=1e-14)
    np.testing.assert_allclose(log_z, [3 * np.log(3), 2 * np.log(3)], rtol=1e-14)


# Viterbi ------------------------------------------------------------------------------------------------


def assert_viterbi(corpus, theta, pool=None):
    lattices = lattices_of(corpus, theta, pool)
    labels, scores = lattices.viterbi()
    for s, (where, chain) in enumerate(zip(slices(lattices.dataset), corpus.chains(theta))):
        path, score = chain.best_path()
        assert labels[where].tolist() == path.tolist()
        assert scores[s] == pytest.approx(score, rel=1e-13, abs=1e-13)


@BEGIN
@pytest.mark.parametrize("integer", [False, True], ids=["real", "ties"])
def test_viterbi(begin_label, integer):
    for corpus, theta in instances(begin_label, integer):
        assert_viterbi(corpus, theta)


@BEGIN
def test_viterbi_of_zero_weights(begin_label):
    for corpus, theta in instances(begin_label):
        labels, scores = lattices_of(corpus, np.zeros_like(theta)).viterbi()
        assert not labels.any() and not scores.any()


@BEGIN
def test_ties_are_common_in_the_instances(begin_label):
    """Else the test above would show nothing."""
    tied = 0
    for corpus, theta in instances(begin_label, integer=True):
        for chain in corpus.chains(theta):
            scores = chain.scores(chain.paths)
            tied += np.count_nonzero(scores == scores.max()) > 1
    assert tied > 10


# n-best -------------------------------------------------------------------------------------------------


def assert_best_paths(found, chain, n):
    paths, scores = found
    ranked, all_scores = chain.ranked_paths()
    count = min(n, len(ranked))
    assert paths.shape == (count, chain.T) and scores.shape == (count,)
    assert len({tuple(path) for path in paths.tolist()}) == count
    assert (np.diff(scores) <= 0).all()
    np.testing.assert_allclose(scores, all_scores[:count], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(chain.scores(paths).astype(float), scores, rtol=1e-12, atol=1e-12)
    return ranked


@BEGIN
@pytest.mark.parametrize("T,Y", SIZES)
def test_best_paths_for_every_n(T, Y, begin_label):
    rng = np.random.default_rng([T, Y, begin_label])
    corpus = random_corpus(rng, [2, T], Y, begin_label=begin_label)
    theta = rng.normal(0, 1.5, corpus.F)
    lattices, chain = lattices_of(corpus, theta), corpus.chains(theta)[1]
    # A position without any known observation makes labels tie; then more than one order is right.
    unique = len(np.unique(chain.ranked_paths()[1].round(9))) == Y ** T
    for n in range(0, Y ** T + 3):
        found = lattices.best_paths(1, n)
        ranked = assert_best_paths(found, chain, n)
        if unique:
            assert found[0].tolist() == ranked[:n].tolist()


@BEGIN
def test_best_paths_with_ties(begin_label):
    for corpus, theta in instances(begin_label, integer=True):
        lattices = lattices_of(corpus, theta)
        labels = lattices.viterbi()[0]
        for s, chain in enumerate(corpus.chains(theta)):
            for n in {1, 2, 3, 7, chain.Y ** chain.T // 2 + 1, chain.Y ** chain.T + 1}:
                found = lattices.best_paths(s, n)
                assert_best_paths(found, chain, n)
                assert found[0][0].tolist() == labels[slices(lattices.dataset)[s]].tolist()


@BEGIN
def test_probabilities_of_all_paths_sum_to_one(begin_label):
    for corpus, theta in instances(begin_label):
        lists, marginals = decode_best(lattices_of(corpus, theta), 10_000)
        for chain, found in zip(corpus.chains(theta), lists):
            assert len(found) == chain.Y ** chain.T
            assert sum(probability for _, probability in found) == pytest.approx(1, abs=1e-12)
            np.testing.assert_allclose([probability for _, probability in found],
                                       np.sort(chain.probabilities())[::-1], atol=1e-13)
        np.testing.assert_allclose(
            marginals, np.concatenate([chain.token_marginals() for chain in corpus.chains(theta)]), atol=1e-12)


def k_best_scores(mu, lam, n):
    """The n best scores, by keeping the n best partial paths that end in each label."""
    T, Y = mu.shape
    kept = [np.array([mu[0, y]]) for y in range(Y)]
    for t in range(1, T):
        kept = [mu[t, y] + np.sort(np.concatenate([kept[i] + lam[i, y] for i in range(Y)]))[::-1][:n]
                for y in range(Y)]
    return np.sort(np.concatenate(kept))[::-1][:n]


def test_best_paths_of_a_long_sequence():
    rng = np.random.default_rng(8)
    T, Y, n = 60, 12, 150
    corpus, theta = dense_corpus(rng.normal(0, 1, (T, Y)), rng.normal(0, 1, (Y, Y)))
    mu, lam = corpus.space.split(theta)
    paths, scores = lattices_of(corpus, theta).best_paths(0, n)
    np.testing.assert_allclose(scores, k_best_scores(mu, lam[0], n), rtol=1e-12)
    assert len({tuple(path) for path in paths.tolist()}) == n
    rescored = Chain(mu, np.repeat(lam, T, axis=0)).scores(paths).astype(float)
    np.testing.assert_allclose(scores, rescored, rtol=1e-12)


# Given paths, and decoding as a whole -------------------------------------------------------------------


@BEGIN
def test_path_scores(begin_label):
    for corpus, theta in instances(begin_label):
        lattices = lattices_of(corpus, theta)
        gold = lattices.path_scores(lattices.dataset.labels)
        expected = [float(chain.scores(sequence.labels[None])[0])
                    for chain, sequence in zip(corpus.chains(theta), corpus.sequences)]
        np.testing.assert_allclose(gold, expected, rtol=1e-12, atol=1e-12)


def probability_of(chain, path):
    return float(np.exp(chain.scores(np.array([path]))[0] - chain.log_z()))


@BEGIN
@pytest.mark.parametrize("posterior", [False, True])
def test_decode(begin_label, posterior):
    for corpus, theta in instances(begin_label):
        decoded = decode(lattices_of(corpus, theta), posterior, probabilities=True)
        for s, (where, chain) in enumerate(zip(slices(corpus.dataset()), corpus.chains(theta))):
            marginals = chain.token_marginals()
            path = decoded.labels[where]
            if posterior:                            # the label of each token is as probable as any
                chosen = marginals[np.arange(chain.T), path]
                np.testing.assert_allclose(chosen, marginals.max(axis=1), atol=1e-12)
            else:
                best = chain.scores(chain.paths).max()
                assert float(chain.scores(path[None])[0]) == pytest.approx(float(best), abs=1e-12)
            assert decoded.probability[s] == pytest.approx(probability_of(chain, path), abs=1e-12)


# Shapes -------------------------------------------------------------------------------------------------


@BEGIN
def test_sequences_of_different_length(begin_label, pools):
    rng = np.random.default_rng(9)
    corpus = random_corpus(rng, rng.integers(1, 6, 60), 3, begin_label=begin_label)
    theta = rng.normal(0, 1, corpus.F)
    for pool in pools.values():
        assert_marginals(corpus, theta, pool)
        assert_viterbi(corpus, theta, pool)


@BEGIN
@pytest.mark.parametrize("lengths", [[0], [0, 0, 0], [0, 2, 0, 0, 3, 0], [1, 0]])
def test_sequences_of_length_zero(begin_label, lengths, pools):
    rng = np.random.default_rng(10)
    corpus = random_corpus(rng, lengths, 3, begin_label=begin_label)
    theta = rng.normal(0, 1, corpus.F)
    for pool in pools.values():
        assert_marginals(corpus, theta, pool)
        assert_viterbi(corpus, theta, pool)
    lattices = lattices_of(corpus, theta)
    gold = lattices.path_scores(lattices.dataset.labels)
    for s, T in enumerate(lengths):
        if T == 0:
            assert gold[s] == 0.0
            assert lattices.best_paths(s, 5)[0].shape[1] == 0


def log_sum(x, axis):
    largest = x.max(axis=axis, keepdims=True)
    return np.squeeze(largest, axis) + np.log(np.exp(x - largest).sum(axis=axis))


def log_domain(mu, lam):
    """(log Z, marginals [T][Y]) by the unscaled recursions in the log domain."""
    T = len(mu)
    forward, backward = mu.copy(), np.zeros_like(mu)
    for t in range(1, T):
        forward[t] += log_sum(forward[t - 1][:, None] + lam, 0)
    for t in range(T - 2, -1, -1):
        backward[t] = log_sum(lam + mu[t + 1] + backward[t + 1], 1)
    log_z = log_sum(forward[-1], 0)
    return float(log_z), np.exp(forward + backward - log_z)


def max_domain(mu, lam):
    """(labels, score) of the best path, by the recursion on whole rows."""
    best, back = mu[0], []
    for t in range(1, len(mu)):
        candidates = best[:, None] + lam
        back.append(candidates.argmax(axis=0))
        best = candidates.max(axis=0) + mu[t]
    path = [int(best.argmax())]
    for pointers in reversed(back):
        path.append(int(pointers[path[-1]]))
    return path[::-1], best.max()


@pytest.mark.parametrize("Y", [5, 8, 30, 33])
@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_larger_lattices(Y, spread):
    rng = np.random.default_rng([Y, int(10 * spread)])
    T = 200
    corpus, theta = dense_corpus(rng.normal(0, spread, (T, Y)), rng.normal(0, spread, (Y, Y)))
    mu, lam = corpus.space.split(theta)
    lattices = lattices_of(corpus, theta)
    p, log_z = lattices.marginals()
    expected_z, expected_p = log_domain(mu, lam[0])
    assert log_z[0] == pytest.approx(expected_z, rel=1e-12)
    np.testing.assert_allclose(p, expected_p, atol=1e-9)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-10)
    labels, scores = lattices.viterbi()
    path, score = max_domain(mu, lam[0])
    assert labels.tolist() == path
    assert scores[0] == pytest.approx(score, rel=1e-12)


@BEGIN
def test_threads_give_the_same_bits(begin_label, pools):
    rng = np.random.default_rng(11)
    corpus = random_corpus(rng, rng.integers(0, 30, 300), 9, begin_label=begin_label, rows=20)
    theta = rng.normal(0, 2, corpus.F)
    results = set()
    for pool in pools.values():
        lattices = lattices_of(corpus, theta, pool)
        arrays = [lattices.mu, blocks(lattices), *lattices.marginals(), *lattices.viterbi()]
        results.add(b"".join(array.tobytes() for array in arrays))
    assert len(results) == 1


# Extreme scores -----------------------------------------------------------------------------------------


def right_or_refused(corpus, theta):
    """True if log Z and marginals are right, False if the kernel says that it cannot tell."""
    chain, = corpus.chains(theta)
    try:
        p, log_z = lattices_of(corpus, theta).marginals()
    except NumericError:
        return False
    assert log_z[0] == pytest.approx(chain.log_z(), rel=1e-12, abs=1e-9)
    np.testing.assert_allclose(p, chain.token_marginals(), atol=1e-9)
    return True


@BEGIN
def test_huge_unigram_scores(begin_label):
    for T, Y in SIZES:
        rng = np.random.default_rng([T, Y])
        for _ in range(10):
            mu = rng.choice([-1e4, 0.0, 1e4], (T, Y)) + rng.normal(0, 1, (T, Y))
            lam = rng.normal(0, 1, (Y + begin_label, Y))
            assert right_or_refused(*dense_corpus(mu, lam, begin_label))


@BEGIN
def test_forbidden_transitions(begin_label):
    for T, Y in SIZES:
        rng = np.random.default_rng([T, Y])
        for _ in range(10):
            lam = np.where(rng.random((Y + begin_label, Y)) < 0.4, -1e4, rng.normal(0, 1, (Y + begin_label, Y)))
            right_or_refused(*dense_corpus(rng.normal(0, 2, (T, Y)), lam, begin_label))


@BEGIN
def test_extreme_scores_everywhere(begin_label):
    """Steps of every size up to total loss: a path that seems lost may turn out to be the best."""
    levels = np.array([0.0, -100.0, -300.0, -700.0, -760.0, -1000.0, -1e4])
    wrong = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        T, Y = rng.integers(1, 5), rng.integers(1, 5)
        mu = rng.choice(levels, (T, Y)) + rng.normal(0, 1, (T, Y))
        lam = rng.choice(levels, (Y + begin_label, Y))
        try:
            right_or_refused(*dense_corpus(mu, lam, begin_label))
        except AssertionError:
            wrong.append(seed)
    assert not wrong


def test_best_path_is_not_lost_by_underflow():
    """A starts 1000 better but pays 700 at each step; the whole sum is B's. log Z = -1000, not -1400."""
    right_or_refused(*dense_corpus([[0.0, -1000.0], [0.0, 0.0], [0.0, 0.0]], [[-700.0, -1e4], [-1e4, 0.0]]))


def test_scores_beyond_numbers():
    for bad in (np.nan, np.inf):
        for where in range(6):
            mu, lam = np.zeros((3, 2)), np.zeros((2, 2))
            mu.flat[where] = bad
            with pytest.raises(NumericError):
                lattices_of(*dense_corpus(mu, lam)).marginals()
        for where in range(4):
            mu, lam = np.zeros((3, 2)), np.zeros((2, 2))
            lam.flat[where] = bad
            with pytest.raises(NumericError):
                lattices_of(*dense_corpus(mu, lam)).marginals()


def test_several_bigram_observations_add_up():
    """One position with two observations, another with one, another with none."""
    sequence = Sequence(np.zeros((4, 1), np.int32), np.array([[0, 1], [0, 1], [1, -1], [-1, -1]], np.int32),
                        np.zeros(4, np.int32))
    corpus = Corpus(2, 1, 2, False, [sequence])
    theta = np.random.default_rng(12).normal(0, 1, corpus.F)
    assert_marginals(corpus, theta)
    assert_viterbi(corpus, theta)

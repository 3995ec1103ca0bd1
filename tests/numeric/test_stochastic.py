"""Stochastic descent against the same steps by enumeration; and that threads change nothing."""

import numpy as np
import pytest
from brute_force import Corpus, EnumeratedLoss, random_corpus

from crftool.kernels.pool import Pool
from crftool.objectives import stochastic
from crftool.objectives.stochastic import StochasticLoss


def a_corpus(seed, Kb, begin_label, S=7):
    rng = np.random.default_rng([seed, Kb, begin_label])
    lengths = np.concatenate((rng.integers(1, 5, S - 1), [0]))
    return random_corpus(rng, rng.permutation(lengths), 3, K=2, Kb=Kb, rows=3, begin_label=begin_label)


def settled(theta, paid, due):
    """Tsuruoka's penalty: (weights, what they have had), moved towards zero by what is due, not beyond."""
    new = np.where(theta > 0.0, np.maximum(0.0, theta - (due + paid)),
                   np.where(theta < 0.0, np.minimum(0.0, theta + (due - paid)), 0.0))
    return new, paid + (new - theta)


def plain_descent(corpus, theta, order, steps, group, shrink, threshold, barred):
    """(theta, losses) by the definition: each sequence's gradient enumerated at the weights from before its group."""
    theta, paid, due, losses = theta.copy(), np.zeros(corpus.F), 0.0, []
    space = corpus.space
    for first in range(0, len(order), group):
        change, touched = np.zeros(corpus.F), np.zeros(corpus.F, bool)
        mu, lam = space.split(touched)
        for j in range(first, min(len(order), first + group)):
            sequence = corpus.sequences[order[j]]
            losses.append(0.0)
            if len(sequence):
                loss = EnumeratedLoss(Corpus(corpus.Y, corpus.O, corpus.Ob, corpus.begin_label, [sequence]))
                losses[-1] = loss.value(theta)
                if steps[j] == 0.0:
                    continue
                change -= steps[j] * loss.gradient(theta)
                mu[[o for o in np.ravel(sequence.unigrams) if o >= 0]] = True
                pairs = np.asarray(sequence.bigrams)[0 if corpus.begin_label else 1:]
                lam[[b for b in np.ravel(pairs) if b >= 0]] = True
            due += threshold * steps[j]
        theta = theta * np.prod(1.0 - shrink * steps[first:first + group]) + change
        theta[barred] = 0.0
        if threshold:
            theta[touched], paid[touched] = settled(theta[touched], paid[touched], due)
    return settled(theta, paid, due)[0] if threshold else theta, losses


@pytest.mark.parametrize("begin_label", [False, True], ids=["plain", "begin"])
@pytest.mark.parametrize("Kb", [0, 1, 2])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("shrink, threshold", [(0.0, 0.0), (0.05, 0.0), (0.05, 0.1)])
@pytest.mark.parametrize("few", [False, True], ids=["free", "barred"])
def test_descent_takes_the_steps_of_the_definition(Kb, begin_label, group, shrink, threshold, few, monkeypatch):
    monkeypatch.setattr(stochastic, "SMALLEST_SCALE", 0.9)       # so that weights are rescaled on the way
    corpus = a_corpus(group, Kb, begin_label)
    rng = np.random.default_rng(1)
    order, start = np.concatenate([rng.permutation(7), rng.permutation(7)]), rng.normal(0, 0.3, corpus.F)
    steps, barred = rng.uniform(0.1, 0.5, len(order)), (rng.random(corpus.F) < 0.4) & few
    start[barred] = 0.0
    steps[2] = 0.0                                               # only looked at
    expected, losses = plain_descent(corpus, start, order, steps, group, shrink, threshold, barred)
    found = []
    for threads in (1, 2, 3):
        pool, theta, paid = Pool(threads), start.copy(), np.zeros(corpus.F, np.float32) if threshold else None
        loss = StochasticLoss(corpus.dataset(), corpus.space, corpus.groups, pool, None, barred if few else None, group)
        value, failed, due = loss.descend(theta, order, steps, shrink, threshold, paid)
        pool.close()
        assert failed == 0 and due == pytest.approx(threshold * steps.sum())
        assert value == pytest.approx(sum(losses), rel=1e-7 if threshold else 1e-10)
        np.testing.assert_allclose(theta, expected, atol=1e-6 if threshold else 1e-12)
        found.append(theta.tobytes())
    assert len(set(found)) == 1


def test_a_sequence_out_of_range_is_left_out():
    corpus = a_corpus(1, 1, False)
    loss, theta = StochasticLoss(corpus.dataset(), corpus.space, corpus.groups, Pool(2), group=2), np.zeros(corpus.F)
    corpus.space.split(theta)[1][:, 0, 0] = 2000.0
    value, failed, _ = loss.descend(theta, np.arange(7), np.zeros(7))
    assert 0 < failed < 7 and np.isfinite(value)


def test_groups_fit_the_data_and_the_memory(monkeypatch):
    def group(S, lengths=2):
        corpus = random_corpus(np.random.default_rng(1), [lengths] * S, 3, K=1, Kb=1, rows=3)
        return StochasticLoss(corpus.dataset(), corpus.space, corpus.groups, Pool()).group
    assert [group(S) for S in (1, 300, 800, 5000)] == [1, 1, 4, 4]
    monkeypatch.setattr(stochastic, "ROOM_LIMIT", 5000)
    assert group(5000) < 4 and group(5000, 1000) == 1


@pytest.mark.parametrize("seed", range(3))
def test_many_threads_and_groups_give_the_same_bits(seed):
    """Many small tasks that wait for each other, more threads than processors."""
    corpus = random_corpus(np.random.default_rng(seed), [3, 1, 9, 0, 4] * 60, 5, K=4, Kb=2, rows=30,
                           groups=[[0], [1, 2], [3]])
    rng = np.random.default_rng(seed)
    order, steps, found = rng.permutation(300), np.full(300, 0.1), set()
    for threads in (1, 2, 5):
        pool, theta, paid = Pool(threads), np.zeros(corpus.F), np.zeros(corpus.F, np.float32)
        loss = StochasticLoss(corpus.dataset(), corpus.space, corpus.groups, pool, group=4)
        for _ in range(3):
            loss.descend(theta, order, steps, 1e-3, 1e-3, paid)
        pool.close()
        found.add(theta.tobytes() + paid.tobytes())
    assert len(found) == 1

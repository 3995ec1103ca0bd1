"""Filters against their definitions, worked out token by token from indicators."""

import math

import numpy as np
import pytest

from crftool.corpus.dataset import read_training_data
from crftool.corpus.template import Template
from crftool.selection import filters

TEMPLATE = b"U:%x[0,0]\nU:%x[1,0]\nV:%x[-1,1]\nB\nB:%x[0,1]\n".replace(b"V:", b"UV:")


def corpus(tmp_path, seed, begin_label=False):
    rng = np.random.default_rng(seed)
    sequences = []
    for length in rng.integers(1, 7, 12):
        sequences.append(b"".join(b"%c %c %c\n" % (97 + rng.integers(4), 112 + rng.integers(3), 65 + rng.integers(3))
                                  for _ in range(length)))
    path = tmp_path / "train.txt"
    path.write_bytes(b"\n".join(sequences))
    return read_training_data(str(path), Template(TEMPLATE), begin_label)


def indicators(encoder, dataset):
    """For every feature (v [tokens], z [tokens], label of all tokens), from the definition."""
    space, out = encoder.space, []
    tokens = [(s, t) for s in range(dataset.S) for t in range(dataset.offsets[s], dataset.offsets[s + 1])]
    for o in range(space.O):
        for y in range(space.Y):
            v = np.array([o in dataset.unigrams[t] for _, t in tokens])
            out.append((v, dataset.labels == y, dataset.labels))
    after = [(s, t) for s, t in tokens if space.begin_label or t > dataset.offsets[s]]
    before = [dataset.labels[t - 1] if t > dataset.offsets[s] else space.Y for s, t in after]
    now = np.array([dataset.labels[t] for _, t in after])
    for b in range(space.Ob):
        for previous in range(space.R):
            for y in range(space.Y):
                v = np.array([b in dataset.bigrams[dataset.transition[t]] and previous == p
                              for (_, t), p in zip(after, before)])
                out.append((v, now == y, now))
    return out


def entropy(*variables):
    """In nats, of the joint values."""
    counts = {}
    for value in zip(*variables):
        counts[value] = counts.get(value, 0) + 1
    n = len(variables[0])
    return -sum(c / n * math.log(c / n) for c in counts.values())


def count(v, z, labels):
    return sum(a and b for a, b in zip(v, z))


def mutual_information(v, z, labels):
    total, n = 0.0, len(v)
    for a in (False, True):
        for b in (False, True):
            joint = np.sum((v == a) & (z == b)) / n
            if joint:
                total += joint * math.log(joint / (np.mean(v == a) * np.mean(z == b)))
    return total


def chi2(v, z, labels):
    total, n = 0.0, len(v)
    for a in (False, True):
        for b in (False, True):
            expected = np.sum(v == a) * np.sum(z == b) / n
            if not expected:
                return 0.0
            total += (np.sum((v == a) & (z == b)) - expected) ** 2 / expected
    return total


def gain(v, z, labels):
    return entropy(labels) + entropy(v) - entropy(v, labels)


def gain_ratio(v, z, labels):
    return gain(v, z, labels) / entropy(v) if entropy(v) else 0.0


def variance(v, z, labels):
    return np.var(v.astype(float))


def t_statistic(v, z, labels):
    one, rest = v[z].astype(float), v[~z].astype(float)
    if not len(one) or not len(rest) or one.mean() == rest.mean():
        return 0.0
    pooled = (np.sum((one - one.mean()) ** 2) + np.sum((rest - rest.mean()) ** 2)) / (len(v) - 2)
    return abs(one.mean() - rest.mean()) / math.sqrt(pooled * (1 / len(one) + 1 / len(rest))) if pooled else math.inf


NAIVE = {"count": count, "mi": mutual_information, "chi2": chi2, "gain": gain, "gain-ratio": gain_ratio,
         "variance": variance, "t": t_statistic}


@pytest.mark.parametrize("begin_label", [False, True])
@pytest.mark.parametrize("measure", filters.MEASURES)
def test_measures_equal_their_definition(tmp_path, measure, begin_label):
    for seed in range(2):
        encoder, dataset = corpus(tmp_path, seed, begin_label)
        tables = filters.count_tables(dataset, encoder.space, encoder.unigrams.groups())
        values = np.concatenate([filters.worth(measure, part).reshape(-1) for part in tables])
        naive = [NAIVE[measure](*feature) for feature in indicators(encoder, dataset)]
        np.testing.assert_allclose(values, naive, atol=1e-12)


def test_tables_by_hand(tmp_path):
    """a occurs at 3 of 5 tokens, twice with A; the text `a` comes from two templates but counts once a token."""
    (tmp_path / "train.txt").write_bytes(b"a A\na B\n\nb A\na A\nb B\n")
    encoder, dataset = read_training_data(str(tmp_path / "train.txt"), Template(b"U:%x[0,0]\nU:%x[0,0]\nB\n"))
    unigrams, bigrams = filters.count_tables(dataset, encoder.space, encoder.unigrams.groups())
    assert unigrams.both.tolist() == [[2, 1], [1, 1]]
    assert unigrams.v.tolist() == [3, 2] and unigrams.z.tolist() == [3, 2] and unigrams.n == 5
    assert bigrams.both.tolist() == [[1, 2], [0, 0]]           # A A once, A B twice
    assert bigrams.v.tolist() == [3, 0] and bigrams.z.tolist() == [1, 2] and bigrams.n == 3


def test_perfect_and_useless_features(tmp_path):
    (tmp_path / "train.txt").write_bytes(b"a x A\n\nb x B\n\na x A\n\nb x B\n")
    encoder, dataset = read_training_data(str(tmp_path / "train.txt"), Template(b"U0:%x[0,0]\nU1:%x[0,1]\n"))
    tables = filters.count_tables(dataset, encoder.space, encoder.unigrams.groups())
    values = {name: filters.worth(name, tables[0]) for name in filters.MEASURES}
    perfect, useless = [1, 2], 0                               # rows by frequency: x, then a and b
    np.testing.assert_allclose(values["mi"][perfect], math.log(2))
    np.testing.assert_allclose(values["gain-ratio"][perfect], 1.0)
    np.testing.assert_allclose(values["chi2"][perfect], 4.0)
    assert np.isinf(values["t"][perfect]).all()
    for name in ("mi", "chi2", "gain", "gain-ratio", "variance", "t"):
        assert not values[name][useless].any()


def test_ranking(tmp_path):
    encoder, dataset = corpus(tmp_path, 3)
    tables = filters.count_tables(dataset, encoder.space, encoder.unigrams.groups())
    F = encoder.space.F
    order = filters.rank_features("mi", tables)
    values = np.concatenate([filters.worth("mi", part).reshape(-1) for part in tables])
    assert sorted(order) == list(range(F)) and (np.diff(values[order]) <= 0).all()
    counts = np.concatenate([part.both.reshape(-1) for part in tables])
    same = np.flatnonzero(np.diff(values[order]) == 0)
    assert len(same) and (counts[order][same] >= counts[order][same + 1]).all()
    candidates = np.arange(F) % 3 == 0
    assert filters.rank_features("mi", tables, candidates).tolist() == [f for f in order if candidates[f]]


def test_no_token_with_a_label_before(tmp_path):
    (tmp_path / "train.txt").write_bytes(b"a A\n\nb B\n")
    encoder, dataset = read_training_data(str(tmp_path / "train.txt"), Template(b"U:%x[0,0]\nB\n"))
    tables = filters.count_tables(dataset, encoder.space, encoder.unigrams.groups())
    for name in filters.MEASURES:
        assert len(filters.rank_features(name, tables)) == encoder.space.F

"""Filters: a worth for every weight, from counts alone, before any training.

A unigram feature (o, y) is judged by the two indicators  v = 1{o is observed},  z = 1{the label is y}  over
all tokens; a bigram feature (b, y', y) by  v = 1{b is observed, the label before is y'},  z = 1{the label
is y}  over all tokens that have a label before them (Sokolovska's thesis, 6.3). Both come down to a 2 x 2
table, of which the counts of v, z, both and all tokens are known after one pass over the data.

    count        how often the feature occurs: v and z
    mi           mutual information of v and z, in nats
    chi2         Pearson's statistic of the table
    gain         H(label) - H(label | v): of all labels at once, so alike for all y of an observation
    gain-ratio   gain / H(v)
    variance     of v; does not look at labels
    t            |t| of the mean of v where z = 1 against z = 0, with pooled variance
"""

from dataclasses import dataclass

import numpy as np

CHUNK = 1 << 14                      # rows of tables worked on at once


@dataclass(frozen=True)
class Tables:
    """The 2 x 2 tables of features that share their labels."""

    both: np.ndarray                 # [M][Y]  tokens with v and z
    v: np.ndarray                    # [M]     tokens with v
    z: np.ndarray                    # [Y]     tokens with z
    n: int                           # tokens


def count_tables(dataset, space, groups):
    """(Tables of the unigram features [O], Tables of the bigram features [Ob * R])."""
    return _unigram_tables(dataset, space, groups), _bigram_tables(dataset, space)


def _unigram_tables(dataset, space, groups):
    both = np.zeros((space.O, space.Y), np.int64)
    for group in groups:
        for i, k in enumerate(group):
            fresh = dataset.unigrams[:, k] >= 0
            for earlier in group[:i]:                # an observation that two templates make counts once
                fresh &= dataset.unigrams[:, k] != dataset.unigrams[:, earlier]
            tokens = np.flatnonzero(fresh)
            cell = dataset.unigrams[tokens, k].astype(np.int64) * space.Y + dataset.labels[tokens]
            both += np.bincount(cell, minlength=both.size).reshape(both.shape)
    return Tables(both, both.sum(axis=1), np.bincount(dataset.labels, minlength=space.Y), dataset.N)


def _bigram_tables(dataset, space):
    Y, R = space.Y, space.R
    first = np.zeros(dataset.N, bool)
    first[dataset.offsets[:-1][np.diff(dataset.offsets) > 0]] = True
    previous = np.where(first, Y, np.roll(dataset.labels, 1)).astype(np.int64)
    tokens = np.arange(dataset.N) if space.begin_label else np.flatnonzero(~first)
    both = np.zeros((space.Ob * R, Y), np.int64)
    rows = dataset.bigrams[dataset.transition[tokens]]
    for k in range(rows.shape[1]):
        fresh = rows[:, k] >= 0
        for earlier in range(k):
            fresh &= rows[:, k] != rows[:, earlier]
        cell = (rows[fresh, k].astype(np.int64) * R + previous[tokens[fresh]]) * Y + dataset.labels[tokens[fresh]]
        both += np.bincount(cell, minlength=both.size).reshape(both.shape)
    return Tables(both, both.sum(axis=1), np.bincount(dataset.labels[tokens], minlength=Y), len(tokens))


# The measures: of rows with v [m][1], z [Y], both [m][Y] and n, as floats -----------------------------------


def _x_log_x(x):
    return x * np.log(np.where(x > 0.0, x, 1.0))


def _entropy(p):
    """Of an indicator with mean p."""
    return -_x_log_x(p) - _x_log_x(1.0 - p)


def _cells(both, v, z, n):
    return both, v - both, z - both, n - v - z + both


def count(both, v, z, n):
    return both


def mutual_information(both, v, z, n):
    """sum of p log p over the four cells, less that over the margins."""
    joint = sum(_x_log_x(cell / n) for cell in _cells(both, v, z, n))
    return np.maximum(0.0, joint + _entropy(v / n) + _entropy(z / n))


def chi2(both, v, z, n):
    a, b, c, d = _cells(both, v, z, n)
    margins = v * (n - v) * z * (n - z)
    return np.where(margins > 0.0, n * (a * d - b * c) ** 2 / np.where(margins > 0.0, margins, 1.0), 0.0)


def gain(both, v, z, n):
    """H(labels) + H(v) - H(labels, v), the same for all labels of a row."""
    alone = -_x_log_x(z / n).sum() + _entropy(v / n)
    joint = -(_x_log_x(both / n) + _x_log_x((z - both) / n)).sum(axis=1, keepdims=True)
    return np.broadcast_to(np.maximum(0.0, alone - joint), both.shape)


def gain_ratio(both, v, z, n):
    split = np.broadcast_to(_entropy(v / n), both.shape)
    return np.where(split > 0.0, gain(both, v, z, n) / np.where(split > 0.0, split, 1.0), 0.0)


def variance(both, v, z, n):
    return np.broadcast_to(v / n * (1.0 - v / n), both.shape)


def t_statistic(both, v, z, n):
    """|m1 - m0| / sqrt(s2 (1/n1 + 1/n0)), s2 = (n1 m1 (1 - m1) + n0 m0 (1 - m0)) / (n - 2)."""
    n1, n0 = z, n - z
    with np.errstate(divide="ignore", invalid="ignore"):
        m1, m0 = both / n1, (v - both) / n0
        s2 = (n1 * m1 * (1.0 - m1) + n0 * m0 * (1.0 - m0)) / max(1.0, n - 2.0)
        t = np.abs(m1 - m0) / np.sqrt(s2 * (1.0 / n1 + 1.0 / n0))        # inf where v is z
    return np.where((n1 > 0.0) & (n0 > 0.0) & (m1 != m0), t, 0.0)


MEASURES = {"count": count, "mi": mutual_information, "chi2": chi2, "gain": gain, "gain-ratio": gain_ratio,
            "variance": variance, "t": t_statistic}


def worth(measure, tables):
    """[M][Y]  the measure of every feature of a set of tables."""
    out = np.empty(tables.both.shape)
    if tables.n == 0:
        out[:] = 0.0
        return out
    for start in range(0, len(out), CHUNK):
        rows = slice(start, start + CHUNK)
        out[rows] = MEASURES[measure](tables.both[rows].astype(float), tables.v[rows, None].astype(float),
                                      tables.z.astype(float), float(tables.n))
    return out


def rank_features(measure, tables, candidates=None):
    """Feature numbers, the worthiest first; the more frequent, then the first, among equals.

    `candidates` [F] bool: those to be ranked. Features of observations that never occur come last.
    """
    values = np.concatenate([worth(measure, part).reshape(-1) for part in tables])
    counts = np.concatenate([part.both.reshape(-1) for part in tables])
    order = np.lexsort((-counts, -values))           # stable: the first among equals
    return order if candidates is None else order[candidates[order]]

"""Slow twins of the kernels, from the formulas alone: every sum runs over all Y^T labellings.

    score(y) = sum_t mu[t][y_t] + sum_t lam[t][y_{t-1}][y_t]

A `Chain` is one sequence with its scores, a `Corpus` is a small training set, `EnumeratedLoss` its log loss.
Nothing here calls a kernel; only the array layout of Dataset and FeatureSpace is taken from crftool.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from crftool.corpus.dataset import Dataset, FeatureSpace

NONE = -1


def all_labellings(T, Y):
    """[Y^T][T], in lexicographic order."""
    return np.array(list(itertools.product(range(Y), repeat=T)), np.int32).reshape(Y ** T, T)


@dataclass(frozen=True)
class Chain:
    """The scores of one sequence. Row Y of lam[0] is the begin label's; without one lam[0] is not used."""

    mu: np.ndarray                   # [T][Y]
    lam: np.ndarray                  # [T][R][Y]

    @property
    def T(self):
        return self.mu.shape[0]

    @property
    def Y(self):
        return self.mu.shape[1]

    @property
    def begin_label(self):
        return self.lam.shape[1] > self.Y

    @property
    def paths(self):
        return all_labellings(self.T, self.Y)

    def previous_labels(self, t, paths):
        """The label before t in each path: Y is the begin label, None if there is nothing before t."""
        if t > 0:
            return paths[:, t - 1]
        return np.full(len(paths), self.Y) if self.begin_label else None

    def scores(self, paths):
        """Score of each path, added up in the widest format."""
        total = np.zeros(len(paths), np.longdouble)
        for t in range(self.T):
            total += self.mu[t, paths[:, t]]
            previous = self.previous_labels(t, paths)
            if previous is not None:
                total += self.lam[t, previous, paths[:, t]]
        return total

    def log_z(self):
        scores = self.scores(self.paths)
        return float(scores.max() + np.log(np.exp(scores - scores.max()).sum()))

    def probabilities(self):
        """p(path | x) of all paths."""
        scores = self.scores(self.paths)
        weights = np.exp(scores - scores.max())
        return (weights / weights.sum()).astype(float)

    def token_marginals(self):
        """[T][Y]"""
        out, paths, probabilities = np.zeros((self.T, self.Y)), self.paths, self.probabilities()
        for t in range(self.T):
            np.add.at(out[t], paths[:, t], probabilities)
        return out

    def pair_marginals(self):
        """[T][R][Y]; nothing at the first position without a begin label."""
        out, paths, probabilities = np.zeros(self.lam.shape), self.paths, self.probabilities()
        for t in range(self.T):
            previous = self.previous_labels(t, paths)
            if previous is not None:
                np.add.at(out[t], (previous, paths[:, t]), probabilities)
        return out

    def best_path(self):
        """(labels, score). Among equals the lowest last label wins, then the lowest label before it, and so
        on backwards: this is what `lowest best predecessor at each position` amounts to."""
        scores = self.scores(self.paths)
        winners = self.paths[scores == scores.max()]
        return np.array(min(winners.tolist(), key=lambda path: path[::-1]), np.int32), float(scores.max())

    def ranked_paths(self):
        """(paths, scores) of all labellings, best first."""
        paths, scores = self.paths, self.scores(self.paths)
        order = np.argsort(-scores, kind="stable")
        return paths[order], scores[order].astype(float)


@dataclass(frozen=True)
class Sequence:
    unigrams: np.ndarray             # [T][K]  observations, NONE if missing
    bigrams: np.ndarray              # [T][Kb]
    labels: np.ndarray               # [T]

    def __len__(self):
        return len(self.labels)


class Corpus:
    """A few sequences over O unigram and Ob bigram observations."""

    def __init__(self, Y, O, Ob, begin_label, sequences, groups=None):  # noqa: E741
        self.Y, self.O, self.Ob, self.begin_label = Y, O, Ob, begin_label
        self.R = Y + begin_label
        self.sequences = sequences
        K = sequences[0].unigrams.shape[1] if sequences else 0
        self.groups = [list(range(K))] if groups is None else groups

    @property
    def space(self):
        return FeatureSpace(self.Y, self.O, self.Ob, self.begin_label)

    @property
    def F(self):
        return self.Y * (self.O + self.Ob * self.R)

    def unigram_weight(self, o, y):
        """Index in theta of mu[o][y]."""
        return o * self.Y + y

    def bigram_weight(self, b, previous, y):
        """Index in theta of lam[b][previous][y]."""
        return self.O * self.Y + (b * self.R + previous) * self.Y + y

    def dataset(self, seed=0):
        """The arrays that the kernels want; sequences may be empty."""
        rng = np.random.default_rng(seed)
        rows, Kb = {}, self.sequences[0].bigrams.shape[1]
        transition = [rows.setdefault(tuple(row), len(rows))
                      for sequence in self.sequences for row in sequence.bigrams.tolist()]
        if not rows:
            rows[(NONE,) * Kb] = 0
        transition = np.array(transition, np.int32)
        offsets = np.cumsum([0] + [len(sequence) for sequence in self.sequences]).astype(np.int64)
        if not self.begin_label:                     # these ids have no meaning, so any may stand there
            first = offsets[:-1][np.diff(offsets) > 0]
            transition[first] = rng.integers(0, len(rows), len(first))
        return Dataset(offsets, self._concatenated("unigrams"), transition,
                       np.array(list(rows), np.int32).reshape(len(rows), Kb), self._concatenated("labels"))

    def _concatenated(self, name):
        return np.ascontiguousarray(np.concatenate([getattr(s, name) for s in self.sequences]), np.int32)

    def chain(self, theta, sequence):
        """The scores of a sequence under the weights, one weight after the other."""
        T = len(sequence)
        mu, lam = np.zeros((T, self.Y)), np.zeros((T, self.R, self.Y))
        for t, y in itertools.product(range(T), range(self.Y)):
            for o in sequence.unigrams[t]:
                if o != NONE:
                    mu[t, y] += theta[self.unigram_weight(o, y)]
            for b, previous in itertools.product(sequence.bigrams[t], range(self.R)):
                if b != NONE:
                    lam[t, previous, y] += theta[self.bigram_weight(b, previous, y)]
        return Chain(mu, lam)

    def chains(self, theta):
        return [self.chain(theta, sequence) for sequence in self.sequences]

    def features(self, sequence, path):
        """Indices of the weights whose sum is the score of a path."""
        for t, label in enumerate(path):
            for o in sequence.unigrams[t]:
                if o != NONE:
                    yield self.unigram_weight(o, label)
            if t == 0 and not self.begin_label:
                continue
            for b in sequence.bigrams[t]:
                if b != NONE:
                    yield self.bigram_weight(b, path[t - 1] if t > 0 else self.Y, label)

    def token_errors(self, theta):
        """Tokens whose most probable label, the lowest of equals, is not the gold label."""
        return sum(int(np.argmax(row) != label)
                   for sequence, chain in zip(self.sequences, self.chains(theta))
                   for row, label in zip(chain.token_marginals(), sequence.labels))

    def repeated(self, times):
        return Corpus(self.Y, self.O, self.Ob, self.begin_label, self.sequences * times, self.groups)


class EnumeratedLoss:
    """sum over sequences of log Z - score(gold), from the feature counts of every labelling."""

    def __init__(self, corpus):
        self.F = corpus.F
        self._counts = []                            # per sequence [Y^T][F]
        self._gold = np.zeros(corpus.F)
        for sequence in corpus.sequences:
            paths = all_labellings(len(sequence), corpus.Y).tolist()
            counts = np.zeros((len(paths), corpus.F))
            for i, path in enumerate(paths):
                np.add.at(counts[i], list(corpus.features(sequence, path)), 1.0)
            self._counts.append(counts)
            np.add.at(self._gold, list(corpus.features(sequence, sequence.labels.tolist())), 1.0)
        self._all = np.concatenate(self._counts)     # [paths of all sequences][F]
        self._starts = np.cumsum([0] + [len(counts) for counts in self._counts])[:-1]
        self._sizes = [len(counts) for counts in self._counts]

    def _distribution(self, theta):
        """(log Z of each sequence, probability of each path)"""
        scores = self._all @ theta
        largest = np.maximum.reduceat(scores, self._starts)
        weights = np.exp(scores - np.repeat(largest, self._sizes))
        sums = np.add.reduceat(weights, self._starts)
        return largest + np.log(sums), weights / np.repeat(sums, self._sizes)

    def value(self, theta):
        return float(self._distribution(theta)[0].sum() - self._gold @ theta)

    def gradient(self, theta):
        """Expected minus observed feature counts."""
        return self._distribution(theta)[1] @ self._all - self._gold

    def hessian(self, theta):
        """Covariance of the feature counts."""
        probabilities, out = self._distribution(theta)[1], np.zeros((self.F, self.F))
        for start, counts in zip(self._starts, self._counts):
            p = probabilities[start:start + len(counts)]
            mean = p @ counts
            out += counts.T @ (p[:, None] * counts) - np.outer(mean, mean)
        return out

    def curvature_bound(self):
        """No Hessian has a larger eigenvalue: a variance is at most the mean squared distance to any point."""
        return sum(float(((counts - counts.mean(axis=0)) ** 2).sum(axis=1).max()) for counts in self._counts)

    def differences(self, theta, h=2e-3):
        """The gradient by fourth-order central differences."""
        out = np.empty(self.F)
        for i in range(self.F):
            e = np.zeros(self.F)
            e[i] = h
            near = self.value(theta + e) - self.value(theta - e)
            far = self.value(theta + 2 * e) - self.value(theta - 2 * e)
            out[i] = (8 * near - far) / (12 * h)
        return out


# Random instances ---------------------------------------------------------------------------------------


def random_ids(rng, T, K, ids, missing):
    """[T][K] ids out of the given ones, some of them missing."""
    if len(ids) == 0:
        return np.full((T, K), NONE, np.int32)
    return np.where(rng.random((T, K)) < missing, NONE, rng.choice(ids, (T, K))).astype(np.int32)


def random_corpus(rng, lengths, Y, K=3, Kb=2, begin_label=False, rows=4, missing=0.2, groups=None):
    """Each group of U templates has `rows` observations of its own, which its templates share; so do the B
    templates together."""
    groups = [[k] for k in range(K)] if groups is None else groups
    Ob = rows if Kb else 0
    sequences = []
    for T in lengths:
        unigrams = np.full((T, K), NONE, np.int32)
        for g, columns in enumerate(groups):
            unigrams[:, columns] = random_ids(rng, T, len(columns), np.arange(g * rows, (g + 1) * rows), missing)
        sequences.append(Sequence(unigrams, random_ids(rng, T, Kb, np.arange(Ob), missing),
                                  rng.integers(0, Y, T).astype(np.int32)))
    return Corpus(Y, rows * len(groups), Ob, begin_label, sequences, groups)


def dense_corpus(mu, lam, begin_label=False):
    """(corpus, theta) with one sequence whose scores are mu [T][Y] and, at every position, lam [R][Y]."""
    mu, lam = np.asarray(mu, float), np.asarray(lam, float)
    T, Y = mu.shape
    sequence = Sequence(np.arange(T, dtype=np.int32)[:, None], np.zeros((T, 1), np.int32), np.zeros(T, np.int32))
    return Corpus(Y, T, 1, begin_label, [sequence]), np.concatenate([mu.ravel(), lam.ravel()])

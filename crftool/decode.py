"""Labels, probabilities and n-best lists for encoded sequences."""

from dataclasses import dataclass

import numpy as np

from crftool.errors import NumericError
from crftool.kernels import lattice


@dataclass(frozen=True)
class Decoded:
    """One labelling per sequence of a Dataset."""

    labels: np.ndarray               # [N]  label indices
    probability: np.ndarray | None   # [S]  p(labels | x) of each sequence
    marginals: np.ndarray | None     # [N][Y]  p(y_t = y | x)


class Lattices:
    """The scores of a Dataset under some weights, and what follows from them."""

    def __init__(self, dataset, weights, pool):
        self.dataset, self.pool = dataset, pool
        self.mu = weights.unigram_scores(dataset, pool)              # [N][Y]
        self.lam = weights.transition_scores(dataset, pool)          # [C][R][Y]

    def viterbi(self):
        """(labels [N], scores [S]) of the best path of each sequence."""
        data = self.dataset
        labels, scores = np.empty(data.N, np.int32), np.empty(data.S)
        self.pool.run(lattice.viterbi, self.mu, data.transition, self.lam, data.offsets, labels, scores)
        return labels, scores

    def marginals(self):
        """(marginals [N][Y], log Z [S])"""
        data = self.dataset
        C, R, Y = self.lam.shape
        psi, psi_t, shift = np.empty((C, R, Y)), np.empty((C, Y, Y)), np.empty(C)
        self.pool.run(lattice.exponentiate, self.lam, psi, psi_t, shift)
        p, log_z = np.empty((data.N, Y)), np.empty(data.S)
        self.pool.run(lattice.marginals, self.mu, data.transition, psi, psi_t, shift, data.offsets, p, log_z)
        if not np.isfinite(log_z).all():
            raise NumericError("the scores of a sequence are out of range; train with a stronger penalty")
        return p, log_z

    def path_scores(self, labels):
        scores = np.empty(self.dataset.S)
        lattice.path_scores(self.mu, self.dataset.transition, self.lam, self.dataset.offsets, labels, scores)
        return scores

    def best_paths(self, s, n):
        """(paths [m][T], scores [m]) of the m <= n best labellings of sequence s, best first."""
        start, end = self.dataset.offsets[s], self.dataset.offsets[s + 1]
        Y = self.mu.shape[1]
        n = min(n, Y ** min(int(end - start), 64))
        paths, scores = np.empty((n, end - start), np.int32), np.empty(n)
        found = lattice.best_paths(self.mu[start:end], self.dataset.transition[start:end], self.lam, paths, scores)
        return paths[:found], scores[:found]


def decode(lattices, posterior=False, probabilities=False):
    """Viterbi, or with `posterior` the most probable label of each token; probabilities if asked for."""
    if not (posterior or probabilities):
        return Decoded(lattices.viterbi()[0], None, None)
    marginals, log_z = lattices.marginals()
    labels = marginals.argmax(axis=1).astype(np.int32) if posterior else lattices.viterbi()[0]
    return Decoded(labels, np.exp(lattices.path_scores(labels) - log_z), marginals)


def decode_best(lattices, n):
    """For each sequence, up to n (labels [T], probability), best first; and the marginals [N][Y]."""
    marginals, log_z = lattices.marginals()
    lists = []
    for s in range(lattices.dataset.S):
        paths, scores = lattices.best_paths(s, n)
        lists.append(list(zip(paths, np.exp(scores - log_z[s]))))
    return lists, marginals

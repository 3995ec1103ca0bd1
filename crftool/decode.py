"""Labels, probabilities and n-best lists for encoded sequences."""

from dataclasses import dataclass

import numpy as np

from crftool.errors import NumericError
from crftool.kernels import chain, queries, vector, viterbi


@dataclass(frozen=True)
class Decoded:
    """One labelling per sequence of a Dataset."""

    labels: np.ndarray               # [N]  label indices
    probability: np.ndarray | None   # [S]  p(labels | x) of each sequence
    marginals: np.ndarray | None     # [N][Y]  p(y_t = y | x)


class Lattices:
    """The scores of a Dataset under some weights, and what follows from them."""

    def __init__(self, dataset, weights, pool, inference="auto", constraint=None, forced=None):
        """`forced` [N]: a label that the token must have, or -1."""
        self.dataset, self.weights, self.pool = dataset, weights, pool
        self.inference, self.constraint = inference, constraint
        self.mu = weights.unigram_scores(dataset, pool)              # [N][Y]
        if forced is not None:
            at = np.flatnonzero(forced >= 0)
            kept = self.mu[at, forced[at]]
            self.mu[at] = -np.inf
            self.mu[at, forced[at]] = kept
        self.chain = weights.chain(dataset, inference, pool, constraint)
        self._log_chain = None

    @property
    def Y(self):
        return self.mu.shape[1]

    def viterbi(self):
        """(labels [N], scores [S]) of the best path of each sequence; a score of -inf: all are forbidden."""
        data = self.dataset
        labels, scores = np.empty(data.N, np.int32), np.empty(data.S)
        self.pool.run(viterbi.viterbi, self.chain, self.mu, data.transition, data.offsets, labels, scores)
        return labels, scores

    def marginals(self):
        """(marginals [N][Y], log Z [S]). Sequences that the scaled recursion cannot handle are done in the
        log domain, unless the scaled one was asked for."""
        data = self.dataset
        p, log_z = np.empty((data.N, self.Y)), np.empty(data.S)
        self.pool.run(chain.marginals, self.chain, self.mu, data.transition, data.offsets, p, log_z)
        for s in np.flatnonzero(~np.isfinite(log_z)):
            start, end = data.offsets[s], data.offsets[s + 1]
            if self.inference == "auto":
                alpha, mu = np.empty((end - start, self.Y)), self.mu[start:end].copy()
                log_z[s] = chain.messages(self._in_log_domain(), mu, data.transition[start:end], alpha, p[start:end])
            if not np.isfinite(log_z[s]):
                raise NumericError("the scores of a sequence are out of range, or all its labellings are "
                                   "forbidden; train with a stronger penalty, or loosen the constraint")
        return p, log_z

    def _in_log_domain(self):
        if self._log_chain is None:
            self._log_chain = self.weights.chain(self.dataset, "log", self.pool, self.constraint)
        return self._log_chain

    def pair_marginals(self, s):
        """[T][Y][Y] p(y_{t-1} = y', y_t = y | x) of sequence s; zeros at t = 0."""
        start, end = self.dataset.offsets[s], self.dataset.offsets[s + 1]
        transition = self.dataset.transition[start:end]
        v, alpha, p = self.mu[start:end].copy(), *np.empty((2, end - start, self.Y))
        log_chain = self._in_log_domain()
        chain.messages(log_chain, v, transition, alpha, p)
        pairs = np.zeros((end - start, self.Y, self.Y))
        for t in range(1, end - start):
            lam = np.asarray(log_chain.lam)[transition[t], :self.Y]
            pairs[t] = np.exp(alpha[t - 1][:, None] + lam + v[t][None])
        return pairs

    def entropies(self):
        """[S]  entropy of p(y | x) in nats."""
        data = self.dataset
        out = np.full(data.S, np.nan)
        self.pool.run(queries.entropies, self.chain, self.mu, data.transition, data.offsets, out)
        if np.isnan(out).any():
            self.pool.run(queries.entropies, self._in_log_domain(), self.mu, data.transition, data.offsets, out)
        return out

    def segment_probabilities(self, labels, segments, starts, ends):
        """[M]  p(the segment is exactly right | x) of segments [M][2] (first and last token, in order).

        `starts` and `ends` [Y][Y] say between which labels a segment may start or end.
        """
        data = self.dataset
        bounds = np.searchsorted(segments[:, 0], data.offsets).astype(np.int64)
        out = np.empty(len(segments))
        arguments = (self.mu, data.transition, data.offsets, labels, bounds, segments,
                     starts.astype(np.uint8), ends.astype(np.uint8), out)
        self.pool.run(queries.segment_probabilities, self.chain, *arguments)
        failed = np.isnan(out)
        if failed.any():
            scaled = out.copy()
            self.pool.run(queries.segment_probabilities, self._in_log_domain(), *arguments)
            out[~failed] = scaled[~failed]
        return out

    def path_scores(self, labels):
        scores = np.empty(self.dataset.S)
        viterbi.path_scores(self.chain, self.mu, self.dataset.transition, self.dataset.offsets, labels, scores)
        return scores

    def best_paths(self, s, n):
        """(paths [m][T], scores [m]) of the m <= n best labellings of sequence s, best first."""
        start, end = self.dataset.offsets[s], self.dataset.offsets[s + 1]
        paths, scores = viterbi.best_paths(self.chain, self.mu[start:end], self.dataset.transition[start:end],
                                           min(n, 1 << 40))
        scores = np.frombuffer(scores)
        return np.frombuffer(paths, np.int32).reshape(len(scores), end - start), scores


def decode(lattices, posterior=False, probabilities=False):
    """Viterbi, or with `posterior` the most probable label of each token; probabilities if asked for."""
    if not (posterior or probabilities):
        return Decoded(lattices.viterbi()[0], None, None)
    marginals, log_z = lattices.marginals()
    labels = marginals.argmax(axis=1).astype(np.int32) if posterior else lattices.viterbi()[0]
    return Decoded(labels, _exp(lattices.path_scores(labels) - log_z), marginals)


def decode_best(lattices, n):
    """For each sequence, up to n (labels [T], probability), best first; and the marginals [N][Y]."""
    marginals, log_z = lattices.marginals()
    lists = []
    for s in range(lattices.dataset.S):
        paths, scores = lattices.best_paths(s, n)
        lists.append(list(zip(paths, _exp(scores - log_z[s]))))
    return lists, marginals


def _exp(x):
    """exp by our own kernel: the same bits on every machine."""
    out = np.empty(len(x))
    vector.exp(x, out)
    return out

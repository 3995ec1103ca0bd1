"""The labelled file of `learn --dev`: scores on the way, and the weights that do best on it."""

from dataclasses import asdict


class HeldOut:
    def __init__(self, path, encoder, keep, pool, inference, constraint):
        """`keep`: "last" to score only; else the best weights are kept too."""
        from crftool.corpus.dataset import read_labelled_data

        self.path = path
        self.data, self.labels = read_labelled_data(path, encoder)
        self._space, self._keep, self._pool, self._inference, self._constraint = (
            encoder.space, keep, pool, inference, constraint)
        self.best, self.theta, self.iteration = None, None, None     # scores of the best weights, these, and when

    def digest(self):
        """A hash of what the file says."""
        from crftool.corpus.dataset import digest
        return digest(self.data.digest().encode(), b"\n".join(self.labels))

    def scores(self, theta):
        from crftool.decode import Lattices, decode
        from crftool.evaluate import score
        from crftool.model import SparseWeights, TrainedWeights

        weights = theta if isinstance(theta, SparseWeights) else TrainedWeights(self._space, theta)
        lattices = Lattices(self.data, weights, self._pool, self._inference, self._constraint)
        return score(self.data.labels, decode(lattices).labels, self.data.offsets, self.labels)

    def _rank(self, scores):
        """What to compare: F1, if labels make phrases, then right tokens."""
        from crftool.phrases import has_phrases
        return has_phrases(self.labels) and scores.f1, scores.correct_tokens

    def look(self, theta, iteration):
        """Scores of these weights, which are kept if they do better."""
        from crftool.model import SparseWeights

        scores = self.scores(theta)
        if self._keep == "last":
            return scores
        if self.best is None or self._rank(scores) > self._rank(self.best):
            self.best, self.iteration = scores, iteration
            if self.theta is None or isinstance(theta, SparseWeights):
                self.theta = theta.copy()
            else:
                self.theta[:] = theta
        return scores

    def state(self):
        """For a checkpoint."""
        from crftool.model import SparseWeights
        from crftool.trainers.checkpoint import sparse_state

        if self.theta is None:
            return {}
        weights = sparse_state("best.", self.theta) if isinstance(self.theta, SparseWeights) else {"best": self.theta}
        return {**weights, "best.iteration": asdict(self.iteration)}

    def restore(self, saved, theta):
        """What an earlier run has found best; its scores are computed again. The weights are like theta."""
        from crftool.model import SparseWeights
        from crftool.trainers.base import Iteration

        if saved is None or "best.iteration" not in saved:
            return
        try:
            iteration = Iteration(**saved.value("best.iteration", dict))
            if not isinstance(iteration.number, int) or not isinstance(iteration.objective, float):
                raise TypeError
        except TypeError:
            raise saved.damaged() from None
        sparse = isinstance(theta, SparseWeights)
        self.theta = saved.weights("best.", self._space) if sparse else saved.array("best", float, theta.shape).copy()
        self.iteration, self.best = iteration, self.scores(self.theta)

"""Parts of a Dataset, cut out without reading again: some sequences, some templates, some weights.

A Subproblem keeps only the observations that own a weight which may be non-zero and that occur, so that
training 1,000 weights out of ten million costs what 1,000 weights cost.
"""

from dataclasses import dataclass

import numpy as np

from crftool.corpus.dataset import Dataset, Encoder, FeatureSpace
from crftool.corpus.observations import NONE, Observations
from crftool.corpus.template import Template


def take_sequences(dataset, chosen):
    """The Dataset of the sequences `chosen`, in that order."""
    starts, lengths = dataset.offsets[:-1][chosen], np.diff(dataset.offsets)[chosen]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    tokens = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return Dataset(offsets, dataset.unigrams[tokens], dataset.transition[tokens], dataset.bigrams,
                   None if dataset.labels is None else dataset.labels[tokens])


def fold_of_sequences(S, K, seed):
    """[S]  the fold of each sequence: K folds of equal size but for one sequence."""
    return np.random.default_rng(seed).permutation(np.arange(S) % K)


@dataclass(frozen=True)
class Columns:
    """Which columns of Dataset.unigrams and Dataset.bigrams are looked at."""

    unigrams: tuple
    bigrams: tuple

    @classmethod
    def of_lines(cls, template, lines):
        """The columns of the templates on these lines of the file."""
        return cls(tuple(k for k, line in enumerate(template.unigrams) if line.line in lines),
                   tuple(k for k, line in enumerate(template.bigrams) if line.line in lines))

    @classmethod
    def of_dataset(cls, dataset):
        """All columns."""
        return cls(tuple(range(dataset.unigrams.shape[1])), tuple(range(dataset.bigrams.shape[1])))

    @classmethod
    def all(cls, template):
        return cls(tuple(range(len(template.unigrams))), tuple(range(len(template.bigrams))))


class Subproblem:
    """A training problem inside a larger one, with weights of its own numbering."""

    def __init__(self, dataset, space, groups, columns, allowed=None, counts=None):
        """`space`, `groups`, `allowed` [F] are those of the larger problem; `counts` [O] how often its unigram
        observations occur in these columns, if that is known."""
        self.full, self.columns = space, columns
        if counts is None:
            counts = dataset.count_unigrams(space, columns.unigrams)
        used = counts > 0, dataset.count_bigrams(space, columns.bigrams) > 0
        if allowed is not None:
            mu, lam = space.split(allowed)
            used[0][:] &= mu.any(axis=1)
            used[1][:] &= lam.any(axis=(1, 2))
            self.columns = columns = Columns(_filled(dataset.unigrams, columns.unigrams, used[0]), columns.bigrams)
        self.rows = tuple(np.flatnonzero(which) for which in used)         # the larger problem's rows, kept
        self.space = FeatureSpace(space.Y, len(self.rows[0]), len(self.rows[1]), space.begin_label)
        self._row_of = tuple(self._numbering(which) for which in used)
        self.groups = [[columns.unigrams.index(k) for k in group if k in columns.unigrams] for group in groups]
        self.groups = [group for group in self.groups if group]
        self.dataset = self.encode(dataset)
        self.allowed = None if allowed is None else self.shrink(allowed)

    @staticmethod
    def _numbering(used):
        """New row of each old row, NONE if dropped; the last entry is for NONE itself."""
        row_of = np.full(len(used) + 1, NONE, np.int32)
        row_of[:-1][used] = np.arange(np.count_nonzero(used))
        return row_of

    def encode(self, dataset):
        """Any Dataset of the larger problem, in the numbering of this one."""
        unigrams = self._row_of[0][dataset.unigrams[:, list(self.columns.unigrams)]]
        occurring, transition = np.unique(dataset.transition, return_inverse=True)
        bigrams = self._row_of[1][dataset.bigrams[np.ix_(occurring, self.columns.bigrams)]]
        if bigrams.shape[1] and len(bigrams):        # transitions that have become the same are one again
            bigrams, same = np.unique(bigrams, axis=0, return_inverse=True)
        else:
            bigrams, same = np.full((1, bigrams.shape[1]), NONE, np.int32), np.zeros(len(bigrams), np.int64)
        return Dataset(dataset.offsets, np.ascontiguousarray(unigrams),
                       same.reshape(-1)[transition.reshape(-1)].astype(np.int32), np.ascontiguousarray(bigrams),
                       dataset.labels)

    def shrink(self, weights):
        """A vector of the larger problem, cut down to this one's weights."""
        mu, lam = self.full.split(weights)
        return np.concatenate((mu[self.rows[0]].reshape(-1), lam[self.rows[1]].reshape(-1)))

    def shrink_at(self, where, values):
        """`shrink` of a vector that is zero but for `values` at `where`."""
        weights = np.zeros(self.full.F)
        weights[where] = values
        return self.shrink(weights)

    def write(self, weights, out, before=None):
        """Let `out`, a vector of the larger problem, be what `expand` gives, but touch only weights that are not
        zero: those of `before`, which the last call has returned, and those that this one returns."""
        out[slice(None) if before is None else before] = 0.0
        active = np.flatnonzero(weights)
        names = self._names(active)
        out[names] = weights[active]
        return names

    def _names(self, weights):
        """Indices of weights of this problem in the larger one; both rise."""
        Y, width, cut = self.space.Y, self.space.R * self.space.Y, self.space.O * self.space.Y
        mu, lam = weights[weights < cut], weights[weights >= cut] - cut
        return np.concatenate((self.rows[0][mu // Y] * Y + mu % Y,
                               self.full.O * Y + self.rows[1][lam // width] * width + lam % width))

    def expand(self, weights):
        """A vector of this problem in the larger one; zero elsewhere."""
        out = np.zeros(self.full.F, weights.dtype)
        mu, lam = self.full.split(out)
        own_mu, own_lam = self.space.split(weights)
        mu[self.rows[0]], lam[self.rows[1]] = own_mu, own_lam
        return out


def _filled(ids, columns, used):
    """The columns in which one of the used observations occurs."""
    used = np.append(used, False)                    # where NONE points
    return tuple(k for k in columns if used[ids[:, k]].any())


def active_lines(template, dataset, space, theta):
    """The lines of the template whose observations in this data own a non-zero weight."""
    mu, lam = space.split(theta)
    lines = set()
    for kind, ids, active in ((template.unigrams, dataset.unigrams, mu.any(axis=1)),
                              (template.bigrams, dataset.bigrams, lam.any(axis=(1, 2)))):
        active = np.append(active, False)            # where NONE points
        lines |= {line.line for k, line in enumerate(kind) if active[ids[:, k]].any()}
    return lines


def template_of_lines(template, lines):
    """The text of a template file with only these lines; comments stay."""
    kept = []
    for number, line in enumerate(template.text.split(b"\n"), 1):
        text = line.strip(b" \t\r").removeprefix(b"\xef\xbb\xbf")
        if not text or text.startswith(b"#") or number in lines:
            kept.append(line)
    return b"\n".join(kept)


def encoder_of_lines(encoder, lines):
    """The encoder of the shorter template, with the observation numbers (and values) of the longer one."""
    template = Template(template_of_lines(encoder.template, lines), encoder.template.path)
    kinds = []
    for old, new_lines in ((encoder.unigrams, template.unigrams), (encoder.bigrams, template.bigrams)):
        tables = [old.literals.index(literals) for literals in dict.fromkeys(line.literals for line in new_lines)]
        kind = Observations(new_lines, [old.tables[t] for t in tables], [old.rows[t] for t in tables], old.texts)
        kind.size = old.size
        kinds.append(kind)
    return Encoder(template, encoder.labels, encoder.begin_label, encoder.values, *kinds)

"""The CRF's log loss for trainers that go from observation to observation: the data by observation, and the
messages of all sequences in memory. Its weights are sparse rows; nothing here has the size of the feature set.
"""

import math
from dataclasses import dataclass

import numpy as np

from crftool.corpus.occurrences import BASE_MEMORY, Bases, Occurrences
from crftool.kernels import messages
from crftool.kernels.chain import padded
from crftool.kernels.rows import WeightRows


@dataclass(frozen=True)
class BlockOptions:
    separate: bool = False           # blocks of mu and of lam, instead of both together
    grow: bool = False               # lam(y', y, x) may leave zero only where mu(y, x) has
    no_revisit: bool = False         # what is zero after its visit stays zero
    exact_hessian: bool = False      # second derivatives (15) instead of (16); coordinate-wise only


class BlockLoss:
    def __init__(self, dataset, space, pool, partner=None, observed_only=False, constraint=None,
                 options=BlockOptions()):
        """`partner`: see corpus.occurrences.paired_bigrams."""
        self.dataset, self.space, self.pool, self.constraint = dataset, space, pool, constraint
        self.observed_only, self.options = observed_only, options
        self.token_errors = 0
        self.mu = WeightRows(space.O, space.Y, space.Y)
        self.lam = WeightRows(space.Ob, space.R * space.Y, space.Y)
        self.bases = Bases.of(dataset, space)
        self.occurrences = Occurrences.of(dataset, space, self.bases.base_of, None if options.separate else partner)
        self.messages = messages.Messages(dataset, space, self.bases, self.mu, self.lam, constraint)

    @classmethod
    def of(cls, objective):
        """The same loss as another objective's, without pairs of U and B observations."""
        return cls(objective.dataset, objective.space, objective.pool, None, objective.observed_only,
                   objective.constraint)

    @property
    def F(self):
        return self.space.F

    @property
    def candidates(self):
        """How many weights may become non-zero."""
        return self.F if not self.observed_only else seen_weights(self.dataset, self.space)

    def score(self):
        """The loss at the weights in place, NaN if out of range. Their scores and forward messages are computed anew,
        backward messages when they are needed."""
        loss = np.zeros(self.dataset.S)
        if not self.messages.build_scores():
            return math.nan
        self.pool.run(messages.score, self.messages, loss)
        return math.fsum(loss) if np.isfinite(loss).all() else math.nan

    def complete(self):
        """After `score`: all backward messages, and `token_errors`; whether they are in range."""
        errors = np.zeros(self.dataset.S, np.int64)
        self.pool.run(messages.complete, self.messages, errors)
        self.token_errors = int(errors.sum())
        return errors.min(initial=0) == 0


def memory(dataset, space):
    """Bytes that a BlockLoss takes: messages and the index; weights come on top as they become active."""
    entries = int(np.count_nonzero(dataset.unigrams >= 0)) + dataset.N * dataset.bigrams.shape[1]
    bases = min(BASE_MEMORY, 16 * len(dataset.bigrams) * space.R * padded(space.Y))
    return dataset.N * (3 * 8 * padded(space.Y) + 16) + 60 * entries + 24 * (space.O + space.Ob) + bases


def seen_weights(dataset, space):
    """How many weights belong to an observation seen with its label or label pair."""
    total, labels = 0, dataset.labels.astype(np.int64)
    keys = [column[column >= 0] * np.int64(space.Y) + labels[column >= 0] for column in dataset.unigrams.T]
    total += len(np.unique(np.concatenate(keys))) if keys else 0
    previous = np.empty(dataset.N, np.int64)
    previous[1:] = labels[:-1]
    previous[dataset.offsets[:-1][np.diff(dataset.offsets) > 0]] = space.Y if space.begin_label else -1
    keys = []
    for column in dataset.bigrams.T:
        rows = column[dataset.transition]
        known = (rows >= 0) & (previous >= 0)
        keys.append((rows[known] * np.int64(space.R) + previous[known]) * space.Y + labels[known])
    return total + (len(np.unique(np.concatenate(keys))) if keys else 0)

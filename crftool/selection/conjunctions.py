"""Conjunctions for induction (McCallum 2003): new template lines, each a line of the model and one of the template.

A round trains a model with one more batch of induced features than the round before. Every U line that has
a weight in it is joined with every U line of the given template, and judged by what the best batch of its
features would gain, all other weights fixed (features.gain_bound):

    U1:%x[0,0]  and  U2:%x[-1,1]   become   U&1:%x[0,0]/2:%x[-1,1]

Joining does not read the data again: an observation of the new line is a pair of known ones. The best line
is taken in if held-out data gain more from a batch with it than from a batch without; else the search ends.
"""

from dataclasses import dataclass

import numpy as np

from crftool.corpus.template import Template
from crftool.decode import Lattices
from crftool.kernels.keys import MAX_FIELDS
from crftool.model.weights import TrainedWeights
from crftool.selection.features import Induction, Inducer, gain_bound


@dataclass(frozen=True)
class Round:
    """What a round has found."""

    template: Template
    line: bytes                      # its last one, the new one
    gain: float                      # promised by a batch of its features: log-likelihood of the training data
    without: object                  # Outcome of one more batch
    outcome: object                  # the same with the line
    accepted: bool


def add_lines(template, make_lab, plan, most):
    """A Round for each line that is tried; the last one may not be accepted.

    `make_lab(template)`: a Lab with a dev file. `plan` names the batch."""
    given, grower = len(template.unigrams), _Grower(make_lab(template), plan)
    try:
        for number in range(1, most + 1):
            found = grower.best_line(number * plan.batch, given)
            if found is None:
                return
            gain, line = found
            template = Template(template.text.removesuffix(b"\n") + b"\n" + line + b"\n", template.path)
            rival = _Grower(make_lab(template), plan)
            without, outcome = (model.outcome((number + 1) * plan.batch) for model in (grower, rival))
            accepted = grower.lab.better(outcome, without)
            grower, loser = (rival, grower) if accepted else (grower, rival)
            loser.lab.close()
            yield Round(template, line, gain, without, outcome, accepted)
            if not accepted:
                return
    finally:
        grower.lab.close()


class _Grower:
    """Models of some numbers of induced features."""

    def __init__(self, lab, plan):
        self.lab, self.batch = lab, plan.batch
        self.split, = lab.splits
        self._inducer = Inducer(Induction(lab, plan), self.split, lab.pool)

    def outcome(self, number):
        fit = self._inducer.grow_to(number)
        return self.lab.outcome([fit.score()], [fit])

    def best_line(self, number, given):
        """(gain, text) of the best conjunction with the model of `number` features; None if there is none."""
        lab, data = self.lab, self.split.train
        theta = self._inducer.grow_to(number).weights()
        lattices = Lattices(data, TrainedWeights(lab.space, theta), lab.pool, lab.training.inference, lab.constraint)
        p, _ = lattices.marginals()
        active = np.append(lab.space.split(theta)[0].any(axis=1), False)     # the last is what -1 finds
        used = [k for k in range(data.unigrams.shape[1]) if active[data.unigrams[:, k]].any()]
        best = None
        for i, k, line in conjunctions(lab.encoder.template.unigrams, used, given):
            gain = self._gain(data.unigrams[:, i], data.unigrams[:, k], data.labels, p)
            if gain > 0.0 and (best is None or gain > best[0]):              # the first among equals
                best = gain, line
        return best

    def _gain(self, a, b, labels, p):
        """Of the best batch of features of the pairs of observations."""
        both = (a >= 0) & (b >= 0)
        pairs, at = np.unique(a[both].astype(np.int64) * (1 + b.max(initial=0)) + b[both], return_inverse=True)
        Y, n = p.shape[1], np.bincount(at, minlength=len(pairs)).astype(float)
        gains = [gain_bound(np.bincount(at, labels[both] == y, minlength=len(pairs)),
                            np.bincount(at, p[both, y], minlength=len(pairs)), n) for y in range(Y)]
        return float(np.sort(np.concatenate(gains))[-self.batch:].sum())


def conjunctions(lines, used, given):
    """(i, k, text) for each line i of `used` joined with a line k among the first `given`, if that says something
    new."""
    known = {frozenset(line.fields) for line in lines}
    for i in used:
        for k in range(given):
            fields = frozenset(lines[i].fields + lines[k].fields)
            if fields not in known and len(lines[i].fields + lines[k].fields) <= MAX_FIELDS:
                known.add(fields)
                yield i, k, b"U&" + lines[i].text[1:].removeprefix(b"&") + b"/" + lines[k].text[1:]

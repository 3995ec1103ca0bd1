"""Wrappers: searches over sets of templates, each set judged by the model trained on it.

A unit is what enters or leaves at once: a line of the template, or a column of the data with all lines
that need it. Every set is scored once, by a model trained from zero weights: to begin with those of the
neighbour it grew from takes half as long again (the stochastic start is the faster one), and a set would not
have one score but one for each way to it.
"""

import math
import time

import numpy as np

from crftool.errors import CrftoolError
from crftool.selection.lab import Fit
from crftool.selection.rows import Row, Setting
from crftool.corpus.subset import Columns

ANNEAL_FROM, ANNEAL_TO = 1.0, 0.01   # temperatures, in percent points of the score


def template_lines(template):
    """{line number: TemplateLine}; a * line stands once."""
    return {line.line: line for line in sorted(template.unigrams + template.bigrams, key=lambda line: line.line)}


class _Units:
    """What can be switched on and off."""

    def __init__(self, template, lines, over):
        self._lines = {number: line for number, line in template_lines(template).items()
                       if lines is None or number in lines}
        self._over = over
        self._columns = {number: frozenset(template.sources[field.source].column for field in line.fields)
                         for number, line in self._lines.items()}
        self.all = frozenset(self._lines) if over == "lines" else frozenset().union(*self._columns.values())

    def lines(self, units):
        """The template lines of a set of units, in order; lines without a column belong to every set."""
        if self._over == "lines":
            return tuple(sorted(units))
        return tuple(number for number in self._lines if self._columns[number] <= units)


class Search:
    """forward, backward, beam or anneal."""

    def __init__(self, lab, plan):
        self.lab, self.plan = lab, plan
        self.units = _Units(lab.encoder.template, plan.lines, plan.over)
        self.rho1, self.rho2 = (plan.rho1 or [0.0])[0], plan.rho2[0]
        self.min_count = plan.min_counts[0]
        M = len(self.units.all)
        if M < 2:
            raise CrftoolError(f"{lab.encoder.template.path}: {M} to choose from by --over {plan.over}; "
                               "a search needs at least two")
        most = {"forward": M * (M + 1) // 2, "backward": M * (M + 1) // 2, "beam": plan.beam * M * (M + 1) // 2}
        self.rows_planned = most.get(plan.method, plan.steps + 1)

    def rows(self):
        return {"forward": self._beam, "backward": self._backward, "beam": self._beam,
                "anneal": self._anneal}[self.plan.method]()

    # One set --------------------------------------------------------------------------------------------

    def _setting(self, units):
        return Setting(self.plan.method, self.rho1, self.rho2, self.min_count, lines=self.units.lines(units))

    def _try_all(self, sets):
        """A row for each set, as soon as it is known. As many as there are threads are trained side by side."""
        lab = self.lab
        at_once = max(1, lab.pool.threads // len(lab.splits))
        for first in range(0, len(sets), at_once):
            chunk = sets[first:first + at_once]
            fresh = {self._setting(units).key: units for units in chunk}
            self._train_all([units for key, units in fresh.items() if key not in lab.memory])
            for units in chunk:
                yield Row(self._setting(units), lab.memory[self._setting(units).key])

    def _train_all(self, sets):
        """Train and remember sets that are new."""
        lab, K = self.lab, len(self.lab.splits)
        if not sets:
            return
        jobs = [(units, k) for units in sets for k in range(K)]
        done = lab.map(lambda job, pool: self._trained(job[0], lab.splits[job[1]], pool), jobs)
        for i, units in enumerate(sets):
            fits, scores, seconds = zip(*done[i * K:(i + 1) * K])
            lab.remember(self._setting(units), lambda: lab.outcome(scores, fits, sum(seconds)))

    def _trained(self, units, split, pool):
        """(Fit, its scores, seconds)"""
        begun = time.monotonic()
        columns = Columns.of_lines(self.lab.encoder.template, self.units.lines(units))
        fit = Fit(self.lab, split, pool, columns, None, self.min_count)
        fit.train(self.rho1, self.rho2)
        return fit, fit.score(), time.monotonic() - begun

    # Searches -------------------------------------------------------------------------------------------

    def _beam(self):
        """Sets grow by one unit at a time; the best few go on, until no larger set is better."""
        width = self.plan.beam if self.plan.method == "beam" else 1
        beam, best, tried = [frozenset()], None, set()
        while beam:
            level = []
            for parent in beam:
                sets = [parent | {unit} for unit in sorted(self.units.all - parent)]
                sets = [units for units in sets if self.units.lines(units) and units not in tried]
                tried.update(sets)
                for units, row in zip(sets, self._try_all(sets)):
                    level.append((units, row))
                    yield row
            level.sort(key=lambda entry: self.lab.loss_of(entry[1].outcome))
            if not level or best is not None and not self.lab.better(level[0][1].outcome, best):
                return
            best, beam = level[0][1].outcome, [units for units, _ in level[:width]]

    def _backward(self):
        """Recursive elimination: drop the unit that is missed least, as long as the score does not fall."""
        current = self.units.all
        row, = self._try_all([current])
        yield row
        while len(current) > 1:
            sets = [current - {unit} for unit in sorted(current)]
            sets = [units for units in sets if self.units.lines(units)]
            rows = []
            for new in self._try_all(sets):
                rows.append(new)
                yield new
            if not rows:
                return
            least = min(range(len(rows)), key=lambda i: self.lab.loss_of(rows[i].outcome))
            if self.lab.loss_of(rows[least].outcome) > self.lab.loss_of(row.outcome):
                return
            current, row = sets[least], rows[least]

    def _anneal(self):
        """Flip a unit at random; worse sets are accepted with a probability that falls with time."""
        rng, units = np.random.default_rng(self.plan.seed), sorted(self.units.all)
        current = self.units.all
        row, = self._try_all([current])
        yield row
        for step in range(self.plan.steps):
            share = step / max(1, self.plan.steps - 1)
            temperature = ANNEAL_FROM * (ANNEAL_TO / ANNEAL_FROM) ** share
            unit, chance = units[int(rng.integers(len(units)))], rng.random()
            flipped = current ^ {unit}
            if not self.units.lines(flipped):
                continue
            new, = self._try_all([flipped])
            yield new
            worse = self.lab.loss_of(new.outcome) - self.lab.loss_of(row.outcome)
            if worse <= 0.0 or chance < math.exp(-worse / temperature):
                current, row = flipped, new

    # The chosen one -------------------------------------------------------------------------------------

    def final(self, setting):
        fit = Fit(self.lab, self.lab.whole(), self.lab.pool,
                  Columns.of_lines(self.lab.encoder.template, setting.lines), None, setting.min_count)
        fit.train(setting.rho1, setting.rho2)
        return fit

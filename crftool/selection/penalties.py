"""Choosing penalties: the path of rho1 for every rho2 and cut-off, or a grid of given values."""

from crftool.selection.lab import Fit
from crftool.selection.rows import Row, Setting
from crftool.corpus.subset import Columns
from crftool.trainers.path import INNER, geometric_grid, largest_rho1

LAST_RHO1 = 0.5                      # where a path ends, unless told: a feature must gain more than half a count


class Penalties:
    """`l1` finds its values of rho1 itself; `grid` takes those that are given."""

    def __init__(self, lab, plan):
        self.lab, self.plan = lab, plan
        self.columns = Columns.of_lines(lab.encoder.template, plan.lines) if plan.lines else None
        self.rows_planned = len(plan.rho2) * len(plan.min_counts) * (plan.path if plan.method == "l1" else
                                                                     len(plan.rho1 or [0.0]))

    def _fit(self, dataset, min_count, least_rho1=0.0):
        return Fit(self.lab, self.lab.whole(dataset), self.lab.pool, self.columns, None, min_count, least_rho1=least_rho1)

    def _values(self, min_count):
        """The values of rho1, falling."""
        plan = self.plan
        if plan.method != "l1":
            return sorted(plan.rho1 or [0.0], reverse=True)
        fit = self._fit(None, min_count)
        largest = largest_rho1(fit.objective, fit.pool)
        return geometric_grid(largest, plan.rho1[0] if plan.rho1 else min(LAST_RHO1, largest / 100), plan.path)

    def rows(self):
        lab, plan = self.lab, self.plan
        for min_count in plan.min_counts:
            values = self._values(min_count)
            for rho2 in plan.rho2:
                fits = []                            # made when the first value has to be trained
                for i, rho1 in enumerate(values):
                    def compute():
                        before = []                  # a resumed search goes through what it knows, to the same weights
                        if not fits:
                            fits.extend(lab.fits(columns=self.columns, min_count=min_count, least_rho1=values[-1]))
                            before = values[:i]
                        for value in (*before, rho1):
                            outcome = lab.trained(fits, value, rho2, self._tolerance(value, values))
                        return outcome
                    setting = Setting(plan.method, rho1, rho2, min_count, lines=plan.lines,
                                      tolerance=self._tolerance(rho1, values), path=tuple(values))
                    yield Row(setting, lab.remember(setting, compute))

    def _tolerance(self, rho1, values):
        """Of a value on the way along a path; None is that of all trainings."""
        return INNER * self.lab.training.tolerance if self.plan.method == "l1" and rho1 != values[-1] else None

    def final(self, setting, dataset=None, scale=1.0):
        """The Fit of a setting on all data; `scale` multiplies penalties, for parts of the data."""
        rho1 = scale * setting.rho1
        fit = self._fit(dataset, setting.min_count, rho1)
        fit.train(rho1, scale * setting.rho2)
        return fit

    def chosen(self, setting, dataset, scale):
        """[F] bool: the features that the setting picks from a part of the data."""
        return self.final(setting, dataset, scale).weights() != 0.0

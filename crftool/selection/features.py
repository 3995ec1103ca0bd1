"""Choosing features: by filters, by thresholds on trained weights, and by greedy induction."""

from dataclasses import replace

import numpy as np

from crftool.selection import filters
from crftool.selection.lab import Fit
from crftool.selection.rows import Row, Setting
from crftool.corpus.subset import Columns, Subproblem


def default_numbers(F):
    """1,000, 3,162, 10,000, ...: half a power of ten apart, below the number of features."""
    numbers = [round(10 ** (half / 2)) for half in range(6, 17)]
    return [n for n in numbers if n < F] or [max(1, F // 2)]


def default_batch(limit):
    """How many of `limit` features induction adds at a time."""
    return max(10, min(500, limit // 20))


class _Features:
    """What methods share that keep some of the template's features."""

    def __init__(self, lab, plan):
        self.lab, self.plan = lab, plan
        self.columns = Columns.of_lines(lab.encoder.template, plan.lines) if plan.lines else \
            Columns.all(lab.encoder.template)
        self.rho1, self.rho2 = (plan.rho1 or [0.0])[0], plan.rho2[0]

    def candidates(self, dataset):
        """[F] bool: the features that occur in a part of the data."""
        lab = self.lab
        sub = Subproblem(dataset, lab.space, lab.groups, self.columns)
        mask = sub.expand(np.ones(sub.space.F, bool))
        if lab.training.observed_only:
            mask &= np.concatenate([part.both.reshape(-1) for part in self._tables(dataset)]) > 0
        return mask

    def _tables(self, dataset):
        lab, columns = self.lab, self.columns
        groups = [[k for k in group if k in columns.unigrams] for group in lab.groups]
        cut = dataset if columns == Columns.all(lab.encoder.template) else _without(dataset, columns)
        return filters.count_tables(cut, lab.space, groups)

    def _setting(self, **choice):
        return Setting(self.plan.method, self.rho1, self.rho2, lines=self.plan.lines, **choice)


def _without(dataset, columns):
    """The Dataset without the bigram observations of other columns."""
    return replace(dataset, bigrams=np.ascontiguousarray(dataset.bigrams[:, list(columns.bigrams)]))


def mask_of(F, features):
    mask = np.zeros(F, bool)
    mask[features] = True
    return mask


class Filter(_Features):
    """The best by a measure, then a model of these."""

    def __init__(self, lab, plan):
        super().__init__(lab, plan)
        self.numbers = sorted(plan.numbers or default_numbers(lab.space.F))
        self.rows_planned = len(self.numbers)

    def _ranking(self, dataset):
        return filters.rank_features(self.plan.method, self._tables(dataset), self.candidates(dataset))

    def rows(self):
        lab, F = self.lab, self.lab.space.F
        rankings = []
        for number in self.numbers:
            def compute():
                if not rankings:
                    rankings.extend(lab.map(lambda split, pool: self._ranking(split.train), lab.splits))

                def work(i, pool):
                    fit = Fit(lab, lab.splits[i], pool, self.columns, mask_of(F, rankings[i][:number]))
                    fit.train(self.rho1, self.rho2)
                    return fit
                fits = lab.map(work, range(len(lab.splits)))
                return lab.outcome(lab.map(lambda fit, pool: fit.score(), fits), fits)
            setting = self._setting(number=number)
            yield Row(setting, lab.remember(setting, compute))

    def chosen(self, setting, dataset, scale):
        return mask_of(self.lab.space.F, self._ranking(dataset)[:setting.number])

    def final(self, setting):
        lab = self.lab
        fit = Fit(lab, lab.whole(), lab.pool, self.columns, self.chosen(setting, lab.dataset, 1.0))
        fit.train(setting.rho1, setting.rho2)
        return fit


class Threshold(_Features):
    """A model with an l2 penalty, of which weights with small |theta| are dropped."""

    def __init__(self, lab, plan):
        super().__init__(lab, plan)
        if plan.numbers:
            self.choices = [{"number": number} for number in sorted(plan.numbers, reverse=True)]
        else:
            self.choices = [{"delta": delta} for delta in sorted(plan.deltas or [0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 2.0])]
        self.rows_planned = len(self.choices)

    def rows(self):
        lab, fits = self.lab, []
        for choice in self.choices:
            setting = self._setting(retrain=self.plan.retrain, **choice)

            def compute():
                if not fits:
                    fits.extend(lab.fits(columns=self.columns))
                    lab.map(lambda fit, pool: fit.train(self.rho1, self.rho2), fits)
                cut = lab.map(lambda fit, pool: self._cut(fit, setting, pool), fits)
                return lab.outcome(lab.map(lambda fit, pool: fit.score(), cut), cut)
            yield Row(setting, lab.remember(setting, compute))

    def _cut(self, fit, setting, pool):
        """A new Fit without the small weights of another, retrained if asked for."""
        theta = fit.weights()
        keep = np.abs(theta) > setting.delta if setting.delta is not None else \
            mask_of(len(theta), np.argsort(-np.abs(theta), kind="stable")[:setting.number]) & (theta != 0.0)
        cut = Fit(self.lab, fit.split, pool, self.columns, keep, start=theta)
        if setting.retrain:
            cut.train(setting.rho1, setting.rho2)
        return cut

    def final(self, setting, dataset=None, scale=1.0):
        lab = self.lab
        fit = Fit(lab, lab.whole(dataset), lab.pool, self.columns)
        fit.train(scale * setting.rho1, scale * setting.rho2)
        return self._cut(fit, setting, lab.pool)

    def chosen(self, setting, dataset, scale):
        return self.final(setting, dataset, scale).weights() != 0.0


class Induction(_Features):
    """Greedy induction (Della Pietra et al. 1997, McCallum 2003): add the features that promise the largest
    gain in log-likelihood, retrain, until held-out data gain no more.

    McCallum judges a feature by the best weight alone, all else fixed, token by token: the gain of weight a
    is  a c - sum_t log(1 + p_t (e^a - 1)),  c being how often the feature occurs and p_t its probability at
    the n tokens where its observation does. By Jensen's inequality it is at least the same with the mean
    E / n, E = sum p_t, in place of each p_t, whose maximum is

        n KL(c / n || E / n)  =  c log(c / E) + (n - c) log((n - c) / (n - E)).

    E = c + gradient, so one gradient ranks all candidates.
    """

    def __init__(self, lab, plan):
        super().__init__(lab, plan)
        self.limit = max(plan.numbers) if plan.numbers else lab.space.F
        self.batch = plan.batch or default_batch(self.limit)
        self.rows_planned = -(-self.limit // self.batch)

    def rows(self):
        lab, inducers, best, since = self.lab, [], None, 0
        for number in self.numbers_to(self.limit):
            def compute():
                if not inducers:
                    inducers.extend(lab.map(lambda split, pool: Inducer(self, split, pool), lab.splits))
                fits = lab.map(lambda inducer, pool: inducer.grow_to(number), inducers)
                return lab.outcome(lab.map(lambda fit, pool: fit.score(), fits), fits)
            setting = self._setting(number=number, batch=self.batch)
            row = Row(setting, lab.remember(setting, compute))
            yield row
            if best is None or lab.better(row.outcome, best):
                best, since = row.outcome, 0
            else:
                since += 1
            if since >= self.plan.patience:
                return

    def numbers_to(self, limit):
        return [*range(self.batch, limit, self.batch), limit]

    def final(self, setting, dataset=None, scale=1.0):
        lab = self.lab
        inducer = Inducer(self, lab.whole(dataset), lab.pool, scale)
        return inducer.grow_to(setting.number)

    def chosen(self, setting, dataset, scale):
        return self.final(setting, dataset, scale).weights() != 0.0


class Inducer:
    """A growing model on one split."""

    def __init__(self, method, split, pool, scale=1.0):
        lab = self.lab = method.lab
        self.method, self.split, self.pool, self.scale = method, split, pool, scale
        everything = Fit(lab, split, pool, method.columns)
        self._whole, self._objective = everything.sub, everything.objective      # of all candidates
        tables = method._tables(split.train)
        self._candidates = method.candidates(split.train)
        self._c = np.concatenate([part.both.reshape(-1) for part in tables]).astype(float)
        self._n = self._occurrences(tables)
        self._number = 0
        self.mask = np.zeros(lab.space.F, bool)
        self.theta = np.zeros(lab.space.F)

    def _occurrences(self, tables):
        """[F]  tokens at which a feature's observation occurs: whatever the labels."""
        space = self.lab.space
        of_unigrams = np.repeat(tables[0].v, space.Y)
        of_bigrams = np.repeat(tables[1].v.reshape(space.Ob, space.R).sum(axis=1), space.R * space.Y)
        return np.concatenate((of_unigrams, of_bigrams)).astype(float)

    def gains(self):
        """[F]  lower bounds of the gain of each candidate; -1 for others."""
        grad = np.empty(self._whole.space.F)
        self._objective.value_and_gradient(self._whole.shrink(self.theta), grad)
        bound = gain_bound(self._c, self._c + self._whole.expand(grad), self._n)
        return np.where(self._candidates & ~self.mask, bound, -1.0)

    def grow_to(self, number):
        """The Fit with `number` features, by as many batches as it takes from here."""
        for step in self.method.numbers_to(number):
            if step > self._number or step == number:
                fit = self._grow(step)
        return fit

    def _grow(self, number):
        self._number = number
        missing = number - int(np.count_nonzero(self.mask))
        if missing > 0:
            gains = self.gains()
            order = np.argsort(-gains, kind="stable")[:missing]
            self.mask[order[gains[order] > 0.0]] = True
        fit = Fit(self.lab, self.split, self.pool, self.method.columns, self.mask, start=self.theta)
        fit.train(self.scale * self.method.rho1, self.scale * self.method.rho2)
        self.theta = fit.weights()
        return fit


def gain_bound(c, E, n):
    """n KL(c / n || E / n), for counts c, expected counts E and occurrences n."""
    E = np.clip(E, 1e-12, np.maximum(n - 1e-12, 1e-12))
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(c > 0.0, c * np.log(c / E), 0.0) + \
            np.where(n > c, (n - c) * np.log((n - c) / (n - E)), 0.0)
    return np.where(n > 0.0, np.maximum(gain, 0.0), 0.0)

"""Methods of selection on data whose answer is known."""

import numpy as np
import pytest

from crftool.corpus.dataset import read_labelled_data, read_training_data
from crftool.corpus.template import Template
from crftool.kernels.pool import Pool
from crftool.objectives import LogLoss
from crftool.selection import METHODS, stability
from crftool.selection.conjunctions import _Grower, conjunctions
from crftool.selection.features import gain_bound
from crftool.selection.filters import MEASURES
from crftool.selection.lab import Interrupted, Lab, Outcome, Training
from crftool.selection.rows import Plan, Row, Setting

def planted_text(seed, S):
    rng = np.random.default_rng(seed)
    sequences = []
    for _ in range(S):
        T, before, lines = int(rng.integers(3, 8)), 0, []
        for _ in range(T):
            noise, decides, shifts, more = (int(rng.integers(n)) for n in (6, 3, 2, 4))
            lines.append(b"n%d d%d s%d m%d L%d\n" % (noise, decides, shifts, more, (decides + before) % 3))
            before = shifts
        sequences.append(b"".join(lines))
    return b"\n".join(sequences)


# The label is column 1 plus column 2 of the token before: line 2 says it all, the others help or are noise.
PLANTED_TEMPLATE = b"U0:%x[0,0]\nU1:%x[0,1]/%x[-1,2]\nU2:%x[0,3]\nU3:%x[1,0]\nU4:%x[0,1]\nB\n"


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Encoder and data in which line 2 of the template says it all."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "train.txt").write_bytes(planted_text(1, 60))
    (folder / "dev.txt").write_bytes(planted_text(2, 30))
    encoder, dataset = read_training_data(str(folder / "train.txt"), Template(PLANTED_TEMPLATE))
    return encoder, dataset, *read_labelled_data(str(folder / "dev.txt"), encoder)


def make_lab(planted, **options):
    encoder, dataset, dev, labels = planted
    if "folds" not in options:
        options.update(dev=dev, labels=labels)
    return Lab(encoder, dataset, training=Training(tolerance=1e-6), **options)


def search(planted, method, plan=None, **options):
    lab = make_lab(planted, **options)
    searcher = METHODS[method](lab, Plan(method, **(plan or {})))
    rows = list(searcher.rows())
    lab.close()
    return lab, searcher, rows


# Templates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scored", [{}, {"folds": 3}])
@pytest.mark.parametrize("method", ["forward", "backward", "beam", "anneal"])
def test_wrappers_find_the_planted_template(planted, method, scored):
    lab, _, rows = search(planted, method, {"rho2": [0.1], "beam": 2, "steps": 40, "seed": 3}, **scored)
    best = lab.best(rows)
    assert best.setting.lines == (2,) and best.outcome.error == 0.0
    assert len({row.setting.key for row in rows}) == len(lab.memory)


def test_columns_leave_with_their_lines(planted):
    """Column 1 and 2 make line 2; B needs none and is always there."""
    lab, _, rows = search(planted, "backward", {"rho2": [0.1], "over": "columns"})
    assert lab.best(rows).setting.lines == (2, 5, 6)


def test_every_set_is_trained_once(planted, monkeypatch):
    trained = []
    lab = make_lab(planted)
    searcher = METHODS["anneal"](lab, Plan("anneal", rho2=[1.0], steps=60))
    original = searcher._trained
    monkeypatch.setattr(searcher, "_trained", lambda units, *rest: trained.append(units) or original(units, *rest))
    rows = list(searcher.rows())
    distinct = {row.setting.key for row in rows}
    assert len(rows) > len(distinct)                           # it does come back to known sets
    assert {searcher._setting(units).key for units in trained} == distinct == set(lab.memory)


def test_the_seed_decides(planted):
    runs = [[row.setting.lines for row in search(planted, "anneal", {"rho2": [1.0], "steps": 15, "seed": seed})[2]]
            for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


# Features -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["mi", "chi2", "t", "gain", "gain-ratio", "threshold", "induce", "l1"])
def test_informed_methods_need_few_features(planted, method):
    """27 features say it all: 3 labels for each of (3 x 2 + 3) values of the planted line."""
    plan = {"rho2": [0.1], "numbers": [27]} if method != "l1" else {"rho2": [0.1], "path": 8}
    if method == "induce":
        plan["batch"] = 9
    lab, searcher, rows = search(planted, method, plan)
    best = lab.best(rows)
    assert best.outcome.error == 0.0
    if method != "l1":
        assert best.outcome.active_u + best.outcome.active_b <= 27
    lab = make_lab(planted)
    fit = METHODS[method](lab, Plan(method, **plan)).final(best.setting)
    assert fit.active == (best.outcome.active_u, best.outcome.active_b)


@pytest.mark.parametrize("method", [*MEASURES, "induce"])
def test_exactly_the_number_asked_for(planted, method):
    lab = make_lab(planted)
    searcher = METHODS[method](lab, Plan(method, numbers=[10, 40]))
    for number in (10, 40):
        mask = searcher.chosen(Setting(method, 0.0, 1.0, number=number), lab.dataset, 1.0)
        assert np.count_nonzero(mask) == number


def test_threshold(planted):
    lab, searcher, rows = search(planted, "threshold", {"deltas": [0.1, 0.5], "rho2": [1.0]})
    whole = METHODS["grid"](lab, Plan("grid")).final(Setting("grid", 0.0, 1.0)).weights()
    for row, delta in zip(rows, (0.1, 0.5)):
        cut = searcher.final(row.setting).weights()
        np.testing.assert_array_equal(cut, np.where(np.abs(whole) > delta, whole, 0.0))
        assert row.outcome.active_u + row.outcome.active_b == np.count_nonzero(cut)
    again = searcher.final(Setting("threshold", 0.0, 1.0, delta=0.5, retrain=True)).weights()
    assert (again != 0.0).sum() == np.count_nonzero(cut) and not np.allclose(again, cut)


def test_gain_bound_by_hand():
    """n KL(c/n || E/n), its limits, and never more than the best gain token by token."""
    assert gain_bound(np.array([3.0]), np.array([1.0]), np.array([4.0]))[0] == pytest.approx(
        3 * np.log(3.0) + 1 * np.log(1 / 3))
    limits = gain_bound(np.array([0.0, 5.0, 2.0, 0.0]), np.array([1.0, 2.0, 2.0, 0.0]), np.array([4.0, 5.0, 9.0, 0.0]))
    np.testing.assert_allclose(limits, [4 * np.log(4 / 3), 5 * np.log(5 / 2), 0.0, 0.0], atol=1e-9)
    rng = np.random.default_rng(1)
    for _ in range(20):
        p = rng.random(6)
        c = float(rng.integers(1, 6))
        exact = max(a * c - np.log1p(p * (np.exp(a) - 1)).sum() for a in np.linspace(-8, 8, 2001))
        assert gain_bound(np.array([c]), np.array([p.sum()]), np.array([6.0]))[0] <= exact + 1e-3


def test_gains_are_those_of_the_data(planted):
    """From the empty model, where every label has probability 1/Y: expected counts are n / Y."""
    encoder, dataset, *_ = planted
    from crftool.selection.features import Inducer
    lab = make_lab(planted)
    inducer = Inducer(METHODS["induce"](lab, Plan("induce", numbers=[5])), lab.splits[0], Pool())
    gains = inducer.gains()
    space = encoder.space
    counts = np.zeros((space.O, space.Y))
    for column in dataset.unigrams.T:
        np.add.at(counts, (column, dataset.labels), 1.0)
    n = np.repeat(counts.sum(axis=1), space.Y)
    np.testing.assert_allclose(gains[:space.O * space.Y], gain_bound(counts.reshape(-1), n / space.Y, n), atol=1e-9)


def test_conjunctions_are_new_and_short():
    lines = Template(b"U0:%x[0,0]\nU1:%x[0,1]\nU:%x[0,1]/%x[0,0]\nU3:%x[1,0]\nU&0:%x[0,0]/3:%x[1,0]\n").unigrams
    found = {text for _, _, text in conjunctions(lines, [0, 4], 4)}
    assert found == {b"U&0:%x[0,0]/3:%x[1,0]/1:%x[0,1]"}       # the others have the fields of lines that exist
    found = [(i, k) for i, k, _ in conjunctions(lines[:2] + lines[3:4], [0, 1, 2], 3)]
    assert found == [(0, 1), (0, 2), (1, 2)]                   # every pair once


def test_gain_of_a_conjunction_by_hand(planted):
    """That of the new line's features, read from a file that has the line."""
    encoder, dataset, *_ = planted
    lab = make_lab(planted)
    grower = _Grower(lab, Plan("induce", batch=4))
    k = [line.text for line in encoder.template.unigrams].index
    p = np.full((dataset.N, encoder.space.Y), 1 / 3)
    a, b = dataset.unigrams[:, k(b"U0:%x[0,0]")], dataset.unigrams[:, k(b"U4:%x[0,1]")]
    gains = []
    for pair in set(zip(a, b)):
        here = (a == pair[0]) & (b == pair[1])
        for y in range(3):
            n, c = float(here.sum()), float((dataset.labels[here] == y).sum())
            gains.append(gain_bound(np.array([c]), np.array([n / 3]), np.array([n]))[0])
    assert grower._gain(a, b, dataset.labels, p) == pytest.approx(sum(sorted(gains)[-4:]))


# Penalties ----------------------------------------------------------------------------------------------


def test_path_and_grid_agree(planted):
    lab, _, rows = search(planted, "l1", {"rho2": [0.0, 0.5], "path": 5, "min_counts": [1, 3]})
    assert len(rows) == 20
    assert rows[0].outcome.active_u == rows[0].outcome.active_b == 0
    for row in rows[::3]:
        setting = row.setting
        _, _, (alone,) = search(planted, "grid", {"rho1": [setting.rho1], "rho2": [setting.rho2],
                                                  "min_counts": [setting.min_count]})
        assert alone.outcome.error == row.outcome.error and alone.outcome.f1 == row.outcome.f1
        assert abs(alone.outcome.active_u - row.outcome.active_u) <= 1


def test_one_standard_error():
    lab = object.__new__(Lab)
    lab.by = "error"
    rows = [Row(Setting("grid", rho1), Outcome(error, 0.0, 0.5, active, 0.0, 1.0))
            for rho1, error, active in [(4.0, 9.0, 5), (3.0, 5.4, 10), (2.0, 5.3, 20), (1.0, 5.0, 40), (0.5, 5.0, 80)]]
    assert lab.best(rows).setting.rho1 == 1.0                  # fewer weights among equals
    assert lab.best(rows, one_se=True).setting.rho1 == 3.0
    lab.by = "f1"
    assert lab.best([Row(Setting("grid", f), Outcome(0.0, f, 0.0, 1, 1, 1)) for f in (1.0, 3.0, 2.0)]).outcome.f1 == 3.0


@pytest.mark.parametrize("method,plan", [("grid", {"rho1": [1.0]}), ("mi", {"numbers": [20]}), ("forward", {})])
def test_threads_change_nothing(planted, method, plan):
    """But for the seconds."""
    for scored in ({}, {"folds": 3}):
        one, two = (search(planted, method, plan, threads=threads, **scored)[2] for threads in (1, 3))
        assert [vars(row.outcome) | {"seconds": 0} for row in one] == [vars(row.outcome) | {"seconds": 0} for row in two]


def test_folds_score_every_sequence_once(planted):
    lab = make_lab(planted, folds=4)
    assert sum(split.test.S for split in lab.splits) == lab.dataset.S
    assert all(split.test.N + split.train.N == lab.dataset.N for split in lab.splits)


def test_deviation_of_a_dev_score(planted):
    """That of a ratio of sums over sequences: with one token each it is sqrt(p (1 - p) / n)."""
    lab, searcher, (row,) = search(planted, "grid", {"rho1": [1e6]})
    fit = searcher.final(row.setting)
    fit.split = type(fit.split)(lab.dataset, lab.splits[0].test)
    single = fit.split.test
    from dataclasses import replace
    offsets = np.arange(single.N + 1, dtype=np.int64)
    fit.split = replace(fit.split, test=replace(single, offsets=offsets))
    scores, deviation = fit.score()
    p = scores.token_error / 100
    assert 0 < p < 1 and deviation == pytest.approx(100 * np.sqrt(p * (1 - p) / single.N))


def test_interruption(planted):
    requests = []
    lab = make_lab(planted, requests=requests)
    rows = METHODS["l1"](lab, Plan("l1", path=5)).rows()
    next(rows)
    requests.append(2)
    with pytest.raises(Interrupted):
        next(rows)
    assert len(lab.memory) == 1


# Stability ----------------------------------------------------------------------------------------------


def test_stability_of_constant_and_random_choices():
    constant = stability.measure([np.array([3, 5, 8])] * 6, 100, 100)
    assert constant.jaccard == constant.kuncheva == 1.0
    assert constant.frequency[[3, 5, 8]].tolist() == pytest.approx([1.0] * 3) and constant.frequency.sum() == pytest.approx(3)
    rng = np.random.default_rng(1)
    for sizes in ([50] * 40, rng.integers(20, 120, 40)):
        random = stability.measure([np.sort(rng.choice(200, k, replace=False)) for k in sizes], 500, 200)
        assert abs(random.kuncheva) < 0.02 < random.jaccard
    apart = stability.measure([np.array([0, 1]), np.array([2, 3])], 4, 4)
    assert apart.jaccard == 0.0 and apart.kuncheva == -1.0


def test_kuncheva_by_its_own_formula():
    """(r n - k^2) / (k (n - k)) for sets of equal size."""
    a, b = np.arange(0, 10), np.arange(4, 14)
    assert stability.kuncheva(a, b, 50) == pytest.approx((6 * 50 - 100) / (10 * 40))
    nothing = np.empty(0, int)
    assert stability.kuncheva(nothing, nothing, 50) == stability.jaccard(nothing, nothing) == 1.0
    assert stability.kuncheva(nothing, a, 50) == stability.jaccard(nothing, a) == 0.0
    assert stability.kuncheva(np.arange(50), np.arange(50), 50) == 1.0


def test_stability_of_a_method(planted):
    lab = make_lab(planted)
    method = METHODS["mi"](lab, Plan("mi", numbers=[27]))
    told = []
    result = stability.repeat(method, Setting("mi", 0.0, 1.0, number=27), 100, 5, 1, {}, lambda *run: told.append(run))
    assert [run for run, _ in told] == list(range(5)) and result.sizes == [27] * 5
    assert 0.7 < result.kuncheva <= 1.0
    known = {run: chosen for run, chosen in told[:3]}
    again = stability.repeat(method, Setting("mi", 0.0, 1.0, number=27), 100, 5, 1, known, lambda *run: told.append(run))
    assert again.kuncheva == result.kuncheva and len(told) == 7


def test_penalties_follow_the_size_of_a_part(planted):
    """Half the data twice is all of it: the same support under half the penalty."""
    lab = make_lab(planted)
    method = METHODS["grid"](lab, Plan("grid"))
    setting = Setting("grid", 2.0, 0.1)
    from crftool.corpus.subset import take_sequences
    half = np.arange(lab.dataset.S // 2)
    twice = take_sequences(lab.dataset, np.concatenate((half, half)))
    np.testing.assert_array_equal(method.chosen(setting, take_sequences(lab.dataset, half), 0.5),
                                  method.chosen(setting, twice, 1.0))


def test_loss_takes_a_part_without_templates(planted):
    """No U line, or no B line, or neither observed: training must cope."""
    encoder, dataset, dev, labels = planted
    lab = make_lab(planted)
    for lines in ((6,), (1,)):
        _, _, rows = search(planted, "grid", {"rho1": [0.5], "lines": lines})
        assert rows[0].outcome.error <= 100.0
    assert LogLoss(dataset, encoder.space, lab.groups, Pool()).candidates == encoder.space.F

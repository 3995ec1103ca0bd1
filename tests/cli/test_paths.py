"""What `learn` has to do with selection: paths of rho1, what is kept, the weights of another model."""

import json

import numpy as np
import pytest
from test_select import planted, usage_error  # noqa: F401  a fixture

from crftool.model import Model
from crftool.phrases import has_phrases


@pytest.mark.parametrize("path", [("--path", "5"), ("--path=5",), ("--path",)])
def test_learn_path(planted, path):
    output, messages = planted.run("learn", "--rho1", "0.5", "--dev", "dev.txt", *path, "t", "train.txt", "m")
    header, *rows = [line.split("\t") for line in output.decode().splitlines()]
    assert header == ["rho1", "active_mu", "active_lambda", "objective", "dev_error", "dev_f1", "seconds", "tolerance"]
    assert len(rows) == (5 if "5" in path[-1] else 20)
    values = [[float(cell) for cell in row] for row in rows]
    assert values[0][1:3] == [0, 0] and values[1][1] > 0 and values[-1][0] == 0.5
    assert all(a[0] > b[0] and a[3] > b[3] for a, b in zip(values, values[1:]))
    assert [row[7] for row in values] == [8e-5] * (len(values) - 1) + [1e-5]
    best = max(values, key=lambda row: row[5])                 # the first of equals: fewer weights
    model = Model.load(str(planted.path / "m"))
    assert model.options["rho1"] == pytest.approx(best[0]) and model.active == best[1] + best[2]
    assert f"best on dev.txt: rho1 {best[0]:.10g}" in messages
    planted.run("learn", "-q", "--rho1", "0.5", "--dev", "dev.txt", "--keep", "last", *path, "t", "train.txt", "m")
    model = Model.load(str(planted.path / "m"))
    assert model.options["rho1"] == 0.5 and model.active == values[-1][1] + values[-1][2]
    assert model.options["tolerance"] == 1e-5


def test_learn_path_ends_where_learn_does(planted):
    output, _ = planted.run("learn", "--path", "6", "--rho1", "0.5", "--rho2", "0.1", "-e", "1e-7", "t", "train.txt", "a")
    planted.run("learn", "-q", "--rho1", "0.5", "--rho2", "0.1", "-e", "1e-7", "t", "train.txt", "b")
    a, b = (Model.load(str(planted.path / name)) for name in "ab")
    assert a.active == b.active
    assert float(output.decode().splitlines()[-1].split("\t")[3]) == pytest.approx(b.options["objective"], rel=1e-7)
    assert b"\t\t" in output                                   # no dev, no scores


def test_keep_last_without_a_path(planted):
    planted.run("learn", "-q", "-m", "3", "--dev", "dev.txt", "--keep", "last", "t", "train.txt", "a")
    planted.run("learn", "-q", "-m", "3", "t", "train.txt", "b")
    a, b = (Model.load(str(planted.path / name)) for name in "ab")
    np.testing.assert_array_equal(a.weights.unigrams.to_dense(), b.weights.unigrams.to_dense())
    assert a.options["iterations"] == 3


def test_learn_only(planted):
    planted.run("learn", "-q", "--rho1", "2", "t", "train.txt", "few")
    planted.run("learn", "-q", "--only", "few", "t", "train.txt", "again")
    few, again = (Model.load(str(planted.path / name)) for name in ("few", "again"))
    assert again.active == few.active and again.options["rho1"] == 0
    planted.write("u", b"U9:%x[0,1]\n")
    _, messages = planted.run("learn", "-q", "--only", "few", "u", "train.txt", "x", code=1)
    assert "few: no weight of this model is one of the template's" in messages


@pytest.mark.parametrize("penalty", [("--rho1", "15"), ("--rho1", "0.5"), ("--rho1", "0.5", "--rho2", "1")])
def test_no_iterations_leave_initial_weights_as_they_are(planted, penalty):
    planted.run("learn", "-q", "t", "train.txt", "a")
    planted.run("learn", "-q", "--init", "a", "-m", "0", *penalty, "t", "dev.txt", "b")
    planted.run("learn", "-q", "--init", "a", "-m", "0", "t", "dev.txt", "c")
    b, c = (Model.load(str(planted.path / name)) for name in "bc")
    np.testing.assert_array_equal(b.weights.unigrams.to_dense(), c.weights.unigrams.to_dense())


@pytest.mark.parametrize("options", [(), ("--rho1", "0.3"), ("-a", "owl-qn", "--rho1", "0.3"), ("-a", "bcd", "--rho1", "0.3")])
def test_initial_weights_that_were_not_observed_are_dropped(planted, options):
    """Where they begin does not matter: the weights of the old model may be of labels not seen in the new data."""
    planted.run("learn", "-q", "--rho2", "0.01", "t", "train.txt", "old")
    options = ("-q", "-e", "1e-8", "--features", "observed", "--rho2", "0.1", *options)
    planted.run("learn", *options, "--init", "old", "t", "dev.txt", "a")
    planted.run("learn", *options, "t", "dev.txt", "b")
    a, b = (Model.load(str(planted.path / name)) for name in "ab")
    assert a.active == b.active and a.options["objective"] == pytest.approx(b.options["objective"], rel=1e-7)


def test_dev_without_phrases_is_judged_by_tokens(workdir):
    """On these data training raises the F1 of phrases, and the token error with it."""
    workdir.write("train.txt", b"a O\nb X-1\na O\nb X-1\n\n" * 20)
    workdir.write("dev.txt", b"a O\nb O\na O\nb O\na O\nb X-1\n\n" * 5)
    workdir.write("t", b"U:%x[0,0]\nB\n")
    workdir.run("learn", "-q", "-a", "l-bfgs", "--dev", "dev.txt", "--log-json", "log", "t", "train.txt", "m")
    log = [json.loads(line) for line in workdir.read("log").splitlines()]
    best = min(entry["dev_token_error"] for entry in log)
    assert max(log, key=lambda entry: entry["dev_f1"])["dev_token_error"] > best
    output, _ = workdir.run("eval", "--json", "-m", "m", "dev.txt")
    assert json.loads(output)["token_error"] == pytest.approx(best)
    _, messages = workdir.run("select", "--by", "f1", "--method", "grid", "t", "train.txt", code=1)
    assert "train.txt: no label is part of a phrase" in messages


@pytest.mark.parametrize("labels,expected", [
    (b"B-NP I-NP O", True), (b"S-X O", True), (b"B I O", True), (b"U-X L-X", True), (b"O K -", False),
    (b"NN VB O", False), (b"O X", False), (b"X-Y Z-Y", False)])
def test_has_phrases(labels, expected):
    assert has_phrases(labels.split()) is expected


@pytest.mark.parametrize("options,message", [
    (("--keep", "best"), "--keep best needs --dev"), (("--path", "3"), "--path ends at --rho1"),
    (("--path", "0", "--rho1", "1"), "0 is not in the range")])
def test_learn_usage(options, message):
    assert message in usage_error("learn", *options, "t", "train.txt", "m")


def test_learn_does_not_overwrite_its_input(planted):
    _, messages = planted.run("learn", "t", "train.txt", "train.txt", code=1)
    assert "train.txt: is read as TRAIN, and would be overwritten by MODEL" in messages
    assert planted.read("train.txt").startswith(b"n")

"""`crftool learn -a bcd` and `-a cd` as a user runs them."""

import json
import signal

import pytest
from test_learn import CORPUS, corpus, log_of  # noqa: F401  a fixture

from crftool.model import Model

PENALTY = ("--rho1", "0.1", "--rho2", "0.01")
BLOCKS = ("-a", "bcd", *PENALTY)


def weights(workdir, name):
    return Model.from_bytes(workdir.read(name)).active


@pytest.mark.parametrize("algorithm", ["cd", "bcd"])
@pytest.mark.parametrize("options", [(), ("--begin-label", "-f", "2"), ("--features", "observed"), ("--constrain", "rules")])
def test_the_same_model_as_owl_qn(corpus, algorithm, options):  # noqa: F811
    corpus.write("rules", b"forbid N M\n")
    ends = {}
    for name in ("owl-qn", algorithm):
        ends[name] = log_of(corpus, "-a", name, *PENALTY, "-e", "1e-8", *options)[-1]
        labels = corpus.run("tag", "-m", "m", "train.txt")[0]
        ends[name]["labels"] = labels
    assert ends[algorithm]["objective"] == pytest.approx(ends["owl-qn"]["objective"], rel=1e-7)
    assert ends[algorithm]["labels"] == ends["owl-qn"]["labels"]


def test_the_log_tells_both_kinds_of_weights(corpus):  # noqa: F811
    log = log_of(corpus, *BLOCKS)
    assert [entry["objective"] for entry in log] == sorted((entry["objective"] for entry in log), reverse=True)
    for entry in log:
        assert entry["active"] == entry["active_unigrams"] + entry["active_bigrams"]
    assert log[-1]["active"] == weights(corpus, "m") > 0


@pytest.mark.parametrize("options", [BLOCKS, (*BLOCKS, "--grow"), (*BLOCKS, "--group", "1"), ("-a", "bcd"),
                                     (*BLOCKS, "--separate-blocks"), ("-a", "cd", *PENALTY, "--exact-hessian")])
def test_any_number_of_threads_writes_the_same_bytes(corpus, options):  # noqa: F811
    models = []
    for threads in (1, 2):
        corpus.run("learn", "-q", "-p", threads, *options, "t", "train.txt", "m")
        models.append(corpus.read("m"))
    assert models[0] == models[1]


@pytest.mark.parametrize("options", [(), ("--grow",), ("--group", "0.3"), ("--features", "observed"), ("--separate-blocks",),
                                     ("--begin-label",)])
def test_a_path_ends_where_learn_does(corpus, options):  # noqa: F811
    rows, _ = corpus.run("learn", "-q", *BLOCKS, *options, "-e", "1e-7", "--path", "5", "--dev", "train.txt", "--keep", "last",
                         "t", "train.txt", "m")
    rows = [list(map(float, row.split("\t"))) for row in rows.decode().splitlines()[1:]]
    assert len(rows) == 5 and rows[0][1:3] == [0, 0] and all(a[3] > b[3] for a, b in zip(rows, rows[1:]))
    corpus.run("learn", "-q", *BLOCKS, *options, "-e", "1e-7", "t", "train.txt", "n")
    path, plain = (Model.from_bytes(corpus.read(name)) for name in "mn")
    assert rows[-1][3] == pytest.approx(plain.options["objective"], rel=1e-6 if "--grow" not in options else 0.05)
    assert path.active == rows[-1][1] + rows[-1][2] and path.options["rho1"] == 0.1


def test_no_revisit_says_whether_it_was_right(corpus):  # noqa: F811
    _, messages = corpus.run("learn", *BLOCKS, "--no-revisit", "t", "train.txt", "m")
    assert "no-revisit" in messages


def test_start_and_dev(corpus):  # noqa: F811
    corpus.run("learn", "-q", *BLOCKS, "t", "train.txt", "a")
    log = log_of(corpus, *BLOCKS, "--init", "a", "--dev", "train.txt")
    assert log[0]["active"] == weights(corpus, "a") and "dev_f1" in log[0]
    assert log[0]["objective"] == pytest.approx(log[-1]["objective"], rel=1e-4)


def test_a_model_of_nothing(corpus):  # noqa: F811
    _, messages = corpus.run("learn", "-a", "bcd", "--rho1", "1000", "t", "train.txt", "m")
    assert weights(corpus, "m") == 0 and "the gradient is zero" in messages


@pytest.mark.parametrize("options,problem", [
    (("-a", "owl-qn", "--group", "1"), "--group needs -a bcd."),
    (("--no-revisit",), "--no-revisit needs -a cd or -a bcd."),
    (("--grow",), "--grow needs -a cd or -a bcd."),
    (("-a", "bcd", "--exact-hessian"), "--exact-hessian needs -a cd."),
    (("-a", "cd", "--separate-blocks"), "--separate-blocks needs -a bcd."),
    (("-a", "bcd", "--inference", "log"), "leave out --inference log"),
])
def test_contradictions(corpus, options, problem):  # noqa: F811
    _, messages = corpus.run("learn", *options, "t", "train.txt", "m", code=2)
    assert problem in " ".join(messages.split())


def test_a_virtual_feature_set(workdir):
    """Label pairs of every word: far more weights than memory is estimated for."""
    lines = [f"w{i} w{i % 7} L{(7 * i + i // 11) % 60}" + "\n" * (1 + (i % 6 == 5)) for i in range(6000)]
    workdir.write("train.txt", "".join(lines).encode())
    workdir.write("t", b"*0:%x[0,0]\n*1:%x[0,1]\n")
    _, messages = workdir.run("learn", "-a", "bcd", "--rho1", "0.5", "-m", "2", "--max-memory", "150M",
                              "t", "train.txt", "m")
    assert int(next(line for line in messages.splitlines() if "in all" in line).split()[2]) > 15_000_000
    workdir.run("learn", "-a", "owl-qn", "--rho1", "0.5", "--max-memory", "150M", "t", "train.txt", "m", code=1)


def test_interrupted(corpus):  # noqa: F811
    corpus.write("long.txt", CORPUS * 400)
    process = corpus.popen("learn", "-a", "cd", "--rho1", "0.001", "-e", "1e-14", "--log-json", "log", "t", "long.txt", "m",
                           stderr=-1)
    while process.poll() is None and (not (corpus.path / "log").exists() or len(corpus.read("log").splitlines()) < 3):
        pass
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=120)
    if process.returncode != 0:                      # it may have been quicker
        assert process.returncode == 130, messages
    assert weights(corpus, "m") > 0
    assert all(json.loads(line)["objective"] > 0 for line in corpus.read("log").splitlines())

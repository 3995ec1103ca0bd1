"""`crftool learn` as a user runs it."""

import bz2
import gzip
import itertools
import json
import lzma
import math
import os
import signal
import subprocess
import sys
import time

import pytest

from crftool.cli.settings import ALGORITHMS, WITHOUT_L1
from crftool.model import Model
from crftool.trainers import TRAINERS

CORPUS = b"\n".join(
    b"%s %s %s\n%s x %s\n" % (word, b"d" if word.isdigit() else b"a", label, word[::-1], label)
    for word, label in [(b"12", b"N"), (b"ab", b"W"), (b"cd", b"W"), (b"34", b"N"), (b"a1", b"M"), (b"56", b"N")] * 5)
TEMPLATE = b"U0:%x[0,0]\nU1:%x[-1,0]/%x[0,0]\nU2:%x[0,1]\nB\nB1:%x[0,1]\n"


@pytest.fixture
def corpus(workdir):
    workdir.write("train.txt", CORPUS)
    workdir.write("t", TEMPLATE)
    return workdir


def log_of(workdir, *options):
    workdir.run("learn", *options, "--log-json", "log", "t", "train.txt", "m")
    return [json.loads(line) for line in workdir.read("log").splitlines()]


# What it computes -------------------------------------------------------------------------------------

def test_two_sentences(two_sentences):
    _, messages = two_sentences.run("learn", "chunk.template", "train.txt", "chunk.model")
    assert "2 sequences, 10 tokens, 4 labels" in messages
    assert " 236  in all" in messages
    assert "obj=4.6036 act=236" in messages
    assert "converged: " in messages
    assert "estimated peak memory: " in messages


@pytest.mark.parametrize("options", [(), ("--rho1", "0.1", "--rho2", "0.01"), ("--begin-label", "-f", "2")])
def test_any_number_of_threads_writes_the_same_bytes(corpus, options):
    models = []
    for threads in (1, 2, 3):
        corpus.run("learn", "-q", "-p", threads, *options, "t", "train.txt", "m")
        models.append(corpus.read("m"))
    assert models[0] == models[1] == models[2]


def test_cost_is_the_inverse_of_rho2(corpus):
    corpus.run("learn", "-q", "-c", "4", "t", "train.txt", "a")
    corpus.run("learn", "-q", "--rho2", "0.25", "t", "train.txt", "b")
    assert corpus.read("a") == corpus.read("b")


def test_the_names_of_crfpp(corpus):
    l1 = log_of(corpus, "-a", "CRF-L1", "-c", "2")[-1]
    assert l1 == {**log_of(corpus, "--rho1", "0.5", "--rho2", "0")[-1], "seconds": l1["seconds"]}
    l2 = log_of(corpus, "-a", "CRF-L2", "-c", "2")[-1]
    assert l2 == {**log_of(corpus, "-c", "2")[-1], "seconds": l2["seconds"]}


def test_l1_leaves_exact_zeros_that_take_no_room(corpus):
    corpus.run("learn", "-q", "t", "train.txt", "l2")
    corpus.run("learn", "-q", "--rho1", "2", "t", "train.txt", "l1")
    sparse, dense = Model.load(str(corpus.path / "l1")), Model.load(str(corpus.path / "l2"))
    assert 0 < sparse.active < dense.active / 4
    assert sparse.encoder.unigrams.size < dense.encoder.unigrams.size
    assert len(corpus.read("l1")) < len(corpus.read("l2"))


def test_min_count_drops_observations(corpus):
    full, cut = log_of(corpus)[-1]["active"], log_of(corpus, "-f", "10")[-1]["active"]
    assert 0 < cut < full


def test_observed_features_only(corpus):
    _, messages = corpus.run("learn", "--features", "observed", "t", "train.txt", "m")
    candidates = int(messages.split(" of them seen")[0].split()[-1])
    assert Model.load(str(corpus.path / "m")).active == candidates


def test_begin_label_gives_the_first_token_a_transition(corpus):
    corpus.write("b", b"B:%x[0,0]\n")
    corpus.write("one.txt", b"x A\n\ny B\n\nx A\n\ny B\n")
    _, messages = corpus.run("learn", "--begin-label", "b", "one.txt", "m")
    assert " 12  in all" in messages                           # 2 observations, 3 previous labels, 2 labels
    tagged, _ = corpus.run("tag", "-m", "m", "--format", "labels", stdin=b"x\n\ny\n")
    assert tagged == b"A\n\nB\n\n"


def test_every_iteration_is_logged(corpus):
    log = log_of(corpus)
    assert [record["iteration"] for record in log] == list(range(1, len(log) + 1))
    for record in log:
        assert {"iteration", "objective", "active", "seconds"} <= set(record)
    exact = [record["objective"] for record in log if not record["estimated"]]
    assert 1 < len(exact) < len(log) and all(a >= b for a, b in zip(exact, exact[1:]))
    assert all((record["gradient_norm"] is None) == record["estimated"] for record in log)
    assert all(a["seconds"] <= b["seconds"] for a, b in zip(log, log[1:]))


def test_running_out_of_iterations_is_a_warning(corpus):
    _, messages = corpus.run("learn", "-q", "-m", "2", "t", "train.txt", "m")
    assert messages.startswith("warning: iteration limit 2 reached") and "--max-iterations" in messages


def test_a_converged_quiet_run_says_nothing(corpus):
    assert corpus.run("learn", "-q", "t", "train.txt", "m") == (b"", "")


# Files --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, compress", [("x.gz", gzip.compress), ("x.bz2", bz2.compress), ("x.xz", lzma.compress)])
def test_compressed_training_data(corpus, name, compress):
    corpus.write(name, compress(CORPUS))
    corpus.run("learn", "-q", "t", "train.txt", "plain")
    corpus.run("learn", "-q", "t", name, "compressed")
    plain, compressed = (Model.load(str(corpus.path / m)) for m in ("plain", "compressed"))
    assert (plain.weights.unigrams.to_dense() == compressed.weights.unigrams.to_dense()).all()


def test_training_from_standard_input(corpus):
    corpus.run("learn", "-q", "t", "-", "m", stdin=CORPUS)
    assert Model.load(str(corpus.path / "m")).labels == [b"M", b"N", b"W"]


def test_ready_templates_are_found_by_name(corpus):
    corpus.run("learn", "-q", "chunking", "train.txt", "m")
    assert len(Model.load(str(corpus.path / "m")).encoder.template.unigrams) == 19


def test_everything_about_the_training_is_in_the_model(corpus):
    corpus.run("learn", "-q", "--rho1", "0.5", "-f", "2", "t", "train.txt", "m")
    model = Model.load(str(corpus.path / "m"))
    options = {"algorithm": "working-set", "rho1": 0.5, "rho2": 0.0, "min_count": 2, "features": "all",
               "begin_label": False, "tolerance": 1e-5, "max_iterations": 10000, "seed": 1}
    assert options.items() <= model.options.items()
    assert model.version and model.encoder.template.text == TEMPLATE


# Dev data, warm starts, configuration ----------------------------------------------------------------------

def test_dev_scores_each_iteration_and_keeps_the_best(corpus):
    corpus.write("dev.txt", b"12 d N\nzz x W\n\nab a NEW\nba x W\n")
    log = log_of(corpus, "--dev", "dev.txt")
    assert all("dev_f1" in record for record in log)
    errors = [record["dev_token_error"] for record in log]
    assert min(errors) >= 25.0                                 # the label that training lacks is an error
    scores, _ = corpus.run("eval", "-m", "m", "--json", "dev.txt")
    assert json.loads(scores)["token_accuracy"] == pytest.approx(100.0 - min(errors))
    best = errors.index(min(errors))
    assert Model.load(str(corpus.path / "m")).options["iterations"] == log[best]["iteration"]


def test_a_warm_start_at_the_optimum_stops_soon(corpus):
    cold = log_of(corpus, "-e", "1e-7")
    corpus.run("learn", "-q", "-e", "1e-7", "t", "train.txt", "first")
    warm = log_of(corpus, "-e", "1e-5", "--init", "first")
    assert warm[0]["objective"] == pytest.approx(cold[-1]["objective"], rel=1e-6)
    assert len(warm) < len(cold)


def test_a_warm_start_may_add_labels_and_features(corpus):
    corpus.run("learn", "-q", "t", "train.txt", "first")
    corpus.write("train.txt", CORPUS + b"\n99 q NEW\nqq q AAA\n")
    corpus.write("t", TEMPLATE + b"U9:%x[1,0]\n")
    _, messages = corpus.run("learn", "--init", "first", "t", "train.txt", "second")
    assert "observations carried over" in messages
    second = Model.load(str(corpus.path / "second"))
    assert second.labels == [b"AAA", b"M", b"N", b"NEW", b"W"]
    corpus.run("learn", "-q", "t", "train.txt", "cold")
    objectives = [Model.load(str(corpus.path / m)).options["objective"] for m in ("second", "cold")]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-4)     # convex: the start does not matter


def test_labels_of_the_first_model_survive_a_warm_start(corpus):
    corpus.run("learn", "-q", "t", "train.txt", "first")
    corpus.write("less.txt", b"12 d N\nab a W\n")
    corpus.run("learn", "-q", "--init", "first", "t", "less.txt", "second")
    assert b"M" in Model.load(str(corpus.path / "second")).labels


def test_options_from_a_configuration_file(corpus):
    corpus.write("c.yaml", b"rho1: 0.5\nmin-count: 2\nbegin-label: true\nquiet: true\n")
    corpus.run("learn", "--config", "c.yaml", "--rho1", "0.25", "t", "train.txt", "m")
    options = Model.load(str(corpus.path / "m")).options
    assert (options["rho1"], options["min_count"], options["begin_label"]) == (0.25, 2, True)


@pytest.mark.parametrize("text, message", [
    (b"rho3: 1\n", "no option 'rho3'"), (b"- rho1\n", "not a mapping"), (b"rho1: [1\n", "not valid YAML"),
    (b"rho1: {a: 1}\n", "needs a single value")])
def test_bad_configuration_files(corpus, text, message):
    corpus.write("c.yaml", text)
    _, messages = corpus.run("learn", "--config", "c.yaml", "t", "train.txt", "m", code=1)
    assert messages.startswith("c.yaml:") and message in messages


def test_a_bad_value_in_a_configuration_file_is_a_usage_error(corpus):
    corpus.write("c.yaml", b"rho1: much\n")
    _, messages = corpus.run("learn", "--config", "c.yaml", "t", "train.txt", "m", code=2)
    assert "--rho1" in messages


# What goes wrong --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("train, message", [
    (b"a b X\nc Y\n", "train.txt:2: 2 columns where the lines before have 3; "),
    (b"X\nY\n", "train.txt:1: only one column; "),
    (b"", "train.txt:1: no token in this file; "),
    (b"\n \n\t\n", "train.txt:1: no token in this file; "),
    (b"a b X\nc d X\n", "train.txt: only one label, 'X'; "),
    (b"a X\nb Y\n", "t:3: column 1 is the label in train.txt; "),
])
def test_bad_training_data(corpus, train, message):
    corpus.write("train.txt", train)
    _, messages = corpus.run("learn", "t", "train.txt", "m", code=1)
    assert messages.startswith(message)
    assert not (corpus.path / "m").exists()


@pytest.mark.parametrize("template, message", [
    (b"U0:%x[0,0]\nu1:%x[0,0]\n", "t:2: a template cannot start with 'u'; "),
    (b"U0:%y[0,0]\n", "t:1: '%y[0,0]' is not a macro; "),
    (b"# nothing\n", "t: no template in this file; ")])
def test_bad_templates(corpus, template, message):
    corpus.write("t", template)
    _, messages = corpus.run("learn", "t", "train.txt", "m", code=1)
    assert messages.startswith(message)


@pytest.mark.parametrize("model, message", [
    ("no/such/folder/m", "no/such/folder/m: cannot be written"), (".", ".: is a directory; ")])
def test_the_target_is_checked_before_anything_is_read(corpus, model, message):
    _, messages = corpus.run("learn", "t", "does-not-exist.txt", model, code=1)
    assert messages.startswith(message)


def test_a_missing_training_file(corpus):
    _, messages = corpus.run("learn", "t", "nowhere.txt", "m", code=1)
    assert messages.startswith("nowhere.txt: cannot be read (No such file or directory); ")


@pytest.mark.parametrize("arguments", [
    ("t", "train.txt"), ("--no-such-option", "t", "train.txt", "m"), ("-c", "0", "t", "train.txt", "m"),
    ("-c", "1", "--rho2", "1", "t", "train.txt", "m"), ("-a", "l-bfgs", "--rho1", "1", "t", "train.txt", "m"),
    ("-a", "CRF-L1", "--rho1", "1", "t", "train.txt", "m"), ("--max-memory", "much", "t", "train.txt", "m")])
def test_usage_errors_exit_with_2(corpus, arguments):
    corpus.run("learn", *arguments, code=2)


def test_work_that_cannot_fit_is_refused_with_advice(corpus):
    _, messages = corpus.run("learn", "--max-memory", "1M", "t", "train.txt", "m", code=1)
    assert "training needs about" in messages and "--min-count" in messages and "`" in messages
    assert messages.count("\n") == 1 and "costliest templates: `" in messages


def test_a_refusal_names_the_fields_of_b_lines(corpus):
    corpus.write("t", b"U0:%x[0,0]\nB1:%x[0,0]/%x[-1,0]\n")
    _, messages = corpus.run("learn", "--max-memory", "1M", "t", "train.txt", "m", code=1)
    assert "templates: `B1:%x[0,0]/%x[-1,0]` " in messages and "the fields of a B line cost most" in messages


@pytest.mark.parametrize("options, code", [((), 0), (("-q",), 0), (("--max-memory", "1M"), 1)])
def test_a_dry_run_only_says_what_training_would_take(corpus, options, code):
    corpus.write("m", b"old")
    out, messages = corpus.run("learn", "--dry-run", *options, "t", "train.txt", "m", code=code)
    assert out == b"" and corpus.read("m") == b"old"
    assert "estimated peak memory: " in messages and "; estimated time: about " in messages and "obj=" not in messages
    lines = messages.split("MB observations     weights  template\n")[1].splitlines()
    numbers = [list(map(int, line.split()[:3])) for line in lines if line.startswith("  ")]
    assert [sum(column[:-1]) for column in list(zip(*numbers))[1:]] == numbers[-1][1:]


def test_a_pattern_that_looks_like_another_language_is_pointed_out(corpus):
    corpus.write("t", b'U0:%t[0,0,"[A-Z]"]\nB\n')
    _, messages = corpus.run("learn", "-q", "t", "train.txt", "m")
    assert messages.startswith("warning: t:1: '[' in a pattern stands for itself")


# Interruption ------------------------------------------------------------------------------------------------

def start_long_training(workdir):
    """A training that will not end by itself, after its first iterations."""
    workdir.write("big.txt", b"".join(b"w%d t%d %s\n%s" % (i * i % 997, i % 13, b"AB"[i % 7 % 2:][:1], b"\n" * (i % 9 == 0))
                                      for i in range(20_000)))
    process = workdir.popen("learn", "--rho1", "1e-9", "-e", "1e-300", "-m", "1000000", "t", "big.txt", "m",
                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    for line in process.stderr:
        if line.startswith(b"[   3]"):
            return process
    raise AssertionError("training did not start")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training_saves_what_it_has(corpus, number):
    process = start_long_training(corpus)
    process.send_signal(number)
    messages = process.communicate(timeout=60)[1]
    assert process.returncode == 130, messages
    assert b"interrupted" in messages and b"Traceback" not in messages
    assert Model.load(str(corpus.path / "m")).options["stopped"] == "interrupted"
    assert corpus.run("tag", "-m", "m", stdin=b"w1 t1\n")[0]


def test_a_killed_training_leaves_the_old_model(corpus):
    corpus.run("learn", "-q", "t", "train.txt", "m")
    old = corpus.read("m")
    process = start_long_training(corpus)
    process.kill()
    process.communicate(timeout=60)
    assert corpus.read("m") == old
    assert [name for name in os.listdir(corpus.path) if name.endswith(".tmp")] == []


def test_a_second_signal_aborts(corpus):
    process = start_long_training(corpus)
    process.send_signal(signal.SIGINT)
    time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    messages = process.communicate(timeout=60)[1]
    assert process.returncode == 130, messages
    assert b"Traceback" not in messages


def test_python_m_crftool_version(workdir):
    done = subprocess.run([sys.executable, "-m", "crftool", "--version"], capture_output=True,
                          env=workdir.environment(), check=True)
    assert done.stdout.startswith(b"crftool, version ")


# Constraints and inference ------------------------------------------------------------------------------------

CHUNKS = b"a x O\nb x B-X\nc y I-X\n\na x B-X\nc y I-X\nb x O\n"


def test_training_under_a_constraint_is_tagging_under_it(workdir):
    workdir.write("train.txt", CHUNKS)
    workdir.write("t", b"U:%x[0,0]\nB\n")
    workdir.run("learn", "-q", "--constrain", "iob2", "t", "train.txt", "m")
    tagged, _ = workdir.run("tag", "-m", "m", "--format", "labels", stdin=b"c y\nc y\n")
    assert tagged.split(b"\n")[0] != b"I-X"
    assert Model.load(str(workdir.path / "m")).rules == b"scheme iob2\n"
    log = workdir.run("learn", "--constrain", "iob2", "-m", "0", "t", "train.txt", "m")[1]
    paths = sum(all(not (b == "I" and a == "O") for a, b in zip("O" + p, p))
                for p in ("".join(q) for q in itertools.product("OBI", repeat=3)))
    assert f"obj={2 * math.log(paths):.4f}" in log      # two sequences, all allowed labellings equal


def test_gold_labels_that_the_constraint_forbids(workdir):
    workdir.write("train.txt", CHUNKS + b"\na x O\nc y I-X\n")
    workdir.write("t", b"U:%x[0,0]\nB\n")
    _, messages = workdir.run("learn", "--constrain", "iob2", "t", "train.txt", "m", code=1)
    assert messages.startswith("train.txt:10: I-X follows O, which the constraint forbids; ")


def test_every_form_of_inference_trains_the_same_model(corpus):
    objectives = [log_of(corpus, "-e", "1e-8", "--inference", mode)[-1]["objective"] for mode in ("auto", "scaled", "sparse", "log")]
    assert objectives == pytest.approx([objectives[0]] * 4, rel=1e-9)


def test_a_template_without_b_lines(corpus):
    corpus.write("t", b"U0:%x[0,0]\n")
    corpus.run("learn", "-q", "t", "train.txt", "m")
    assert corpus.run("tag", "-m", "m", "--format", "labels", stdin=b"12\nab\n")[0] == b"N\nW\n\n"


def test_how_a_pipe_delivers_the_data_does_not_matter(corpus):
    models = []
    for cut in (50, 333):
        process = corpus.popen("learn", "-q", "t", "-", "m", stdin=subprocess.PIPE)
        process.stdin.write(CORPUS[:cut])
        process.stdin.flush()
        time.sleep(0.5)
        process.communicate(CORPUS[cut:], timeout=60)
        assert process.returncode == 0
        models.append(corpus.read("m"))
    assert models[0] == models[1]


# Algorithms ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if not name.startswith("sgd")])
def test_every_algorithm_trains_the_same_model(corpus, algorithm):
    rho1 = "0" if algorithm in WITHOUT_L1 else "0.3"
    penalties = ["--rho1", rho1, "--rho2", "0.5", "-e", "1e-8"]
    reference = log_of(corpus, *penalties)[-1]
    found = log_of(corpus, "-a", algorithm, *penalties)[-1]
    assert found["objective"] == pytest.approx(reference["objective"], rel=1e-9)
    assert found["active"] == reference["active"]


@pytest.mark.parametrize("algorithm", ["sgd", "sgd-l1"])
def test_stochastic_descent_says_how_far_it_got(corpus, algorithm):
    _, messages = corpus.run("learn", "-a", algorithm, "t", "train.txt", "m")
    last = [line for line in messages.splitlines() if line.startswith("[")][-1]
    assert "obj~" in messages and "obj=" in last
    assert "times the limit)" in messages


@pytest.mark.parametrize("algorithm", WITHOUT_L1)
def test_algorithms_without_l1_penalty(corpus, algorithm):
    _, messages = corpus.run("learn", "-a", algorithm, "--rho1", "1", "t", "train.txt", "m", code=2)
    assert f"{algorithm} cannot have an l1 penalty" in messages


def test_the_names_of_the_algorithms():
    assert ALGORITHMS == tuple(TRAINERS)
    assert WITHOUT_L1 == tuple(name for name in TRAINERS if not TRAINERS[name].allows_l1)

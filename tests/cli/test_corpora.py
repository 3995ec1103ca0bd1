"""On real data, through the program. Skipped, with a word, without CRFTOOL_DATA."""

import gzip
import json

import pytest


def log_of(workdir, name):
    return [json.loads(line) for line in workdir.read(name).splitlines()]


def test_conll2000_chunking_to_the_optimum(workdir, data):
    train, test = data / "conll2000" / "train.txt.gz", data / "conll2000" / "test.txt.gz"
    _, messages = workdir.run("learn", "-c", "1", "--log-json", "log", "chunking", train, "m")
    assert "8936 sequences, 211727 tokens, 22 labels" in messages
    assert " 7448606  in all" in messages
    log = log_of(workdir, "log")
    assert log[-1]["objective"] <= 7706.0
    tagged, _ = workdir.run("tag", "-m", "m", test)
    report, _ = workdir.run("eval", stdin=tagged)
    assert report.startswith(b"processed 47377 tokens with 23852 phrases; ")
    assert float(report.split(b"FB1:")[1].split()[0]) == pytest.approx(93.8, abs=0.1)
    assert report == workdir.run("eval", "-m", "m", test)[0]


def test_conll2000_cut_off(workdir, data):
    """The number of weights that observations seen at least three times have."""
    _, messages = workdir.run("learn", "-f", "3", "-m", "0", "--log-json", "log", "chunking", data / "conll2000" / "train.txt.gz", "m")
    assert " 1679700  in all" in messages
    assert log_of(workdir, "log")[0]["objective"] == pytest.approx(654457.1455)      # every token: log of 22 labels


def test_nettalk_elastic_net_meets_the_optimality_conditions(workdir, data):
    """Largest entry of the pseudo-gradient far below the penalty; the zero weights take no room."""
    workdir.write("t", b"U:%x[0,0]\nB:%x[0,0]\n")
    workdir.run("learn", "-q", "--rho1", "5", "--rho2", "0.01", "-e", "1e-4", "--log-json", "log", "t",
                data / "nettalk" / "train.txt.gz", "m")
    last = log_of(workdir, "log")[-1]
    assert last["violation"] < 2.5                                  # half the penalty; the limit is on the norm
    assert 0 < last["active"] < 5_000
    assert len(workdir.read("m")) < 200_000


def test_spanish_entities_with_the_ready_template(workdir, data):
    folder = data / "conll2002"
    workdir.run("learn", "-q", "-m", "40", "--features", "observed", "ner", folder / "esp.train.gz", "m")
    scores, _ = workdir.run("eval", "--json", "-m", "m", folder / "esp.testa.gz")
    assert json.loads(scores)["phrases"]["f1"] > 60.0


def test_nettalk_trainers_agree(workdir, data):
    """Blockwise descent, owl-qn and working-set: one objective, one support, but for weights next to zero."""
    with gzip.open(data / "nettalk" / "train.txt.gz") as file:
        workdir.write("words", b"\n\n".join(file.read().split(b"\n\n")[:400]) + b"\n\n")
    workdir.write("t", b"U:%x[0,0]\nB:%x[0,0]\n")
    objectives, weights = [], []
    for algorithm in ("bcd", "owl-qn", "working-set"):
        workdir.run("learn", "-q", "-a", algorithm, "--rho1", "0.2", "--rho2", "0.05", "-e", "1e-7", "-m", "4000",
                    "--log-json", "log", "t", "words", "m")
        objectives.append(log_of(workdir, "log")[-1]["objective"])
        rows = [line.split("\t") for line in workdir.run("inspect", "--top", "5000", "m")[0].decode().splitlines()]
        weights.append({tuple(names): float(value) for kind, value, *names in rows if kind == "weight"})
    assert max(objectives) <= min(objectives) * (1 + 1e-6)
    assert len(weights[0]) > 500
    for others in weights[1:]:
        assert all(abs(weights[0].get(name, 0.0) - others.get(name, 0.0)) < 1e-3 for name in {*weights[0], *others})


@pytest.mark.parametrize("rho1,rho2,algorithms", [
    (0.0, 1.0, ("hybrid", "l-bfgs", "cg")), (1.0, 0.0, ("working-set", "owl-qn", "bcd"))], ids=["l2", "l1"])
def test_every_algorithm_finds_the_same_objective(workdir, data, rho1, rho2, algorithms):
    """Chunking with 40 sentences: within 1e-6 of each other."""
    with gzip.open(data / "conll2000" / "train.txt.gz", "rb") as source:
        workdir.write("train", b"\n\n".join(source.read().split(b"\n\n")[:40]) + b"\n\n")
    objectives = []
    for algorithm in algorithms:
        workdir.run("learn", "-q", "-a", algorithm, "--rho1", rho1, "--rho2", rho2, "-e", "1e-6", "--log-json", "log",
                    "chunking", "train", "m")
        objectives.append(log_of(workdir, "log")[-1]["objective"])
    assert max(objectives) - min(objectives) <= 1e-6 * min(objectives), objectives

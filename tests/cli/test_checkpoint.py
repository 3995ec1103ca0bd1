"""`crftool learn --checkpoint` and `--resume`: killed at any moment, it reaches the same bytes."""

import json
import os
import random
import re
import signal
import subprocess
import time

import pytest
from conftest import Workdir
from test_learn import CORPUS, TEMPLATE

from crftool.trainers import TRAINERS

L1 = ("--rho1", "0.1", "--rho2", "0.01")
TRAININGS = {name: ("-a", name, "-e", "1e-7", *(L1 if trainer.allows_l1 else ())) for name, trainer in TRAINERS.items()}
MORE = {
    "dev, best": (*L1, "--dev", "dev"), "dev, last": ("--dev", "dev", "--keep", "last"),
    "dev, bcd": ("-a", "bcd", *L1, "--dev", "dev"),
    "constraint and begin label": ("--constrain", "rules", "--begin-label"), "start": ("--init", "other"),
    "only": ("--only", "other", *L1), "observed": ("--features", "observed", "-f", "2"), "log domain": ("--log-domain",),
    "no-revisit": ("-a", "bcd", *L1, "--no-revisit"), "group": ("-a", "bcd", *L1, "--group", "0.3"),
}
KEEP = ("--checkpoint", "state", "--checkpoint-every", "0")


def filled(workdir):
    workdir.write("train", CORPUS)
    workdir.write("t", TEMPLATE)
    workdir.write("dev", CORPUS[:400].rsplit(b"\n\n", 1)[0].replace(b"ab", b"zz") + b"\n")
    workdir.write("rules", b"forbid N M\n")
    return workdir


@pytest.fixture
def folder(workdir):
    return filled(workdir)


def learn(folder, *options, model="m", code=0):
    return folder.run("learn", "-q", "-p", "1", *options, "t", "train", model, code=code)[1]


def refused(folder, *options, code=1):
    messages = learn(folder, *options, code=code)
    assert not (folder.path / "m").exists()
    if code == 1:
        assert messages.count("\n") == 1 and "; " in messages, messages
    return messages


def stamp(path):
    return path.stat().st_ino if path.exists() else None


def kill_once(folder, rng, *options):
    """Run until some checkpoints have been written, and a moment longer; whether it had to be killed."""
    process = folder.popen("learn", "-q", "-p", "1", *options, "t", "train", "m", stderr=subprocess.DEVNULL)
    state, writes, seen = folder.path / "state", rng.randrange(1, 5), stamp(folder.path / "state")
    while process.poll() is None and writes:
        now = stamp(state)
        if now != seen:
            seen, writes = now, writes - 1
    time.sleep(rng.random() * 0.01)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("options,kills", [*((options, 4) for options in TRAININGS.values()),
                                           *((options, 2) for options in MORE.values())], ids=[*TRAININGS, *MORE])
def test_killed_and_resumed(folder, options, kills):
    if "other" in options:
        learn(folder, "--rho1", "0.05", model="other")
    learn(folder, *options, model="whole")
    whole, rng, killed = folder.read("whole"), random.Random(str(options)), 0
    if any(kill_once(folder, rng, *options, *KEEP) for _ in range(20)):      # on a busy machine it may end before
        killed += 1
        while killed < kills and kill_once(folder, rng, *options, "--resume", "state", "--checkpoint-every", "0"):
            killed += 1
    assert killed
    learn(folder, *options, "--resume", "state")
    assert folder.read("m") == whole
    assert not list(folder.path.glob(".*.tmp"))      # nothing half-written is left


@pytest.mark.parametrize("options", [(), L1, ("-a", "bcd", *L1)])
def test_an_iteration_limit_can_be_raised(folder, options):
    """Whatever the number of threads."""
    learn(folder, *options, model="whole")
    for limit in (2, 10):
        learn(folder, *options, "-m", limit, "--checkpoint", "state")            # the last one is kept
        learn(folder, *options, "-p", "2", "--resume", "state", "--checkpoint", "another")
        assert folder.read("m") == folder.read("whole")


def test_interrupted_and_resumed(folder):
    """Ctrl-C leaves a checkpoint, however rarely they are written; the log goes on where it ended."""
    folder.write("train", b"\n".join([CORPUS] * 40))
    options = ("-a", "cg", "-e", "1e-9", "-m", "200")
    learn(folder, *options, "--log-json", "whole.log", model="whole")
    process = folder.popen("learn", "-p", "1", *options, "--checkpoint", "state", "--log-json", "log", "t", "train", "m",
                           stderr=subprocess.PIPE)
    for line in process.stderr:
        if b"obj=" in line:
            process.send_signal(signal.SIGINT)
            break
    process.communicate()
    assert process.returncode == 130 and folder.read("m") != folder.read("whole")
    messages = folder.run("learn", *options, "--resume", "state", "--log-json", "log", "t", "train", "m")[1]
    assert re.search(r"state: going on after iteration \d+", messages)
    assert folder.read("m") == folder.read("whole")
    logs = [[{**json.loads(line), "seconds": 0} for line in folder.read(name).splitlines()]
            for name in ("whole.log", "log")]
    assert logs[0] == logs[1]


def test_a_finished_training_can_be_resumed(folder):
    learn(folder, *KEEP)
    learn(folder, "--resume", "state", model="again")
    assert folder.read("m") == folder.read("again")


def test_leftovers_of_a_killed_run_are_removed(state):
    names = [".state.0123456789ab.tmp", ".m.0123456789ab.tmp", ".state.0123456789ab.tmp2", ".other.0123456789ab.tmp",
             ".state.x.tmp"]
    for name in names:
        state.write(name, b"x")
    learn(state, "--dev", "dev", "--resume", "state")
    assert [(state.path / name).exists() for name in names] == [False, False, True, True, True]


# Refusals -----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A checkpoint, and a model."""
    folder = filled(Workdir(tmp_path_factory.mktemp("state")))
    learn(folder, "--dev", "dev", "-m", "5", *KEEP)
    learn(folder, "--rho1", "0.3", model="other")
    return folder.read("state"), folder.read("other")


@pytest.fixture
def state(folder, files):
    for name, content in zip(("state", "other"), files):
        folder.write(name, content)
    return folder


@pytest.mark.parametrize("options,named", [
    (("--rho2", "2"), "rho2"), (("-a", "l-bfgs"), "algorithm"), (("--seed", "2"), "seed"), (("-e", "1e-4"), "tolerance"),
    (L1, "rho1"), (("-f", "2"), "min_count"), (("--begin-label",), "begin_label"), (("--constrain", "rules"), "constraints"),
    (("--features", "observed"), "features"), (("--keep", "last"), "keep"), (("--dev", "train"), "dev data"),
    (("-m", "0"), "--max-iterations"), (("--init", "other"), "initial weights"), (("--only", "other"), "--only")])
def test_other_settings(state, options, named):
    before = state.read("state")
    messages = refused(state, "--dev", "dev", "--resume", "state", *options)
    assert messages.startswith("state: left by a training with other ") and named in messages
    assert state.read("state") == before


def test_other_files(state):
    state.write("train", CORPUS.replace(b"56 d N", b"56 d W"))
    assert "other training data;" in refused(state, "--dev", "dev", "--resume", "state")
    state.write("train", CORPUS)
    state.write("t", TEMPLATE + b"U9:%x[1,0]\n")
    assert "other template, training data, dev data;" in refused(state, "--dev", "dev", "--resume", "state")
    state.write("t", TEMPLATE)
    assert "other dev data;" in refused(state, "--resume", "state")


def test_the_name_of_a_file_does_not_matter(state):
    os.rename(state.path / "dev", state.path / "moved")
    learn(state, "--dev", "moved", "--resume", "state")


def test_files_that_are_no_checkpoint(state):
    whole = state.read("state")
    assert "nothing: cannot be read (No such file or directory)" in refused(state, "--resume", "nothing")
    for content in (b"", b"x", whole[:-1], whole[:50], whole[:200] + b"?" + whole[201:], CORPUS):
        state.write("state", content)
        assert refused(state, "--dev", "dev", "--resume", "state").startswith("state: ")
        assert state.read("state") == content
    assert "not a checkpoint of crftool" in refused(state, "--resume", "other")
    state.write("state", whole)
    assert "not a model of crftool" in state.run("tag", "-m", "state", code=1)[1]


def test_wrong_usage(folder):
    assert "--path" in refused(folder, "--checkpoint", "state", "--path", "3", "--rho1", "1", code=2)
    assert "both" in refused(folder, "--checkpoint", "./m", code=2)
    refused(folder, "--checkpoint", "state", "--checkpoint-every", "-1", code=2)


def test_an_unwritable_place_is_found_before_training(folder):
    assert "no/state: cannot be written" in refused(folder, "--checkpoint", "no/state")
    (folder.path / "folder").mkdir()
    assert "is a directory" in refused(folder, "--checkpoint", "folder")


def test_a_full_disk_does_not_end_the_training(folder):
    learn(folder, model="whole")
    messages = learn(folder, "--checkpoint", "/dev/full", "--checkpoint-every", "0")
    assert "warning: /dev/full: cannot be written" in messages and "training goes on" in messages
    assert folder.read("m") == folder.read("whole")

"""The file that an interrupted search leaves: it comes back as it was, and nothing else is believed."""

import json
import os

import numpy as np
import pytest

from crftool.errors import DataError
from crftool.selection.lab import Outcome
from crftool.selection.state import State

OUTCOME = Outcome(5.5, 90.25, 0.125, 12.0, 3.0, 1.5)


@pytest.fixture
def saved(tmp_path):
    state = State(str(tmp_path / "s"), "job")
    state["a"] = OUTCOME
    state.add_set("a", 0, np.array([2, 3, 99]))
    state.save()
    return tmp_path / "s"


def test_what_was_saved_comes_back(saved):
    state = State(str(saved), "job")
    state.load(100)
    assert state["a"] == OUTCOME and "b" not in state
    assert state.sets("a")[0].tolist() == [2, 3, 99]


def test_no_file_is_no_state(tmp_path):
    state = State(str(tmp_path / "absent"), "job")
    state.load(100)
    assert "a" not in state


def test_a_state_in_memory_alone(tmp_path):
    state = State(None, "job")
    state["a"] = OUTCOME
    state.save()
    state.remove()
    assert state["a"] == OUTCOME


def test_removal(saved):
    State(str(saved), "job").remove()
    assert os.listdir(saved.parent) == []


@pytest.mark.parametrize("change,message", [
    (lambda s: b"not json", "not a state of a search"),
    (lambda s: b"[1]", "not a state of a search"),
    (lambda s: b"[" * 100_000, "not a state of a search"),
    (lambda s: json.dumps({**s, "format": "crftool select 99"}).encode(), "not a state of a search"),
    (lambda s: json.dumps({**s, "job": "0"}).encode(), "other data or with other options"),
    (lambda s: json.dumps({**s, "outcomes": [1]}).encode(), "damaged"),
    (lambda s: json.dumps({**s, "outcomes": {"x": {"error": 1}}}).encode(), "damaged"),
    (lambda s: json.dumps({**s, "outcomes": {k: {**o, "f1": "9"} for k, o in s["outcomes"].items()}}).encode(), "damaged"),
    (lambda s: json.dumps({**s, "outcomes": {k: {**o, "f1": float("nan")} for k, o in s["outcomes"].items()}}).encode(),
     "damaged"),
    (lambda s: json.dumps({**s, "sets": {"x": {"0": [10 ** 12]}}}).encode(), "damaged"),
    (lambda s: json.dumps({**s, "sets": {"x": {"0": [3, 2]}}}).encode(), "damaged"),
    (lambda s: json.dumps({**s, "sets": {"x": {"0": [[1]]}}}).encode(), "damaged"),
    (lambda s: json.dumps({**s, "sets": {"x": {"y": [1]}}}).encode(), "damaged"),
    (lambda s: json.dumps({**s, "sets": {"x": {"0": 5}}}).encode(), "damaged")])
def test_a_state_is_not_trusted(saved, change, message):
    saved.write_bytes(change(json.loads(saved.read_bytes())))
    state = State(str(saved), "job")
    with pytest.raises(DataError, match=f"^{saved}: .*{message}.*; "):
        state.load(100)
    assert "a" not in state

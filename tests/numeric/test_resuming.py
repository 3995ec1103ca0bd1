"""Trainers that are stopped after an iteration and go on from a checkpoint: the same bits as without a break."""

import dataclasses
import json
import random
import sys

import numpy as np
import pytest
from brute_force import random_corpus
from test_block_descent import paired
from test_trainers import small_corpus

from crftool.errors import CrftoolError, ModelError
from crftool.kernels.pool import Pool
from crftool.model import container
from crftool.model.weights import SparseWeights
from crftool.objectives import BlockLoss, ElasticNet, LogLoss
from crftool.objectives.blockloss import BlockOptions
from crftool.trainers import TRAINERS
from crftool.trainers.base import Problem, Stop, count_scale
from crftool.trainers.checkpoint import KIND, Checkpoints, Saved

CASES = [("hybrid", 0.0, 0.3), ("working-set", 0.2, 0.1), ("working-set", 0.2, 0.0), ("l-bfgs", 0.0, 0.3),
         ("owl-qn", 0.2, 0.1), ("owl-qn", 0.0, 0.3), ("sgd", 0.0, 0.3), ("sgd-l1", 0.2, 0.1), ("cg", 0.0, 0.3),
         ("cg-fr", 0.0, 0.3), ("cd", 0.2, 0.1), ("bcd", 0.2, 0.1), ("bcd", 0.0, 0.3)]
EACH = pytest.mark.parametrize("name,rho1,rho2", CASES)
JOB = {"training data": "these"}


class Run:
    """A training, from a checkpoint or from the start, that ends after `last` iterations more at the latest."""

    def __init__(self, name, rho1, rho2, path=None, resume=False, last=None, tolerance=1e-7, start=None, every=0.0,
                 sparse=True, **options):
        corpus, pool = small_corpus(1, True, Kb=2, S=12), Pool(1)
        dataset, space, penalty = corpus.dataset(), corpus.space, ElasticNet(rho1, rho2)
        if TRAINERS[name].by_blocks and sparse:
            loss = BlockLoss(dataset, space, pool, paired(corpus), False, None, BlockOptions(**options))
            theta = SparseWeights(space)
        else:
            loss = LogLoss(dataset, space, corpus.groups, pool)
            theta = np.zeros(corpus.F) if start is None else start.copy()
        saved = Saved(path) if resume else None
        if saved is not None:
            saved.check_job(JOB)
        checkpoints = Checkpoints(path, every, JOB, saved) if path else None
        stop, self.iterations = Stop(tolerance, count_scale(dataset, space), 25), []

        def report(iteration):
            self.iterations.append(iteration)
            return "interrupted" if len(self.iterations) == last else None

        self.result = TRAINERS[name].train(Problem(loss, penalty, pool, 7, checkpoints), theta, stop, report)
        self.bits = theta.tobytes() if isinstance(theta, np.ndarray) else \
            b"".join(part.tobytes() for part in (*theta.unigrams, *theta.bigrams))

    @property
    def told(self):
        """What was reported, as text: NaN is not itself."""
        return [str(dataclasses.astuple(iteration)) for iteration in self.iterations]


def assert_same(resumed, whole, k=0):
    assert resumed.bits == whole.bits
    assert resumed.told == whole.told[k:]
    assert resumed.result.reason == whole.result.reason and resumed.result.converged == whole.result.converged
    assert str(resumed.result.iteration) == str(whole.result.iteration)


@EACH
def test_stopped_after_any_iteration(tmp_path, name, rho1, rho2):
    path, whole = str(tmp_path / "state"), Run(name, rho1, rho2)
    assert len(whole.iterations) > 6
    for k in range(1, len(whole.iterations)):
        part = Run(name, rho1, rho2, path, last=k, every=1e9)            # an interruption is kept at any rate
        assert part.told[:k] == whole.told[:k]
        assert_same(Run(name, rho1, rho2, path, resume=True), whole, k)


@EACH
def test_stopped_after_every_iteration(tmp_path, name, rho1, rho2):
    path, whole, told = str(tmp_path / "state"), Run(name, rho1, rho2), []
    run = Run(name, rho1, rho2, path, last=1)
    told += run.told[:1]
    while "interrupted" in run.result.reason:
        run = Run(name, rho1, rho2, path, resume=True, last=1)
        told += run.told[:1]
    # the last one of a stochastic descent is told of at its end, without asking
    assert run.bits == whole.bits and told == whole.told[:len(told)] and len(told) >= len(whole.told) - 1


@pytest.mark.parametrize("rho2", [0.0, 0.1])
def test_screened_and_merged(tmp_path, monkeypatch, rho2):
    """The working set without observations that are rare, or occur where others do."""
    corpus = random_corpus(np.random.default_rng(5), [4, 3, 5] * 4, 3, K=2, rows=16)
    theta, pool = np.zeros(corpus.F), Pool(1)
    loss = LogLoss(corpus.dataset(), corpus.space, corpus.groups, pool)
    assert loss.screened(1.0, theta) is not loss and loss.merged(theta) is not loss
    monkeypatch.setattr(sys.modules[__name__], "small_corpus", lambda *_, **__: corpus)
    test_stopped_after_any_iteration(tmp_path, "working-set", 1.0, rho2)


@EACH
def test_writing_has_no_influence(tmp_path, name, rho1, rho2):
    assert_same(Run(name, rho1, rho2, str(tmp_path / "state")), Run(name, rho1, rho2))


@EACH
def test_a_finished_run_ends_at_once(tmp_path, name, rho1, rho2):
    """Killed between the last checkpoint and the model."""
    whole = Run(name, rho1, rho2, str(tmp_path / "state"))
    again = Run(name, rho1, rho2, str(tmp_path / "state"), resume=True)
    assert again.bits == whole.bits and again.result.reason == whole.result.reason and len(again.iterations) <= 1


@pytest.mark.parametrize("options", [{"grow": True}, {"no_revisit": True}, {"separate": True}, {"sparse": False}])
def test_ways_of_blockwise_descent(tmp_path, options):
    path, whole = str(tmp_path / "state"), Run("bcd", 0.2, 0.1, **options)
    for k in range(1, len(whole.iterations), 3):
        Run("bcd", 0.2, 0.1, path, last=k, **options)
        assert_same(Run("bcd", 0.2, 0.1, path, resume=True, **options), whole, k)


@pytest.mark.parametrize("name,rho1", [("hybrid", 0.0), ("working-set", 0.2), ("l-bfgs", 0.0)])
def test_other_first_weights(tmp_path, name, rho1):
    """No stochastic start then."""
    start = np.random.default_rng(3).normal(size=small_corpus(1, True, Kb=2, S=12).F)
    path, whole = str(tmp_path / "state"), Run(name, rho1, 0.1, start=start)
    for k in (1, 2, 5):
        Run(name, rho1, 0.1, path, last=k, start=start)
        assert_same(Run(name, rho1, 0.1, path, resume=True, start=start), whole, k)


# Files that are not to be trusted -----------------------------------------------------------------------------


def contents(path):
    sections = {name: bytes(part) for name, part in container.unpack(path.read_bytes(), "state", KIND).items()}
    return json.loads(sections.pop("meta")), sections


def forge(path, meta, sections):
    sections = {"meta": json.dumps(meta).encode(), **sections}
    path.write_bytes(b"".join(container.pack({name: memoryview(data) for name, data in sections.items()}, KIND)))


@EACH
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_forged_states(tmp_path, name, rho1, rho2):
    """Good checksums, bad content: an error or a training, never a crash."""
    path, rng = tmp_path / "state", random.Random(5)
    Run(name, rho1, rho2, str(path), last=6)
    meta, sections = contents(path)
    refused = 0

    def check(new_meta, new_sections):
        forge(path, new_meta, new_sections)
        try:
            Run(name, rho1, rho2, str(path), resume=True, last=2)
        except CrftoolError as error:
            assert "; " in str(error)
            return 1
        return 0

    for key in meta["values"]:
        for value in (None, -1, 1 << 40, "x", [[1]], [-1, 7], {}, True):
            refused += check({**meta, "values": {**meta["values"], key: value}}, sections)
        assert check({**meta, "values": {k: v for k, v in meta["values"].items() if k != key}}, sections) \
            or key == "scale"
    for key, entry in meta["arrays"].items():
        assert check(meta, {k: v for k, v in sections.items() if k != key})
        for change in ({"shape": [1 << 40]}, {"shape": [-1, 3]}, {"shape": "x"}, {"dtype": "<f2"}, {}):
            assert check({**meta, "arrays": {**meta["arrays"], key: {**entry, **change} if change else None}}, sections)
        cut = {**sections, key: sections[key][:-8]}
        assert check({**meta, "arrays": {**meta["arrays"], key: {**entry, "shape": [len(cut[key]) // 8]}}}, cut) \
            or not sections[key]
        for _ in range(4):                           # any bytes in its place
            check(meta, {**sections, key: rng.randbytes(len(sections[key]))})
    assert check({**meta, "phase": "another"}, sections) and check({**meta, "job": {}}, sections)
    assert refused > len(meta["values"])


@pytest.mark.parametrize("number", [1e308, -1e308, np.inf, -np.inf, np.nan])
@EACH
def test_numbers_of_no_training(tmp_path, name, rho1, rho2, number):
    """Their sums would overflow."""
    path = tmp_path / "state"
    Run(name, rho1, rho2, str(path), last=3)
    meta, sections = contents(path)
    for key, entry in meta["arrays"].items():
        if entry["dtype"] == "<f8" and sections[key]:
            data = np.frombuffer(sections[key]).copy()
            data[len(data) // 2] = number
            forge(path, meta, {**sections, key: data.tobytes()})
            with pytest.raises(ModelError, match="contradicts itself"):
                Run(name, rho1, rho2, str(path), resume=True, last=1)


def test_any_damage_is_seen(tmp_path):
    path, rng = tmp_path / "state", random.Random(6)
    Run("l-bfgs", 0.0, 0.3, str(path), last=6)
    whole = path.read_bytes()
    for length in sorted({0, 1, 8, 31, 32, 100, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(100))}):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match="; "):
            Saved(str(path))
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match="; "):
            Saved(str(path))


def test_a_state_of_another_job(tmp_path):
    path = tmp_path / "state"
    Run("l-bfgs", 0.0, 0.3, str(path), last=2)
    with pytest.raises(ModelError, match="other training data, seed; repeat"):
        Saved(str(path)).check_job({"training data": "those", "seed": 2})
    with pytest.raises(ModelError, match="other settings"):
        Saved(str(path)).check_job({})


def test_a_full_disk_is_told_of(tmp_path):
    told = []
    checkpoints = Checkpoints("/dev/full", 0.0, JOB, complain=told.append)
    checkpoints.offer("l-bfgs", lambda: {"theta": np.zeros(100_000)}, False)
    assert "cannot be written" in str(told[0])
    with pytest.raises(CrftoolError, match="cannot be written"):
        Checkpoints("/dev/full", 0.0, JOB).offer("l-bfgs", lambda: {"theta": np.zeros(100_000)}, False)

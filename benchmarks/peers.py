"""One tool trains on one corpus and is timed while it does: a process for each run.

    python peers.py TOOL TRAIN TEMPLATE THREADS ITERATIONS

prints one JSON object, the fields of Run. The problem is the same for every tool: all features of the
template, and the log loss plus half the sum of squared weights (rho1 = 0, rho2 = 1), minimised by L-BFGS
from zero weights. Everything else is left as the tool has it by default, except that nothing may stop it
before the last iteration.

    python peers.py --stream TOOL TRAIN TEMPLATE THREADS RHO1 RHO2

trains with other penalties (L-BFGS, or OWL-QN with rho1) and prints `seconds objective` after each iteration,
counted from when the tool has the data, until somebody ends the process.

The peers come from the package index: libwapiti (imported as wapiti) and python-crfsuite (pycrfsuite).
"""

import ctypes
import gzip
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

RHO2 = 1.0
TIMED_CALLS = 7                      # of a function that is timed by itself
ENDLESS = 1_000_000                  # iterations


@dataclass
class Run:
    """What one run has measured. Times in seconds."""

    weights: int
    objectives: dict                 # {iteration: objective}; 0 = at zero weights, where the tool tells it
    ends: dict                       # {iteration: when it ended}, on any clock
    evaluations: dict = field(default_factory=dict)      # {iteration: values and gradients so far}
    parts: dict = field(default_factory=dict)            # {name: [seconds of each call]}


@dataclass(frozen=True)
class Peer:
    name: str
    module: str                      # what is imported
    package: str                     # what is installed
    threaded: bool

    @property
    def installed(self):
        return importlib.util.find_spec(self.module) is not None


PEERS = [
    Peer("Wapiti", "wapiti", "libwapiti", True),
    Peer("CRFsuite", "pycrfsuite", "python-crfsuite", False),
]


class RunFailed(Exception):
    pass


def run(tool, train, template, threads, iterations):
    """The Run of a tool, in a new process."""
    command = [sys.executable, os.path.abspath(__file__), tool, train, template, threads, iterations]
    process = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if process.returncode != 0:
        raise RunFailed(f"{tool} ended with exit code {process.returncode}")
    return Run(**json.loads(process.stdout, object_pairs_hook=_with_numbers_as_keys))


def _with_numbers_as_keys(pairs):
    """JSON turns the keys of {iteration: ...} into strings; turn them back."""
    return {int(key) if key.isdigit() else key: value for key, value in pairs}


def _seconds_of_calls(function):
    """Seconds that each of TIMED_CALLS calls takes, after one that does not count."""
    function()
    seconds = []
    for _ in range(TIMED_CALLS):
        begun = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begun)
    return seconds


# crftool

def _encode(train, template):
    """crftool's Encoder and Dataset of the training file."""
    from crftool.corpus.dataset import read_training_data
    from crftool.corpus.reader import read_bytes
    from crftool.corpus.template import Template

    return read_training_data(train, Template(read_bytes(template), template))


def run_crftool(train, template, threads, iterations):
    import numpy as np

    from crftool.kernels.pool import Pool
    from crftool.objectives import ElasticNet, LogLoss
    from crftool.trainers import TRAINERS
    from crftool.trainers.base import Problem, Stop

    encoder, dataset = _encode(train, template)
    pool = Pool(threads)
    loss = LogLoss(dataset, encoder.space, encoder.unigrams.groups(), pool)
    problem = Problem(loss, ElasticNet(0.0, RHO2), pool)
    result = Run(loss.F, {}, {})

    def report(iteration):
        result.ends[iteration.number] = time.perf_counter()
        result.objectives[iteration.number] = iteration.objective
        result.evaluations[iteration.number] = iteration.evaluations

    theta, grad = np.zeros(loss.F), np.empty(loss.F)
    never_converged = Stop(0.0, 1.0, iterations)
    TRAINERS["l-bfgs"].train(problem, theta, never_converged, report)
    result.parts["value and gradient"] = _seconds_of_calls(lambda: problem.evaluate(theta, grad))
    result.parts["without penalty"] = _seconds_of_calls(lambda: loss.value_and_gradient(theta, grad))
    return result


# Wapiti

WAPITI_PROGRESS = re.compile(rb"\[ *(\d+)\] +obj=([0-9.]+)")


class StandardErrorWatch:
    """While it is open, calls on_line(line, time) for each line that this process writes to standard
    error, including what C code writes."""

    def __init__(self, on_line):
        self._on_line = on_line

    def __enter__(self):
        sys.stderr.flush()
        self._original = os.dup(2)
        read_end, write_end = os.pipe()
        os.dup2(write_end, 2)
        os.close(write_end)
        self._reader = threading.Thread(target=self._read, args=(read_end,))
        self._reader.start()

    def _read(self, read_end):
        with open(read_end, "rb") as lines:
            for line in lines:
                self._on_line(line, time.perf_counter())

    def __exit__(self, *exception):
        os.dup2(self._original, 2)               # closes the write end: the reader comes to its end
        os.close(self._original)
        self._reader.join()


class WapitiInside:
    """Functions of Wapiti's library that its Python interface does not offer but its trainer calls."""

    def __init__(self, model):
        import numpy as np
        from wapiti import api

        self._library, self._model = api._wapiti, model._model
        self._library.grd_new.restype = ctypes.c_void_p
        self._library.grd_gradient.restype = ctypes.c_double
        self._library.mdl_sync(self._model)      # sets up the weights; training would do it
        self.weights = self._model.contents.nftr
        self._grad = np.zeros(self.weights)
        self._state = ctypes.c_void_p(self._library.grd_new(self._model, ctypes.c_void_p(self._grad.ctypes.data)))

    def value_and_gradient(self):
        """The objective, penalty included."""
        return self._library.grd_gradient(self._state)

    def error_rates(self):
        """(% of tokens, % of sequences) wrong in the training set: done for each line of progress."""
        tokens, sequences = ctypes.c_double(), ctypes.c_double()
        self._library.tag_eval(self._model, ctypes.byref(tokens), ctypes.byref(sequences))
        return tokens.value, sequences.value


def _wapiti_model(train, template, threads, iterations, rho1=0.0, rho2=RHO2):
    import wapiti

    model = wapiti.Model(
        patterns=Path(template).read_text(encoding="utf-8"), algo="l-bfgs", rho1=rho1, rho2=rho2,
        nthread=threads, maxiter=iterations, stopeps=0.0)
    with gzip.open(train, "rt", encoding="utf-8") as file:
        for sequence in file.read().strip().split("\n\n"):
            model.add_training_sequence(sequence)
    return model


def run_wapiti(train, template, threads, iterations):
    model = _wapiti_model(train, template, threads, iterations)
    inside = WapitiInside(model)
    result = Run(inside.weights, {0: inside.value_and_gradient()}, {})

    def on_line(line, now):
        progress = WAPITI_PROGRESS.search(line)
        if progress:
            result.ends[int(progress[1])] = now
            result.objectives[int(progress[1])] = float(progress[2])

    with StandardErrorWatch(on_line):
        model.train()
    result.parts["value and gradient"] = _seconds_of_calls(inside.value_and_gradient)
    result.parts["error rates"] = _seconds_of_calls(inside.error_rates)
    return result


def stream_wapiti(train, template, threads, rho1, rho2, tell):
    model = _wapiti_model(train, template, threads, ENDLESS, rho1, rho2)
    begun = time.perf_counter()

    def on_line(line, now):
        progress = WAPITI_PROGRESS.search(line)
        if progress:
            tell(now - begun, float(progress[2]))

    with StandardErrorWatch(on_line):
        model.train()


# CRFsuite

def _attributes(dataset, begin, end):
    """The observations of a sequence's tokens, as CRFsuite wants them: lists of strings."""
    return [[str(observation) for observation in token] for token in dataset.unigrams[begin:end].tolist()]


def _crfsuite_trainer(train, template, iterations, on_iteration, rho1=0.0, rho2=RHO2):
    """CRFsuite knows neither templates nor threads; it gets the observations that crftool finds."""
    import pycrfsuite

    class TimedTrainer(pycrfsuite.Trainer):
        def message(self, message):
            if self.logparser.feed(message) == "iteration":
                on_iteration(self.logparser.last_iteration)

    trainer = TimedTrainer("lbfgs", {
        "c1": rho1, "c2": rho2 / 2, "max_iterations": iterations, "epsilon": 0.0, "delta": 0.0,
        "feature.possible_states": True, "feature.possible_transitions": True}, verbose=False)
    encoder, dataset = _encode(train, template)
    labels = [label.decode() for label in encoder.labels]
    for begin, end in zip(dataset.offsets[:-1], dataset.offsets[1:]):
        trainer.append(_attributes(dataset, begin, end), [labels[y] for y in dataset.labels[begin:end]])
    return trainer


def run_crfsuite(train, template, threads, iterations):
    result = Run(0, {}, {})

    def on_iteration(info):
        number = info["num"]
        result.ends[number] = time.perf_counter()
        result.objectives[number] = info["loss"]
        result.evaluations[number] = result.evaluations.get(number - 1, 1) + info["linesearch_trials"]

    trainer = _crfsuite_trainer(train, template, iterations, on_iteration)
    trainer.train("")                            # without a name no model is written
    result.weights = trainer.logparser.featgen_num_features
    return result


def stream_crfsuite(train, template, threads, rho1, rho2, tell):
    trainer = _crfsuite_trainer(
        train, template, ENDLESS, lambda info: tell(time.perf_counter() - begun, info["loss"]), rho1, rho2)
    begun = time.perf_counter()
    trainer.train("")


RUNNERS = {"crftool": run_crftool, "Wapiti": run_wapiti, "CRFsuite": run_crfsuite}


STREAMS = {"Wapiti": stream_wapiti, "CRFsuite": stream_crfsuite}


def until(tool, train, template, threads, rho1, rho2, targets, limit):
    """{target: seconds until the objective is as low, or None}, from a new process that is ended when the last
    target is reached or `limit` seconds have passed; and the last (seconds, objective) seen."""
    command = [sys.executable, os.path.abspath(__file__), "--stream", tool, train, template, threads, rho1, rho2]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    reached, last = dict.fromkeys(targets), (0.0, math.inf)
    try:
        for line in process.stdout:
            last = seconds, objective = tuple(map(float, line.split()))
            for target in targets:
                if objective <= target and reached[target] is None:
                    reached[target] = seconds
            if seconds > limit or None not in reached.values():
                break
    finally:
        process.kill()
        process.wait()
    return reached, last


def main(tool, train, template, threads, iterations):
    result = RUNNERS[tool](train, template, int(threads), int(iterations))
    json.dump(asdict(result), sys.stdout)


def stream(tool, train, template, threads, rho1, rho2):
    standard_output = os.fdopen(os.dup(1), "w")  # the tools write there too
    os.dup2(2, 1)

    def tell(seconds, objective):
        print(seconds, objective, file=standard_output, flush=True)

    STREAMS[tool](train, template, int(threads), float(rho1), float(rho2), tell)


if __name__ == "__main__":
    if sys.argv[1] == "--stream":
        stream(*sys.argv[2:])
    else:
        main(*sys.argv[1:])

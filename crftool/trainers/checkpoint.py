"""Checkpoints: what a training needs to go on as if it had never been interrupted.

A state is a flat dictionary of arrays and JSON values. Trainers name theirs at the end of an iteration, after
it has been reported. What can be computed again with the same bits, such as the gradient at theta, is not
kept. The file is a container (model.container) and, like all files, not to be trusted.
"""

import json
import math
import mmap
import time

import numpy as np

from crftool.errors import CrftoolError, ModelError
from crftool.files import write_atomically
from crftool.model import container
from crftool.model.weights import SparseWeights

KIND = container.Kind(b"crfstat\x1a", 1, "checkpoint", "give the file that `crftool learn --checkpoint` wrote",
                      "start without --resume")
META = "meta"
CHUNK = 1 << 20                      # numbers copied at once
LARGEST = 1e100                      # beyond the numbers of any training; sums of their squares stay finite
# What belongs to a file of weights in sparse form: see model.weights.SparseWeights
SPARSE = [(f"{kind}.{part}", dtype) for kind in "UB"
          for part, dtype in (("bounds", np.int64), ("columns", np.int32), ("values", np.float64))]


class Saved:
    """The state in a checkpoint file. Everything is checked as it is asked for."""

    def __init__(self, path):
        self.path = path
        self._file = container.map_file(path)
        self._sections = container.unpack(self._file, path, KIND)
        self._let_go()
        try:
            meta = json.loads(bytes(self._sections[META]))
            self.job, self.phase, self._values, self._arrays = (
                meta[key] for key in ("job", "phase", "values", "arrays"))
            if not all(isinstance(part, dict) for part in (self.job, self._values, self._arrays)):
                raise TypeError
        except (KeyError, ValueError, TypeError, RecursionError):
            raise self.damaged() from None

    def damaged(self):
        return ModelError(f"{self.path}: the checkpoint contradicts itself; start without --resume")

    def _let_go(self):
        """Memory of the mapped file that was only needed for a moment."""
        if hasattr(mmap, "MADV_DONTNEED") and isinstance(self._file, mmap.mmap):
            self._file.madvise(mmap.MADV_DONTNEED)

    def require(self, truth):
        if not truth:
            raise self.damaged()

    def check_job(self, job):
        """Refuse to go on with another training. `job`: {what: JSON value}."""
        other = [name for name in job if self.job.get(name) != job[name]]
        if other or set(self.job) != set(job):
            raise ModelError(f"{self.path}: left by a training with other {', '.join(other) or 'settings'}; "
                             "repeat that command, or start without --resume")

    def __contains__(self, name):
        return name in self._values or name in self._arrays

    def value(self, name, kind):
        """A JSON value of the type `kind`."""
        value = self._values.get(name)
        self.require(isinstance(value, kind) and not isinstance(value, bool))
        return value

    def positive(self, name):
        """A float above 0."""
        value = self.value(name, float)
        self.require(0.0 < value < math.inf)
        return value

    def numbers(self, name, most, least=0):
        """A list of `least` to `most` floats."""
        values = self.value(name, list)
        self.require(least <= len(values) <= most and all(isinstance(value, float) for value in values))
        return values

    def slots(self, name, limit):
        """A list of different integers from 0 to limit - 1."""
        values = self.value(name, list)
        self.require(all(type(value) is int and 0 <= value < limit for value in values)
                     and len(set(values)) == len(values))
        return values

    def count(self, name, limit=1 << 62):
        """An integer from 0 to limit - 1."""
        value = self.value(name, int)
        self.require(0 <= value < limit)
        return value

    def array(self, name, dtype, shape):
        """An array where it lies in the file, not to be written to; None in `shape` is any length."""
        try:
            found = np.frombuffer(self._sections[name], dtype).reshape(self._arrays[name]["shape"])
            if self._arrays[name]["dtype"] != np.dtype(dtype).str or found.ndim != len(shape):
                raise ValueError
        except (KeyError, ValueError, TypeError):
            raise self.damaged() from None
        self.require(all(n is None or n == m for n, m in zip(shape, found.shape)))
        if found.dtype.kind == "f":
            flat = found.reshape(-1)
            for i in range(0, len(flat), CHUNK):
                part = flat[i:i + CHUNK]
                self.require(-LARGEST <= float(part.min()) and float(part.max()) <= LARGEST)
                self._let_go()
        return found

    def fill(self, name, out):
        """Write an array to `out`, contiguous, whose type and shape it must have."""
        source, target = self.array(name, out.dtype, out.shape).reshape(-1), out.reshape(-1)
        for i in range(0, len(target), CHUNK):
            target[i:i + CHUNK] = source[i:i + CHUNK]
            self._let_go()

    def indices(self, name, dtype, limit):
        """Rising numbers from 0 to limit - 1."""
        found = self.array(name, dtype, (None,)).copy()
        self.require(len(found) == 0 or 0 <= found[0] and found[-1] < limit and (np.diff(found) > 0).all())
        return found

    def weights(self, name, space):
        """SparseWeights that `sparse_state` took apart."""
        arrays = [self.array(name + part, dtype, (None,)).copy() for part, dtype in SPARSE]
        kinds = []
        for rows, width, (bounds, columns, values) in ((space.O, space.Y, arrays[:3]),
                                                       (space.Ob, space.R * space.Y, arrays[3:])):
            self.require(len(bounds) == rows + 1 and bounds[0] == 0 and bounds[-1] == len(values) == len(columns)
                         and (np.diff(bounds) >= 0).all())
            keys = np.repeat(np.arange(rows), np.diff(bounds)) * np.int64(width) + columns
            self.require(len(keys) == 0 or 0 <= columns.min() and columns.max() < width and (np.diff(keys) > 0).all())
            kinds.append((bounds, columns, values))
        return SparseWeights(space, *kinds)


def sparse_state(name, weights):
    """Arrays of SparseWeights, for a state."""
    return dict(zip([name + part for part, _ in SPARSE], (*weights.unigrams, *weights.bigrams)))


class Checkpoints:
    """Where the state of a training goes from time to time, and where that of an earlier run comes from."""

    def __init__(self, path=None, every=60.0, job=None, saved=None, companion=dict, complain=None):
        """`path` None: none are written. `every`: seconds. `job`: what the state belongs to, see Saved.check_job.
        `saved`: the state to go on from. `companion()`: a state to be kept with that of the trainer.
        `complain(error)` hears of a file that cannot be written; without it the error ends the training."""
        self._path, self._every, self._job, self._saved, self._companion = path, every, job, saved, companion
        self._complain = complain
        self._written = time.monotonic()
        self.resumed = False                         # the next iteration to be told of is one told of before

    def at(self, phase):
        """Whether the run to go on from was in this phase of its trainer."""
        return self._saved is not None and self._saved.phase == phase

    def resume(self, phase):
        """The Saved state of this phase, once; None if there is none."""
        if not self.at(phase):
            return None
        saved, self._saved, self.resumed = self._saved, None, True
        return saved

    def offer(self, phase, state, urgent):
        """Write a checkpoint if it is time, or `urgent`. `state()` gives what the trainer keeps."""
        if self._saved is not None:                  # no phase has asked for it
            raise self._saved.damaged()
        if self._path is None or not (urgent or time.monotonic() - self._written >= self._every):
            return
        try:
            write(self._path, self._job, phase, {**state(), **self._companion()})
        except CrftoolError as error:
            if self._complain is None:
                raise
            self._complain(error)
        self._written = time.monotonic()


def write(path, job, phase, state):
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    meta = {"job": job, "phase": phase,
            "values": {name: value for name, value in state.items() if name not in arrays},
            "arrays": {name: {"dtype": array.dtype.str, "shape": array.shape} for name, array in arrays.items()}}
    sections = {META: memoryview(json.dumps(meta).encode())}
    for name, array in arrays.items():
        view = memoryview(np.ascontiguousarray(array))
        sections[name] = view.cast("B") if view.nbytes else memoryview(b"")
    write_atomically(path, container.pack(sections, KIND))

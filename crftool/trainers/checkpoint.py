"""Checkpoints: what a training needs to go on as if it had never been interrupted.

A state is a flat dictionary of arrays and JSON values. Trainers name theirs at the end of an iteration, after
it has been reported. What can be computed again with the same bits, such as the gradient at theta, is not
kept. The file is a container (model.container) and, like all files, not to be trusted.
"""

import json
import time

import numpy as np

from crftool.errors import ModelError
from crftool.files import write_atomically
from crftool.model import container
from crftool.model.weights import SparseWeights

KIND = container.Kind(b"crfstat\x1a", 1, "checkpoint", "give the file that `crftool learn --checkpoint` wrote",
                      "start without --resume")
META = "meta"
# What belongs to a file of weights in sparse form: see model.weights.SparseWeights
SPARSE = [(f"{kind}.{part}", dtype) for kind in "UB"
          for part, dtype in (("bounds", np.int64), ("columns", np.int32), ("values", np.float64))]


class Saved:
    """The state in a checkpoint file. Everything is checked as it is asked for."""

    def __init__(self, path):
        self.path = path
        self._sections = container.unpack(container.map_file(path), path, KIND)
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

    def check_job(self, job):
        """Refuse to go on with another training. `job`: {what: JSON value}."""
        other = [name for name in job if self.job.get(name) != job[name]]
        if other or set(self.job) != set(job):
            raise ModelError(f"{self.path}: left by a training with other {' and '.join(other) or 'settings'}; "
                             "repeat that command, or start without --resume")

    def __contains__(self, name):
        return name in self._values or name in self._arrays

    def value(self, name, kind):
        """A JSON value of the type `kind`."""
        value = self._values.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.damaged()
        return value

    def numbers(self, name, most, least=0):
        """A list of `least` to `most` floats."""
        values = self.value(name, list)
        if not least <= len(values) <= most or not all(isinstance(value, float) for value in values):
            raise self.damaged()
        return values

    def slots(self, name, limit):
        """A list of different integers from 0 to limit - 1."""
        values = self.value(name, list)
        if not all(type(value) is int and 0 <= value < limit for value in values) or len(set(values)) < len(values):
            raise self.damaged()
        return values

    def count(self, name, limit=1 << 62):
        """An integer from 0 to limit - 1."""
        value = self.value(name, int)
        if not 0 <= value < limit:
            raise self.damaged()
        return value

    def array(self, name, dtype, shape):
        """An array where it lies in the file, not to be written to; None in `shape` is any length."""
        try:
            found = np.frombuffer(self._sections[name], dtype).reshape(self._arrays[name]["shape"])
            if self._arrays[name]["dtype"] != np.dtype(dtype).str or found.ndim != len(shape):
                raise ValueError
        except (KeyError, ValueError, TypeError):
            raise self.damaged() from None
        if any(n is not None and n != m for n, m in zip(shape, found.shape)):
            raise self.damaged()
        return found

    def fill(self, name, out):
        """Write an array to `out`, whose type and shape it must have."""
        out[...] = self.array(name, out.dtype, out.shape)

    def indices(self, name, dtype, limit):
        """Rising numbers from 0 to limit - 1."""
        found = self.array(name, dtype, (None,)).copy()
        if len(found) and (found[0] < 0 or found[-1] >= limit or (np.diff(found) <= 0).any()):
            raise self.damaged()
        return found

    def weights(self, name, space):
        """SparseWeights that `sparse_state` took apart."""
        arrays = [self.array(name + part, dtype, (None,)).copy() for part, dtype in SPARSE]
        kinds = []
        for rows, width, (bounds, columns, values) in ((space.O, space.Y, arrays[:3]),
                                                       (space.Ob, space.R * space.Y, arrays[3:])):
            if len(bounds) != rows + 1 or bounds[0] != 0 or bounds[-1] != len(values) or len(columns) != len(values) \
                    or (np.diff(bounds) < 0).any():
                raise self.damaged()
            keys = np.repeat(np.arange(rows), np.diff(bounds)) * np.int64(width) + columns
            if len(keys) and not (0 <= columns.min() and columns.max() < width and (np.diff(keys) > 0).all()):
                raise self.damaged()
            kinds.append((bounds, columns, values))
        return SparseWeights(space, *kinds)


def sparse_state(name, weights):
    """Arrays of SparseWeights, for a state."""
    return dict(zip([name + part for part, _ in SPARSE], (*weights.unigrams, *weights.bigrams)))


class Checkpoints:
    """Where the state of a training goes from time to time, and where that of an earlier run comes from."""

    def __init__(self, path=None, every=60.0, job=None, saved=None, companion=dict):
        """`path` None: none are written. `every`: seconds. `job`: what the state belongs to, see Saved.check_job.
        `saved`: the state to go on from. `companion()`: a state to be kept with that of the trainer."""
        self._path, self._every, self._job, self._saved, self._companion = path, every, job, saved, companion
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
        write(self._path, self._job, phase, {**state(), **self._companion()})
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

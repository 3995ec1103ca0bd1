"""What is known so far, in a file beside the output, so that an interrupted search can go on.

The file is JSON and, like all files, not to be trusted: everything in it is checked before it is used.
"""

import json
import math
import os
import time

import numpy as np

from crftool.corpus.dataset import digest
from crftool.errors import DataError
from crftool.files import write_atomically
from crftool.selection.lab import Outcome

FORMAT = "crftool select 1"
LARGEST = 1 << 28                    # bytes
WRITE_EVERY = 1.0                    # seconds


def fingerprint(template, dataset, dev, options):
    """Of everything that decides a score apart from its setting."""
    return digest(template.text, *(b"" if data is None else data.digest().encode() for data in (dataset, dev)),
                  json.dumps(options, sort_keys=True).encode())


def refuse_old(path):
    """Raise if there is something in the file, which a new search would overwrite."""
    if os.path.isfile(path) and os.path.getsize(path) > 0:
        raise DataError(path, None, "exists; an earlier search may have left it", "go on with --resume, or remove it")


class State:
    """A mapping from settings (their keys) to Outcomes, and the sets that subsamples chose, kept on disk."""

    def __init__(self, path, job):
        """`path` None: kept in memory alone."""
        self._path, self._job, self._written = path, job, 0.0
        self._outcomes, self._sets = {}, {}

    def __contains__(self, key):
        return key in self._outcomes

    def __getitem__(self, key):
        return self._outcomes[key]

    def __setitem__(self, key, outcome):
        self._outcomes[key] = outcome
        self._save_sometimes()

    def sets(self, key):
        """{run: feature numbers} of a setting's subsamples."""
        return self._sets.setdefault(key, {})

    def add_set(self, key, run, features):
        self.sets(key)[run] = features
        self._save_sometimes()

    def _save_sometimes(self):
        if time.monotonic() - self._written > WRITE_EVERY:
            self.save()

    def save(self):
        if self._path is None:
            return
        content = {"format": FORMAT, "job": self._job,
                   "outcomes": {key: vars(outcome) for key, outcome in self._outcomes.items()},
                   "sets": {key: {str(run): features.tolist() for run, features in runs.items()}
                            for key, runs in self._sets.items()}}
        write_atomically(self._path, [json.dumps(content).encode()])
        self._written = time.monotonic()

    def remove(self):
        if self._path is not None and os.path.exists(self._path):
            os.unlink(self._path)

    def load(self, F):
        """Take over what an earlier run has left; feature numbers must be below F. Whether there is a file."""
        try:
            if os.path.getsize(self._path) > LARGEST:
                raise self._refused("too large", "remove it and start anew")
            with open(self._path, "rb") as file:
                content = json.loads(file.read())
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._refused(f"cannot be read ({error.strerror})", "check its permissions") from None
        except (ValueError, RecursionError):
            raise self._refused("not a state of a search", "remove it and start anew") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise self._refused("not a state of a search", "remove it and start anew")
        if content.get("job") != self._job:
            raise self._refused("left by a search on other data or with other options",
                                "repeat those, or leave out --resume")
        try:
            outcomes = {key: _outcome(value) for key, value in content["outcomes"].items()}
            sets = {key: {int(run): _features(features, F) for run, features in runs.items()}
                    for key, runs in content["sets"].items()}
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise self._refused("damaged", "remove it and start anew") from None
        self._outcomes, self._sets = outcomes, sets
        return True

    def _refused(self, problem, remedy):
        return DataError(self._path, None, problem, remedy)


def _outcome(fields):
    """An Outcome whose fields are all finite numbers."""
    outcome = Outcome(**fields)
    for value in vars(outcome).values():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(value)
    return outcome


def _features(numbers, F):
    """Rising feature numbers below F."""
    features = np.array(numbers, np.int64)
    if features.ndim != 1 or any(isinstance(n, (bool, float)) for n in numbers):
        raise ValueError(numbers)
    if len(features) and (features[0] < 0 or features[-1] >= F or (np.diff(features) <= 0).any()):
        raise ValueError(numbers)
    return features

"""What a person sees while training: one line an iteration, a bar on a terminal; and Ctrl-C.

All of it goes to standard error.
"""

import json
import math
import os
import signal
import sys
import time
from contextlib import contextmanager

import click

from crftool import STARTED


LONG_FILE = 20 << 20                 # bytes beyond which reading shows a bar


def say(text):
    click.echo(text, err=True)


def duration(seconds):
    if seconds < 100:
        return f"{seconds:.1f}s"
    return f"{seconds / 60:.1f}min" if seconds < 6000 else f"{seconds / 3600:.1f}h"


class Progress:
    """Reports iterations and estimates how far convergence is.

    The share of the way done is measured on the logarithm of the gradient's norm, between its first value
    and the limit at which training stops.
    """

    def __init__(self, limit, tokens, quiet, log_json=None):
        self._limit, self._tokens, self._quiet, self._log = limit, tokens, quiet, log_json
        self._begun = time.monotonic()
        self._first = self._share = 0.0
        self._bar = None
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm
            self._bar = tqdm(total=100, file=sys.stderr, leave=False,
                             bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining}")

    def iteration(self, iteration, dev=None):
        if not math.isnan(iteration.gradient_norm):
            norm = max(iteration.gradient_norm, 1e-300)
            self._first = max(self._first, norm)
            if self._first > self._limit > 0.0:
                share = math.log(self._first / norm) / math.log(self._first / self._limit)
                self._share = min(1.0, max(self._share, share))
        if self._log:
            self._log_line(iteration, dev)
        if not self._quiet:
            self._show(self._line(iteration, dev))

    def _line(self, iteration, dev):
        seconds = time.monotonic() - self._begun
        line = f"[{iteration.number:4d}] obj{'~' if iteration.estimated else '='}{iteration.objective:.4f} "
        if iteration.active_bigrams is not None:
            line += f"act={iteration.active_unigrams}+{iteration.active_bigrams} worst={iteration.violation:.3g}"
        else:
            line += f"act={iteration.active}"
        if iteration.token_errors is not None:
            line += f" err={100.0 * iteration.token_errors / self._tokens:.2f}%"
        if not math.isnan(iteration.gradient_norm):
            line += f" |g|={iteration.gradient_norm:.3g}"
        if dev is not None:
            line += f" dev-err={dev.token_error:.2f}% dev-F1={dev.f1:.2f}"
        line += f" time={duration(seconds)}"
        if 0.0 < self._share < 1.0:
            line += f" left~{duration(seconds * (1.0 - self._share) / self._share)}"
        return line

    def _show(self, line):
        if self._bar is None:
            say(line)
        else:
            self._bar.write(line, file=sys.stderr)
            self._bar.n = round(100 * self._share, 1)
            self._bar.refresh()

    def _log_line(self, iteration, dev):
        record = {
            "iteration": iteration.number, "objective": iteration.objective, "estimated": iteration.estimated,
            "active": iteration.active, "seconds": round(time.monotonic() - STARTED, 6),
            "token_error": None, "gradient_norm": None, "violation": None, "evaluations": iteration.evaluations}
        if iteration.token_errors is not None:
            record["token_error"] = 100.0 * iteration.token_errors / self._tokens
        if not math.isnan(iteration.gradient_norm):
            record.update(gradient_norm=iteration.gradient_norm, violation=iteration.violation)
        if iteration.active_bigrams is not None:
            record.update(active_unigrams=iteration.active_unigrams, active_bigrams=iteration.active_bigrams)
        if dev is not None:
            record.update(dev_token_error=dev.token_error, dev_f1=dev.f1)
        self._log.write(json.dumps(record) + "\n")
        self._log.flush()

    def close(self):
        if self._bar is not None:
            self._bar.close()


@contextmanager
def reading_bar(path, quiet):
    """A function to tell of bytes read: a bar on a terminal for long plain files, else nothing."""
    size = os.path.getsize(path) if os.path.isfile(path) and not path.endswith((".gz", ".bz2", ".xz")) else 0
    if quiet or size < LONG_FILE or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm
    with tqdm(total=size, unit="B", unit_scale=True, desc=os.path.basename(path), file=sys.stderr, leave=False) as bar:
        yield bar.update


@contextmanager
def graceful_interrupts():
    """A list that is empty until Ctrl-C or TERM arrives; the second one aborts at once."""
    requests = []

    def handle(number, frame):
        if requests:
            raise KeyboardInterrupt
        requests.append(number)
        say("stopping after this iteration; once more to abort")

    old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class RowProgress:
    """How far a search is: a bar on a terminal, a line a row elsewhere.

    Time left supposes that rows to come take as long as those so far; a search may end sooner.
    """

    def __init__(self, planned, quiet):
        self._planned, self._quiet, self._done = max(1, planned), quiet, 0
        self._begun = time.monotonic()
        self._bar = None
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm
            self._bar = tqdm(total=self._planned, file=sys.stderr, leave=False)

    def row(self, text):
        self._done += 1
        if self._bar is not None:
            self._bar.update()
        elif not self._quiet:
            seconds = time.monotonic() - self._begun
            left = seconds * max(0, self._planned - self._done) / self._done
            say(f"[{self._done}/{self._planned}] {text} time={duration(seconds)} left~{duration(left)}")

    def close(self):
        if self._bar is not None:
            self._bar.close()

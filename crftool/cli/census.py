"""What `learn` is about to do, and whether it fits into memory."""

import math
import os
import time
from dataclasses import dataclass

from crftool.cli.progress import duration, say
from crftool.errors import ResourceError

MEGABYTE = 1 << 20
INTERPRETER = 52 * MEGABYTE          # Python, NumPy, the program, and small pairs of L-BFGS
COSTLIEST = 3                        # templates that a refusal names

# Time: work that algorithms do until they converge, in passes over the data, measured on chunking (CoNLL-2000, all and
# 1,000 sentences), letters to sounds (Nettalk) and the shipped example; one pass takes nanoseconds for each token,
# template and label, each token and pair of labels, each weight, and a constant.
PASSES = {"hybrid": 90, "working-set": 170, "l-bfgs": 120, "owl-qn": 600, "sgd": 60, "sgd-l1": 80, "cg": 180, "cg-fr": 180,
          "cd": 4000, "bcd": 1000}
OTHER_PASSES = 150
USUAL_TOLERANCE = 1e-5
PER_SCORE, PER_PAIR, PER_WEIGHT, PER_PASS = 0.5, 0.7, 15.0, 2e6
PROBE_SECONDS = 61e-6                # that `_probe` took on the machine of these figures


@dataclass(frozen=True)
class Forecast:
    memory: int                      # bytes at the peak
    seconds: float                   # of training, roughly


def available_memory():
    """Bytes that this process can still take; None if the system does not tell."""
    limits = []
    try:
        with open("/proc/meminfo") as file:
            limits += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        try:
            limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        except (AttributeError, OSError, ValueError):
            pass
    try:
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as used:
            limits.append(int(limit.read()) - int(used.read()))
    except (OSError, ValueError):
        pass                                         # no such limit
    return min(limits, default=None)


def peak_memory():
    """Peak resident bytes of this process so far; None if the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if os.uname().sysname == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def give_back_memory():
    """Return what reading has left over to the system, where the C library can (27 MB for CoNLL-2000)."""
    import ctypes
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        pass


def memory_of_weights(trainer, encoder, dataset, settings):
    """Bytes that `learn` takes for weights, and for what trainers keep with each. Those that cannot matter under an
    l1 penalty (LogLoss.screened, merged) are left out by some; the rest is then a problem of its own."""
    from crftool.trainers.path import BYTES_PER_WEIGHT

    space, per_weight = encoder.space, trainer.bytes_per_weight + BYTES_PER_WEIGHT * bool(settings.path)
    rare = int((encoder.unigrams.counts <= settings.rho1).sum()) * space.Y
    if not settings.path and not (trainer.screens and (rare or settings.rho2 == 0.0)):
        return space.F * (per_weight + 8 * bool(settings.dev))
    return space.F * (8 + 8 * bool(settings.dev)) + (space.F - rare) * per_weight + dataset.unigrams.nbytes


def estimate_memory(encoder, dataset, weights, by_blocks=False):
    """Bytes that training will take at its peak, of which `weights` for weights."""
    space = encoder.space
    tables = sum(len(table) * (4 * table.width + 24) for kind in (encoder.unigrams, encoder.bigrams)
                 for table in kind.tables)
    from crftool.objectives.logloss import BLOCK_TOKENS
    lattice = BLOCK_TOKENS * space.Y * 8 * 3 + len(dataset.bigrams) * space.R * space.Y * 8 * 4
    values = 200 * len(encoder.values.table)
    if by_blocks:                                    # memory follows the active weights
        from crftool.objectives.blockloss import memory
        return INTERPRETER + dataset.nbytes + tables + values + memory(dataset, space)
    return INTERPRETER + dataset.nbytes + tables + values + lattice + weights


def estimate_seconds(algorithm, encoder, dataset, settings, threads, dev_tokens=0):
    """Seconds that training may take: work times the speed of this machine. Right to a factor of 2 to 3 at best,
    because nobody knows the number of iterations before."""
    Y, tokens = encoder.space.Y, dataset.N + dev_tokens
    passes = PASSES.get(algorithm, OTHER_PASSES) * math.log(min(0.1, settings.tolerance)) / math.log(USUAL_TOLERANCE)
    if settings.path:
        passes *= 1.0 + 0.1 * settings.path          # each begins where the one before has ended
    elif settings.max_iterations < passes:
        passes = settings.max_iterations
    work = tokens * Y * (PER_SCORE * dataset.unigrams.shape[1] + PER_PAIR * Y) + PER_WEIGHT * encoder.space.F
    return passes * (work / threads + PER_PASS) * 1e-9 * _probe() / PROBE_SECONDS


def _probe():
    """Seconds of a little work like that of training, a few milliseconds in all: scores gathered, summed, exponentials."""
    import numpy as np

    weights, rows = np.linspace(-1.0, 1.0, 1 << 16), (np.arange(1 << 14) * 40_503) % (1 << 16)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        np.exp(weights[rows] + weights[rows[::-1]]).sum()
        best = min(best, time.perf_counter() - start)
    return best


def report(encoder, dataset, candidates, forecast, bytes_per_weight):
    say(f"{dataset.S} sequences, {dataset.N} tokens, {len(encoder.labels)} labels")
    say("    MB observations     weights  template")
    for line, observations, weights in encoder.weights_per_line():
        say(f"{weights * bytes_per_weight / MEGABYTE:6.0f}{observations:13d}{weights:12d}  {_shown(line)}")
    space = encoder.space
    total = f"{space.F * bytes_per_weight / MEGABYTE:6.0f}{space.O + space.Ob:13d}{space.F:12d}  in all"
    say(total if candidates == space.F else f"{total}, {candidates} of them seen with their labels")
    say(f"estimated peak memory: {forecast.memory / MEGABYTE:.0f} MB; estimated time: about {duration(forecast.seconds)}")


def _shown(line):
    return line.text.decode("utf-8", "replace")


def check_memory(encoder, estimate, limit, bytes_per_weight,
                 instead="or use --rho1 with -a bcd, which keeps only non-zero weights"):
    """Refuse work that cannot fit, naming what costs most and what would help."""
    room = limit if limit is not None else available_memory()
    if room is None or estimate <= room:
        return
    costs = sorted(encoder.weights_per_line(), key=lambda entry: -entry[2])[:COSTLIEST]
    shown = ", ".join(f"`{_shown(line)}` {weights * bytes_per_weight / MEGABYTE:.0f} MB" for line, _, weights in costs)
    fields = " the fields of a B line cost most: each of its observations has a weight for every pair of labels;" * any(
        line.text[:1] in b"B*" and line.fields and weights > encoder.space.F // 3 for line, _, weights in costs)
    raise ResourceError(
        f"training needs about {estimate / MEGABYTE:.0f} MB but {room / MEGABYTE:.0f} MB are "
        f"{'free' if limit is None else 'allowed'}; "
        f"the costliest templates: {shown};{fields} drop or shorten one, or raise --min-count, "
        f"{instead}, or raise --max-memory if you know better")

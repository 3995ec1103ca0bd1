"""What `learn` is about to do, and whether it fits into memory."""

import os

from crftool.cli.progress import say
from crftool.errors import ResourceError

MEGABYTE = 1 << 20
INTERPRETER = 52 * MEGABYTE          # Python, NumPy, the program, and small pairs of L-BFGS
COSTLIEST = 3                        # templates that a refusal names


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


def estimate_memory(encoder, dataset, bytes_per_weight, by_blocks=False):
    """Bytes that training will take at its peak."""
    space = encoder.space
    tables = sum(len(table) * (4 * table.width + 24) for kind in (encoder.unigrams, encoder.bigrams)
                 for table in kind.tables)
    from crftool.objectives.logloss import BLOCK_TOKENS
    lattice = BLOCK_TOKENS * space.Y * 8 * 3 + len(dataset.bigrams) * space.R * space.Y * 8 * 4
    values = 200 * len(encoder.values.table)
    if by_blocks:                                    # memory follows the active weights
        from crftool.objectives.blockloss import memory
        return INTERPRETER + dataset.nbytes + tables + values + memory(dataset, space)
    return INTERPRETER + dataset.nbytes + tables + values + lattice + space.F * bytes_per_weight


def report(encoder, dataset, candidates, estimate, bytes_per_weight):
    say(f"{dataset.S} sequences, {dataset.N} tokens, {len(encoder.labels)} labels")
    say("    MB observations     weights  template")
    for line, observations, weights in encoder.weights_per_line():
        say(f"{weights * bytes_per_weight / MEGABYTE:6.0f}{observations:13d}{weights:12d}  {_shown(line)}")
    space = encoder.space
    total = f"{space.F * bytes_per_weight / MEGABYTE:6.0f}{space.O + space.Ob:13d}{space.F:12d}  in all"
    say(total if candidates == space.F else f"{total}, {candidates} of them seen with their labels")
    say(f"estimated peak memory: {estimate / MEGABYTE:.0f} MB")


def _shown(line):
    return line.text.decode("utf-8", "replace")


def check_memory(encoder, estimate, limit, bytes_per_weight):
    """Refuse work that cannot fit, naming what costs most and what would help."""
    room = limit if limit is not None else available_memory()
    if room is None or estimate <= room:
        return
    costs = sorted(encoder.weights_per_line(), key=lambda entry: -entry[2])[:COSTLIEST]
    shown = ", ".join(f"`{_shown(line)}` {weights * bytes_per_weight / MEGABYTE:.0f} MB" for line, _, weights in costs)
    fields = " the fields of a B line cost most: each of its observations has a weight for every pair of labels;" * any(
        line.text[:1] in b"B*" and line.fields and weights > encoder.space.F // 3 for line, _, weights in costs)
    raise ResourceError(
        f"training needs about {estimate / MEGABYTE:.0f} MB but {room / MEGABYTE:.0f} MB are free; "
        f"the costliest templates: {shown};{fields} drop or shorten one, or raise --min-count, "
        "or use --rho1 with -a bcd, which keeps only non-zero weights, or raise --max-memory if you know better")

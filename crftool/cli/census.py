"""What `learn` is about to do, and whether it fits into memory."""

import os

from crftool.cli.progress import say
from crftool.errors import ResourceError

MEGABYTE = 1 << 20
INTERPRETER = 36 * MEGABYTE          # Python and NumPy, before any data


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


def report(encoder, dataset, candidates, estimate):
    say(f"{dataset.S} sequences, {dataset.N} tokens, {len(encoder.labels)} labels")
    say("observations     weights  template")
    for line, observations, weights in encoder.weights_per_line():
        say(f"{observations:12d}{weights:12d}  {line.text.decode('utf-8', 'replace')}")
    space = encoder.space
    total = f"{space.O + space.Ob:12d}{space.F:12d}  in all"
    say(total if candidates == space.F else f"{total}, {candidates} of them seen with their labels")
    say(f"estimated peak memory: {estimate / MEGABYTE:.0f} MB")


def check_memory(encoder, estimate, limit):
    """Refuse work that cannot fit, naming what costs most and what would help."""
    room = limit if limit is not None else available_memory()
    if room is None or estimate <= room:
        return
    line, _, weights = max(encoder.weights_per_line(), key=lambda entry: entry[2])
    raise ResourceError(
        f"training needs about {estimate / MEGABYTE:.0f} MB but {room / MEGABYTE:.0f} MB are free; "
        f"drop or shorten `{line.text.decode('utf-8', 'replace')}` ({weights} of {encoder.space.F} weights), "
        "or raise --min-count, or raise --max-memory if you know better")

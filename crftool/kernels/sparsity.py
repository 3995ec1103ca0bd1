"""When a transition with few non-zero weights is cheaper as a list of entries than as a block.

Where the line lies was measured (benchmarks/kernels.py).
"""

MODES = ("auto", "scaled", "sparse", "log")
# A sparse step of forward-backward costs about as much for each entry as a dense one for ENTRY_COST pairs,
# and for each label as for LABEL_COST pairs.
ENTRY_COST = 5.5
LABEL_COST = 36.0


def largest_sparse(Y, mode):
    """The largest number of entries with which a transition is kept sparse."""
    if mode == "sparse":
        return Y * Y
    if mode == "auto":
        return (Y * Y - LABEL_COST * Y) / ENTRY_COST
    return -1

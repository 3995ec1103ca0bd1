"""Rules on label sequences as arrays, and whether labels keep to them."""

import numpy as np

from crftool.corpus.reader import display_name
from crftool.corpus.rules import allowed_pairs
from crftool.errors import DataError
from crftool.kernels.transitions import Constraint


def make_constraint(rules, labels, path):
    """The Constraint that a text of rules puts on these labels; None for an empty text."""
    pairs = allowed_pairs(rules, labels, path)
    if pairs is None:
        return None
    Y, allowed = len(labels), np.array(pairs, bool)
    return Constraint(allowed[:Y, :Y].copy(), allowed[Y, :Y].copy(), allowed[:Y, Y].copy())


def check_labels(constraint, dataset, labels, path):
    """Gold labels that the constraint forbids are an error with line and labels."""
    gold, offsets = dataset.labels, dataset.offsets
    first, last = offsets[:-1], offsets[1:] - 1
    follows = np.ones(dataset.N, bool)
    follows[first] = False
    tokens = np.flatnonzero(follows)
    bad = np.concatenate((tokens[~constraint.pairs[gold[tokens - 1], gold[tokens]]],
                          first[~constraint.start[gold[first]]], last[~constraint.end[gold[last]]]))
    if len(bad):
        t = int(bad.min())
        shown = [label.decode("utf-8", "backslashreplace") for label in labels]
        if t in first and not constraint.start[gold[t]]:
            problem = f"{shown[gold[t]]} begins a sequence"
        elif follows[t] and not constraint.pairs[gold[t - 1], gold[t]]:
            problem = f"{shown[gold[t]]} follows {shown[gold[t - 1]]}"
        else:
            problem = f"{shown[gold[t]]} ends a sequence"
        raise DataError(display_name(path), int(dataset.lines[t]), f"{problem}, which the constraint forbids",
                        "correct the label, or loosen --constrain")

"""What sequences of labels may look like: label schemes, and rules in a file.

    scheme iob2            one of iob1, iob2, iobes (or bilou)
    forbid O I-*           the label I-anything may not follow O
    allow  ^ O             O may begin a sequence (^ is the beginning, $ the end)

Rules apply in their order, on top of "everything is allowed"; `*` and `?` match as in a shell.
"""

from fnmatch import fnmatchcase

import numpy as np

from crftool.corpus.reader import display_name, read_bytes
from crftool.errors import DataError
from crftool.kernels.transitions import Constraint

BEGIN, END = "^", "$"
BILOU = {"L": "E", "U": "S"}


def _parts(label):
    """(position in its phrase, type): B, I, E, S or O."""
    tag, dash, kind = label.partition("-")
    return (BILOU.get(tag, tag), kind) if dash and tag in "BIESLU" and tag else ("O", "")


def _iob2(previous, label):
    """I only inside a phrase of its type, which B begins."""
    tag, kind = _parts(label)
    return tag != "I" or (_parts(previous)[0] in "BI" and _parts(previous)[1] == kind)


def _iob1(previous, label):
    """B only between two phrases of one type."""
    tag, kind = _parts(label)
    return tag != "B" or (_parts(previous)[0] in "BI" and _parts(previous)[1] == kind)


def _iobes(previous, label):
    """A phrase is S, or B, any I, and E."""
    inside = _parts(previous)[0] in "BI"
    tag, kind = _parts(label)
    return (tag in "IE" and kind == _parts(previous)[1]) if inside else tag in "BSO"


SCHEMES = {"iob1": _iob1, "iob2": _iob2, "iobes": _iobes, "bilou": _iobes}


def read_rules(name):
    """The text of a constraint: that of a scheme, or of a file."""
    return f"scheme {name}\n".encode() if name in SCHEMES else read_bytes(name)


def make_constraint(rules, labels, path):
    """The Constraint that a text of rules puts on these labels; None for an empty text."""
    names = [label.decode("utf-8", "surrogateescape") for label in labels]
    Y = len(names)
    # row Y: the beginning; column Y: the end
    allowed = np.ones((Y + 1, Y + 1), bool)
    any_rule = False
    for number, line in enumerate(rules.decode("utf-8", "surrogateescape").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        rule_length = 2 if words[0] == "scheme" else 3
        if len(words) > rule_length and words[rule_length].startswith("#"):
            words = words[:rule_length]              # a comment behind the rule
        any_rule = True
        if words[0] == "scheme" and len(words) == 2 and words[1] in SCHEMES:
            test = SCHEMES[words[1]]
            allowed &= [[test(a, b) for b in [*names, "O"]] for a in [*names, "O"]]
        elif words[0] in ("forbid", "allow") and len(words) == 3:
            rows = [fnmatchcase(name, words[1]) for name in names] + [words[1] == BEGIN]
            columns = [fnmatchcase(name, words[2]) for name in names] + [words[2] == END]
            if not any(rows) or not any(columns):
                missing = words[1] if not any(rows) else words[2]
                raise DataError(display_name(path), number, f"no label matches '{missing}'",
                                f"the labels are {' '.join(names[:20])}")
            allowed[np.ix_(rows, columns)] = words[0] == "allow"
        else:
            raise DataError(display_name(path), number, f"not a rule: '{line.strip()}'",
                            "write `forbid PREVIOUS LABEL`, `allow PREVIOUS LABEL` or `scheme iob1|iob2|iobes`")
    if not any_rule:
        return None
    return Constraint(allowed[:Y, :Y].copy(), allowed[Y, :Y].copy(), allowed[:Y, Y].copy())


def dead_end(constraint, Y, forced):
    """The first position at which no label is possible any more; None if some labelling remains.

    `forced` [T]: a label that the position must have, or -1.
    """
    possible = constraint.start.copy() if constraint is not None else np.ones(Y, bool)
    for t, label in enumerate(forced):
        if t > 0:
            possible = possible @ constraint.pairs if constraint is not None else np.full(Y, possible.any())
        if label >= 0:
            possible &= np.arange(Y) == label
        if t == len(forced) - 1 and constraint is not None:
            possible &= constraint.end
        if not possible.any():
            return t
    return None


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

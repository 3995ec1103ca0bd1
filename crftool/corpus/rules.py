"""What sequences of labels may look like: label schemes, and rules in a file.

    scheme iob2            one of iob1, iob2, iobes (or bilou)
    forbid O I-*           the label I-anything may not follow O
    allow  ^ O             O may begin a sequence (^ is the beginning, $ the end)

Rules apply in their order, on top of "everything is allowed"; `*` and `?` match as in a shell.
"""

from fnmatch import fnmatchcase

from crftool.corpus.reader import display_name, read_bytes
from crftool.errors import DataError

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


def as_one_line(rules):
    """The text of a constraint for people; None if there is none."""
    lines = [line.strip() for line in rules.decode("utf-8", "replace").splitlines()]
    return "; ".join(filter(None, lines)) or None


def allowed_pairs(rules, labels, path):
    """Y + 1 rows of Y + 1 bytes, 1 for allowed: which label may follow which; the last row is the beginning, the
    last column the end. None for a text without rules."""
    names = [label.decode("utf-8", "surrogateescape") for label in labels]
    Y, any_rule = len(names), False
    allowed = [bytearray(b"\1" * (Y + 1)) for _ in range(Y + 1)]
    for number, line in enumerate(rules.decode("utf-8", "surrogateescape").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        rule_length = 2 if words[0] == "scheme" else 3
        if len(words) > rule_length and words[rule_length].startswith("#"):
            words = words[:rule_length]              # a comment behind the rule
        any_rule = True
        if words[0] == "scheme" and len(words) == 2 and words[1] in SCHEMES:
            _apply_scheme(SCHEMES[words[1]], names, allowed)
        elif words[0] in ("forbid", "allow") and len(words) == 3:
            rows = [i for i, name in enumerate(names) if fnmatchcase(name, words[1])] + [Y] * (words[1] == BEGIN)
            columns = [i for i, name in enumerate(names) if fnmatchcase(name, words[2])] + [Y] * (words[2] == END)
            if not rows or not columns:
                raise DataError(display_name(path), number, f"no label matches '{words[2] if rows else words[1]}'",
                                f"the labels are {' '.join(names[:20])}")
            for row in rows:
                for column in columns:
                    allowed[row][column] = words[0] == "allow"
        else:
            raise DataError(display_name(path), number, f"not a rule: '{line.strip()}'",
                            "write `forbid PREVIOUS LABEL`, `allow PREVIOUS LABEL` or `scheme iob1|iob2|iobes`")
    return allowed if any_rule else None


def _apply_scheme(test, names, allowed):
    """Forbid what a scheme forbids; before and after a sequence is O."""
    for row, previous in zip(allowed, [*names, "O"]):
        for k, label in enumerate([*names, "O"]):
            row[k] &= test(previous, label)

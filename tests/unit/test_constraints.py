"""Label schemes and rule files, against what the schemes are defined to be."""

import itertools

import numpy as np
import pytest

from slow_tagging import dead_end

from crftool.corpus.constraints import make_constraint
from crftool.corpus.rules import SCHEMES, read_rules
from crftool.errors import DataError

LABELS = [b"B-A", b"B-B", b"I-A", b"I-B", b"E-A", b"E-B", b"S-A", b"S-B", b"O"]


def encodings(scheme, length):
    """All label sequences that some set of non-overlapping phrases of types A, B is written as."""
    def continue_from(t, last):
        if t == length:
            yield ()
            return
        yield from (("O",) + rest for rest in continue_from(t + 1, None))
        for kind, size in itertools.product("AB", range(1, length - t + 1)):
            if scheme == "iob2":
                phrase = (f"B-{kind}",) + (f"I-{kind}",) * (size - 1)
            elif scheme == "iob1":
                phrase = ("B-" + kind if last == kind else "I-" + kind,) + (f"I-{kind}",) * (size - 1)
            elif size == 1:
                phrase = (f"S-{kind}",)
            else:
                phrase = (f"B-{kind}",) + (f"I-{kind}",) * (size - 2) + (f"E-{kind}",)
            yield from (phrase + rest for rest in continue_from(t + size, kind))
    return set(continue_from(0, None))


def allowed(constraint, path):
    return bool(constraint.start[path[0]] and constraint.end[path[-1]]
                and all(constraint.pairs[a, b] for a, b in zip(path, path[1:])))


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "iobes"])
def test_a_scheme_allows_just_the_encodings_of_phrases(scheme):
    labels = LABELS if scheme == "iobes" else [label for label in LABELS if label[:1] in b"BIO"]
    constraint = make_constraint(read_rules(scheme), labels, scheme)
    for length in (1, 2, 3, 4):
        found = {tuple(labels[y].decode() for y in path)
                 for path in itertools.product(range(len(labels)), repeat=length) if allowed(constraint, path)}
        assert found == encodings(scheme, length)


def test_bilou_is_iobes_under_other_names():
    renamed = [label.replace(b"E-", b"L-").replace(b"S-", b"U-") for label in LABELS]
    a = make_constraint(read_rules("iobes"), LABELS, "")
    b = make_constraint(read_rules("bilou"), renamed, "")
    assert (a.pairs == b.pairs).all() and (a.start == b.start).all() and (a.end == b.end).all()
    assert set(SCHEMES) == {"iob1", "iob2", "iobes", "bilou"}


def test_rules_apply_in_order():
    rules = b"# comment\n\nforbid * *   # first of all\nallow X Y\nallow Y ?\nforbid ^ Y\nforbid X $\n"
    constraint = make_constraint(rules, [b"X", b"Y"], "r")
    assert constraint.pairs.tolist() == [[False, True], [True, True]]
    assert constraint.start.tolist() == [True, False] and constraint.end.tolist() == [False, True]


def test_no_rule_is_no_constraint():
    assert make_constraint(b"", [b"X"], "r") is None
    assert make_constraint(b"# nothing\n", [b"X"], "r") is None


@pytest.mark.parametrize("rules, message", [
    (b"\nforbid X\n", "r:2: not a rule: 'forbid X'; "), (b"scheme xyz\n", "r:1: not a rule"),
    (b"forbid Z *\n", "r:1: no label matches 'Z'; the labels are X Y"), (b"deny X Y\n", "r:1: not a rule")])
def test_bad_rules(rules, message):
    with pytest.raises(DataError) as caught:
        make_constraint(rules, [b"X", b"Y"], "r")
    assert str(caught.value).startswith(message)


def test_dead_ends():
    constraint = make_constraint(b"forbid X Y\nforbid ^ Y\n", [b"X", b"Y"], "r")
    free = np.full(3, -1)
    assert dead_end(constraint, 2, free) is None
    assert dead_end(constraint, 2, np.array([-1, 1, -1])) == 1       # only X may begin, and Y not follow it
    assert dead_end(constraint, 2, np.array([1, -1, -1])) == 0
    assert dead_end(None, 2, np.array([1, 0, 1])) is None

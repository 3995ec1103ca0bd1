"""The layouts of the twin that the compiled writer is compared with: CRF++'s layouts byte for byte, labels alone, and JSON lines."""

import json

import numpy as np
import pytest

from crftool.corpus.reader import Block
from crftool.corpus.tokens import Tokens
from slow_tagging import WRITERS, ConllWriter, JsonWriter, LabelWriter

LABELS = [b"B-NP", b"B-VP", b"I-NP", b"O"]
# Blanks of the input, which the output replaces by single tabs; a sentence before the one of interest.
TOKENS = Tokens(Block("x", 1, b"before B\n\n He \t PRP\r\nreckons  VBZ \nthe\tDT\n"))
MARGINALS = np.array([
    [0.25, 0.25, 0.25, 0.25],
    [0.822656, 0.0518, 0.1, 0.025544],
    [0.0, 1.0, 1e-9, 4.9e-7],
    [0.9999996, 0.0000001, 0.0000002, 0.0000001],
])
START, PATH, PROBABILITY = 1, [0, 1, 0], 0.3654396

# --- CRF++'s columns ----------------------------------------------------------------------


def conll(level, path=PATH, rank=None, probability=PROBABILITY):
    marginals = MARGINALS if level else None
    return ConllWriter(LABELS, level).sequence(TOKENS, START, path, probability, marginals, rank)


def test_level_0_has_tabs_and_an_empty_line():
    assert conll(0, probability=None) == b"He\tPRP\tB-NP\nreckons\tVBZ\tB-VP\nthe\tDT\tB-NP\n\n"


def test_level_1_has_the_probability_of_sequence_and_labels():
    assert conll(1) == (b"# 0.365440\n"
                        b"He\tPRP\tB-NP/0.822656\nreckons\tVBZ\tB-VP/1.000000\nthe\tDT\tB-NP/1.000000\n\n")


def test_level_2_has_those_of_all_labels_in_their_order():
    assert conll(2) == (
        b"# 0.365440\n"
        b"He\tPRP\tB-NP/0.822656\tB-NP/0.822656\tB-VP/0.051800\tI-NP/0.100000\tO/0.025544\n"
        b"reckons\tVBZ\tB-VP/1.000000\tB-NP/0.000000\tB-VP/1.000000\tI-NP/0.000000\tO/0.000000\n"
        b"the\tDT\tB-NP/1.000000\tB-NP/1.000000\tB-VP/0.000000\tI-NP/0.000000\tO/0.000000\n\n")


def test_higher_levels_are_level_2():
    assert conll(3) == conll(2)


def test_n_best_blocks_are_headed_by_rank_and_probability():
    """With -n the plain probability line does not appear, at any level."""
    assert conll(0, [3, 1, 2], 0, 0.365440) + conll(0, [0, 0, 0], 1, 0.059467) == (
        b"# 0 0.365440\nHe\tPRP\tO\nreckons\tVBZ\tB-VP\nthe\tDT\tI-NP\n\n"
        b"# 1 0.059467\nHe\tPRP\tB-NP\nreckons\tVBZ\tB-NP\nthe\tDT\tB-NP\n\n")


def test_n_best_with_probabilities_shows_those_of_the_labels_in_this_path():
    assert conll(1, [2, 0, 0], 12, 0.046452) == (
        b"# 12 0.046452\nHe\tPRP\tI-NP/0.100000\nreckons\tVBZ\tB-NP/0.000000\nthe\tDT\tB-NP/1.000000\n\n")
    first = conll(2, [2, 0, 0], 12, 0.046452).split(b"\n")[1]
    assert first == b"He\tPRP\tI-NP/0.100000\tB-NP/0.822656\tB-VP/0.051800\tI-NP/0.100000\tO/0.025544"


def test_bytes_that_are_no_utf8_pass_unchanged():
    tokens = Tokens(Block("x", 1, b"\xff\x00 \xc2\xa0\n"))
    writer = ConllWriter([b"\xfe", b"O"], 1)
    assert writer.sequence(tokens, 0, [0], 1.0, np.array([[0.5, 0.5]])) == (
        b"# 1.000000\n\xff\x00\t\xc2\xa0\t\xfe/0.500000\n\n")


# --- labels alone: the same without the input's columns ------------------------------------


@pytest.mark.parametrize(
    "level, expected",
    [
        (0, b"B-NP\nB-VP\nB-NP\n\n"),
        (1, b"# 0.365440\nB-NP/0.822656\nB-VP/1.000000\nB-NP/1.000000\n\n"),
        (2, b"# 0.365440\n"
            b"B-NP/0.822656\tB-NP/0.822656\tB-VP/0.051800\tI-NP/0.100000\tO/0.025544\n"
            b"B-VP/1.000000\tB-NP/0.000000\tB-VP/1.000000\tI-NP/0.000000\tO/0.000000\n"
            b"B-NP/1.000000\tB-NP/1.000000\tB-VP/0.000000\tI-NP/0.000000\tO/0.000000\n\n"),
    ],
)
def test_labels(level, expected):
    writer = LabelWriter(LABELS, level)
    assert writer.sequence(TOKENS, START, PATH, PROBABILITY if level else None, MARGINALS) == expected


def test_labels_of_an_n_best_list():
    assert LabelWriter(LABELS).sequence(TOKENS, START, [3, 3, 3], 0.1, None, 4) == b"# 4 0.100000\nO\nO\nO\n\n"


# --- JSON lines ---------------------------------------------------------------------------


def json_line(level, probability=PROBABILITY, rank=None):
    text = JsonWriter(LABELS, level).sequence(TOKENS, START, PATH, probability, MARGINALS, rank)
    assert text.endswith(b"\n") and text.count(b"\n") == 1 and text.isascii()
    return json.loads(text)


PLAIN = {"tokens": [["He", "PRP"], ["reckons", "VBZ"], ["the", "DT"]], "labels": ["B-NP", "B-VP", "B-NP"]}


def test_json_level_0():
    assert json_line(0, None) == PLAIN


def test_json_level_1():
    assert json_line(1) == PLAIN | {"probability": PROBABILITY, "label_probability": [0.822656, 1.0, 0.9999996]}


def test_json_level_2():
    marginals = [dict(zip(["B-NP", "B-VP", "I-NP", "O"], row)) for row in MARGINALS[1:].tolist()]
    assert json_line(2) == json_line(1) | {"marginals": marginals}


def test_json_n_best():
    assert json_line(0, 0.25, 3) == PLAIN | {"rank": 3, "probability": 0.25}


def test_json_numbers_may_come_from_arrays():
    assert json_line(0, np.float64(0.5)) == PLAIN | {"probability": 0.5}


def test_json_carries_bytes_that_are_no_utf8():
    tokens = Tokens(Block("x", 1, "\x00é\u2028 ".encode() + b"\xff\n"))
    text = JsonWriter([b"\xfe"]).sequence(tokens, 0, [0], None, None)
    record = json.loads(text)
    (fields,), (label,) = record["tokens"], record["labels"]
    assert [field.encode("utf-8", "surrogateescape") for field in fields] == ["\x00é\u2028".encode(), b"\xff"]
    assert label.encode("utf-8", "surrogateescape") == b"\xfe"


def test_names_of_the_formats():
    assert WRITERS == {"conll": ConllWriter, "labels": LabelWriter, "json": JsonWriter}

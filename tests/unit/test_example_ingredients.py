"""The made-up data of examples/ingredients is what the example says it is."""

import collections
import pathlib
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "ingredients"
KINDS = {"QTY", "UNIT", "NAME", "COMMENT"}


def run(script, *arguments):
    command = [sys.executable, str(EXAMPLE / script), *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def generate(seed, phrases):
    return run("generate.py", "--seed", seed, "--phrases", phrases)


def phrases_of(data):
    """Split column data into phrases, each a list of rows of columns."""
    blocks = data.decode("utf-8").strip("\n").split("\n\n")
    return [[line.split() for line in block.split("\n")] for block in blocks]


def tokens_of(phrases):
    return {row[0].lower() for phrase in phrases for row in phrase}


@pytest.fixture(scope="module")
def train_bytes():
    return generate(seed=1, phrases=2000)


@pytest.fixture(scope="module")
def train(train_bytes):
    return phrases_of(train_bytes)


@pytest.fixture(scope="module")
def held_out_bytes():
    return generate(seed=2, phrases=500)


@pytest.fixture(scope="module")
def kinds_of_word(train):
    """{word: the kinds of span it occurs in}, with O for none."""
    kinds = collections.defaultdict(set)
    for phrase in train:
        for token, _, label in phrase:
            kinds[token.lower()].add(label.rpartition("-")[2])
    return kinds


def test_a_seed_always_gives_the_same_bytes(train_bytes):
    assert generate(seed=1, phrases=2000) == train_bytes


def test_a_shorter_run_is_the_beginning_of_a_longer_one(train_bytes):
    assert train_bytes.startswith(generate(seed=1, phrases=20))


def test_as_many_phrases_as_asked_for(train):
    assert len(train) == 2000


def test_each_line_has_three_columns(train):
    assert {len(row) for phrase in train for row in phrase} == {3}


def test_labels_are_valid_iob2(train):
    for phrase in train:
        previous_kind = None
        for _, _, label in phrase:
            prefix, _, kind = label.rpartition("-")
            assert label == "O" or (prefix in ("B", "I") and kind in KINDS)
            if prefix == "I":
                assert kind == previous_kind, phrase
            previous_kind = kind


def test_no_grammar_notation_is_left_over(train_bytes, held_out_bytes):
    assert not set(b"@[]+") & set(train_bytes + held_out_bytes)


def test_shape_of_some_tokens(train):
    shapes = {row[0]: row[1] for phrase in train for row in phrase}
    expected = {"1/2": "d/d", "12": "d", "cup": "x", "Tbsp.": "Xx.",
                "14-ounce": "d-x", ",": ","}
    assert {token: shapes[token] for token in expected} == expected


def test_held_out_phrases_differ_and_bring_new_words(train, held_out_bytes):
    held_out = phrases_of(held_out_bytes)
    known = [phrase for phrase in held_out if phrase in train]
    assert len(known) < 0.1 * len(held_out)
    assert len(tokens_of(held_out) - tokens_of(train)) > 50


@pytest.mark.parametrize("word, expected", [
    ("can", {"UNIT", "COMMENT"}),
    ("clove", {"UNIT", "NAME"}),
    ("cloves", {"UNIT", "NAME"}),
    ("cup", {"UNIT", "NAME"}),
    ("stick", {"UNIT", "NAME"}),
    ("sticks", {"UNIT", "NAME", "COMMENT"}),
    ("head", {"UNIT", "NAME"}),
    ("heads", {"UNIT", "NAME", "COMMENT"}),
    ("ribs", {"UNIT", "NAME", "COMMENT"}),
    ("ground", {"NAME", "COMMENT"}),
    ("diced", {"NAME", "COMMENT"}),
    ("whole", {"NAME", "COMMENT"}),
    ("of", {"O", "NAME", "COMMENT"}),
    ("or", {"O", "QTY", "COMMENT"}),
    ("to", {"QTY", "COMMENT"}),
    ("8", {"QTY", "COMMENT"}),
])
def test_ambiguous_words_occur_in_several_kinds_of_span(
        kinds_of_word, word, expected):
    assert expected <= kinds_of_word[word]


def test_untagged_lines_have_a_token_and_a_shape():
    phrases = phrases_of((EXAMPLE / "held-out.txt").read_bytes())
    assert {len(row) for phrase in phrases for row in phrase} == {2}


def test_baseline_adds_the_most_frequent_label(tmp_path):
    train, test = tmp_path / "train.txt", tmp_path / "test.txt"
    train.write_text("a x O\na x B-QTY\nA X O\n\nb x B-NAME\nc x B-NAME\n")
    test.write_text("A X O\nb x O\n\nnew x O\n")
    assert run("baseline.py", train, test).decode().splitlines() == [
        "A\tX\tO\tO", "b\tx\tO\tB-NAME", "", "new\tx\tO\tB-NAME"]

"""Tests of crftool.corpus.patterns: hand-worked cases, and Python's `re` as the twin."""

import random
import re

import numpy as np
import pytest

from crftool.corpus.patterns import Pattern, PatternSyntaxError
from crftool.corpus.template import Source
from crftool.kernels.strings import StringTable

# Characters whose class nobody doubts, ASCII and beyond.
DIGITS = "07٣"
LOWER = "aébßя"
UPPER = "AÉBΩЯ"
LETTERS = LOWER + UPPER + "語א"
PUNCTUATION = "-.,_$+«€^*?\\[]"
SPACE = " \t\u00a0\u3000"
NOTHING = "\u0301\u200d\ue000"           # a combining mark, a joiner, a private character
MEMBERS = {
    "d": DIGITS,
    "l": LOWER,
    "u": UPPER,
    "a": LETTERS,
    "w": LETTERS + DIGITS,
    "p": PUNCTUATION,
    "s": SPACE,
}
EVERYTHING = DIGITS + LETTERS + PUNCTUATION + SPACE + NOTHING

# --- classes --------------------------------------------------------------------------


@pytest.mark.parametrize("letter", MEMBERS)
def test_class_holds_its_members_and_no_other(letter):
    inside, outside = Pattern(f"\\{letter}"), Pattern(f"\\{letter.upper()}")
    for character in EVERYTHING:
        belongs = character in MEMBERS[letter]
        assert inside.search(character) == (character if belongs else None), repr(character)
        assert outside.search(character) == (None if belongs else character), repr(character)


def test_a_class_needs_a_character():
    for letter in "daluwpsDALUWPS":
        assert Pattern(f"\\{letter}").search("") is None


def matches_by_code_point(text):
    pattern = Pattern(text)
    return {c for c in map(chr, range(0x3000)) if pattern.search(c) is not None}


def test_w_is_a_letter_or_a_digit():
    assert matches_by_code_point(r"\w") == matches_by_code_point(r"\a") | matches_by_code_point(r"\d")


@pytest.mark.parametrize("case", [r"\l", r"\u"])
def test_cased_characters_are_letters(case):
    assert matches_by_code_point(case) <= matches_by_code_point(r"\a")


# --- hand-worked cases ------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, text, expected",
    [
        ("^.?", "été", "é"),                     # a character, where Wapiti would cut a byte
        ("^.?.?", "He", "He"),
        ("^.?.?", "I", "I"),
        ("^.?.?.?", "", ""),
        (".?.?$", "account", "nt"),              # the first start from which the items reach the end
        ("..$", "account", "nt"),
        ("^\\u", "He", "H"),
        ("^\\u", "reckons", None),
        ("\\d", "B52", "5"),
        ("\\d*", "B52", ""),                     # as few as will do, at the first place: none
        ("\\d*$", "B52", "52"),
        ("B\\d*", "B52", "B"),
        ("B\\d*$", "B52", "B52"),
        ("a*b", "caaab", "aaab"),
        ("a.*b", "xaabab", "aab"),
        ("a.*b$", "xaabab", "aabab"),
        ("ab?", "ab", "ab"),                     # the item if that will do
        ("ab?b", "ab", "ab"),
        ("ab?b", "abb", "abb"),
        ("a?a?aa", "aa", "aa"),
        ("^a*$", "aaaa", "aaaa"),
        ("^a*$", "aab", None),
        ("^$", "", ""),
        ("^$", "a", None),
        ("", "abc", ""),
        ("^", "abc", ""),
        ("$", "abc", ""),
        ("x", "", None),
        ("a^b", "a^b", "a^b"),                   # ^ and $ inside stand for themselves
        ("a$b", "a$b", "a$b"),
        ("$*$", "a$$", "$$"),
        ("^^", "^a", "^"),
        ("\\^", "a^", "^"),
        ("\\$", "a$", "$"),
        ("\\$$", "a$b$", "$"),
        ("\\.", "a.b", "."),
        ("\\.", "ab", None),
        ("\\*\\?", "*?", "*?"),
        ("\\\\", "a\\b", "\\"),
        ("\\\"", 'a"', '"'),
        ("\\é", "é", "é"),
        ("[ab]+", "x[ab]+", "[ab]+"),            # no brackets, groups or + here
        ("a|b", "a|b", "a|b"),
        (".", "\n", "\n"),                       # any character at all
        ("語.$", "日本語文", "語文"),
    ],
)
def test_search(pattern, text, expected):
    assert Pattern(pattern).search(text) == expected


@pytest.mark.parametrize("pattern", ["*", "?", "^*", "^?a", "a**", "a??", "a*?", "a?*", ".**", "\\d*?"])
def test_repetition_of_nothing(pattern):
    with pytest.raises(PatternSyntaxError, match="nothing for the '[*?]' to repeat"):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["\\", "a\\", "^\\", "\\\\\\"])
def test_backslash_at_the_end(pattern):
    with pytest.raises(PatternSyntaxError, match="a backslash at the end"):
        Pattern(pattern)


def test_surprises_are_unescaped_specials_of_other_languages():
    assert Pattern("[ab](c){1}|d+").surprises == list("[](){}|+")
    assert Pattern(r"\[ab\]\(c\)\{1\}\|d\+").surprises == []
    assert Pattern(r"^a.b*c?\d$").surprises == []


def test_long_values():
    assert Pattern(".*x").search("a" * 5000 + "x") == "a" * 5000 + "x"
    assert Pattern("a" * 200).search("b" + "a" * 5000) == "a" * 200


def test_a_pattern_has_a_largest_size():
    Pattern(".?" * 200)
    for text in (".?" * 201, ".*" * 3000, "a" * 5000):
        with pytest.raises(PatternSyntaxError):
            Pattern(text)


def test_backtracking_does_not_explode():
    assert Pattern("^" + "a?" * 99 + "a*" * 100 + "b$").search("a" * 150) is None


# --- against re -----------------------------------------------------------------------


def random_item(rng):
    """(our text, re's text) of an item that matches one character."""
    kind = rng.random()
    if kind < 0.2:
        return ".", "."
    if kind < 0.5:
        letter = rng.choice("dalwups")
        members = "".join(map(re.escape, MEMBERS[letter]))
        return rng.choice([(f"\\{letter}", f"[{members}]"), (f"\\{letter.upper()}", f"[^{members}]")])
    character = rng.choice("aab0A.-*é")
    return ("\\" if character in ".*" else "") + character, re.escape(character)


def random_pattern(rng):
    ours, theirs = "", ""
    for _ in range(rng.randint(0, 5)):
        item, twin = random_item(rng)
        # Ours is lazy in * and greedy in ?.
        repeat, twin_repeat = rng.choice([("", ""), ("", ""), ("*", "*?"), ("?", "?")])
        ours, theirs = ours + item + repeat, theirs + twin + twin_repeat
    if rng.random() < 0.3:
        ours, theirs = "^" + ours, r"\A" + theirs
    if rng.random() < 0.3:
        ours, theirs = ours + "$", theirs + r"\Z"
    return ours, theirs


@pytest.mark.parametrize("seed", range(4))
def test_search_equals_re(seed):
    rng = random.Random(seed)
    for _ in range(1500):
        ours, theirs = random_pattern(rng)
        pattern, twin = Pattern(ours), re.compile(theirs, re.DOTALL)
        for _ in range(5):
            text = "".join(rng.choice("aab0A.-*é" + EVERYTHING) for _ in range(rng.randint(0, 8)))
            match = twin.search(text)
            assert pattern.search(text) == (match[0] if match else None), (ours, theirs, text)


# --- compiled --------------------------------------------------------------------------


def compiled(source, values):
    """What the compiled macro makes of values, in a table that grows under it."""
    table = StringTable()
    ids = np.array([table.intern(value) for value in values], np.int32)
    derived = np.full(len(values), -1, np.int32)
    source.macro().of(table, ids, derived)
    return [table.text(int(derived[i])) for i in ids]


BYTES = [*(c.encode() for c in EVERYTHING), b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0"]
SOURCES = [Source(0, "X", None, True)] + [
    Source(0, command, pattern, lower) for pattern in (
        "^.?", ".?.?$", "^\\u\\l\\l*$", "\\l\\u", "^\\p\\p*$", "\\d*", "\\S*\\s", "a*b?c*$", "", "^$", "\\P.\\A?\\W*.$", "é*.")
    for command, lower in (("t", False), ("m", False), ("m", True))]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_compiled_macros_equal_python(source):
    rng = random.Random(3)
    values = list({b"".join(rng.choices(BYTES, k=rng.randrange(7))) for _ in range(400)})
    assert compiled(source, values) == [source.derive(value) for value in values]


@pytest.mark.parametrize("seed", range(40))
def test_random_patterns_compiled_equal_python(seed):
    rng = random.Random(seed)
    for _ in range(20):
        pattern = "".join(rng.choice(["a", "b", ".", "\\\\", "\\d", "\\L", "\\p", "\\u"]) + rng.choice(["", "", "*", "?"])
                          for _ in range(rng.randrange(6)))
        pattern = rng.choice(["", "^"]) + pattern + rng.choice(["", "$"])
        source = Source(0, "m", pattern)
        values = list({"".join(rng.choices("ab1B-\\é", k=rng.randrange(9))).encode() for _ in range(30)})
        assert compiled(source, values) == [source.derive(value) for value in values], pattern


@pytest.mark.parametrize("letter", "daluwpsDALUWPS")
def test_compiled_classes_of_all_characters(letter):
    source = Source(0, "t", f"\\{letter}")
    values = [chr(c).encode("utf-8", "surrogateescape") for c in [*range(0x3100), *range(0xDC80, 0xDD00), *range(0x1F300, 0x1F700)]
              if not 0xD800 <= c < 0xDC80]
    assert compiled(source, values) == [source.derive(value) for value in values]


def test_compiled_patterns_take_long_values_without_trouble():
    """Work grows with the length, not with its square."""
    value = b"a" * 300_000
    assert compiled(Source(0, "m", "a*a*a*b"), [value]) == [b""]
    assert compiled(Source(0, "m", "." * 200), [value]) == [b"a" * 200]
    assert compiled(Source(0, "m", "^.*$"), [value]) == [value]

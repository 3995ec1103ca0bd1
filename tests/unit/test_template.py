"""Tests of crftool.corpus.template: what lines mean, and what is said about lines that mean nothing."""

import re

import pytest
from test_observations import learn, stored_texts

from crftool.corpus.observations import NONE
from crftool.corpus.template import LARGEST_COLUMN, LARGEST_ROW, Field, Source, Template
from crftool.errors import DataError
from crftool.kernels.keys import MAX_FIELDS

# --- helpers --------------------------------------------------------------------------

SENTENCE = [[b"He", b"PRP"], [b"reckons", b"VBZ"], [b"the", b"DT"], [b"current", b"JJ"], [b"account", b"NN"]]


def expanded(folder, template, sentence=SENTENCE):
    """[T][K] texts of the U templates at each token of a sentence."""
    encoder, data = learn(folder, template, [[[*token, b"X"] for token in sentence]])
    texts = stored_texts(encoder.unigrams, encoder.values)
    assert NONE not in data.unigrams
    return [[texts[i] for i in row] for row in data.unigrams.tolist()]


def expanded_line(folder, line, sentence=SENTENCE):
    """[T] what follows the colon, for one U template."""
    return [texts[0].partition(b":")[2].decode() for texts in expanded(folder, line, sentence)]


def error_of(text):
    with pytest.raises(DataError) as caught:
        Template(text, "t.txt")
    return str(caught.value)


# --- lines ----------------------------------------------------------------------------


def test_parts_of_a_line():
    template = Template(b"U02:%x[0,0]/%X[-1,2]!\nB\n*05:%x[0,0]\n")
    first, both = template.unigrams
    assert first.literals == (b"U02:", b"/", b"!")
    assert template.sources == [Source(0), Source(2, "X", None, True)]
    assert first.fields == (Field(0, 0), Field(1, -1))
    assert (first.line, first.text) == (1, b"U02:%x[0,0]/%X[-1,2]!")
    assert [line.text for line in template.bigrams] == [b"B", b"*05:%x[0,0]"]
    assert template.bigrams[0].literals == (b"B",) and template.bigrams[0].fields == ()
    assert both == template.bigrams[1] and both.line == 3
    assert template.columns == 3 and template.warnings == []
    assert first.expand([b"a", b"b"]) == b"U02:a/b!"


def test_order_is_that_of_the_file():
    template = Template(b"B2\nU1\n*3\nU4\nB5\n")
    assert [line.text for line in template.unigrams] == [b"U1", b"*3", b"U4"]
    assert [line.text for line in template.bigrams] == [b"B2", b"*3", b"B5"]


def test_comments_and_blank_lines():
    template = Template(b"# U00:%y\n\n \t \nU01:%x[0,0] # no comment\n#\n\nB # neither\n")
    assert [(line.line, line.text) for line in template.unigrams] == [(4, b"U01:%x[0,0] # no comment")]
    assert [(line.line, line.text) for line in template.bigrams] == [(7, b"B # neither")]


def test_byte_order_mark_and_crlf():
    plain = Template(b"# c\nU00:%x[0,0]\n\nB\n")
    other = Template(b"\xef\xbb\xbf# c\r\nU00:%x[0,0]\r\n\r\nB\r\n")
    assert (other.unigrams, other.bigrams) == (plain.unigrams, plain.bigrams)
    assert Template(b"\xef\xbb\xbfU").unigrams[0].text == b"U"


def test_white_space_inside_and_at_the_end_is_text():
    assert Template(b"U a %x[0,0] \t").unigrams[0].literals == (b"U a ", b" \t")
    assert Template(b"U%x[0,0]\r\r\n").unigrams[0].literals == (b"U", b"\r")


def test_bytes_that_are_no_utf8():
    assert Template(b"U\xff%x[0,0]\x00").unigrams[0].literals == (b"U\xff", b"\x00")


def test_missing_final_newline():
    assert Template(b"U\nB").bigrams[0].text == b"B"


# --- macros ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "macro, source, field",
    [
        (b"%x[0,0]", Source(0), Field(0, 0)),
        (b"%x[-12,3]", Source(3), Field(0, -12)),
        (b"%x[+1,+2]", Source(2), Field(0, 1)),
        (b"%x[ 5 , 0 ]", Source(0), Field(0, 5)),
        (b"%x[\t-5,\t0]", Source(0), Field(0, -5)),
        (b"%x[007,01]", Source(1), Field(0, 7)),
        (b"%x[@1,0]", Source(0), Field(0, 1, 1)),
        (b"%x[@0,0]", Source(0), Field(0, 0, 1)),
        (b"%x[@+2,0]", Source(0), Field(0, 2, 1)),
        (b"%x[@-2,0]", Source(0), Field(0, 2, -1)),
        (b"%x[ @ -2 , 0 ]", Source(0), Field(0, 2, -1)),
        (b"%X[0,1]", Source(1, "X", None, True), Field(0, 0)),
        (b'%t[0,1,"^\\u"]', Source(1, "t", "^\\u"), Field(0, 0)),
        (b'%T[0,1,"a"]', Source(1, "t", "a", True), Field(0, 0)),
        (b'%m[-1,0, "a b,]" ]', Source(0, "m", "a b,]"), Field(0, -1)),
        (b'%M[@1,0,"\\""]', Source(0, "m", '\\"', True), Field(0, 1, 1)),
        ('%m[0,0,"é#%"]'.encode(), Source(0, "m", "é#%"), Field(0, 0)),
        (b'%m[0,0,""]', Source(0, "m", ""), Field(0, 0)),
        (b"%%x[%d,%d]" % (LARGEST_ROW, LARGEST_COLUMN), Source(LARGEST_COLUMN), Field(0, LARGEST_ROW)),
        (b"%%x[-%d,0]" % LARGEST_ROW, Source(0), Field(0, -LARGEST_ROW)),
    ],
)
def test_macro(macro, source, field):
    template = Template(b"U1:" + macro + b"|")
    assert template.sources == [source]
    assert template.unigrams[0].fields == (field,)
    assert template.unigrams[0].literals == (b"U1:", b"|")
    assert template.reach > abs(field.row)


def test_equal_sources_are_one():
    template = Template(b'U%x[0,0]%x[1,0]%X[0,0]%m[0,0,"a"]%m[2,0,"a"]%t[0,0,"a"]\nB%x[5,0]\n')
    assert len(template.sources) == 4


def test_as_many_fields_as_a_key_has():
    assert len(Template(b"U" + b"%x[0,0]" * MAX_FIELDS).unigrams[0].fields) == MAX_FIELDS


def test_columns_and_the_line_that_needs_them():
    template = Template(b"B%x[0,1]\nU%x[0,0]/%x[0,3]\nU%x[0,3]\n")
    assert template.columns == 4
    assert [template.line_needing(column).line for column in (0, 1, 2, 3)] == [1, 1, 2, 2]
    assert template.line_needing(4) is None
    assert Template(b"U\nB\n").columns == 0 and Template(b"U\n").line_needing(0) is None


# --- expansion --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, expected",
    [
        # CRF++'s padding, and its words.
        (b"U1:%x[-3,0]", "_B-3 _B-2 _B-1 He reckons"),
        (b"U2:%x[3,0]", "current account _B+1 _B+2 _B+3"),
        (b"U3:%x[0,0]/%x[0,1]", "He/PRP reckons/VBZ the/DT current/JJ account/NN"),
        # CRF++ ends at 8 rows; there is no reason to.
        (b"U4:%x[-12,0]", "_B-12 _B-11 _B-10 _B-9 _B-8"),
        (b"U5:%x[100,0]", "_B+96 _B+97 _B+98 _B+99 _B+100"),
        # Wapiti's rows from the start and the end.
        (b"U05:%x[@1,0]/%x[@-1,0]", ["He/account"] * 5),
        (b"U6:%x[@5,0]", ["account"] * 5),
        (b"U6:%x[@6,0]", ["_B+1"] * 5),
        (b"U6:%x[@9,0]", ["_B+4"] * 5),
        (b"U6:%x[@0,0]", ["_B-1"] * 5),
        (b"U6:%x[@-5,0]", ["He"] * 5),
        (b"U6:%x[@-7,0]", ["_B-2"] * 5),
        (b"U06:%x[ 5,0]", "_B+1 _B+2 _B+3 _B+4 _B+5"),
        (b"U7:%x[+1,1]", "VBZ DT JJ NN _B+1"),
        (b"U01:%X[0,0]", "he reckons the current account"),
        (b'U03:%m[0,0,"^.?.?"]', "He re th cu ac"),
        (b'U03:%M[0,0,"^.?.?"]', "he re th cu ac"),
        (b'U04:%t[0,0,"^\\u"]', "true false false false false"),
        (b'U04:%T[0,0,"^\\u"]', "true false false false false"),
        (b'U08:<%m[0,0,"^\\u\\l*$"]>', "<He> <> <> <> <>"),
        (b'U08:%m[0,0,"c.*n"]', ["", "ckon", "", "curren", "ccoun"]),
        # Patterns see Wapiti's padding, which stops counting after four.
        (b'U09:%m[-6,0,".*$"]', "_x-# _x-# _x-4 _x-3 _x-2"),
        (b'U09:%m[6,0,".*$"]', "_x+2 _x+3 _x+4 _x+# _x+#"),
        (b'U09:%m[-1,0,"\\d"]', ["1", "", "", "", ""]),
        (b'U10:%t[-1,0,"x"]', "true false false false false"),
    ],
)
def test_expansion(tmp_path, line, expected):
    assert expanded_line(tmp_path, line) == (expected.split() if isinstance(expected, str) else expected)


def test_patterns_work_on_characters(tmp_path):
    sentence = [["été".encode(), b"x"], ["Été".encode(), b"x"], ["東京都".encode(), b"x"]]
    assert expanded_line(tmp_path, b'U:%m[0,0,"^.?"]', sentence) == ["é", "É", "東"]
    assert expanded_line(tmp_path, b'U:%M[0,0,"^.?"]', sentence) == ["é", "é", "東"]
    assert expanded_line(tmp_path, b'U:%t[0,0,"^\\u"]', sentence) == ["false", "true", "false"]
    assert expanded_line(tmp_path, 'U:%t[0,0,"té"]'.encode(), sentence) == ["true", "true", "false"]


def test_patterns_on_bytes_that_are_no_utf8(tmp_path):
    """Each such byte is a character of no class, and comes back as it was."""
    texts = expanded(tmp_path, b'U:%m[0,0,".?$"]\nU:%t[0,0,"\\a\\w"]\n', [[b"ab\xff", b"x"], [b"\xc3\xa9\xc3", b"x"]])
    assert texts == [[b"U:\xff", b"U:true"], [b"U:\xc3", b"U:false"]]


def test_a_pattern_may_name_a_byte_that_is_no_utf8(tmp_path):
    assert expanded(tmp_path, b'U:%t[0,0,"\xff"]', [[b"a\xffb", b"x"], [b"ab", b"x"]]) == [[b"U:true"], [b"U:false"]]


def test_both_kinds_in_one_line(tmp_path):
    encoder, _ = learn(tmp_path, b"*05:%x[0,0]\n", [[[*token, b"X"] for token in SENTENCE]])
    words = {b"*05:" + token[0] for token in SENTENCE}
    assert set(stored_texts(encoder.unigrams, encoder.values).values()) == words
    assert set(stored_texts(encoder.bigrams, encoder.values).values()) == words - {b"*05:He"}


# --- errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, problem",
    [
        (b"u00:%x[0,0]", "a template cannot start with 'u'"),
        (b" U00:%x[0,0]", "a template cannot start with ' '"),
        (b"\tB", "a template cannot start with '\t'"),
        (b"x", "a template cannot start with 'x'"),
        (b"\xef\xbb\xbfU", "a template cannot start with '\\xef'"),      # a mark that is not at the start
        (b"U100%", "'%' is not a macro"),
        (b"U100% of", "'% of' is not a macro"),
        (b"U%y[0,0]", "'%y[0,0]' is not a macro"),
        (b"U%x", "'%x' is not a macro"),
        (b"U%x[0,0", "'%x[0,0' is not a macro"),
        (b"U%x[0]", "'%x[0]' is not a macro"),
        (b"U%x[,0]", "'%x[,0]' is not a macro"),
        (b"U%x[0,]", "'%x[0,]' is not a macro"),
        (b"U%x[0,-1]", "'%x[0,-1]' is not a macro"),
        (b"U%x[a,0]", "'%x[a,0]' is not a macro"),
        (b"U%x[1.5,0]", "'%x[1.5,0]' is not a macro"),
        (b"U%x[--1,0]", "'%x[--1,0]' is not a macro"),
        (b"U%x[- 1,0]", "'%x[- 1,0]' is not a macro"),
        (b"U%x[@,0]", "'%x[@,0]' is not a macro"),
        (b"U%x [0,0]", "'%x [0,0]' is not a macro"),
        (b"U%x[0,0]%", "'%' is not a macro"),
        (b"U%%x[0,0]", "'%%x[0,0]' is not a macro"),
        (b'U%t[0,0,"a]', "'%t[0,0,\"a]' is not a macro"),
        (b"U%t[0,0,a]", "'%t[0,0,a]' is not a macro"),
        (b'U%m[0,0,"a\\"]', "'%m[0,0,\"a\\\"]' is not a macro"),
        (b'U%x[0,0,"a"]', "%x takes no pattern"),
        (b'U%X[0,0,"a"]', "%X takes no pattern"),
        (b"U%t[0,0]", "%t needs a pattern"),
        (b"U%M[0,0]", "%M needs a pattern"),
        (b'U%m[0,0,"*a"]', "pattern \"*a\": nothing for the '*' to repeat"),
        (b'U%m[0,0,"a??"]', "pattern \"a??\": nothing for the '?' to repeat"),
        (b"U%%x[%d,0]" % (LARGEST_ROW + 1), f"%x[{LARGEST_ROW + 1},0] is out of range"),
        (b"U%%x[-%d,0]" % (LARGEST_ROW + 1), f"%x[-{LARGEST_ROW + 1},0] is out of range"),
        (b"U%%x[0,%d]" % (LARGEST_COLUMN + 1), f"%x[0,{LARGEST_COLUMN + 1}] is out of range"),
        (b"U" + b"%x[0,0]" * (MAX_FIELDS + 1), f"{MAX_FIELDS + 1} fields"),
        (b"B%y", "'%y' is not a macro"),
        (b"*%y", "'%y' is not a macro"),
    ],
)
def test_syntax_error(line, problem):
    assert error_of(b"# comment\n\nU00:%x[0,0]\r\n" + line + b"\nU%y\n").startswith(f"t.txt:4: {problem}; ")


def test_errors_end_with_what_to_do():
    for line in (b"u", b"U%", b'U%x[0,0,"a"]', b"U%t[0,0]", b'U%m[0,0,"*"]', b"U%x[9999999,0]"):
        assert re.fullmatch(r"t\.txt:1: [^;]+; [^;]+", error_of(line))


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# U00:%x[0,0]\n", b"\xef\xbb\xbf", b" \n\t\r\n"])
def test_no_template(text):
    assert error_of(text).startswith("t.txt: no template in this file; ")


def test_a_number_of_thousands_of_digits():
    assert error_of(b"U%x[" + b"9" * 5000 + b",0]").startswith("t.txt:1: ")


def test_range_error_in_a_macro_that_is_no_utf8():
    assert error_of(b'U%t[9999999,0,"\xff"]').startswith("t.txt:1: ")


# --- warnings -------------------------------------------------------------------------


def test_warnings_name_the_line_and_each_character_once():
    template = Template(b'U%x[0,0]\nU1:%t[0,0,"^[a-z]+$"]%m[1,0,"a+b+"]\nB%m[0,0,"\\[.\\]"]\n', "t.txt")
    assert [warning.partition(" in a pattern")[0] for warning in template.warnings] == [
        "t.txt:2: '['", "t.txt:2: ']'", "t.txt:2: '+'", "t.txt:2: '+'"]
    assert template.warnings[0] == "t.txt:2: '[' in a pattern stands for itself; write \\[ to say that this is meant"

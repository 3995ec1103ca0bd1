"""Tests of crftool.corpus.reader: hand-worked files, and a line-by-line twin on random text."""

import bz2
import gzip
import io
import lzma
import os
import random
import re
import sys
import threading

import numpy as np
import pytest

from crftool.corpus.reader import Block, display_name, read_blocks, read_bytes
from crftool.corpus.tokens import Tokens, read_tokens
from crftool.errors import DataError
from crftool.kernels import scan
from crftool.kernels.strings import StringTable

SIZES = [1, 2, 3, 7, 64, 1 << 20]
BOM = b"\xef\xbb\xbf"

# --- the twin: one line at a time ---------------------------------------------------


def twin_lines(data):
    """[(line number, columns)] of a file."""
    lines = data.removeprefix(BOM).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [
        (number, [x for x in re.split(rb"[ \t]+", line.removesuffix(b"\r")) if x])
        for number, line in enumerate(lines, 1)
    ]


def twin_sequences(data):
    """[[(line number, columns)]] of the sequences of a file."""
    sequences, inside = [], False
    for number, columns in twin_lines(data):
        if columns and not inside:
            sequences.append([])
        if columns:
            sequences[-1].append((number, columns))
        inside = bool(columns)
    return sequences


def twin_uneven(data):
    """(line number, columns there, columns before) of the first line that does not fit, or None."""
    expected = None
    for number, columns in twin_lines(data):
        expected = expected or len(columns)
        if columns and len(columns) != expected:
            return number, len(columns), expected
    return None


# --- helpers --------------------------------------------------------------------------


def write(folder, data, name="data.txt"):
    path = folder / name
    path.write_bytes(data)
    return str(path)


def sequences_of(tokens):
    """[[(line number, columns)]] of a block."""
    found = [
        (tokens.line(t), [tokens.text(t, column) for column in range(tokens.columns)])
        for t in range(len(tokens))
    ]
    return [found[start:end] for start, end in zip(tokens.offsets, tokens.offsets[1:])]


def read_sequences(path, size=1 << 20):
    return [sequence for tokens in read_tokens(path, size) for sequence in sequences_of(tokens)]


def words(sequences):
    return [[columns for _, columns in sequence] for sequence in sequences]


def read_words(folder, data):
    return words(read_sequences(write(folder, data)))


def message(call, *arguments):
    with pytest.raises(DataError) as caught:
        list(call(*arguments))
    return str(caught.value)


# --- columns and sequences ------------------------------------------------------------


@pytest.mark.parametrize(
    "line, columns",
    [
        (b"a b", [b"a", b"b"]),
        (b"a\tb", [b"a", b"b"]),
        (b"a \t  \t\tb", [b"a", b"b"]),
        (b"  \ta b", [b"a", b"b"]),
        (b"a b \t ", [b"a", b"b"]),
        (b"a b \r", [b"a", b"b"]),
        (b"# a", [b"#", b"a"]),
        # Only space and tab separate; all of these are data.
        (b"a\x00b c", [b"a\x00b", b"c"]),
        (b"\x00", [b"\x00"]),
        (b"a\xc2\xa0b c", [b"a\xc2\xa0b", b"c"]),
        (b"\xc2\xa0", [b"\xc2\xa0"]),
        (b"a\x0cb\x0bc d", [b"a\x0cb\x0bc", b"d"]),
        (b"\x0c", [b"\x0c"]),
        (b"a\xc2\x85b c", [b"a\xc2\x85b", b"c"]),
        (b"\x85 \x1c", [b"\x85", b"\x1c"]),
        (b"a\rb c", [b"a\rb", b"c"]),
        (b"\r\r", [b"\r"]),
        (b"\xff\xfe\x80 \xc3", [b"\xff\xfe\x80", b"\xc3"]),
        (b"\xe2\x80\xa8 x", [b"\xe2\x80\xa8", b"x"]),
    ],
)
def test_columns_of_a_line(tmp_path, line, columns):
    assert read_words(tmp_path, line + b"\n") == [[columns]]


def test_every_byte_but_four_is_data(tmp_path):
    data = bytes(set(range(256)) - set(b" \t\r\n"))
    assert read_words(tmp_path, data + b"\n") == [[[data]]]


@pytest.mark.parametrize("blank", [b"\n", b"\n\n\n\n", b" \n", b"\t \n", b"\r\n", b" \t\r\n", b"\n \n\r\n"])
def test_blank_lines_end_a_sequence(tmp_path, blank):
    expected = [[[b"a"], [b"b"]], [[b"c"]]]
    assert read_words(tmp_path, b"a\nb\n" + blank + b"c\n") == expected
    assert read_words(tmp_path, blank + b"a\nb\n" + blank + b"c\n" + blank) == expected


def test_crlf_reads_as_lf(tmp_path):
    text = b"a b\nc d\n\ne f\n"
    assert read_words(tmp_path, text.replace(b"\n", b"\r\n")) == read_words(tmp_path, text)


def test_missing_final_newline(tmp_path):
    assert read_words(tmp_path, b"a\nb") == [[[b"a"], [b"b"]]]
    assert read_words(tmp_path, b"a\n\nb") == [[[b"a"]], [[b"b"]]]
    assert read_words(tmp_path, b"a\nb\n ") == [[[b"a"], [b"b"]]]


@pytest.mark.parametrize("size", SIZES)
def test_byte_order_mark_is_skipped_once(tmp_path, size):
    path = write(tmp_path, BOM + BOM + b"a\n" + BOM + b"b\n")
    assert words(read_sequences(path, size)) == [[[BOM + b"a"], [BOM + b"b"]]]
    assert read_bytes(path) == BOM + b"a\n" + BOM + b"b\n"


@pytest.mark.parametrize("start", [b"\xef", b"\xef\xbb", b"\xef\xbba", b"\xbb\xbf"])
@pytest.mark.parametrize("size", [1, 2, 64])
def test_part_of_a_byte_order_mark_is_data(tmp_path, start, size):
    assert words(read_sequences(write(tmp_path, start), size)) == [[[start]]]


def test_byte_order_mark_before_a_blank_line(tmp_path):
    assert read_sequences(write(tmp_path, BOM + b"\na\n")) == [[(2, [b"a"])]]


def test_very_long_line(tmp_path):
    columns = [b"x" * 100_000, b"y" * 100_000] + [b"z"] * 50_000
    path = write(tmp_path, b"\t".join(columns) + b"\n")
    for size in (1000, 1 << 20):
        assert words(read_sequences(path, size)) == [[columns]]


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_enormous_sequence(tmp_path, size):
    N = 300_000
    path = write(tmp_path, b"".join(b"w%d\n" % t for t in range(N)) + b"\nlast\n")
    (first, second) = [tokens for tokens in read_tokens(path, size)]
    assert len(first) == N and first.offsets.tolist() == [0, N]
    assert [first.text(t, 0) for t in (0, 123_456, N - 1)] == [b"w0", b"w123456", b"w%d" % (N - 1)]
    assert (second.text(0, 0), second.line(0)) == (b"last", N + 2)


# --- any block size -------------------------------------------------------------------


def random_text(rng, pieces, longest):
    return b"".join(rng.choice(pieces) for _ in range(rng.randint(1, longest)))


def expected_outcome(path, data):
    """The sequences of the data, or the start of the message about its first uneven line."""
    uneven = twin_uneven(data)
    if uneven is None:
        return twin_sequences(data)
    line, there, before = uneven
    return f"{path}:{line}: {there} column{'s' if there > 1 else ''} where the lines before have {before}; "


def outcome(path, size):
    try:
        return read_sequences(path, size)
    except DataError as error:
        return re.match(".*?; ", str(error), re.DOTALL)[0]


# Pieces make single-column files, so that most have no error; or any number of columns.
ALPHABETS = {
    "one column": [b"a\n", b"bc \n", b"\t d\r\n", b"\n", b" \n", b"\r\n", b"\t\r\n", b"\x00\n", b"e\rf\n"],
    "stray returns": [b"a\n", b"b\r\n", b"\n", b"\r\n", b"\r\r\n", b" \r \n", b"\r \r\n", b"c\r\r\n"],
    "two columns": [b"a b\n", b"c\td\r\n", b" e  f \n", b"\n", b"\r\n", b" \n"],
    "anything": [b"a", b"bc", b" ", b"\t", b"\r", b"\n", b"\n", b"\n\n", b"\r\n"],
}


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_any_block_size_gives_what_the_twin_reads(tmp_path, alphabet):
    rng = random.Random(alphabet)
    for _ in range(150):
        data = random_text(rng, ALPHABETS[alphabet], 25)
        if not any(columns for _, columns in twin_lines(data)):
            continue
        if data.endswith(b"\r"):
            data += b"\n"
        path = write(tmp_path, data)
        expected = expected_outcome(path, data)
        assert {size: outcome(path, size) for size in SIZES} == dict.fromkeys(SIZES, expected), data


@pytest.mark.parametrize("size", SIZES)
def test_blocks_are_whole_sequences_and_lose_nothing(tmp_path, size):
    rng = random.Random(size)
    for _ in range(100):
        data = random_text(rng, ALPHABETS["two columns"], 30)
        blocks = list(read_blocks(write(tmp_path, data), size))
        assert b"".join(block.data for block in blocks) == data
        for block, following in zip(blocks, blocks[1:]):
            assert following.first_line == block.first_line + block.data.count(b"\n")
            assert not block.data.split(b"\n")[-2].strip(), "a block ends with a blank line"


def test_a_block_is_given_as_soon_as_its_blank_line_is_there(monkeypatch):
    """Who tags a stream must not wait for the next sentence."""
    reading, writing = os.pipe()
    with open(reading) as stream, open(writing, "wb", buffering=0) as source:
        monkeypatch.setattr(sys, "stdin", stream)
        alarm = threading.Timer(10, source.close)        # a reader that waits would wait for ever
        alarm.start()
        blocks = read_blocks("-")
        source.write(b"first x\n\n")
        assert next(blocks).data == b"first x\n\n"
        source.write(b"second y\n")
        source.write(b"\nthird")
        assert next(blocks).data == b"second y\n\n"
        alarm.cancel()
        source.close()
        assert [block.data for block in blocks] == [b"third"]


# --- line numbers and errors ----------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_uneven_columns_name_the_line_in_any_block(tmp_path, size):
    good = b"a b c\nd e f\n\n" * 20
    path = write(tmp_path, good + b"g h i\n\n \nj k\n")
    assert message(read_tokens, path, size) == (
        f"{path}:64: 2 columns where the lines before have 3; give every token the same number of columns"
    )


@pytest.mark.parametrize(
    "data, line, text",
    [
        (b"a b\nc\n", 2, "1 column where the lines before have 2"),
        (b"\n\n\na\nb c\n", 5, "2 columns where the lines before have 1"),
        (BOM + b"a b\r\n\r\nc d e", 3, "3 columns where the lines before have 2"),
    ],
)
def test_uneven_columns(tmp_path, data, line, text):
    path = write(tmp_path, data)
    assert message(read_tokens, path).startswith(f"{path}:{line}: {text}; ")


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \t\r\n\n ", BOM])
def test_file_without_a_token(tmp_path, data):
    path = write(tmp_path, data)
    assert message(read_tokens, path) == f"{path}:1: no token in this file; check the step that writes it"


def test_missing_file_and_directory(tmp_path):
    for path in (str(tmp_path / "absent"), str(tmp_path / "absent.gz"), str(tmp_path)):
        assert re.fullmatch(rf"{re.escape(path)}: cannot be read \(.+\); .+", message(read_tokens, path))


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BOM + b"a b\n\nc\n")))
    assert message(read_tokens, "-").startswith("<stdin>:3: 1 column where")
    assert not sys.stdin.buffer.closed, "the stream belongs to the caller"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert list(read_tokens("-")) == [], "an empty pipe is no error"
    monkeypatch.setattr(sys, "stdin", None)
    assert message(read_tokens, "-").startswith("<stdin>: standard input is closed; ")


def test_display_name():
    assert (display_name("-"), display_name("x")) == ("<stdin>", "x")


# --- compressed files -----------------------------------------------------------------

COMPRESSORS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
PLAIN = BOM + b"a b\r\n\nc d\n" + b"x y\n" * 5000


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_file(tmp_path, suffix):
    plain = read_sequences(write(tmp_path, PLAIN))
    path = write(tmp_path, COMPRESSORS[suffix](PLAIN), "data" + suffix)
    for size in (7, 1 << 20):
        assert read_sequences(path, size) == plain
    assert read_bytes(path) == PLAIN.removeprefix(BOM)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_file_of_several_members(tmp_path, suffix):
    halves = [COMPRESSORS[suffix](part) for part in (PLAIN[:1000], PLAIN[1000:])]
    path = write(tmp_path, b"".join(halves), "data" + suffix)
    assert read_bytes(path) == PLAIN.removeprefix(BOM)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_damaged_compressed_file(tmp_path, suffix):
    whole = COMPRESSORS[suffix](PLAIN)
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1:]
    for data in (whole[:middle], whole[:-1], flipped):
        path = write(tmp_path, data, "data" + suffix)
        assert re.fullmatch(rf"{re.escape(path)}: .+; .+", message(read_tokens, path))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_plain_file_with_a_compressed_name(tmp_path, suffix):
    path = write(tmp_path, b"a b\nc d\n", "data" + suffix)
    assert re.fullmatch(rf"{re.escape(path)}: .+; .+", message(read_tokens, path))


# --- Tokens and the scanning kernels --------------------------------------------------


def test_interning_a_column():
    tokens = Tokens(Block("x", 1, b"a X\nb Y\n\na Y\n"))
    table = StringTable()
    table.intern(b"b")
    assert tokens.intern(0, table, False).tolist() == [-1, 0, -1]
    assert tokens.intern(0, table, True).tolist() == [1, 0, 1]
    assert tokens.intern(1, table, True).tolist() == [2, 3, 3]
    for column in (-1, 2):
        with pytest.raises(ValueError):
            tokens.intern(column, table, True)


def test_a_block_may_be_empty():
    tokens = Tokens(Block("x", 1, b""), 2)
    assert (len(tokens), tokens.columns, tokens.offsets.tolist()) == (0, 2, [0])
    assert tokens.intern(0, StringTable(), True).tolist() == []


def test_survey_counts():
    assert scan.survey(b"a b\n\n\nc d\ne f", 0) == (3, 2, 2, 5, -1, 0)
    assert scan.survey(b"a b\n\nc\n", 0)[4:] == (2, 1)
    assert scan.survey(b"a b\n", 3)[4:] == (0, 2)


def test_last_boundary():
    assert scan.last_boundary(b"", 0) == 0
    assert scan.last_boundary(b"a\nb\n", 0) == 0
    assert scan.last_boundary(b"a\n\nb\n\t\r\nc\n", 0) == 8
    assert scan.last_boundary(b"a\n\nb", 3) == 0, "that blank line has been seen before"
    assert scan.last_boundary(b"a\n ", 0) == 0, "the last line may go on"


def test_fields_point_into_the_block():
    tokens = Tokens(Block("x", 10, b" ab\tc\n\n\nd  e"))
    assert tokens.fields.tolist() == [[[1, 3], [4, 5]], [[8, 9], [11, 12]]]
    assert tokens.offsets.tolist() == [0, 1, 2]
    assert [tokens.line(t) for t in range(2)] == [10, 13]
    assert tokens.fields.dtype == np.int64

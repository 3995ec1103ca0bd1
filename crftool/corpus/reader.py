"""Files of columns to blocks of whole sequences, and blocks to fields.

Bytes in, bytes out: nothing here decodes text. Lines of any length; LF or CRLF; a UTF-8 byte-order mark
is skipped; `-` is standard input; .gz, .bz2 and .xz are decompressed.
"""

import bz2
import gzip
import lzma
import sys
import zlib
from dataclasses import dataclass

import numpy as np

from crftool.errors import DataError
from crftool.kernels import scan

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_SIZE = 1 << 20
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def display_name(path):
    return "<stdin>" if path == "-" else path


def _open(path):
    if path == "-":
        if sys.stdin is None:
            raise DataError("<stdin>", None, "standard input is closed", "name a file")
        return sys.stdin.buffer
    for suffix, opener in OPENERS.items():
        if path.endswith(suffix):
            return opener(path, "rb")
    return open(path, "rb")


def _chunks(path, size):
    """The bytes of a file as they become available, without its byte-order mark."""
    try:
        stream = _open(path)
        try:
            start = b""
            while len(start) < len(BYTE_ORDER_MARK):
                chunk = stream.read1(size)
                if not chunk:
                    break
                start += chunk
            yield start.removeprefix(BYTE_ORDER_MARK)
            while chunk := stream.read1(size):
                yield chunk
        finally:
            if path != "-":
                stream.close()
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(path, None, f"damaged compressed data ({error})", "compress the file anew") from None
    except OSError as error:
        if path.endswith(tuple(OPENERS)) and error.errno is None:
            problem, remedy = f"not in the format its name says ({error})", "rename or compress it anew"
        else:
            problem, remedy = f"cannot be read ({error.strerror or error})", "check the path and its permissions"
        raise DataError(display_name(path), None, problem, remedy) from None


def read_bytes(path):
    """A whole file, for small ones such as templates."""
    return b"".join(_chunks(path, BLOCK_SIZE))


@dataclass(frozen=True)
class Block:
    path: str
    first_line: int              # line number of its first line, from 1
    data: bytes                  # whole sequences


def read_blocks(path, size=BLOCK_SIZE):
    """The file in blocks that end where a sequence ends, each as soon as its last blank line is there."""
    pending, searched, line = bytearray(), 0, 1
    for chunk in _chunks(path, size):
        pending += chunk
        end = scan.last_boundary(pending, searched)
        if end == 0:
            searched = pending.rfind(b"\n") + 1      # every whole line up to here has been looked at
            continue
        data = bytes(memoryview(pending)[:end])
        yield Block(path, line, data)
        line += data.count(b"\n")
        del pending[:end]
        searched = pending.rfind(b"\n") + 1
    if pending:
        yield Block(path, line, bytes(pending))


class Tokens:
    """A block whose fields are known."""

    def __init__(self, block, columns=0):
        """`columns`: how many each token must have; 0 leaves that to the first token."""
        N, S, self.columns, _, bad, there = scan.survey(block.data, columns)
        self.path, self.data, self.first_line = block.path, block.data, block.first_line
        if bad >= 0:
            raise DataError(
                display_name(block.path), block.first_line + bad,
                f"{there} column{'s' * (there != 1)} where the lines before have {self.columns}",
                "give every token the same number of columns")
        self.fields = np.empty((N, self.columns, 2), np.int64)      # [N][columns][2]  start, end
        self.offsets = np.empty(S + 1, np.int64)                    # [S + 1]
        self._lines = np.empty(N, np.int64)                         # [N]
        scan.split(block.data, self.fields, self.offsets, self._lines)

    def __len__(self):
        return len(self.fields)

    def line(self, token):
        """Line number of a token, from 1."""
        return self.first_line + int(self._lines[token])

    def lines(self):
        """[N]  line numbers of all tokens."""
        return self.first_line + self._lines

    def text(self, token, column):
        start, end = self.fields[token, column]
        return self.data[start:end]

    def intern(self, column, table, learn):
        """Ids [N] of a column's values."""
        ids = np.empty(len(self), np.int32)
        scan.intern_column(self.data, self.fields, column, table, learn, ids)
        return ids


def read_tokens(path, size=BLOCK_SIZE):
    """The tokens of a file, block by block; an error names file and line."""
    columns = 0
    for block in read_blocks(path, size):
        tokens = Tokens(block, columns)
        columns = tokens.columns
        if len(tokens):
            yield tokens
    if columns == 0 and path != "-":
        raise DataError(path, 1, "no token in this file", "check the step that writes it")

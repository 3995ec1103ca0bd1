"""Files of columns to blocks of whole sequences, and blocks to fields.

Bytes in, bytes out: nothing here decodes text. Lines of any length; LF or CRLF; a UTF-8 byte-order mark
is skipped; `-` is standard input; .gz, .bz2 and .xz are decompressed.
"""

import importlib
import sys
import zlib
from dataclasses import dataclass

from crftool.errors import DataError
from crftool.kernels import scan

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_SIZE = 1 << 20
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}           # the modules that open them


def display_name(path):
    return "<stdin>" if path == "-" else path


def _open(path):
    if path == "-":
        if sys.stdin is None:
            raise DataError("<stdin>", None, "standard input is closed", "name a file")
        return sys.stdin.buffer
    for suffix, module in COMPRESSED.items():
        if path.endswith(suffix):
            return importlib.import_module(module).open(path, "rb")
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
    except (EOFError, zlib.error) as error:
        raise DataError(path, None, f"damaged compressed data ({error})", "compress the file anew") from None
    except Exception as error:
        if type(error).__name__ in ("LZMAError", "BadGzipFile"):     # of modules that may not be loaded
            raise DataError(path, None, f"damaged compressed data ({error})", "compress the file anew") from None
        if not isinstance(error, OSError):
            raise
        if path.endswith(tuple(COMPRESSED)) and error.errno is None:
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


def first_token(block):
    """(line number, columns) of the first token of a block; (None, 0) if it has none."""
    for number, line in enumerate(block.data.split(b"\n"), block.first_line):
        columns = [field for field in line.removesuffix(b"\r").replace(b"\t", b" ").split(b" ") if field]
        if columns:
            return number, len(columns)
    return None, 0


def uneven_columns(path, line, there, columns):
    return DataError(display_name(path), line,
                     f"{there} column{'s' * (there != 1)} where the lines before have {columns}",
                     "give every token the same number of columns")


def no_token(path):
    return DataError(path, 1, "no token in this file", "check the step that writes it")

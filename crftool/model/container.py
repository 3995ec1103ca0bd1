"""A file of named sections, checked before anything in it is believed.

    0   8   magic
    8   4   format version            12  4   number of sections
    16  8   size of the file          24  4   CRC-32 of header and section table, this field being 0
    28  4   zero
    32  40 each: section table: name [16], offset u64, length u64, CRC-32 u32, zero u32
        sections, each at a multiple of 64, in the order of the table

All numbers are little-endian. Sections are plain arrays, so a mapped file is used where it lies.
"""

import mmap
import os
import stat
import struct
import sys
import zlib
from dataclasses import dataclass

from crftool.errors import ModelError


@dataclass(frozen=True)
class Kind:
    """A sort of file, and what to say of one that cannot be used."""

    magic: bytes                     # [8]
    version: int
    name: str
    source: str                      # where to get a good one
    remedy: str                      # if there is none


MODEL = Kind(b"crftool\x1a", 1, "model", "give the file that `crftool learn` wrote", "train anew")
HEADER = struct.Struct("<8sIIQII")
ENTRY = struct.Struct("<16sQQII")
ALIGNMENT = 64


def _aligned(n):
    return -(-n // ALIGNMENT) * ALIGNMENT


def pack(sections, kind=MODEL):
    """The file's pieces, in order, for sections {name: memoryview of bytes}."""
    offset = _aligned(HEADER.size + ENTRY.size * len(sections))
    table, places = b"", []
    for name, data in sections.items():
        table += ENTRY.pack(name.encode("ascii"), offset, len(data), zlib.crc32(data), 0)
        places.append((offset, data))
        offset = _aligned(offset + len(data))
    size = places[-1][0] + len(places[-1][1]) if places else HEADER.size
    blank = HEADER.pack(kind.magic, kind.version, len(sections), size, 0, 0)
    header = HEADER.pack(kind.magic, kind.version, len(sections), size, zlib.crc32(blank + table), 0)
    position = 0
    for start, data in [(0, header + table), *places]:
        yield bytes(start - position)
        yield data
        position = start + len(data)


def unpack(buffer, name, kind=MODEL):
    """{section name: memoryview} of a file's bytes; ModelError unless all of it is in order."""
    view = memoryview(buffer)
    if len(view) < HEADER.size or view[:8] != kind.magic:
        raise ModelError(f"{name}: not a {kind.name} of crftool; {kind.source}")
    magic, version, count, size, crc, zero = HEADER.unpack_from(view)
    if version != kind.version:
        raise ModelError(f"{name}: {kind.name} format {version}, but this crftool reads format {kind.version}; "
                         f"use the version that wrote it, or {kind.remedy}")
    damaged = ModelError(f"{name}: the {kind.name} file is damaged or cut short; copy it again, or {kind.remedy}")
    end = HEADER.size + ENTRY.size * count
    if size != len(view) or end > size or zero:
        raise damaged
    if zlib.crc32(HEADER.pack(magic, version, count, size, 0, 0) + view[HEADER.size:end]) != crc:
        raise damaged
    sections = {}
    for i in range(count):
        label, offset, length, crc, zero = ENTRY.unpack_from(view, HEADER.size + ENTRY.size * i)
        label = label.rstrip(b"\0").decode("ascii", "replace")
        if offset != _aligned(end) or offset + length > size or zero or label in sections:
            raise damaged
        if any(view[end:offset]) or zlib.crc32(view[offset:offset + length]) != crc:
            raise damaged
        end = offset + length
        sections[label] = view[offset:end]
    if end != size:
        raise damaged
    return sections


def map_file(path):
    """The file's bytes, mapped into memory."""
    if sys.byteorder != "little":
        raise ModelError("models are little-endian and are used where they lie; this machine is big-endian")
    try:
        with open(path, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read()                   # a pipe cannot be mapped
            if os.fstat(file.fileno()).st_size == 0:
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None

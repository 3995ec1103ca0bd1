"""Tests of crftool.kernels.strings: tables against dicts, and frozen tables against every contradiction."""

import random
import subprocess
import sys

import numpy as np
import pytest

from crftool.kernels.strings import StringTable

# --- helpers --------------------------------------------------------------------------


def table_of(strings):
    table = StringTable()
    for string in strings:
        table.intern(string)
    return table


def arrays_of(table):
    """(blob, bounds, slots) of a table as arrays that may be altered."""
    blob, bounds, slots = table.arrays()
    return (np.frombuffer(blob, np.uint8).copy(), np.frombuffer(bounds, np.int64).copy(),
            np.frombuffer(slots, np.uint32).reshape(-1, 2).copy())


def frozen(blob, bounds, slots):
    """A frozen table; the kernel takes the slots flat."""
    return StringTable.frozen(blob, bounds, np.ascontiguousarray(slots).reshape(-1))


def frozen_copy(table):
    return frozen(*arrays_of(table))


def random_string(rng):
    """Short, repeated, empty, of any bytes; now and then long."""
    if rng.random() < 0.01:
        return rng.randbytes(rng.randint(100, 3000))
    return bytes(rng.choice(b"ab\x00\xff") for _ in range(rng.choice([0, 1, 2, 3, 7, 8, 9, 17])))


def check_against(table, ids):
    """The table knows exactly the strings of a dict, under the same ids."""
    assert len(table) == len(ids)
    for string, index in ids.items():
        assert table.find(string) == index
        assert table.text(index) == string


# --- against dicts ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_table_equals_dict(seed):
    rng = random.Random(seed)
    table, ids = StringTable(), {}
    for _ in range(5000):
        string = random_string(rng)
        if rng.random() < 0.5:
            assert table.find(string) == ids.get(string, -1)
        else:
            assert table.intern(string) == ids.setdefault(string, len(ids))
    check_against(table, ids)


def test_growth():
    ids = {b"%d" % i: i for i in range(100_000)}
    table = table_of(ids)
    check_against(table, ids)
    assert table.find(b"100000") == -1


def test_long_strings():
    strings = [b"x" * 1_000_000, b"x" * 999_999 + b"y", b"", b"x" * 999_999]
    check_against(table_of(strings), {string: i for i, string in enumerate(strings)})


def test_trailing_zeros_make_a_difference():
    strings = [b"\0" * n for n in range(40)] + [b"a" + b"\0" * n for n in range(40)]
    check_against(table_of(strings), {string: i for i, string in enumerate(strings)})


def test_an_empty_table_knows_nothing():
    table = StringTable()
    assert len(table) == 0 and table.find(b"") == -1 and table.find(b"a") == -1
    assert table.intern(b"") == 0 and table.find(b"") == 0 and table.text(0) == b""


def test_other_buffers_and_wrong_types():
    table = table_of([b"ab"])
    assert table.find(bytearray(b"ab")) == table.find(memoryview(b"xabx")[1:3]) == 0
    for wrong in ("ab", None, 5):
        with pytest.raises(TypeError):
            table.find(wrong)
        with pytest.raises(TypeError):
            table.intern(wrong)


@pytest.mark.parametrize("index", [-1, 2, 1 << 40])
def test_text_of_no_string(index):
    with pytest.raises(IndexError):
        table_of([b"a", b"b"]).text(index)


# --- parents --------------------------------------------------------------------------


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_child_extends_its_parent(seed, freeze):
    rng = random.Random(seed)
    parent = table_of(random_string(rng) for _ in range(300))
    ids = {parent.text(i): i for i in range(len(parent))}
    known = len(ids)
    child = StringTable(frozen_copy(parent) if freeze else parent)
    assert len(child) == known
    for _ in range(3000):
        string = random_string(rng)
        assert child.find(string) == ids.get(string, -1)
        assert child.intern(string) == ids.setdefault(string, len(ids))
    check_against(child, ids)
    assert len(parent) == len(child.parent) == known < len(ids)


def test_grandchild():
    parent = table_of([b"a"])
    child = StringTable(parent)
    child.intern(b"b")
    grandchild = StringTable(child)
    assert [grandchild.intern(x) for x in (b"a", b"b", b"c", b"")] == [0, 1, 2, 3]
    assert [grandchild.text(i) for i in range(4)] == [b"a", b"b", b"c", b""]
    assert child.find(b"c") == -1


# --- frozen tables ----------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 1000])
def test_frozen_round_trip(n):
    rng = random.Random(n)
    strings = list(dict.fromkeys([b""] * min(n, 1) + [rng.randbytes(rng.randint(1, 9)) for _ in range(2 * n)]))[:n]
    table = frozen_copy(table_of(strings))
    check_against(table, {string: i for i, string in enumerate(strings)})
    assert table.find(b"not among them") == -1
    assert table.arrays() == table_of(strings).arrays()


def test_frozen_table_lies_in_read_only_memory():
    arrays = arrays_of(table_of([b"a", b"b"]))
    for array in arrays:
        array.flags.writeable = False
    assert frozen(*arrays).find(b"b") == 1


def test_frozen_table_keeps_its_memory():
    table = frozen_copy(table_of(b"%d" % i for i in range(1000)))
    rubbish = [np.full(5000, 255, np.uint8) for _ in range(50)]
    assert [table.find(b"%d" % i) for i in range(1000)] == list(range(1000))
    del rubbish


STRINGS = [b"", b"one", b"two", b"three"]


def first_used(slots):
    return int(np.flatnonzero(slots[:, 1])[0])


def set_bound(i, value):
    def change(blob, bounds, slots):
        bounds[i] = value
    return change


def no_bounds(blob, bounds, slots):
    return blob, bounds[:0], slots


def one_bound_less(blob, bounds, slots):
    return blob, bounds[:-1], slots


def one_bound_more(blob, bounds, slots):
    return blob, np.append(bounds, bounds[-1]), slots


def shorter_text(blob, bounds, slots):
    return blob[:-1], bounds, slots


def longer_text(blob, bounds, slots):
    return np.append(blob, np.uint8(65)), bounds, slots


def slots_of_size(n):
    def change(blob, bounds, slots):
        return blob, bounds, np.resize(slots, (n, 2))
    return change


def wide_slots(blob, bounds, slots):
    return blob, bounds, np.ascontiguousarray(np.hstack([slots, slots[:, :1]]))


def narrow_slots(blob, bounds, slots):
    return blob, bounds, np.ascontiguousarray(slots[:, :1])


def index_beyond(blob, bounds, slots):
    slots[first_used(slots), 1] = len(STRINGS) + 1


def huge_index(blob, bounds, slots):
    slots[first_used(slots), 1] = 2**32 - 1


def entry_lost(blob, bounds, slots):
    slots[first_used(slots), 1] = 0


def entry_too_many(blob, bounds, slots):
    slots[np.flatnonzero(slots[:, 1] == 0)[0], 1] = 1


def no_empty_slot(blob, bounds, slots):
    slots[:, 1] = 1


CONTRADICTIONS = {
    "bounds start late": set_bound(0, 1),
    "bounds start before": set_bound(0, -1),
    "bounds fall": set_bound(2, 7),
    "negative bound": set_bound(2, -5),
    "bound beyond the text": set_bound(2, 1 << 62),
    "last bound too small": set_bound(4, 3),
    "last bound too large": set_bound(4, 1 << 40),
    "no bounds": no_bounds,
    "one bound less": one_bound_less,
    "one bound more": one_bound_more,
    "shorter text": shorter_text,
    "longer text": longer_text,
    "no slots": slots_of_size(0),
    "one slot": slots_of_size(1),
    "as many slots as strings": slots_of_size(4),
    "slots no power of two": slots_of_size(12),
    "slots with three columns": wide_slots,
    "slots with one column": narrow_slots,
    "index beyond": index_beyond,
    "huge index": huge_index,
    "entry lost": entry_lost,
    "entry too many": entry_too_many,
    "no empty slot": no_empty_slot,
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_contradictory_arrays_are_refused(kind):
    arrays = arrays_of(table_of(STRINGS))
    arrays = CONTRADICTIONS[kind](*arrays) or arrays
    with pytest.raises(ValueError):
        frozen(*arrays)


def test_empty_table_refuses_an_entry():
    blob, bounds, slots = arrays_of(StringTable())
    slots[3] = 1, 1
    with pytest.raises(ValueError):
        frozen(blob, bounds, slots)


INTERN_INTO_FROZEN = """
import numpy as np
from crftool.kernels.strings import StringTable
table = StringTable()
for i in range(8):
    table.intern(b"%d" % i)
blob, bounds, slots = table.arrays()
frozen = StringTable.frozen(np.frombuffer(blob, np.uint8), np.frombuffer(bounds, np.int64),
                            np.frombuffer(slots, np.uint32))
assert frozen.intern(b"7") == 7
for i in range(8, 500):
    try:
        frozen.intern(b"%d" % i * 50)
    except Exception as error:
        pass
    else:
        raise SystemExit("a read-only table has taken a string")
"""


def test_frozen_table_takes_no_new_string():
    """In a process of its own, since it would write into memory that is not the table's."""
    run = subprocess.run([sys.executable, "-c", INTERN_INTO_FROZEN], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

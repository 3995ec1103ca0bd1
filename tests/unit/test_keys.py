"""Tests of crftool.kernels.keys: tables against dicts, expansion against a plain twin, frozen tables."""

import random
import subprocess
import sys

import numpy as np
import pytest

from crftool.kernels.keys import MAX_FIELDS, KeyTable, expand

MAX_WIDTH = 4096

# --- helpers --------------------------------------------------------------------------


def frozen_table(keys, slots, n_values):
    """A frozen table; the kernel takes keys and slots flat."""
    return KeyTable.frozen(np.ascontiguousarray(keys).reshape(-1), np.ascontiguousarray(slots).reshape(-1), len(keys),
                           keys.shape[1], n_values)


def matrix(keys, width):
    return np.array(keys, np.int32).reshape(len(keys), width)


def intern(table, keys):
    out = np.empty(len(keys), np.int32)
    table.intern_rows(matrix(keys, table.width), out)
    return out.tolist()


def find(table, keys):
    out = np.empty(len(keys), np.int64)
    table.find_rows(matrix(keys, table.width), out)
    return out.tolist()


def arrays_of(table):
    """(keys, slots) of a table as arrays that may be altered."""
    keys, slots = table.arrays()
    return (np.frombuffer(keys, np.int32).reshape(len(table), table.width).copy(),
            np.frombuffer(slots, np.uint32).reshape(-1, 2).copy())


def random_keys(rng, n, width):
    numbers = [0, 1, 2, 3, -1, 2**31 - 1, -(2**31)]
    return [tuple(rng.choice(numbers) for _ in range(width)) for _ in range(n)]


# --- against dicts ----------------------------------------------------------------------


@pytest.mark.parametrize("width", [0, 1, 2, 3, 7, MAX_FIELDS])
def test_table_equals_dict(width):
    rng = random.Random(width)
    table, ids = KeyTable(width), {}
    for _ in range(40):
        keys = random_keys(rng, rng.randint(0, 40), width)
        assert find(table, keys) == [ids.get(key, -1) for key in keys]
        assert intern(table, keys) == [ids.setdefault(key, len(ids)) for key in keys]
    assert len(table) == len(ids) and table.width == width
    assert find(table, list(ids)) == list(ids.values())
    assert arrays_of(table)[0].tolist() == [list(key) for key in ids]


def test_growth():
    keys = [(i, i // 7) for i in range(100_000)]
    table = KeyTable(2)
    assert intern(table, keys) == list(range(100_000))
    assert find(table, keys) == list(range(100_000))
    assert find(table, [(100_000, 0), (7, 0), (7, 1)]) == [-1, -1, 7]


def test_order_of_ids_in_a_key_matters():
    table = KeyTable(3)
    keys = [(1, 2, 3), (3, 2, 1), (2, 1, 3), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert intern(table, keys) == list(range(6))


@pytest.mark.parametrize("width", [-1, MAX_WIDTH + 1])
def test_wrong_width(width):
    with pytest.raises(ValueError):
        KeyTable(width)


def test_shapes_must_fit():
    table = KeyTable(2)
    for keys, n in ((np.zeros((3, 1), np.int32), 3), (np.zeros((3, 2), np.int32), 2)):
        with pytest.raises(ValueError):
            table.find_rows(keys, np.empty(n, np.int64))
        with pytest.raises(ValueError):
            table.intern_rows(keys, np.empty(n, np.int32))


def test_table_of_rows():
    table = KeyTable.of(matrix([(5, 6), (6, 5), (0, 0)], 2))
    assert find(table, [(0, 0), (5, 6), (6, 5), (6, 6)]) == [2, 0, 1, -1]
    assert len(KeyTable.of(np.empty((0, 3), np.int32))) == 0
    assert find(KeyTable.of(np.empty((1, 0), np.int32)), [()]) == [0]


@pytest.mark.parametrize("keys, width", [([(1, 2), (3, 4), (1, 2)], 2), ([(), ()], 0)])
def test_table_of_equal_rows(keys, width):
    with pytest.raises(ValueError):
        KeyTable.of(matrix(keys, width))


# --- expansion --------------------------------------------------------------------------


def twin_expand(values, offsets, fields, before, after, first_token):
    """The key at every token, None where there is none; a field is (row, absolute, source)."""
    keys = []
    for start, end in zip(offsets, offsets[1:]):
        sequence = values[start:end]
        for t in range(len(sequence)):
            if t == 0 and not first_token:
                keys.append(None)
                continue
            key = []
            for row, absolute, source in fields:
                position = {0: t + row, 1: row - 1, -1: len(sequence) - row}[absolute]
                if position < 0:
                    key.append(before[source][-position - 1])
                elif position >= len(sequence):
                    key.append(after[source][position - len(sequence)])
                else:
                    key.append(sequence[position][source])
            keys.append(tuple(key))
    return keys


def run_expand(table, values, offsets, fields, before, after, first_token, learn):
    rows, absolute, sources = matrix(fields, 3).T.copy()
    out = np.full(len(values), -7, np.int32)
    expand(table, matrix(values, len(before)), np.array(offsets, np.int64), rows, absolute, sources,
           matrix(before, len(before[0])), matrix(after, len(after[0])), first_token, learn, out)
    return out.tolist()


@pytest.mark.parametrize("first_token", [False, True])
@pytest.mark.parametrize("width", [0, 1, 2, 4])
def test_expand_equals_twin(width, first_token):
    rng = random.Random(10 * width + first_token)
    reach, sources = 6, 3
    before = [[100 * source + d for d in range(reach)] for source in range(sources)]
    after = [[1000 + 100 * source + d for d in range(reach)] for source in range(sources)]
    for _ in range(60):
        lengths = [rng.randint(1, 5) for _ in range(rng.randint(0, 5))]
        offsets = np.cumsum([0, *lengths]).tolist()
        values = [tuple(rng.randint(0, 3) for _ in range(sources)) for _ in range(offsets[-1])]
        fields = []
        for _ in range(width):
            absolute = rng.choice([0, 0, 1, -1])
            row = rng.randint(-reach, reach) if absolute == 0 else rng.randint(0, reach)
            fields.append((row, absolute, rng.randrange(sources)))
        keys = twin_expand(values, offsets, fields, before, after, first_token)
        known, ids = KeyTable(width), {}
        some = [key for key in dict.fromkeys(keys) if key is not None and rng.random() < 0.5]
        intern(known, some)
        found = run_expand(known, values, offsets, fields, before, after, first_token, False)
        assert found == [some.index(key) if key in some else -1 for key in keys]
        learnt = run_expand(KeyTable(width), values, offsets, fields, before, after, first_token, True)
        assert learnt == [-1 if key is None else ids.setdefault(key, len(ids)) for key in keys]


def test_expand_wants_the_fields_of_its_table():
    for width in (0, 2):
        with pytest.raises(ValueError):
            run_expand(KeyTable(width), [(1,)], [0, 1], [(0, 0, 0)], [[5]], [[6]], True, True)


# --- frozen tables ----------------------------------------------------------------------


@pytest.mark.parametrize("n, width", [(0, 0), (1, 0), (0, 2), (1, 1), (8, 1), (9, 2), (1000, 3)])
def test_frozen_round_trip(n, width):
    keys = [tuple(i + j for j in range(width)) for i in range(n)]
    table = KeyTable(width)
    intern(table, keys)
    frozen = frozen_table(*arrays_of(table), n + width)
    assert len(frozen) == n and frozen.width == width
    assert find(frozen, keys) == list(range(n))
    assert frozen.arrays() == table.arrays()
    if width:
        assert find(frozen, [(-1,) * width, (n + 1,) * width]) == [-1, -1]


def test_frozen_table_lies_in_read_only_memory():
    arrays = arrays_of(KeyTable.of(matrix([(1, 2), (2, 1)], 2)))
    for array in arrays:
        array.flags.writeable = False
    assert find(frozen_table(*arrays, 3), [(2, 1)]) == [1]


def first_used(slots):
    return int(np.flatnonzero(slots[:, 1])[0])


def set_key(value):
    def change(keys, slots):
        keys[1, 1] = value
    return change


def fewer_keys(keys, slots):
    return keys[:-1], slots


def more_keys(keys, slots):
    return np.vstack([keys, [[0, 0]]]).astype(np.int32), slots


def slots_of_size(n):
    def change(keys, slots):
        return keys, np.resize(slots, (n, 2))
    return change


def index_beyond(keys, slots):
    slots[first_used(slots), 1] = len(keys) + 1


def huge_index(keys, slots):
    slots[first_used(slots), 1] = 2**32 - 1


def entry_lost(keys, slots):
    slots[first_used(slots), 1] = 0


def entry_too_many(keys, slots):
    slots[np.flatnonzero(slots[:, 1] == 0)[0], 1] = 1


def no_empty_slot(keys, slots):
    slots[:, 1] = 1


def too_wide(keys, slots):
    return np.zeros((len(keys), MAX_WIDTH + 1), np.int32), slots


CONTRADICTIONS = {
    "negative value": set_key(-1),
    "value beyond": set_key(10),
    "largest value": set_key(2**31 - 1),
    "fewer keys": fewer_keys,
    "more keys": more_keys,
    "no slots": slots_of_size(0),
    "one slot": slots_of_size(1),
    "as many slots as keys": slots_of_size(4),
    "slots no power of two": slots_of_size(12),
    "index beyond": index_beyond,
    "huge index": huge_index,
    "entry lost": entry_lost,
    "entry too many": entry_too_many,
    "no empty slot": no_empty_slot,
    "keys too wide": too_wide,
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_contradictory_arrays_are_refused(kind):
    arrays = arrays_of(KeyTable.of(matrix([(0, 1), (2, 3), (4, 5), (6, 7)], 2)))
    arrays = CONTRADICTIONS[kind](*arrays) or arrays
    with pytest.raises(ValueError):
        frozen_table(*arrays, 10)


INTERN_INTO_FROZEN = """
import numpy as np
from crftool.kernels.keys import KeyTable
keys = np.arange(8, dtype=np.int32)
slots = np.frombuffer(KeyTable.of(keys.reshape(8, 1)).arrays()[1], np.uint32)
frozen = KeyTable.frozen(keys, slots, 8, 1, 8)
for i in range(8, 500):
    try:
        frozen.intern_rows(np.array([[i]], np.int32), np.empty(1, np.int32))
    except Exception:
        pass
    else:
        raise SystemExit("a read-only table has taken a key")
"""


def test_frozen_table_takes_no_new_key():
    """In a process of its own, since it would write into memory that is not the table's."""
    run = subprocess.run([sys.executable, "-c", INTERN_INTO_FROZEN], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

"""Tuples of ids as small integers, and the expansion of templates into such tuples.

An observation of a template with `width` fields is the tuple of its field values; no string is built
for it. A KeyTable numbers the tuples it meets; like a StringTable it is used in a model file where it
lies.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from "hashing.h":
    uint64_t crf_hash_ids(const int32_t* ids, int width) noexcept nogil

cdef enum:
    KEY_BUFFER = 64              # fields of a template at most: a buffer on the stack
    MAX_WIDTH = 4096             # ids in a key at most
    MAX_KEYS = 2147483646        # indices are int32
    FULL = -1                    # what intern_key returns when memory or indices run out
MAX_FIELDS = KEY_BUFFER


cdef class KeyTable:
    def __cinit__(self, int width):
        if width < 0 or width > MAX_WIDTH:
            raise ValueError("a key has 0 to 4096 ids")
        self.width, self.n, self.buffers, self.is_frozen = width, 0, None, False
        self.key_capacity, self.slot_capacity = 8, 16
        self.keys = <int32_t*> malloc((self.key_capacity * width + 1) * sizeof(int32_t))
        self.slots = <uint32_t*> calloc(2 * self.slot_capacity, sizeof(uint32_t))
        if self.keys == NULL or self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        if not self.is_frozen:                       # `buffers` may be gone by now
            free(self.keys)
            free(self.slots)

    @staticmethod
    def frozen(const int32_t[::1] keys, const uint32_t[::1] slots, int64_t n, int width, int64_t n_values):
        """A read-only table of n keys over existing memory; ValueError if the arrays contradict each other.

        `keys` [n * width] and `slots` [capacity * 2] are flat; values are ids below n_values.
        """
        cdef KeyTable table = KeyTable.__new__(KeyTable, width)
        cdef int64_t i, used = 0, capacity = slots.shape[0] / 2
        if n < 0 or keys.shape[0] != n * width:
            raise ValueError("another number of keys")
        for i in range(n * width):
            if keys[i] < 0 or keys[i] >= n_values:
                raise ValueError("key with an unknown value")
        if capacity <= n or capacity & (capacity - 1) or slots.shape[0] != 2 * capacity:
            raise ValueError("key table has a wrong size")
        for i in range(capacity):
            if slots[2 * i + 1] > n:
                raise ValueError("key table points outside")
            used += slots[2 * i + 1] != 0
        if used != n:                # an empty slot must remain, or a search would never end
            raise ValueError("key table is over-full")
        free(table.keys)
        free(table.slots)
        table.buffers = (keys, slots)
        table.is_frozen = True
        table.n, table.slot_capacity = n, capacity
        table.keys = <int32_t*> &keys[0] if n and width else <int32_t*> &slots[0]
        table.slots = <uint32_t*> &slots[0]
        return table

    @staticmethod
    def of(const int32_t[:, ::1] keys):
        """A table that numbers the rows of `keys` (all distinct) in their order."""
        cdef KeyTable table = KeyTable(keys.shape[1])
        cdef int32_t nothing = 0
        for i in range(keys.shape[0]):
            if table.intern_key(&keys[i, 0] if table.width else &nothing) != i:
                raise ValueError("keys are not distinct")
        return table

    def arrays(self):
        """(keys, slots) as int32 and uint32 memory: copies, ready for a file or an array."""
        return ((<char*> self.keys)[:self.n * self.width * sizeof(int32_t)],
                (<char*> self.slots)[:self.slot_capacity * 2 * sizeof(uint32_t)])

    def __len__(self):
        return self.n

    def find_rows(self, const int32_t[:, ::1] keys, int64_t[::1] out):
        """out[i] = index of the key in row i, or -1."""
        cdef int64_t i
        cdef int32_t nothing = 0
        if keys.shape[1] != self.width or out.shape[0] != keys.shape[0]:
            raise ValueError("shapes do not fit")
        with nogil:
            for i in range(keys.shape[0]):
                out[i] = self.find_key(&keys[i, 0] if self.width else &nothing)

    def intern_rows(self, const int32_t[:, ::1] keys, int32_t[::1] out):
        """out[i] = index of the key in row i, new keys being numbered as they come."""
        cdef int64_t i, index = 0
        cdef int32_t nothing = 0
        if keys.shape[1] != self.width or out.shape[0] != keys.shape[0]:
            raise ValueError("shapes do not fit")
        with nogil:
            for i in range(keys.shape[0]):
                index = self.intern_key(&keys[i, 0] if self.width else &nothing)
                if index < 0:
                    break
                out[i] = <int32_t> index
        if index < 0:
            raise MemoryError("too many distinct observations")

    cdef void clear(self) noexcept nogil:
        """Forget all keys; not for a frozen table."""
        self.n = 0
        memset(self.slots, 0, self.slot_capacity * 2 * sizeof(uint32_t))

    cdef int64_t _probe(self, uint32_t tag, int64_t start, const int32_t* key) noexcept nogil:
        """The slot that holds `key`, or the empty slot where it belongs."""
        cdef int64_t mask = self.slot_capacity - 1, slot = start & mask, index
        while self.slots[2 * slot + 1] != 0:
            if self.slots[2 * slot] == tag:
                index = <int64_t> self.slots[2 * slot + 1] - 1
                if memcmp(self.keys + index * self.width, key, self.width * sizeof(int32_t)) == 0:
                    break
            slot = (slot + 1) & mask
        return slot

    cdef int64_t find_key(self, const int32_t* key) noexcept nogil:
        cdef uint64_t h = crf_hash_ids(key, self.width)
        cdef int64_t slot = self._probe(<uint32_t> (h >> 32), <int64_t> (h & 0x7FFFFFFF), key)
        return <int64_t> self.slots[2 * slot + 1] - 1

    cdef int64_t intern_key(self, const int32_t* key) noexcept nogil:
        cdef uint64_t h = crf_hash_ids(key, self.width)
        cdef uint32_t tag = <uint32_t> (h >> 32)
        cdef int64_t start = <int64_t> (h & 0x7FFFFFFF), capacity
        cdef int64_t slot = self._probe(tag, start, key)
        cdef void* moved
        if self.slots[2 * slot + 1] == 0:
            if self.is_frozen or self.n >= MAX_KEYS:
                return FULL
            if 2 * self.n >= self.slot_capacity:
                if not self._grow_slots():
                    return FULL
                slot = self._probe(tag, start, key)
            if self.n == self.key_capacity:
                capacity = 2 * self.key_capacity
                moved = realloc(self.keys, (capacity * self.width + 1) * sizeof(int32_t))
                if moved == NULL:
                    return FULL
                self.keys, self.key_capacity = <int32_t*> moved, capacity
            memcpy(self.keys + self.n * self.width, key, self.width * sizeof(int32_t))
            self.n += 1
            self.slots[2 * slot] = tag
            self.slots[2 * slot + 1] = <uint32_t> self.n
        return <int64_t> self.slots[2 * slot + 1] - 1

    cdef bint _grow_slots(self) noexcept nogil:
        cdef int64_t capacity = 2 * self.slot_capacity, mask = capacity - 1, i, slot
        cdef uint64_t h
        cdef uint32_t* larger = <uint32_t*> calloc(2 * capacity, sizeof(uint32_t))
        if larger == NULL:
            return False
        for i in range(self.n):
            h = crf_hash_ids(self.keys + i * self.width, self.width)
            slot = <int64_t> (h & 0x7FFFFFFF) & mask
            while larger[2 * slot + 1] != 0:
                slot = (slot + 1) & mask
            larger[2 * slot] = <uint32_t> (h >> 32)
            larger[2 * slot + 1] = <uint32_t> (i + 1)
        free(self.slots)
        self.slots, self.slot_capacity = larger, capacity
        return True


def expand(
    KeyTable table,
    const int32_t[:, ::1] values,      # in  [N][sources]  value ids
    const int64_t[::1] offsets,        # in  [S + 1]       first token of each sequence
    const int32_t[::1] rows,           # in  [width]       row offset, or absolute row
    const int32_t[::1] absolute,       # in  [width]       0: relative; 1: k-th token; -1: k-th from the end
    const int32_t[::1] sources,        # in  [width]       column of `values`
    const int32_t[:, ::1] before,      # in  [sources][d]  padding id at distance d + 1 before the start
    const int32_t[:, ::1] after,       # in  [sources][d]  the same after the end
    bint first_token,                  # whether the first token of a sequence has the observation
    bint learn,                        # intern new keys, or only find known ones
    int32_t[::1] out,                  # out [N]           key index; -1 where there is none
):
    """The observation of one template at every token, as an index of `table`."""
    cdef int64_t s, t, start, length, position, index = 0
    cdef int32_t[KEY_BUFFER] key
    cdef int f, width = table.width
    if width > KEY_BUFFER or rows.shape[0] != width or absolute.shape[0] != width or sources.shape[0] != width:
        raise ValueError("fields do not fit the table")
    with nogil:
        for s in range(offsets.shape[0] - 1):
            start, length = offsets[s], offsets[s + 1] - offsets[s]
            for t in range(length):
                if t == 0 and not first_token:
                    out[start] = -1
                    continue
                for f in range(width):
                    position = rows[f]
                    if absolute[f] == 0:
                        position += t
                    elif absolute[f] > 0:
                        position -= 1
                    else:
                        position = length - position
                    if position < 0:
                        key[f] = before[sources[f], -position - 1]
                    elif position >= length:
                        key[f] = after[sources[f], position - length]
                    else:
                        key[f] = values[start + position, sources[f]]
                index = table.intern_key(key) if learn else table.find_key(key)
                if learn and index < 0:
                    break
                out[start + t] = <int32_t> index
            if learn and index < 0:
                break
    if learn and index < 0:
        raise MemoryError("too many distinct observations")

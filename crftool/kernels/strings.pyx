"""Byte strings as small integers.

A StringTable gives each distinct string the next id. Open addressing over (tag, index) slots; the
three arrays are what a model file holds, so a table in a mapped file is used where it lies, without
being rebuilt. A table may extend a frozen parent: tagging interns unknown words that way.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

cdef extern from "hashing.h":
    uint64_t crf_hash_bytes(const char* text, int64_t length) noexcept nogil

cdef enum:
    MAX_STRINGS = 2147483646     # ids are int32 everywhere
    FULL = -1                    # what intern_bytes returns when memory or ids run out


cdef class StringTable:
    def __cinit__(self, StringTable parent=None):
        self.parent = parent
        self.first = 0 if parent is None else parent.first + parent.n
        self.buffers = None
        self.is_frozen = False
        self.n = 0
        self.blob_capacity, self.string_capacity, self.slot_capacity = 64, 8, 16
        self.blob = <char*> malloc(self.blob_capacity)
        self.bounds = <int64_t*> calloc(self.string_capacity + 1, sizeof(int64_t))
        self.slots = <uint32_t*> calloc(2 * self.slot_capacity, sizeof(uint32_t))
        if self.blob == NULL or self.bounds == NULL or self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        if not self.is_frozen:                       # `buffers` may be gone by now
            free(self.blob)
            free(self.bounds)
            free(self.slots)

    @staticmethod
    def frozen(const unsigned char[::1] blob, const int64_t[::1] bounds, const uint32_t[::1] slots):
        """A read-only table over existing memory; ValueError if the arrays contradict each other."""
        cdef StringTable table = StringTable.__new__(StringTable)
        cdef int64_t n = bounds.shape[0] - 1, i, used = 0, capacity = slots.shape[0] / 2
        if n < 0 or bounds[0] != 0 or bounds[n] != blob.shape[0]:
            raise ValueError("string bounds do not cover the text")
        for i in range(n):
            if bounds[i] > bounds[i + 1]:
                raise ValueError("string bounds fall")
        if capacity <= n or capacity & (capacity - 1) or slots.shape[0] != 2 * capacity:
            raise ValueError("string table has a wrong size")
        for i in range(capacity):
            if slots[2 * i + 1] > n:
                raise ValueError("string table points outside")
            used += slots[2 * i + 1] != 0
        if used != n:                # an empty slot must remain, or a search would never end
            raise ValueError("string table is over-full")
        free(table.blob)
        free(table.bounds)
        free(table.slots)
        table.buffers = (blob, bounds, slots)
        table.is_frozen = True
        table.n, table.slot_capacity = n, capacity
        table.blob = <char*> &blob[0] if blob.shape[0] else <char*> &bounds[0]
        table.bounds = <int64_t*> &bounds[0]
        table.slots = <uint32_t*> &slots[0]
        return table

    def arrays(self):
        """(blob, bounds, slots) as bytes, int64 and uint32 memory: copies, ready for a file."""
        return (self.blob[:self.bounds[self.n]],
                (<char*> self.bounds)[:(self.n + 1) * sizeof(int64_t)],
                (<char*> self.slots)[:self.slot_capacity * 2 * sizeof(uint32_t)])

    def __len__(self):
        return self.first + self.n

    def text(self, int64_t index):
        """The string with this id."""
        if index < 0 or index >= self.first + self.n:
            raise IndexError(index)
        if index < self.first:
            return self.parent.text(index)
        index -= self.first
        return self.blob[self.bounds[index]:self.bounds[index + 1]]

    cdef int64_t locate(self, int64_t index, const char** text) noexcept nogil:
        """Length of the string with this id, which must exist, and where it lies for now."""
        if index < self.first:
            return self.parent.locate(index, text)
        index -= self.first
        text[0] = self.blob + self.bounds[index]
        return self.bounds[index + 1] - self.bounds[index]

    def find(self, const unsigned char[::1] text not None):
        """The id of `text`, or -1."""
        return self.find_bytes(<const char*> &text[0] if text.shape[0] else <const char*> b"", text.shape[0])

    def intern(self, const unsigned char[::1] text not None):
        """The id of `text`, which becomes a new one if need be."""
        cdef int64_t index = self.intern_bytes(<const char*> &text[0] if text.shape[0] else <const char*> b"", text.shape[0])
        if index < 0:
            raise MemoryError("too many distinct strings, or a frozen table")
        return index

    cdef int64_t _probe(self, uint32_t tag, int64_t start, const char* text, int64_t length) noexcept nogil:
        """The slot that holds `text`, or the empty slot where it belongs."""
        cdef int64_t mask = self.slot_capacity - 1, slot = start & mask, index
        while self.slots[2 * slot + 1] != 0:
            if self.slots[2 * slot] == tag:
                index = <int64_t> self.slots[2 * slot + 1] - 1
                if (self.bounds[index + 1] - self.bounds[index] == length
                        and memcmp(self.blob + self.bounds[index], text, length) == 0):
                    break
            slot = (slot + 1) & mask
        return slot

    cdef int64_t find_bytes(self, const char* text, int64_t length) noexcept nogil:
        cdef uint64_t h = crf_hash_bytes(text, length)
        cdef int64_t slot, index
        if self.parent is not None:
            index = self.parent.find_bytes(text, length)
            if index >= 0:
                return index
        slot = self._probe(<uint32_t> (h >> 32), <int64_t> (h & 0x7FFFFFFF), text, length)
        if self.slots[2 * slot + 1] == 0:
            return -1
        return self.first + <int64_t> self.slots[2 * slot + 1] - 1

    cdef int64_t intern_bytes(self, const char* text, int64_t length) noexcept nogil:
        cdef uint64_t h = crf_hash_bytes(text, length)
        cdef uint32_t tag = <uint32_t> (h >> 32)
        cdef int64_t start = <int64_t> (h & 0x7FFFFFFF), slot, index
        if self.parent is not None:
            index = self.parent.find_bytes(text, length)
            if index >= 0:
                return index
        slot = self._probe(tag, start, text, length)
        if self.slots[2 * slot + 1] == 0:
            if self.is_frozen:
                return FULL
            if 2 * self.n >= self.slot_capacity:
                if not self._grow_slots():
                    return FULL
                slot = self._probe(tag, start, text, length)
            if not self._append(text, length):
                return FULL
            self.slots[2 * slot] = tag
            self.slots[2 * slot + 1] = <uint32_t> self.n
        return self.first + <int64_t> self.slots[2 * slot + 1] - 1

    cdef bint _append(self, const char* text, int64_t length) noexcept nogil:
        cdef int64_t end = self.bounds[self.n] + length, capacity
        cdef void* moved
        if self.first + self.n >= MAX_STRINGS:
            return False
        if end > self.blob_capacity:
            capacity = 2 * end
            moved = realloc(self.blob, capacity)
            if moved == NULL:
                return False
            self.blob, self.blob_capacity = <char*> moved, capacity
        if self.n == self.string_capacity:
            capacity = 2 * self.string_capacity
            moved = realloc(self.bounds, (capacity + 1) * sizeof(int64_t))
            if moved == NULL:
                return False
            self.bounds, self.string_capacity = <int64_t*> moved, capacity
        memcpy(self.blob + self.bounds[self.n], text, length)
        self.n += 1
        self.bounds[self.n] = end
        return True

    cdef bint _grow_slots(self) noexcept nogil:
        cdef int64_t capacity = 2 * self.slot_capacity, mask = capacity - 1, i, slot
        cdef uint64_t h
        cdef uint32_t* larger = <uint32_t*> calloc(2 * capacity, sizeof(uint32_t))
        if larger == NULL:
            return False
        for i in range(self.n):
            h = crf_hash_bytes(self.blob + self.bounds[i], self.bounds[i + 1] - self.bounds[i])
            slot = <int64_t> (h & 0x7FFFFFFF) & mask
            while larger[2 * slot + 1] != 0:
                slot = (slot + 1) & mask
            larger[2 * slot] = <uint32_t> (h >> 32)
            larger[2 * slot + 1] = <uint32_t> (i + 1)
        free(self.slots)
        self.slots, self.slot_capacity = larger, capacity
        return True

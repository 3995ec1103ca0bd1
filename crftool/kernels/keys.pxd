from libc.stdint cimport int32_t, int64_t, uint32_t


cdef class KeyTable:
    cdef readonly int width              # ids in a key
    cdef int64_t n, key_capacity, slot_capacity
    cdef int32_t* keys                   # [n][width]
    cdef uint32_t* slots                 # [slot_capacity][2]  (hash tag, index + 1), 0 = empty
    cdef bint is_frozen                  # takes no new key
    cdef object buffers                  # a frozen table: the memory it lies in; else None

    cdef int64_t find_key(self, const int32_t* key) noexcept nogil
    cdef int64_t intern_key(self, const int32_t* key) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef int64_t _probe(self, uint32_t tag, int64_t start, const int32_t* key) noexcept nogil
    cdef bint _grow_slots(self) noexcept nogil

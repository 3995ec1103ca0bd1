from libc.stdint cimport int32_t, int64_t, uint32_t


cdef class StringTable:
    cdef readonly StringTable parent     # looked up first; its ids come first
    cdef int64_t first                   # id of this table's first string = len(parent)
    cdef int64_t n, blob_capacity, string_capacity, slot_capacity
    cdef char* blob                      # [bounds[n]]  the strings, one after the other
    cdef int64_t* bounds                 # [n + 1]      string i is blob[bounds[i]:bounds[i + 1]]
    cdef uint32_t* slots                 # [slot_capacity][2]  (hash tag, index + 1), 0 = empty
    cdef bint is_frozen                  # takes no new string
    cdef object buffers                  # a frozen table: the memory it lies in; else None

    cdef int64_t find_bytes(self, const char* text, int64_t length) noexcept nogil
    cdef int64_t intern_bytes(self, const char* text, int64_t length) noexcept nogil
    cdef int64_t locate(self, int64_t index, const char** text) noexcept nogil
    cdef int64_t _probe(self, uint32_t tag, int64_t start, const char* text, int64_t length) noexcept nogil
    cdef bint _grow_slots(self) noexcept nogil
    cdef bint _append(self, const char* text, int64_t length) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t

from crftool.kernels.kinds cimport Kind, Line, Text
from crftool.kernels.patterns cimport Spec
from crftool.kernels.strings cimport StringTable
from crftool.kernels.workspace cimport Workspace

cdef class Lookup:
    cdef readonly int64_t sources, reach, needed
    cdef int64_t lines, widest   # the larger number of U or B lines; fields of the widest line
    cdef bint derives            # some source is a macro
    cdef Kind unigrams, bigrams
    cdef StringTable values, unigram_texts, bigram_texts
    cdef const int32_t[::1] unigram_text_rows, bigram_text_rows
    cdef list macros             # per source: a Macro, or None
    cdef const Spec** specs      # [sources]  what they run
    cdef int32_t* column_of      # [sources]
    cdef uint8_t* is_plain       # [sources]  %x: the column as it is
    cdef int32_t* before         # [sources][reach]  value ids of the padding
    cdef int32_t* after
    cdef uint8_t* risky_before   # [sources][reach]
    cdef uint8_t* risky_after
    cdef Text* text_before       # [sources][reach]  the padding itself
    cdef Text* text_after
    cdef bint letters_separate
    cdef uint8_t separator[256]
    cdef object _alive           # everything whose memory is used

    cdef int value_ids(self, const char* text, Workspace work, int64_t T, int64_t columns) noexcept nogil
    cdef int derive(self, Workspace work, int64_t s, int64_t index) noexcept nogil
    cdef void find_unigrams(self, const char* text, Workspace work, int64_t T, int64_t columns) noexcept nogil
    cdef void find_bigrams(self, const char* text, Workspace work, int64_t first, int64_t T,
                           int64_t columns) noexcept nogil
    cdef void find_rows(self, const char* text, Workspace work, const Kind* kind, StringTable texts,
                        const int32_t* text_rows, int64_t first, int64_t T, int64_t columns) noexcept nogil
    cdef int64_t row_by_text(self, const char* text, Workspace work, const Kind* kind, const Line* line,
                             StringTable texts, const int32_t* text_rows, int64_t t, int64_t T,
                             int64_t columns) noexcept nogil
    cdef bint spell_other(self, Workspace work, int64_t* size, int64_t s, int64_t position,
                          int64_t T) noexcept nogil
    cdef bint _risky(self, bytes text)
    cdef _kind(self, Kind* kind, given, list alive)

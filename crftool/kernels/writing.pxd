from libc.stdint cimport int32_t, int64_t

from crftool.kernels.kinds cimport Text
from crftool.kernels.workspace cimport Workspace

cdef enum:
    CONLL = 0
    LABELS = 1
    JSON = 2


cdef class Writer:
    cdef int layout
    cdef int level               # 0 labels, 1 probabilities, 2 those of all labels
    cdef bint ranks              # n-best lists
    cdef bint sums, confidence, entropy
    cdef double min_confidence
    cdef int64_t Y
    cdef Text* labels            # [Y]  as they are printed
    cdef Text* types             # [Y]  of the phrase that a label belongs to
    cdef Text abstain
    cdef int64_t all_labels      # bytes that the probabilities of all labels of a token may take
    cdef int64_t longest         # bytes of the longest label, type or symbol
    cdef object _alive

    cdef bint write(self, Workspace work, const char* text, int64_t T, int64_t columns, const int32_t* labels,
                    int64_t rank, double probability) noexcept nogil
    cdef bint write_lines(self, Workspace work, const char* text, int64_t T, int64_t columns, const int32_t* labels,
                          int64_t rank, double probability) noexcept nogil
    cdef bint write_json(self, Workspace work, const char* text, int64_t T, int64_t columns, const int32_t* labels,
                         int64_t rank, double probability) noexcept nogil
    cdef bint json_numbers(self, Workspace work, int64_t T, const int32_t* labels) noexcept nogil
    cdef bint json_phrases(self, Workspace work, const int32_t* labels) noexcept nogil
    cdef const Text* label_of(self, Workspace work, int64_t t, const int32_t* labels) noexcept nogil

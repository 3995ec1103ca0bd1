from libc.stdint cimport int32_t, int64_t

# A pair of labels in one number: previous << PAIR_BITS | label. Numbers rise with the place in the row.
cdef enum:
    PAIR_BITS = 15
    LABEL_MASK = 32767

# The non-zero weights of one observation.
cdef struct Row:
    int64_t n
    int64_t capacity
    int32_t* pair                # [n]  rising
    double* value                # [n]  the weight
    double* factor               # [n]  exp of it


cdef bint set_row(Row* row, int64_t n, const int32_t* pair, const double* value) noexcept nogil


cdef class WeightRows:
    cdef readonly int64_t size, width, Y
    cdef Row* rows

# The U or the B side of a model, as it lies in its file.

from libc.stdint cimport int32_t, int64_t, uint32_t

from crftool.kernels.vector cimport operations

# Bytes that somebody else keeps.
cdef struct Text:
    const char* start
    int64_t size


cdef enum:
    MAX_WIDTH = 64


# Tuples of value ids, and the rows of weights that they own.
cdef struct Table:
    int width
    int64_t n, mask
    const int32_t* keys          # [n][width]
    const uint32_t* slots        # [mask + 1][2]
    const int32_t* rows          # [n]  row of the weights
    int32_t* direct              # width 1: [values]  row of each value, -1 if none


# A template line.
cdef struct Line:
    int table, width
    bint ambiguous               # its observations may always be spelt in several ways
    int32_t row[MAX_WIDTH]
    int32_t absolute[MAX_WIDTH]
    int32_t source[MAX_WIDTH]
    int64_t literal[MAX_WIDTH + 2]       # bounds of its literals in Kind.literals


cdef struct Kind:
    int K                        # lines
    Line* lines
    int n_tables
    Table* tables
    int64_t width                # weights in a row
    int64_t whole                # rows stored whole
    const float* dense           # [whole][width]
    const int64_t* bounds        # of the other rows: their entries
    const int32_t* columns
    const float* values
    const char* literals
    bint has_texts


cdef inline void add_row(const Kind* kind, int64_t row, double* out) noexcept nogil:
    """out [width] += a row of weights"""
    cdef int64_t j
    if row < kind.whole:
        operations().add_single(kind.width, kind.dense + row * kind.width, out)
    else:
        for j in range(kind.bounds[row - kind.whole], kind.bounds[row - kind.whole + 1]):
            out[kind.columns[j]] += kind.values[j]

"""Weights of a virtual feature set: a row per observation that holds the non-zero ones, and nothing else.

Memory follows the active weights. A weight is named by its column in the row, label for a unigram,
previous * Y + label for a bigram observation; rows and columns are never multiplied to one index.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc

from crftool.kernels.vector cimport operations


cdef bint set_row(Row* row, int64_t n, const int32_t* pair, const double* value) noexcept nogil:
    """Replace a row; False if there is no memory."""
    cdef int64_t i, capacity = row.capacity
    if n > capacity or (capacity > 8 and 4 * n < capacity):
        capacity = n + n / 4
        if capacity == 0:
            free(row.pair)
            free(row.value)
            free(row.factor)
            row.pair, row.value, row.factor, row.n, row.capacity = NULL, NULL, NULL, 0, 0
            return True
        row.pair = <int32_t*> realloc(row.pair, capacity * sizeof(int32_t))
        row.value = <double*> realloc(row.value, capacity * sizeof(double))
        row.factor = <double*> realloc(row.factor, capacity * sizeof(double))
        if row.pair == NULL or row.value == NULL or row.factor == NULL:
            return False
        row.capacity = capacity
    for i in range(n):
        row.pair[i], row.value[i] = pair[i], value[i]
    operations().exp_shifted(n, row.value, 0.0, row.factor)
    row.n = n
    return True


cdef class WeightRows:
    """`size` rows, of `width` weights each that may become non-zero."""

    def __cinit__(self, int64_t size, int64_t width, int64_t Y):
        self.size, self.width, self.Y = size, width, Y
        self.rows = <Row*> calloc(max(1, size), sizeof(Row))
        if self.rows == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int64_t i
        if self.rows != NULL:
            for i in range(self.size):
                free(self.rows[i].pair)
                free(self.rows[i].value)
                free(self.rows[i].factor)
            free(self.rows)

    def load(self, const int64_t[::1] bounds, const int32_t[::1] columns, const double[::1] values):
        """Take over compressed rows: bounds [size + 1], rising columns and their values."""
        cdef int64_t i, k
        if bounds.shape[0] != self.size + 1 or columns.shape[0] != values.shape[0] or bounds[self.size] != values.shape[0]:
            raise ValueError("rows that do not fit")
        pairs = np.asarray(columns) // self.Y << PAIR_BITS | np.asarray(columns) % self.Y
        cdef const int32_t[::1] pair = np.ascontiguousarray(pairs, np.int32)
        for i in range(self.size):
            k = bounds[i]
            if bounds[i + 1] > k and not set_row(&self.rows[i], bounds[i + 1] - k, &pair[k], &values[k]):
                raise MemoryError
            if bounds[i + 1] == k and self.rows[i].n and not set_row(&self.rows[i], 0, NULL, NULL):
                raise MemoryError

    def dump(self):
        """(bounds, columns, values), as `load` takes them."""
        cdef int64_t i, j, n = 0
        cdef int64_t[::1] bounds = np.empty(self.size + 1, np.int64)
        for i in range(self.size):
            bounds[i] = n
            n += self.rows[i].n
        bounds[self.size] = n
        cdef int32_t[::1] columns = np.empty(n, np.int32)
        cdef double[::1] values = np.empty(n)
        n = 0
        for i in range(self.size):
            for j in range(self.rows[i].n):
                columns[n] = (self.rows[i].pair[j] >> PAIR_BITS) * self.Y + (self.rows[i].pair[j] & LABEL_MASK)
                values[n] = self.rows[i].value[j]
                n += 1
        return np.asarray(bounds), np.asarray(columns), np.asarray(values)

    def norms(self):
        """(non-zero weights, sum of |weight|, sum of squares)"""
        cdef int64_t i, j, n = 0
        cdef double total = 0.0, squares = 0.0, here, squares_here
        for i in range(self.size):
            here = squares_here = 0.0
            for j in range(self.rows[i].n):
                here += abs(self.rows[i].value[j])
                squares_here += self.rows[i].value[j] * self.rows[i].value[j]
            n, total, squares = n + self.rows[i].n, total + here, squares + squares_here
        return n, total, squares

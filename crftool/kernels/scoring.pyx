"""Weights to scores: unigram rows added up per token, bigram blocks per distinct transition.

Weights come in two forms: one flat vector while training, compressed rows in a model file.
"""

from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from crftool.kernels.vector cimport crf_next_task, operations

cdef enum:
    GRAIN = 256                  # tokens that a thread takes at a time


def add_dense_rows(
    const double[:, ::1] weights,        # in  [O][D]
    const int32_t[:, ::1] rows,          # in  [N][K]  -1 = no row
    double[:, ::1] out,                  # out [N][D]
    int64_t[::1] counter,
):
    """out[i] = sum of the weight rows that rows[i] names."""
    cdef int64_t N = rows.shape[0], K = rows.shape[1], D = out.shape[1], O = weights.shape[0], first, i, k
    with nogil:
        while True:
            first = crf_next_task(&counter[0]) * GRAIN
            if first >= N:
                break
            for i in range(first, min(N, first + GRAIN)):
                memset(&out[i, 0], 0, D * sizeof(double))
                for k in range(K):
                    if 0 <= rows[i, k] < O:
                        operations().add(D, &weights[rows[i, k], 0], &out[i, 0])


def add_stored_rows(
    const float[:, ::1] dense,           # in  [A][D]   rows 0 to A - 1
    const int64_t[::1] bounds,           # in  [B + 1]  rows A to A + B - 1: their entries
    const int32_t[::1] columns,          # in  [entries]
    const float[::1] values,             # in  [entries]
    const int32_t[:, ::1] rows,          # in  [N][K]  -1 = no row
    double[:, ::1] out,                  # out [N][D]
    int64_t[::1] counter,
):
    """out[i] = sum of the stored rows that rows[i] names."""
    cdef int64_t N = rows.shape[0], K = rows.shape[1], D = out.shape[1], A = dense.shape[0]
    cdef int64_t B = bounds.shape[0] - 1, first, i, j, k, row
    with nogil:
        while True:
            first = crf_next_task(&counter[0]) * GRAIN
            if first >= N:
                break
            for i in range(first, min(N, first + GRAIN)):
                memset(&out[i, 0], 0, D * sizeof(double))
                for k in range(K):
                    row = rows[i, k]
                    if 0 <= row < A:
                        operations().add_single(D, &dense[row, 0], &out[i, 0])
                    elif A <= row < A + B:
                        for j in range(bounds[row - A], bounds[row - A + 1]):
                            out[i, columns[j]] += values[j]


def check_rows(
    const float[::1] dense,              # [A * D]
    const int64_t[::1] bounds, const int32_t[::1] columns, const float[::1] values, int64_t D,
):
    """(rows, non-zero weights) of stored rows; ValueError unless every index and weight is in order."""
    cdef int64_t n = bounds.shape[0] - 1, i, active = 0
    cdef bint good = True
    if D <= 0 or dense.shape[0] % D or n < 0 or bounds[0] != 0 or bounds[n] != values.shape[0]:
        raise ValueError("weights out of bounds")
    if columns.shape[0] != values.shape[0]:
        raise ValueError("weights without columns")
    with nogil:
        for i in range(n):
            good &= bounds[i] <= bounds[i + 1]
        for i in range(values.shape[0]):
            good &= 0 <= columns[i] < D and isfinite(values[i])
            active += values[i] != 0.0
        for i in range(dense.shape[0]):
            good &= isfinite(dense[i]) != 0
            active += dense[i] != 0.0
    if not good:
        raise ValueError("a weight of an unknown label, out of bounds or not a number")
    return dense.shape[0] / D + n, active


def mark_rows(const int32_t[::1] rows, unsigned char[::1] owned):
    """owned[row] = 1; ValueError for a row that does not exist."""
    cdef int64_t i
    for i in range(rows.shape[0]):
        if rows[i] < 0 or rows[i] >= owned.shape[0]:
            raise ValueError("observation without weights")
        owned[rows[i]] = 1

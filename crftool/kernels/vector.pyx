"""Vectors as long as the model, in fixed chunks, and the choice of CPU level.

A kernel takes chunk after chunk from a shared counter until none is left, so several threads may run it
at once; chunks do not depend on the number of threads, and sums are returned per chunk, so the results
don't either. Trainers reach these through crftool.kernels.pool.
"""

import os

from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t

cdef extern from "vector.h":
    const crf_operations* crf_operations_chosen() nogil
    const crf_operations* crf_operations_named(const char* name) nogil

CHUNK = CHUNK_SIZE

cdef const crf_operations* chosen = crf_operations_chosen()
if chosen == NULL:
    raise ImportError(f"CRFTOOL_ISA={os.environ.get('CRFTOOL_ISA')} is not a level of this machine; "
                      "use base, avx2 or avx512")


cdef const crf_operations* operations() noexcept nogil:
    return chosen


def cpu_level():
    """The name of the level in use: base, avx2 or avx512."""
    return chosen.name.decode()


def cpu_levels():
    """The levels that this machine has."""
    return [name for name in ("base", "avx2", "avx512") if crf_operations_named(name.encode()) != NULL]


def exp(const double[::1] x, double[::1] out, level=None):
    """out = exp(x), by the level in use or the one named."""
    cdef const crf_operations* at = chosen if level is None else crf_operations_named(level.encode())
    if at == NULL or out.shape[0] != x.shape[0]:
        raise ValueError(level)
    if x.shape[0]:
        at.exp_shifted(x.shape[0], &x[0], 0.0, &out[0])


cdef bint next_chunk(int64_t F, int64_t* counter, int64_t* start, int64_t* n) noexcept nogil:
    """Take the next chunk, n numbers from `start`; False when all are taken."""
    start[0] = crf_next_task(counter) * CHUNK_SIZE
    n[0] = min(<int64_t> CHUNK_SIZE, F - start[0])
    return n[0] > 0


def dot(const double[::1] x, const double[::1] y, double[::1] sums, int64_t[::1] counter):
    """sums[chunk] = x . y over the chunk"""
    cdef int64_t start = 0, n = 0
    with nogil:
        while next_chunk(x.shape[0], &counter[0], &start, &n):
            sums[start / CHUNK_SIZE] = chosen.dot(n, &x[start], &y[start])


def dot_single(const float[::1] x, const double[::1] y, double[::1] sums, int64_t[::1] counter):
    """sums[chunk] = x . y over the chunk, x in single precision"""
    cdef int64_t start = 0, n = 0
    with nogil:
        while next_chunk(x.shape[0], &counter[0], &start, &n):
            sums[start / CHUNK_SIZE] = chosen.dot_single(n, &x[start], &y[start])


def add_scaled(double a, const double[::1] x, const double[::1] y, double[::1] out, int64_t[::1] counter):
    """out = a x + y"""
    cdef int64_t start = 0, n = 0, i
    with nogil:
        while next_chunk(x.shape[0], &counter[0], &start, &n):
            for i in range(start, start + n):
                out[i] = a * x[i] + y[i]


def add_scaled_single(double a, const float[::1] x, double[::1] out, int64_t[::1] counter):
    """out += a x, x in single precision"""
    cdef int64_t start = 0, n = 0
    with nogil:
        while next_chunk(x.shape[0], &counter[0], &start, &n):
            chosen.add_scaled_single(n, a, &x[start], &out[start])


def scale(double a, double[::1] x, int64_t[::1] counter):
    """x *= a"""
    cdef int64_t start = 0, n = 0, i
    with nogil:
        while next_chunk(x.shape[0], &counter[0], &start, &n):
            for i in range(start, start + n):
                x[i] *= a


def store_difference(const double[::1] x, const double[::1] y, float[::1] out, int64_t[::1] counter):
    """out = x - y, kept in single precision"""
    cdef int64_t start = 0, n = 0, i
    with nogil:
        while next_chunk(x.shape[0], &counter[0], &start, &n):
            for i in range(start, start + n):
                out[i] = <float> (x[i] - y[i])


def dots_of_pair(const float[::1] s, const float[::1] y, double[:, ::1] sums, int64_t[::1] counter):
    """sums[chunk] = (s . y, y . y) over the chunk"""
    cdef int64_t start = 0, n = 0, i
    cdef double sy, yy
    with nogil:
        while next_chunk(s.shape[0], &counter[0], &start, &n):
            sy, yy = 0.0, 0.0
            for i in range(start, start + n):
                sy += <double> s[i] * <double> y[i]
                yy += <double> y[i] * <double> y[i]
            sums[start / CHUNK_SIZE, 0], sums[start / CHUNK_SIZE, 1] = sy, yy


def penalise(
    const double[::1] theta, double rho2,
    double[::1] grad,            # out: rho2 theta; or None
    double[:, ::1] sums,         # out [chunks][3]: |theta|_1, |theta|^2, number of non-zero weights
    int64_t[::1] counter,
):
    """What the elastic net needs of theta, and its share of the gradient."""
    cdef int64_t start = 0, n = 0, i, active
    cdef double l1, l2, x
    cdef bint wanted = grad is not None
    with nogil:
        while next_chunk(theta.shape[0], &counter[0], &start, &n):
            l1, l2, active = 0.0, 0.0, 0
            for i in range(start, start + n):
                x = theta[i]
                if wanted:
                    grad[i] = rho2 * x
                l1 += fabs(x)
                l2 += x * x
                active += x != 0.0
            i = start / CHUNK_SIZE
            sums[i, 0], sums[i, 1], sums[i, 2] = l1, l2, <double> active


cdef inline double pseudo(double x, double g, double rho1) noexcept nogil:
    """One coordinate of the pseudo-gradient, the subgradient of least norm (Andrew & Gao 2007, eq. 4)."""
    if x > 0.0:
        return g + rho1
    if x < 0.0:
        return g - rho1
    if g + rho1 < 0.0:
        return g + rho1
    if g - rho1 > 0.0:
        return g - rho1
    return 0.0 if g == g else g                      # NaN must not pass unseen


def pseudo_gradient(
    const double[::1] theta, const double[::1] grad, double rho1,
    double[::1] out,             # out [F]; may be grad
    double[:, ::1] sums,         # out [chunks][2]: |out|^2, max |out|
    int64_t[::1] counter,
):
    cdef int64_t start = 0, n = 0, i
    cdef double squares, largest, x
    with nogil:
        while next_chunk(theta.shape[0], &counter[0], &start, &n):
            squares, largest = 0.0, 0.0
            for i in range(start, start + n):
                x = pseudo(theta[i], grad[i], rho1)
                out[i] = x
                squares += x * x
                if fabs(x) > largest or x != x:      # once NaN, it stays
                    largest = fabs(x)
            sums[start / CHUNK_SIZE, 0], sums[start / CHUNK_SIZE, 1] = squares, largest


def align(double[::1] direction, const double[::1] pseudo_grad, int64_t[::1] counter):
    """Keep only the coordinates of a direction that descend: sign(d) = -sign(pseudo-gradient)."""
    cdef int64_t start = 0, n = 0, i
    with nogil:
        while next_chunk(direction.shape[0], &counter[0], &start, &n):
            for i in range(start, start + n):
                if direction[i] * pseudo_grad[i] >= 0.0:
                    direction[i] = 0.0


def orthant_step(
    const double[::1] theta, double step, const double[::1] direction,
    const double[::1] pseudo_grad,
    double[::1] out,             # out [F]  the new point, projected on the orthant of theta
    double[::1] sums,            # out [chunks]  pseudo-gradient . (out - theta)
    int64_t[::1] counter,
):
    """out = pi(theta + step d; xi): coordinates that leave their orthant become exactly zero."""
    cdef int64_t start = 0, n = 0, i
    cdef double x, xi, decrease
    with nogil:
        while next_chunk(theta.shape[0], &counter[0], &start, &n):
            decrease = 0.0
            for i in range(start, start + n):
                xi = theta[i] if theta[i] != 0.0 else -pseudo_grad[i]
                x = theta[i] + step * direction[i]
                x = x if x * xi > 0.0 else 0.0
                out[i] = x
                decrease += pseudo_grad[i] * (x - theta[i])
            sums[start / CHUNK_SIZE] = decrease

"""L-BFGS with few passes over memory: all it needs of its long vectors are their dot products.

The vectors s (steps) and y (gradient differences) of the last steps, and the gradient g, span the next
direction; the coefficients follow from their dot products alone (Chen, Wang & Zhou 2014). So an iteration
takes two passes: `step` adds up the direction and moves the weights, `remember` takes all new products.

Everything lives in scaled coordinates, w theta with w = sqrt(D), D the diagonal preconditioner: s is kept
as s / w, y as w y, and g enters as w g. Chunks and sums as in vector.pyx.
"""

from libc.math cimport sqrt
from libc.stdint cimport int64_t

from crftool.kernels.vector cimport CHUNK_SIZE, crf_operations, next_chunk, operations

cdef enum:
    PIECE = 512                  # numbers of one vector that stay in the innermost cache with the others


def scales(const double[::1] curvature, double more, float[::1] w, int64_t[::1] counter):
    """w = 1 / sqrt(curvature + more)"""
    cdef int64_t start = 0, n = 0, i
    with nogil:
        while next_chunk(w.shape[0], &counter[0], &start, &n):
            for i in range(start, start + n):
                w[i] = <float> (1.0 / sqrt(curvature[i] + more))


def step(
    double[::1] theta,           # in/out [F]  moved by `length` times the direction
    const double[::1] grad,      # in [F]
    const float[::1] w,          # in [F]
    float[:, ::1] pairs,         # in/out [2 m][F]  s and y of step j are the vectors 2 j and 2 j + 1
    const double[::1] mix,       # in [2 m + 1]  coefficients of the pairs and, last, of the gradient
    double length,
    int64_t newest,              # the step to be overwritten: its s becomes the move, its y the old gradient
    int64_t[::1] counter,
):
    cdef const crf_operations* op = operations()
    cdef int64_t start = 0, n = 0, i, j, k, piece, first, count = pairs.shape[0]
    cdef double direction[PIECE]
    cdef float* s
    cdef float* y
    with nogil:
        while next_chunk(theta.shape[0], &counter[0], &start, &n):
            for piece in range((n + PIECE - 1) / PIECE):
                first = start + piece * PIECE
                k = min(<int64_t> PIECE, start + n - first)
                for i in range(k):
                    direction[i] = mix[count] * grad[first + i] * w[first + i]
                for j in range(count):
                    if mix[j] != 0.0:
                        op.add_scaled_single(k, mix[j], &pairs[j, first], direction)
                s, y = &pairs[2 * newest, first], &pairs[2 * newest + 1, first]
                op.take_step(k, length, direction, &grad[first], &w[first], s, y, &theta[first])


def rescale_step(
    double[::1] theta, const float[::1] w, float[::1] s, double ratio, int64_t[::1] counter,
):
    """Make the step just taken `ratio` times as long."""
    cdef int64_t start = 0, n = 0, i
    cdef float before
    with nogil:
        while next_chunk(theta.shape[0], &counter[0], &start, &n):
            for i in range(start, start + n):
                before = s[i]
                s[i] = <float> (ratio * before)
                theta[i] += (<double> s[i] - <double> before) * w[i]


def remember(
    const double[::1] grad,      # in [F]  at the new point
    const float[::1] w,
    float[:, ::1] pairs,         # in/out [2 m][F]
    int64_t newest,
    double[:, ::1] sums,         # out [chunks][3 (2 m) + 3]: products with s, y of the newest step and with the
                                 # gradient, for each vector; then w g . w g, g . g, max |g|
    int64_t[::1] counter,
):
    """y of the newest step, and every dot product that the next direction needs."""
    cdef const crf_operations* op = operations()
    cdef int64_t start = 0, n = 0, i, j, k, piece, first, chunk, count = pairs.shape[0]
    cdef double s[PIECE]
    cdef double y[PIECE]
    cdef double g[PIECE]
    cdef double plain, largest
    with nogil:
        while next_chunk(grad.shape[0], &counter[0], &start, &n):
            chunk = start / CHUNK_SIZE
            plain = largest = 0.0
            for j in range(3 * count + 3):
                sums[chunk, j] = 0.0
            for piece in range((n + PIECE - 1) / PIECE):
                first = start + piece * PIECE
                k = min(<int64_t> PIECE, start + n - first)
                plain += op.turn(k, &grad[first], &w[first], &pairs[2 * newest, first], &pairs[2 * newest + 1, first],
                                 g, s, y)
                largest = max(largest, op.largest(k, &grad[first]))
                sums[chunk, 3 * count] += op.dot(k, g, g)
                for j in range(count):
                    op.three_dots(k / 8 * 8, &pairs[j, first], s, y, g, &sums[chunk, 3 * j])
                    for i in range(k / 8 * 8, k):
                        sums[chunk, 3 * j] += pairs[j, first + i] * s[i]
                        sums[chunk, 3 * j + 1] += pairs[j, first + i] * y[i]
                        sums[chunk, 3 * j + 2] += pairs[j, first + i] * g[i]
            sums[chunk, 3 * count + 1] = plain
            sums[chunk, 3 * count + 2] = largest if plain == plain else plain        # NaN must not pass unseen


def forget(const double[::1] grad, const float[::1] w, float[::1] y, int64_t[::1] counter):
    """Undo what `remember` did to y: let it hold the old gradient again."""
    cdef int64_t start = 0, n = 0, i
    with nogil:
        while next_chunk(grad.shape[0], &counter[0], &start, &n):
            for i in range(start, start + n):
                y[i] = <float> (grad[i] * w[i] - y[i])

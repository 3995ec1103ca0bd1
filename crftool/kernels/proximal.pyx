"""The working set of an l1 problem, and the quadratic model that is minimised on it."""

from libc.math cimport fabs
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from crftool.kernels.vector cimport CHUNK_SIZE, crf_operations, next_chunk, operations


def count_candidates(
    const double[::1] theta, const double[::1] grad, double rho1,
    double[:, ::1] sums,         # out [chunks][3]: candidates; |pseudo-gradient|^2; its largest entry
    int64_t[::1] counter,
):
    """A candidate is a weight that is not zero, or would leave zero: |grad| > rho1."""
    cdef int64_t start = 0, n = 0, i, found
    cdef double squares, largest, x
    with nogil:
        while next_chunk(theta.shape[0], &counter[0], &start, &n):
            found, squares, largest = 0, 0.0, 0.0
            for i in range(start, start + n):
                if theta[i] == 0.0 and fabs(grad[i]) <= rho1:
                    continue
                found += 1
                if theta[i] == 0.0:
                    x = fabs(grad[i]) - rho1
                else:
                    x = fabs(grad[i] + (rho1 if theta[i] > 0.0 else -rho1))
                squares += x * x
                if x > largest or x != x:            # once NaN, it stays
                    largest = x
            i = start / CHUNK_SIZE
            sums[i, 0], sums[i, 1], sums[i, 2] = <double> found, squares, largest


def list_candidates(
    const double[::1] theta, const double[::1] grad, double rho1,
    const int64_t[::1] first,    # in  [chunks]  where the candidates of each chunk go
    int64_t[::1] where,          # out [candidates]  rising
    int64_t[::1] counter,
):
    cdef int64_t start = 0, n = 0, i, at
    with nogil:
        while next_chunk(theta.shape[0], &counter[0], &start, &n):
            at = first[start / CHUNK_SIZE]
            for i in range(start, start + n):
                if theta[i] != 0.0 or not fabs(grad[i]) <= rho1:
                    where[at] = i
                    at += 1


def dot(const double[::1] x, const double[::1] y):
    return operations().dot(x.shape[0], &x[0], &y[0]) if x.shape[0] else 0.0


def products(const double[:, ::1] vectors, const double[::1] x, double[::1] out):
    """out[j] = vectors[j] . x, always added up in the same order"""
    cdef int64_t j
    if x.shape[0]:
        for j in range(vectors.shape[0]):
            out[j] = operations().dot(x.shape[0], &vectors[j, 0], &x[0])


def low_rank(
    const double[:, ::1] s, const double[:, ::1] y,      # in  [m][E]
    const double[::1] base,              # in  [E]  B0
    const double[:, ::1] inverse,        # in  [2 m][2 m]  of the middle matrix
    const int64_t[::1] at,               # in  [W]  which of the E weights
    double[:, ::1] u,                    # out [W][2 m]  rows of [B0 S, Y]
    double[:, ::1] v,                    # out [W][2 m]  rows of [B0 S, Y] inverse
):
    """The factors of B = B0 - u v^T on a working set."""
    cdef int64_t m = s.shape[0], i, j, k, e
    with nogil:
        for i in range(at.shape[0]):
            e = at[i]
            for j in range(m):
                u[i, j] = base[e] * s[j, e]
                u[i, m + j] = y[j, e]
            for k in range(2 * m):
                v[i, k] = 0.0
            for j in range(2 * m):
                for k in range(2 * m):
                    v[i, k] += u[i, j] * inverse[j, k]


cdef inline double soft(double x, double threshold) noexcept nogil:
    if x > threshold:
        return x - threshold
    if x < -threshold:
        return x + threshold
    return 0.0


def minimise_model(
    const double[::1] x,         # in  [W]  weights
    const double[::1] g,         # in  [W]  gradient of the smooth part
    double rho1,
    const double[::1] diagonal,  # in  [W]  B0
    const double[:, ::1] u,      # in  [W][r]
    const double[:, ::1] v,      # in  [W][r]  u times a symmetric matrix
    int64_t sweeps, double tolerance,
    double[::1] d,               # out [W]  the step
):
    """Minimise g.d + d.B d / 2 + rho1 |x + d|_1, B = B0 - u v^T, by coordinate descent. Sweeps taken.

    One coordinate costs r operations, since z = v^T d is kept. Between full sweeps only the coordinates
    that are not at rest at zero are visited. Ends when a full sweep changes no coordinate by more than
    `tolerance` times the largest change of the first one (in the metric of the curvature).
    """
    cdef const crf_operations* op = operations()
    cdef int64_t W = x.shape[0], r = u.shape[1], i, j, k, sweep = 0, moving = 0, rounds
    cdef double slope, after, change, largest = 0.0, first = 0.0
    cdef double* z = <double*> malloc((r + 1) * sizeof(double))
    cdef double* a = <double*> malloc((W + 1) * sizeof(double))              # the diagonal of B
    cdef int64_t* live = <int64_t*> malloc((W + 1) * sizeof(int64_t))
    if z == NULL or a == NULL or live == NULL:
        free(z)
        free(a)
        free(live)
        raise MemoryError
    with nogil:
        for j in range(r):
            z[j] = 0.0
        for i in range(W):
            d[i] = 0.0
            a[i] = diagonal[i] - (op.dot(r, &u[i, 0], &v[i, 0]) if r else 0.0)
            if a[i] < 1e-3 * diagonal[i]:            # rounding; B is positive definite
                a[i] = 1e-3 * diagonal[i]
        rounds = 0
        while sweep < sweeps:
            # every fourth round sees all coordinates, the others those that live
            if rounds % 4 == 0:
                moving = 0
                for i in range(W):
                    live[i] = i
                k = W
            else:
                k = moving
            largest, moving = 0.0, 0
            for j in range(k):
                i = live[j]
                slope = g[i] + diagonal[i] * d[i] - (op.dot(r, &u[i, 0], z) if r else 0.0)
                after = soft(a[i] * (x[i] + d[i]) - slope, rho1) / a[i]
                change = after - x[i] - d[i]
                if after != 0.0 or x[i] + d[i] != 0.0:
                    live[moving] = i                 # moving <= j: what is read is not overwritten
                    moving += 1
                if change != 0.0:
                    if r:
                        add_scaled(r, change, &v[i, 0], z)
                    d[i] = after - x[i]
                    largest = max(largest, change * change * a[i])
            sweep += 1
            if sweep == 1:
                first = largest
            if largest <= tolerance * tolerance * first:
                if rounds % 4 == 0:
                    break
                rounds = 0                           # a full sweep must agree
            else:
                rounds += 1
    free(z)
    free(a)
    free(live)
    return sweep


cdef inline void add_scaled(int64_t r, double change, const double* v, double* z) noexcept nogil:
    cdef int64_t j
    for j in range(r):
        z[j] += change * v[j]

"""Forward-backward over many sequences at once, position by position.

The sums over labellings of one sequence are products of a vector and a matrix, one after the other, and
bound by the time to fetch the matrix. Here the sequences of a batch move on together: those that have the
same transition at a position share the product. No result depends on what else is in the batch.
The notation is that of chain.pyx.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from crftool.kernels.chain cimport CANCELLED, Links, Side, settle_position, side_of, step, sum_pairs
from crftool.kernels.vector cimport crf_operations, operations

cdef enum:
    TOGETHER = 8                 # positions whose products are made at once
    FEW = 2                      # so many at most are done one by one where the transition is sparse


cdef bint make_batch(Batch* batch, const Links* links, int64_t C, int64_t S, int64_t N, int64_t T) noexcept nogil:
    """Room for up to S sequences with N tokens in all and T at most, of C transitions; False if there is none."""
    cdef int64_t c
    batch.alive = <int64_t*> malloc((4 * S + T + 1 + C) * sizeof(int64_t))
    batch.scale = <double*> malloc((N + TOGETHER * (links.P + 2 * links.Y)) * sizeof(double))
    if batch.alive == NULL or batch.scale == NULL:
        return False
    batch.next, batch.shorter = batch.alive + S, batch.alive + 2 * S
    batch.met = <int32_t*> (batch.alive + 3 * S)
    batch.by_length, batch.first = batch.alive + 4 * S, batch.alive + 4 * S + T + 1
    batch.rows = batch.scale + N
    batch.columns = batch.rows + TOGETHER * links.P
    for c in range(C):
        batch.first[c] = -1
    return True


cdef void free_batch(Batch* batch) noexcept nogil:
    free(batch.alive)
    free(batch.scale)


cdef void step_sparse(
    const Links* links, int32_t c, const Side* side, int64_t n, const double** rows, double* out,
    double* columns) noexcept nogil:
    """Products of eight rows (the last of them repeated) with a sparse transition, labels apart, rows side by side."""
    cdef const crf_operations* op = operations()
    cdef double* results = columns + TOGETHER * links.Y
    cdef double total[TOGETHER]
    cdef int64_t Y = links.Y, k, y
    for k in range(TOGETHER):
        total[k] = links.rest[c] * op.sum(Y, rows[k]) if k < n else total[n - 1]
        for y in range(Y):
            columns[TOGETHER * y + k] = rows[min(k, n - 1)][y]
    if op.rows_times_entries(Y, total, side.bounds, side.others, side.excess, CANCELLED, columns, results):
        for k in range(n):
            for y in range(Y):
                if results[TOGETHER * y + k] < CANCELLED * total[k]:
                    results[TOGETHER * y + k] = sum_pairs(links.rest[c], Y, rows[k], side, y)
    for k in range(n):
        for y in range(Y):
            out[k * links.P + y] = results[TOGETHER * y + k]


cdef void step_many(
    const Links* links, int32_t c, bint forward, int64_t n, const double** rows, Batch* batch) noexcept nogil:
    """batch.rows [n][P] = rows[k] psi, or psi rows[k] if not forward."""
    cdef Side side = side_of(links, c, forward)
    cdef int64_t k
    if side.psi != NULL:
        operations().rows_times_matrix(links.Y, links.P, n, rows, side.psi, batch.rows)
    elif n > FEW:
        step_sparse(links, c, &side, n, rows, batch.rows, batch.columns)
    else:
        for k in range(n):
            step(links, c, forward, rows[k], batch.rows + k * links.P)


cdef void step_level(
    const Links* links, Batch* batch, bint forward, int64_t t, int64_t n, const int64_t* offsets,
    const int32_t* transition, double* u, double* alpha, double* p, double* log_z) noexcept nogil:
    """The step between positions t - 1 and t of the n sequences that are alive, by transition."""
    cdef int64_t base = offsets[0], Y = links.Y, P = links.P, met = 0, i, k, s, at, T
    cdef int64_t who[TOGETHER]
    cdef const double* rows[TOGETHER]
    cdef int32_t c
    for i in range(n):
        s = batch.alive[i]
        c = transition[offsets[s] - base + t]
        if batch.first[c] < 0:
            batch.met[met] = c
            met += 1
        batch.next[s], batch.first[c] = batch.first[c], s
    for i in range(met):
        c = batch.met[i]
        s, batch.first[c] = batch.first[c], -1
        while s >= 0:
            n = 0
            while s >= 0 and n < TOGETHER:
                at = offsets[s] - base + t
                who[n], rows[n] = s, alpha + (at - 1) * Y if forward else u + at * Y
                n += 1
                s = batch.next[s]
            step_many(links, c, forward, n, rows, batch)
            for k in range(n):
                at = offsets[who[k]] - base
                if forward:
                    T = offsets[who[k] + 1] - offsets[who[k]]
                    log_z[who[k]] += settle_position(links, T, t, transition + at, batch.rows + k * P,
                                                     u + (at + t) * Y, alpha + (at + t) * Y, batch.scale + at + t)
                else:
                    at += t - 1
                    operations().leave(Y, batch.scale[at], alpha + at * Y, batch.rows + k * P, u + at * Y, p + at * Y)


cdef void forward_backward_many(
    const Links* links, Batch* batch, int64_t S,
    const int64_t* offsets,      # in  [S + 1]  of the sequences; u and the others begin at the first of them
    const int32_t* transition,   # in  [N]
    double* u,                   # in  [N][Y] mu;  out v: see chain.forward_backward
    double* alpha,               # out [N][Y]
    double* p,                   # out [N][Y]
    double* log_z,               # out [S]  NaN when all paths of a sequence underflow
) noexcept nogil:
    """What chain.forward_backward does for one sequence."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = links.Y, t, s, i, n = S, kept, at, T, longest = 0
    for s in range(S):
        longest = max(longest, offsets[s + 1] - offsets[s])
    for t in range(longest + 1):
        batch.by_length[t] = -1
    for s in range(S):
        at, T = offsets[s] - offsets[0], offsets[s + 1] - offsets[s]
        batch.alive[s], batch.shorter[s], batch.by_length[T] = s, batch.by_length[T], s
        log_z[s] = 0.0 if T == 0 else settle_position(
            links, T, 0, transition + at, NULL, u + at * Y, alpha + at * Y, batch.scale + at)
    for t in range(1, longest):
        kept = 0
        for i in range(n):
            s = batch.alive[i]
            if offsets[s + 1] - offsets[s] > t and log_z[s] == log_z[s]:
                batch.alive[kept] = s
                kept += 1
        n = kept
        step_level(links, batch, True, t, n, offsets, transition, u, alpha, p, log_z)
    for i in range(Y):
        batch.rows[i] = 1.0
    for s in range(S):
        at = offsets[s + 1] - 1 - offsets[0]
        if log_z[s] == log_z[s] and offsets[s + 1] > offsets[s]:
            op.leave(Y, batch.scale[at], alpha + at * Y, batch.rows, u + at * Y, p + at * Y)
    n = 0
    for t in range(longest - 1, 0, -1):
        s = batch.by_length[t + 1]
        while s >= 0:
            if log_z[s] == log_z[s]:
                batch.alive[n] = s
                n += 1
            s = batch.shorter[s]
        step_level(links, batch, False, t, n, offsets, transition, u, alpha, p, log_z)

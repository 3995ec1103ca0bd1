"""Inference on the chain: scaled forward-backward, Viterbi, n-best paths.

One sequence is a lattice of T positions with Y labels:

    score(y) = sum_t  mu[t][y_t]  +  sum_t  lam[transition[t]][y_{t-1}][y_t]

mu [T][Y] holds the unigram scores. The bigram scores of a position depend only on its transition id, so
they are kept once per distinct id, in blocks [R][Y]: R = Y, or Y + 1 with a begin label, whose row comes
last and is used at the first position. Without a begin label the first position has no transition.
"""

from libc.math cimport NAN, isfinite, log
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy

from crftool.kernels.vector cimport crf_next_task, crf_operations, operations

cdef enum:
    GRAIN = 8                    # sequences that a thread takes at a time


cdef double forward_backward(
    int64_t T, int64_t Y, int64_t R,
    const int32_t* transition,   # in  [T]
    const double* psi,           # in  [C][R][Y]  exp(lam - shift)
    const double* psi_t,         # in  [C][Y][Y]  its first Y rows, transposed
    const double* shift,         # in  [C]        the largest lam of each block
    double* u,                   # in  [T][Y] mu;  out v[t] = exp(mu[t]) o beta[t] / c[t]
    double* alpha,               # out [T][Y]     forward scores, each row scaled to sum 1
    double* p,                   # out [T][Y]     p(y_t = y | x)
    double* work,                # [T + Y]        scale factors, beta
) noexcept nogil:
    """log Z, by the scaled recursions; NaN when all paths underflow.

    With M = psi[transition[t]]:  alpha[t] = (alpha[t-1] M) o exp(mu[t]) / c[t],  c[t] such that the row
    sums to 1;  beta[t-1] = M v[t].  Then p[t] = alpha[t] o beta[t], and the probability of the label
    pair (y', y) at t is alpha[t-1][y'] M[y'][y] v[t][y].
    """
    cdef const crf_operations* op = operations()
    cdef double* scale = work
    cdef double* beta = work + T
    cdef double* a
    cdef double* x
    cdef const double* row
    cdef double log_z = 0.0, largest, c
    cdef int64_t t, y
    for t in range(T):
        a, x = alpha + t * Y, u + t * Y
        largest = op.maximum(Y, x)
        op.exp_shifted(Y, x, largest, x)
        log_z += largest
        if t > 0:
            op.row_times_matrix(Y, Y, a - Y, psi + transition[t] * R * Y, a)
            for y in range(Y):
                a[y] *= x[y]
            log_z += shift[transition[t]]
        elif R > Y:
            row = psi + (transition[0] * R + Y) * Y
            for y in range(Y):
                a[y] = row[y] * x[y]
            log_z += shift[transition[0]]
        else:
            memcpy(a, x, Y * sizeof(double))
        c = op.sum(Y, a)
        if not (c > 0.0 and isfinite(c)):
            return NAN
        log_z += log(c)
        c = 1.0 / c
        if not isfinite(c):
            return NAN
        for y in range(Y):
            a[y] *= c
        scale[t] = c
    for y in range(Y):
        beta[y] = 1.0
    for t in range(T - 1, -1, -1):
        a, x = alpha + t * Y, u + t * Y
        for y in range(Y):
            p[t * Y + y] = a[y] * beta[y]
            x[y] *= beta[y] * scale[t]
        if t > 0:
            op.row_times_matrix(Y, Y, x, psi_t + transition[t] * Y * Y, beta)
    return log_z


def exponentiate(
    const double[:, :, ::1] lam,   # in  [C][R][Y]
    double[:, :, ::1] psi,         # out [C][R][Y]  exp(lam - shift)
    double[:, :, ::1] psi_t,       # out [C][Y][Y]  transposed, without the begin row
    double[::1] shift,             # out [C]
    int64_t[::1] counter,
):
    """exp of every transition block, once per distinct block."""
    cdef int64_t C = lam.shape[0], R = lam.shape[1], Y = lam.shape[2], c, i, j
    with nogil:
        while True:
            c = crf_next_task(&counter[0])
            if c >= C:
                break
            shift[c] = operations().maximum(R * Y, &lam[c, 0, 0])
            operations().exp_shifted(R * Y, &lam[c, 0, 0], shift[c], &psi[c, 0, 0])
            for i in range(Y):
                for j in range(Y):
                    psi_t[c, j, i] = psi[c, i, j]


def marginals(
    const double[:, ::1] mu, const int32_t[::1] transition,
    const double[:, :, ::1] psi, const double[:, :, ::1] psi_t, const double[::1] shift,
    const int64_t[::1] offsets,
    double[:, ::1] p,              # out [N][Y]  p(y_t = y | x)
    double[::1] log_z,             # out [S]     NaN where the scaled recursion failed
    int64_t[::1] counter,
):
    """Forward-backward over many sequences."""
    cdef int64_t S = offsets.shape[0] - 1, Y = mu.shape[1], R = psi.shape[1], s, first, start, T, longest = 0
    cdef double* memory
    for s in range(S):
        longest = max(longest, offsets[s + 1] - offsets[s])
    memory = <double*> malloc((2 * longest * Y + longest + Y) * sizeof(double))
    if memory == NULL:
        raise MemoryError
    with nogil:
        while True:
            first = crf_next_task(&counter[0]) * GRAIN
            if first >= S:
                break
            for s in range(first, min(S, first + GRAIN)):
                start, T = offsets[s], offsets[s + 1] - offsets[s]
                if T == 0:
                    log_z[s] = 0.0
                    continue
                memcpy(memory, &mu[start, 0], T * Y * sizeof(double))
                log_z[s] = forward_backward(
                    T, Y, R, &transition[start], &psi[0, 0, 0], &psi_t[0, 0, 0], &shift[0],
                    memory, memory + T * Y, &p[start, 0], memory + 2 * T * Y)
    free(memory)


cdef int64_t viterbi_forward(
    int64_t T, int64_t Y, int64_t R,
    const double* mu, const int32_t* transition, const double* lam,
    double* delta,               # out [T][Y]  score of the best path that ends in y at t
    int32_t* back,               # out [T][Y]  its label at t - 1
) noexcept nogil:
    """The best last label. Ties go to the lowest previous label and the lowest last label."""
    cdef const crf_operations* op = operations()
    cdef int64_t t, y, best = 0
    cdef const double* row
    for t in range(T):
        if t > 0:
            op.best_predecessor(Y, Y, delta + (t - 1) * Y, lam + transition[t] * R * Y,
                                delta + t * Y, back + t * Y)
            op.add(Y, mu + t * Y, delta + t * Y)
        else:
            memcpy(delta, mu, Y * sizeof(double))
            if R > Y:
                row = lam + (transition[0] * R + Y) * Y
                op.add(Y, row, delta)
    for y in range(1, Y):
        if delta[(T - 1) * Y + y] > delta[(T - 1) * Y + best]:
            best = y
    return best


def viterbi(
    const double[:, ::1] mu, const int32_t[::1] transition, const double[:, :, ::1] lam,
    const int64_t[::1] offsets,
    int32_t[::1] labels,           # out [N]  the best path
    double[::1] scores,            # out [S]  its score
    int64_t[::1] counter,
):
    """The best path of many sequences."""
    cdef int64_t S = offsets.shape[0] - 1, Y = mu.shape[1], R = lam.shape[1]
    cdef int64_t s, t, y, first, start, T, longest = 0
    cdef double* delta
    cdef int32_t* back
    for s in range(S):
        longest = max(longest, offsets[s + 1] - offsets[s])
    delta = <double*> malloc((longest * Y + 1) * sizeof(double))
    back = <int32_t*> malloc((longest * Y + 1) * sizeof(int32_t))
    if delta == NULL or back == NULL:
        free(delta)
        free(back)
        raise MemoryError
    with nogil:
        while True:
            first = crf_next_task(&counter[0]) * GRAIN
            if first >= S:
                break
            for s in range(first, min(S, first + GRAIN)):
                start, T = offsets[s], offsets[s + 1] - offsets[s]
                if T == 0:
                    scores[s] = 0.0
                    continue
                y = viterbi_forward(T, Y, R, &mu[start, 0], &transition[start], &lam[0, 0, 0], delta, back)
                scores[s] = delta[(T - 1) * Y + y]
                for t in range(T - 1, -1, -1):
                    labels[start + t] = <int32_t> y
                    if t > 0:
                        y = back[t * Y + y]
    free(delta)
    free(back)


# n-best paths -------------------------------------------------------------------------------------------
#
# Every path other than the best one leaves some path found before it at one position: it keeps that
# path's labels after the position, takes another label there, and goes back to the start along the best
# way. Its loss is the loss of that path plus the loss of the detour, so the paths come out in order if
# the detours of each path found are put on a queue. A detour is only taken before the position where the
# path itself branched off, so no path is found twice (Lawler 1972).

cdef struct Detour:
    double loss                  # how much worse than the best path
    int64_t order                # when it was found: equal losses come out in this order
    int64_t path                 # the path it leaves
    int64_t position             # where; its labels after this position are kept
    int32_t label                # the label it takes there


cdef int compare_detours(const void* a, const void* b) noexcept nogil:
    cdef const Detour* x = <const Detour*> a
    cdef const Detour* y = <const Detour*> b
    if x.loss != y.loss:
        return -1 if x.loss < y.loss else 1
    return -1 if x.order < y.order else 1


def best_paths(
    const double[:, ::1] mu,             # in  [T][Y]
    const int32_t[::1] transition,       # in  [T]
    const double[:, :, ::1] lam,         # in  [C][R][Y]
    int32_t[:, ::1] paths,               # out [n][T]  best first
    double[::1] scores,                  # out [n]
):
    """How many paths were found: n, or all there are if those are fewer."""
    cdef int64_t T = mu.shape[0], Y = mu.shape[1], R = lam.shape[1], n = paths.shape[0]
    cdef int64_t found = 0, waiting = 0, taken = 0, order = 0, capacity, t, y, previous, branch, i
    cdef double* delta = <double*> malloc(T * Y * sizeof(double))
    cdef int32_t* back = <int32_t*> malloc(T * Y * sizeof(int32_t))
    cdef Detour* queue
    cdef double best, loss
    cdef Detour detour
    if T == 0 or n == 0:
        free(delta)
        free(back)
        return 0
    # `queue[taken:waiting]` is sorted whenever the next path is drawn; only the n best can matter.
    capacity = n + T * Y + Y
    queue = <Detour*> malloc(capacity * sizeof(Detour))
    if delta == NULL or back == NULL or queue == NULL:
        free(delta)
        free(back)
        free(queue)
        raise MemoryError
    with nogil:
        y = viterbi_forward(T, Y, R, &mu[0, 0], &transition[0], &lam[0, 0, 0], delta, back)
        best = delta[(T - 1) * Y + y]
        for i in range(Y):                       # the last label is a detour from the end of the chain
            queue[waiting] = Detour(best - delta[(T - 1) * Y + i], order, -1, T - 1, <int32_t> i)
            waiting += 1
            order += 1
        while found < n and taken < waiting:
            qsort(queue + taken, waiting - taken, sizeof(Detour), compare_detours)
            waiting = min(waiting, taken + n - found)
            detour = queue[taken]
            taken += 1
            for t in range(detour.position + 1, T):
                paths[found, t] = paths[detour.path, t]
            y, branch = detour.label, detour.position
            for t in range(branch, -1, -1):
                paths[found, t] = <int32_t> y
                if t > 0:
                    y = back[t * Y + y]
            scores[found] = best - detour.loss
            for i in range(waiting - taken):     # the queue starts at 0 again, so capacity suffices
                queue[i] = queue[taken + i]
            waiting, taken = waiting - taken, 0
            for t in range(branch, 0, -1):
                y, previous = paths[found, t], paths[found, t - 1]
                for i in range(Y):
                    if i == previous:
                        continue
                    loss = delta[t * Y + y] - (
                        (delta[(t - 1) * Y + i] + lam[transition[t], i, y]) + mu[t, y])
                    queue[waiting] = Detour(detour.loss + loss, order, found, t - 1, <int32_t> i)
                    waiting += 1
                    order += 1
            found += 1
    free(delta)
    free(back)
    free(queue)
    return found


def path_scores(
    const double[:, ::1] mu, const int32_t[::1] transition, const double[:, :, ::1] lam,
    const int64_t[::1] offsets,
    const int32_t[::1] labels,     # in  [N]
    double[::1] scores,            # out [S]
):
    """The score of one given path per sequence."""
    cdef int64_t S = offsets.shape[0] - 1, Y = mu.shape[1], R = lam.shape[1], s, t
    cdef double score
    with nogil:
        for s in range(S):
            score = 0.0
            for t in range(offsets[s], offsets[s + 1]):
                score += mu[t, labels[t]]
                if t > offsets[s]:
                    score += lam[transition[t], labels[t - 1], labels[t]]
                elif R > Y:
                    score += lam[transition[t], Y, labels[t]]
            scores[s] = score

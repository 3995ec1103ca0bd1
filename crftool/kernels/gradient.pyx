"""Log loss and its gradient over a block of sequences, in two phases.

1. `losses`: per sequence scores, forward-backward, residuals r[t] = p(y_t | x) - 1{y_t}. Sequences are
   independent; each writes its own rows.
2. `accumulate`: residuals are added to the gradient rows of the observations. A task owns whole templates,
   and templates that may produce the same observation belong to one task, so no two tasks write one row
   and each row adds up in token order: the result has the same bits for any number of threads.
   Transition expectations go to lanes that are fixed in the same way.
"""

from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from crftool.kernels.chain cimport Chain, Links, forward_backward, forward_backward_log, pair_factor
from crftool.kernels.vector cimport crf_next_task, crf_operations, operations

cdef enum:
    GRAIN = 8                    # sequences that a thread takes at a time
    AHEAD = 2                    # tokens whose rows are on their way from memory
    HOT_BYTES = 1 << 18          # the most frequent rows, which come first, stay in the cache by themselves


cdef inline bint beaten(int64_t Y, const double* p, int32_t label) noexcept nogil:
    """Whether another label is more probable; the first of equals wins, as in decoding."""
    cdef int64_t y
    for y in range(Y):
        if p[y] > p[label] or (p[y] == p[label] and y < label):
            return True
    return False


def losses(
    Chain chain,
    const double[:, ::1] mu_weights,     # in  [O][Y]      unigram weights
    const double[:, :, ::1] lam_weights, # in  [Ob][R][Y]  bigram weights
    const int32_t[:, ::1] unigrams,      # in  [N][K]      observation of each U template, -1 = none
    const int32_t[::1] transition,       # in  [N]         transition id
    const int32_t[:, ::1] bigrams,       # in  [C][Kb]     observations that make up a transition, -1 = none
    const int32_t[::1] labels,           # in  [N]
    const int64_t[::1] offsets,          # in  [S + 1]
    int64_t first_sequence, int64_t last_sequence,
    double[:, ::1] v,                    # out [n][Y]  of the block: see chain.forward_backward
    double[:, ::1] alpha,                # out [n][Y]
    double[:, ::1] residual,             # out [n][Y]
    double[::1] loss,                    # out [S]     log Z - score; NaN where the recursion failed
    int64_t[::1] errors,                 # out [S]     tokens whose most probable label is wrong
    int64_t[::1] counter,
):
    cdef const crf_operations* op = operations()
    cdef int64_t Y = mu_weights.shape[1], R = lam_weights.shape[1], K = unigrams.shape[1], Kb = bigrams.shape[1]
    cdef int64_t base = offsets[first_sequence], s, first, start, T, t, k, y, longest = 0, wrong
    cdef int64_t end = offsets[last_sequence], hot = HOT_BYTES / (8 * Y)
    cdef const int32_t* ids = &unigrams[0, 0] if unigrams.shape[0] * K else NULL
    cdef const double* mu = &mu_weights[0, 0] if mu_weights.shape[0] else NULL
    cdef double gold
    cdef double* x
    cdef double* work
    for s in range(first_sequence, last_sequence):
        longest = max(longest, offsets[s + 1] - offsets[s])
    work = <double*> malloc((longest + 4 * chain.links.P) * sizeof(double))
    if work == NULL:
        raise MemoryError
    with nogil:
        while True:
            first = first_sequence + crf_next_task(&counter[0]) * GRAIN
            if first >= last_sequence:
                break
            for s in range(first, min(last_sequence, first + GRAIN)):
                start, T, gold, wrong = offsets[s], offsets[s + 1] - offsets[s], 0.0, 0
                if T == 0:
                    loss[s], errors[s] = 0.0, 0
                    continue
                for t in range(start, start + T):
                    x = &v[t - base, 0]
                    op.sum_rows(Y, K, ids + t * K, ids + (t + AHEAD) * K if t + AHEAD < end else NULL, hot, mu, x)
                    gold += x[labels[t]]
                    if t > start or R > Y:
                        y = labels[t - 1] if t > start else Y
                        for k in range(Kb):
                            if bigrams[transition[t], k] >= 0:
                                gold += lam_weights[bigrams[transition[t], k], y, labels[t]]
                if chain.log_domain:
                    loss[s] = forward_backward_log(
                        &chain.links, T, &transition[start], &v[start - base, 0], &alpha[start - base, 0],
                        &residual[start - base, 0], work) - gold
                else:
                    loss[s] = forward_backward(
                        &chain.links, T, &transition[start], &v[start - base, 0], &alpha[start - base, 0],
                        &residual[start - base, 0], work) - gold
                if not isfinite(loss[s]):
                    continue
                for t in range(start, start + T):
                    x = &residual[t - base, 0]
                    if x[labels[t]] <= 0.5:              # else no other label can be as probable
                        wrong += beaten(Y, x, labels[t])
                    x[labels[t]] -= 1.0
                errors[s] = wrong
    free(work)


# Positions whose pairs wait to be added, until WAIT of one transition are there: a matrix is then read and
# written once for all of them.
cdef enum:
    WAIT = 16

cdef struct Waiting:
    int64_t position[WAIT]
    int64_t n


cdef inline void add_waiting(
    int64_t Y, Waiting* waiting, const double* alpha, const double* v, double* expected) noexcept nogil:
    """Add alpha[t-1] v[t]^T of the positions t that wait; rows of alpha and v are counted from 0."""
    cdef const double* a[WAIT]
    cdef const double* b[WAIT]
    cdef int64_t k
    for k in range(waiting.n):
        a[k], b[k] = alpha + (waiting.position[k] - 1) * Y, v + waiting.position[k] * Y
    operations().add_outers(Y, Y, waiting.n, a, b, expected)
    waiting.n = 0


cdef inline void add_log_pairs(
    const Links* links, int32_t c, const double* alpha, const double* v, double* row,
    double* expected) noexcept nogil:
    """Add the pair probabilities themselves, from messages in the log domain."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = links.Y, i, y
    cdef const double* lam
    lam = links.lam + links.slot[c] * links.stride
    for i in range(Y):
        for y in range(Y):
            row[y] = lam[i * Y + y] + v[y]
        op.exp_shifted(Y, row, -alpha[i], row)
        op.add(Y, row, expected + i * Y)


def accumulate(
    Chain chain,
    const int32_t[:, ::1] unigrams,      # in  [N][K]
    const int32_t[::1] transition,       # in  [N]
    const int64_t[::1] offsets,          # in  [S + 1]
    int64_t first_sequence, int64_t last_sequence,
    const int32_t[::1] group_bounds,     # in  [G + 1]  template groups: their columns of `unigrams`
    const int32_t[::1] group_columns,    # in  [K]
    const int64_t[::1] candidates,       # in  [C + 1]  label pairs that may have weights, by transition: bounds
    const int32_t[:, ::1] pairs,         # in  [candidates][2]; None: all pairs may
    const double[:, ::1] v, const double[:, ::1] alpha, const double[:, ::1] residual,   # in  [n][Y]
    double[:, ::1] mu_grad,              # out [O][Y]
    double[:, ::1] expected,             # out [A][C * Y * Y, or candidates]  sums of alpha[t-1] v[t]^T
    double[:, :, ::1] begin,             # out [A][C][Y]  residuals of first positions
    int64_t lanes,
    int64_t[::1] counter,
):
    """Add a block's residuals and transition expectations.

    Tasks 0 to lanes - 1 are the transitions: with a copy of `expected` per lane (A = lanes), a lane takes
    a fixed share of the sequences; with a single copy, the transition ids that are equal to it modulo
    `lanes`. The other tasks are the groups of templates.
    """
    cdef const crf_operations* op = operations()
    cdef int64_t Y = residual.shape[1], G = group_bounds.shape[0] - 1
    cdef int64_t base = offsets[first_sequence], sequences = last_sequence - first_sequence
    cdef int64_t task, s, t, k, copy, low, high, end = offsets[last_sequence]
    cdef bint by_sequence = expected.shape[0] == lanes, listed = pairs is not None
    cdef double* row = <double*> malloc(Y * sizeof(double))
    cdef Waiting* waiting = <Waiting*> calloc(chain.C, sizeof(Waiting))
    cdef int32_t c
    if row == NULL or waiting == NULL:
        free(row)
        free(waiting)
        raise MemoryError
    with nogil:
        while True:
            task = crf_next_task(&counter[0])
            if task >= lanes + G:
                break
            if task >= lanes:
                k = group_bounds[task - lanes]
                if mu_grad.shape[0]:
                    op.add_to_rows(Y, end - base, unigrams.shape[1], &unigrams[base, 0],
                                   group_bounds[task - lanes + 1] - k, &group_columns[k], HOT_BYTES / (8 * Y), 1.0,
                                   &residual[0, 0], &mu_grad[0, 0])
                continue
            low, high, copy = first_sequence, last_sequence, 0
            if by_sequence:
                low, high = first_sequence + sequences * task / lanes, first_sequence + sequences * (task + 1) / lanes
                copy = task
            for s in range(low, high):
                for t in range(offsets[s], offsets[s + 1]):
                    c = transition[t]
                    if not by_sequence and c % lanes != task:
                        continue
                    if t == offsets[s]:
                        if chain.begin_label:
                            op.add(Y, &residual[t - base, 0], &begin[copy, c, 0])
                    elif listed:
                        for k in range(candidates[c], candidates[c + 1]):
                            expected[copy, k] += alpha[t - 1 - base, pairs[k, 0]] * v[t - base, pairs[k, 1]]
                    elif chain.log_domain:
                        add_log_pairs(&chain.links, c, &alpha[t - 1 - base, 0], &v[t - base, 0], row,
                                      &expected[copy, c * Y * Y])
                    else:
                        waiting[c].position[waiting[c].n] = t - base
                        waiting[c].n += 1
                        if waiting[c].n == WAIT:
                            add_waiting(Y, &waiting[c], &alpha[0, 0], &v[0, 0], &expected[copy, c * Y * Y])
            for c in range(chain.C):
                if waiting[c].n:
                    add_waiting(Y, &waiting[c], &alpha[0, 0], &v[0, 0], &expected[copy, c * Y * Y])
    free(row)
    free(waiting)


def add_expectations(
    Chain chain,
    const double[:, ::1] expected,         # in  [A][C * Y * Y, or candidates]
    const double[:, :, ::1] begin,         # in  [A][C][Y]
    const int64_t[::1] candidates,         # in  [C + 1]
    const int32_t[:, ::1] pairs,           # in  [candidates][2], or None
    const int32_t[:, ::1] bigrams,         # in  [C][Kb]
    double[:, :, ::1] lam_grad,            # out [Ob][R][Y]
):
    """lam_grad += expected pair counts, psi o sum of the lanes, for each observation of a transition."""
    cdef const Links* links = &chain.links
    cdef int64_t A = expected.shape[0], C = chain.C, Y = chain.Y, k, j, i, y, copy, first, last
    cdef int32_t c
    cdef bint listed = pairs is not None
    cdef double total
    with nogil:
        for c in range(C):
            first = candidates[c] if listed else 0
            last = candidates[c + 1] if listed else Y * Y
            for j in range(first, last):
                i = pairs[j, 0] if listed else j / Y
                y = pairs[j, 1] if listed else j % Y
                total = 0.0
                for copy in range(A):
                    total += expected[copy, j] if listed else expected[copy, c * Y * Y + j]
                if not chain.log_domain:
                    total *= pair_factor(links, c, i, y)
                for k in range(bigrams.shape[1]):
                    if bigrams[c, k] >= 0:
                        lam_grad[bigrams[c, k], i, y] += total
            if not chain.begin_label:
                continue
            for y in range(Y):
                total = 0.0
                for copy in range(A):
                    total += begin[copy, c, y]
                for k in range(bigrams.shape[1]):
                    if bigrams[c, k] >= 0:
                        lam_grad[bigrams[c, k], Y, y] += total

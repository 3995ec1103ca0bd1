"""Log loss and its gradient over a block of sequences, in two phases.

1. `losses`: scores, forward-backward, residuals r[t] = p(y_t | x) - 1{y_t}, expected label pairs. Sequences
   are independent; each writes its own rows. Pairs go to lanes, each of which is a fixed share of the
   sequences and adds up in their order.
2. `accumulate`: residuals are added to the gradient rows of the observations. A task owns a lane of templates,
   and templates that may produce the same observation belong to one lane, so no two tasks write one row
   and each row adds up in token order: the result has the same bits for any number of threads.
"""

from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from crftool.kernels.batches cimport Batch, forward_backward_many, free_batch, make_batch
from crftool.kernels.chain cimport Chain, Links, forward_backward_log
from crftool.kernels.pairs cimport PairSums, add_pairs, free_pair_sums, make_pair_sums
from crftool.kernels.vector cimport crf_next_task, crf_operations, operations

cdef enum:
    BATCH_TOKENS = 1024          # tokens whose sequences are worked on at once
    BATCH_SEQUENCES = 256
    AHEAD = 2                    # tokens whose rows are on their way from memory
    HOT_BYTES = 1 << 18          # the most frequent rows, which come first, stay in the cache by themselves


cdef inline bint beaten(int64_t Y, const double* p, int32_t label) noexcept nogil:
    """Whether another label is more probable; the first of equals wins, as in decoding."""
    cdef int64_t y
    for y in range(Y):
        if p[y] > p[label] or (p[y] == p[label] and y < label):
            return True
    return False


cdef int64_t batch_end(const int64_t* offsets, int64_t s, int64_t last) noexcept nogil:
    """Where the batch of sequences ends that begins with s."""
    cdef int64_t end = s
    while end < last and end < s + BATCH_SEQUENCES and (end == s or offsets[end + 1] - offsets[s] <= BATCH_TOKENS):
        end += 1
    return end


cdef void add_scores(
    const double[:, ::1] mu_weights, const double[:, :, ::1] lam_weights, const int32_t[:, ::1] unigrams,
    const int32_t[::1] transition, const int32_t[:, ::1] bigrams, const int32_t[::1] labels,
    const int64_t[::1] offsets, int64_t s, int64_t end, double* u, double* gold) noexcept nogil:
    """Scores u [n][Y] of the tokens of some sequences, and of their own labels, gold [S]."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = mu_weights.shape[1], R = lam_weights.shape[1], K = unigrams.shape[1], Kb = bigrams.shape[1]
    cdef int64_t last = offsets[offsets.shape[0] - 1], hot = HOT_BYTES / (8 * Y), t, k, y, i
    cdef const int32_t* ids = &unigrams[0, 0] if unigrams.shape[0] * K else NULL
    cdef const double* mu = &mu_weights[0, 0] if mu_weights.shape[0] else NULL
    for i in range(end - s):
        gold[i] = 0.0
        for t in range(offsets[s + i], offsets[s + i + 1]):
            op.sum_rows(Y, K, ids + t * K, ids + (t + AHEAD) * K if t + AHEAD < last else NULL, hot, mu, u)
            gold[i] += u[labels[t]]
            u += Y
            if t > offsets[s + i] or R > Y:
                y = labels[t - 1] if t > offsets[s + i] else Y
                for k in range(Kb):
                    if bigrams[transition[t], k] >= 0:
                        gold[i] += lam_weights[bigrams[transition[t], k], y, labels[t]]


cdef int64_t subtract_labels(int64_t Y, int64_t T, const int32_t* labels, double* p) noexcept nogil:
    """p [T][Y] becomes residuals; how many tokens have a more probable label than their own."""
    cdef int64_t t, wrong = 0
    for t in range(T):
        if p[labels[t]] <= 0.5:                      # else no other label can be as probable
            wrong += beaten(Y, p, labels[t])
        p[labels[t]] -= 1.0
        p += Y
    return wrong


def losses(
    Chain chain,
    const double[:, ::1] mu_weights,     # in  [O][Y]      unigram weights
    const double[:, :, ::1] lam_weights, # in  [Ob][R][Y]  bigram weights
    const int32_t[:, ::1] unigrams,      # in  [N][K]      observation of each U template, -1 = none
    const int32_t[::1] transition,       # in  [N]         transition id
    const int32_t[:, ::1] bigrams,       # in  [C][Kb]     observations that make up a transition, -1 = none
    const int32_t[::1] labels,           # in  [N]
    const int64_t[::1] offsets,          # in  [S + 1]
    int64_t first, int64_t last,         # sequences of the block
    double[:, ::1] v,                    # out [n][Y]  of the block: see chain.forward_backward
    double[:, ::1] alpha,                # out [n][Y]
    double[:, ::1] residual,             # out [n][Y]
    double[::1] loss,                    # out [S]     log Z - score; NaN where the recursion failed
    int64_t[::1] errors,                 # out [S]     tokens whose most probable label is wrong
    const int64_t[::1] candidates,       # see pairs.PairSums
    const int32_t[:, ::1] pairs,
    double[:, ::1] expected,             # out [lanes][C * Y * Y, or candidates]; another first size: no pairs
    double[:, :, ::1] begin,             # out [lanes][C][Y]
    int64_t lanes,
    int64_t[::1] counter,
):
    """Scores to residuals and label pairs. A task is a lane: a fixed share of the block's sequences."""
    cdef int64_t Y = mu_weights.shape[1], base = offsets[first], lane, s, i, n, at, bound, longest = 1
    cdef bint room, with_pairs = expected.shape[0] == lanes
    cdef Batch batch
    cdef PairSums sums
    cdef double* gold
    for s in range(first, last):
        longest = max(longest, offsets[s + 1] - offsets[s])
    room = make_batch(&batch, &chain.links, chain.C, BATCH_SEQUENCES, max(longest, <int64_t> BATCH_TOKENS), longest)
    room = make_pair_sums(&sums, chain, candidates, pairs) and room
    gold = <double*> malloc((BATCH_SEQUENCES + 4 * Y) * sizeof(double))
    if room and gold != NULL and offsets[last] > base:
        with nogil:
            while True:
                lane = crf_next_task(&counter[0])
                if lane >= lanes:
                    break
                s, bound = first + (last - first) * lane / lanes, first + (last - first) * (lane + 1) / lanes
                while s < bound:
                    n, at = batch_end(&offsets[0], s, bound) - s, offsets[s] - base
                    if offsets[s + n] == offsets[s]:             # nothing but empty sequences
                        for i in range(s, s + n):
                            loss[i], errors[i] = 0.0, 0
                        s += n
                        continue
                    add_scores(mu_weights, lam_weights, unigrams, transition, bigrams, labels, offsets, s, s + n,
                               &v[at, 0], gold)
                    if chain.log_domain:
                        forward_backward_log_many(&chain.links, n, &offsets[s], &transition[base + at], &v[at, 0],
                                                  &alpha[at, 0], &residual[at, 0], &loss[s], gold + BATCH_SEQUENCES)
                    else:
                        forward_backward_many(&chain.links, &batch, n, &offsets[s], &transition[base + at], &v[at, 0],
                                              &alpha[at, 0], &residual[at, 0], &loss[s])
                    for i in range(s, s + n):
                        loss[i] -= gold[i - s]
                        errors[i] = 0
                        if isfinite(loss[i]) and offsets[i + 1] > offsets[i]:
                            errors[i] = subtract_labels(Y, offsets[i + 1] - offsets[i], &labels[offsets[i]],
                                                        &residual[offsets[i] - base, 0])
                    if with_pairs:
                        add_pairs(&sums, &offsets[s], n, &transition[base + at], 0, 1, &alpha[at, 0], &v[at, 0],
                                  &residual[at, 0], &expected[lane, 0], &begin[lane, 0, 0])
                    s += n
    free_batch(&batch)
    free_pair_sums(&sums)
    free(gold)
    if not room or gold == NULL:
        raise MemoryError


cdef void forward_backward_log_many(
    const Links* links, int64_t S, const int64_t* offsets, const int32_t* transition, double* u, double* alpha,
    double* p, double* log_z, double* work) noexcept nogil:
    """What forward_backward_many does, in the log domain, one sequence after the other."""
    cdef int64_t s, at
    for s in range(S):
        at, log_z[s] = offsets[s] - offsets[0], 0.0
        if offsets[s + 1] > offsets[s]:
            log_z[s] = forward_backward_log(links, offsets[s + 1] - offsets[s], transition + at, u + at * links.Y,
                                            alpha + at * links.Y, p + at * links.Y, work)


def accumulate(
    const int32_t[:, ::1] unigrams,      # in  [N][K]
    int64_t first, int64_t last,         # tokens of the block
    const int32_t[::1] lane_bounds,      # in  [lanes + 1]  columns of `unigrams` that no other lane's rows are in
    const int32_t[::1] lane_columns,     # in  [K]
    const double[:, ::1] residual,       # in  [n][Y]
    double[:, ::1] mu_grad,              # out [O][Y]
    int64_t[::1] counter,
):
    """Add a block's residuals to the rows of their observations. A task is a lane."""
    cdef int64_t Y = residual.shape[1], lanes = lane_bounds.shape[0] - 1, lane, k
    if mu_grad.shape[0] == 0 or first == last:
        return
    with nogil:
        while True:
            lane = crf_next_task(&counter[0])
            if lane >= lanes:
                break
            k = lane_bounds[lane]
            operations().add_to_rows(
                Y, last - first, unigrams.shape[1], &unigrams[first, 0], lane_bounds[lane + 1] - k,
                &lane_columns[k], HOT_BYTES / (8 * Y), 1.0, &residual[0, 0], &mu_grad[0, 0])

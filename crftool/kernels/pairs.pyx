"""Expected counts of label pairs: sums over positions of alpha[t-1] v[t]^T, then times psi (see chain.pyx).

In the log domain the probabilities themselves are added up.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

from crftool.kernels.chain cimport Chain, Links, pair_factor
from crftool.kernels.vector cimport crf_next_task, crf_operations, operations


cdef bint make_pair_sums(PairSums* sums, Chain chain, const int64_t[::1] candidates, const int32_t[:, ::1] pairs):
    """False if there is no memory."""
    sums.links, sums.log_domain, sums.begin_label, sums.C = &chain.links, chain.log_domain, chain.begin_label, chain.C
    sums.candidates = NULL if pairs is None else &candidates[0]
    sums.pairs = NULL if pairs is None or pairs.shape[0] == 0 else &pairs[0, 0]
    sums.row = <double*> malloc(chain.Y * sizeof(double))
    sums.waiting = <Waiting*> calloc(chain.C, sizeof(Waiting))
    return sums.row != NULL and sums.waiting != NULL


cdef void free_pair_sums(PairSums* sums) noexcept nogil:
    free(sums.row)
    free(sums.waiting)


cdef inline void add_waiting(
    const Links* links, Waiting* waiting, const double* alpha, const double* v, double* expected) noexcept nogil:
    """Add the pairs of the positions that wait."""
    cdef const double* a[WAIT]
    cdef const double* b[WAIT]
    cdef int64_t k
    for k in range(waiting.n):
        a[k], b[k] = alpha + (waiting.position[k] - 1) * links.Y, v + waiting.position[k] * links.Y
    operations().add_outers(links.Y, links.Y, waiting.n, a, b, expected)
    waiting.n = 0


cdef inline void add_log_pairs(
    const Links* links, int32_t c, const double* alpha, const double* v, double* row,
    double* expected) noexcept nogil:
    """Add the pair probabilities themselves, from messages in the log domain."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = links.Y, i, y
    cdef const double* lam = links.lam + links.slot[c] * links.stride
    for i in range(Y):
        for y in range(Y):
            row[y] = lam[i * Y + y] + v[y]
        op.exp_shifted(Y, row, -alpha[i], row)
        op.add(Y, row, expected + i * Y)


cdef void add_pairs(
    PairSums* sums,
    const int64_t* offsets, int64_t S,   # in  [S + 1]  of the sequences; arrays begin at the first of them
    const int32_t* transition,           # in  [N]
    int64_t share, int64_t shares,       # only transitions that are `share` modulo `shares`
    const double* alpha, const double* v, const double* p,     # in  [N][Y]
    double* expected,                    # out [C][Y][Y], or [candidates]
    double* begin,                       # out [C][Y]  sums of p of first positions
) noexcept nogil:
    """Add the pairs of all positions of some sequences, in their order."""
    cdef int64_t Y = sums.links.Y, base = offsets[0], s, t, first, k
    cdef const double* a
    cdef const double* b
    cdef int32_t c
    for s in range(S):
        first = offsets[s] - base
        for t in range(first, offsets[s + 1] - base):
            c = transition[t]
            if shares > 1 and c % shares != share:
                continue
            a, b = alpha + (t - 1) * Y, v + t * Y
            if t == first:
                if sums.begin_label:
                    operations().add(Y, p + t * Y, begin + c * Y)
            elif sums.candidates != NULL:
                for k in range(sums.candidates[c], sums.candidates[c + 1]):
                    expected[k] += a[sums.pairs[2 * k]] * b[sums.pairs[2 * k + 1]]
            elif sums.log_domain:
                add_log_pairs(sums.links, c, a, b, sums.row, expected + c * Y * Y)
            else:
                sums.waiting[c].position[sums.waiting[c].n] = t
                sums.waiting[c].n += 1
                if sums.waiting[c].n == WAIT:
                    add_waiting(sums.links, &sums.waiting[c], alpha, v, expected + c * Y * Y)
    for c in range(sums.C):
        if sums.waiting[c].n:
            add_waiting(sums.links, &sums.waiting[c], alpha, v, expected + c * Y * Y)


def count_pairs(
    Chain chain,
    const int32_t[::1] transition,         # in  [N]
    const int64_t[::1] offsets,            # in  [S + 1]
    int64_t first, int64_t last,           # sequences of the block
    const int64_t[::1] candidates, const int32_t[:, ::1] pairs,
    const double[:, ::1] v, const double[:, ::1] alpha, const double[:, ::1] p,          # in  [n][Y]
    double[:, ::1] expected,               # out [A][C * Y * Y, or candidates]
    double[:, :, ::1] begin,               # out [A][C][Y]
    int64_t lanes,
    int64_t[::1] counter,
):
    """Add the pairs of a block. A task is a lane: with a copy of `expected` for each (A = lanes), a fixed share of
    the sequences; with a single copy, the transitions that are equal to it modulo `lanes`."""
    cdef int64_t base = offsets[first], task, copy, s, n, at
    cdef bint by_sequence = expected.shape[0] == lanes
    cdef PairSums sums
    cdef bint room = make_pair_sums(&sums, chain, candidates, pairs)
    if room and offsets[last] > base:
        with nogil:
            while True:
                task = crf_next_task(&counter[0])
                if task >= lanes:
                    break
                s, n, copy = first, last - first, 0
                if by_sequence:
                    s, copy = first + n * task / lanes, task
                    n = first + n * (task + 1) / lanes - s
                at = offsets[s] - base
                if n and offsets[s + n] > offsets[s]:
                    add_pairs(&sums, &offsets[s], n, &transition[base + at], task, 1 if by_sequence else lanes,
                              &alpha[at, 0], &v[at, 0], &p[at, 0], &expected[copy, 0], &begin[copy, 0, 0])
    free_pair_sums(&sums)
    if not room:
        raise MemoryError


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

"""What else can be asked of a chain: truncated recursions, probabilities of segments, entropy.

The notation is that of chain.pyx.
"""

from libc.math cimport NAN, exp, log
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from crftool.kernels.chain cimport (Chain, Links, add_boundaries, forward_position, pair_factor, sequence_sums,
                                    step)
from crftool.kernels.vector cimport crf_next_task, crf_operations, operations


def truncated_marginals(
    Chain chain,
    double[:, ::1] mu,             # in  [T][Y]; spoilt
    const int32_t[::1] transition, # in  [T]
    int64_t first, int64_t last,   # the first and the last position of interest
    double[:, ::1] alpha,          # out [T][Y]  valid up to `last`: scaled forward scores
    double[:, ::1] v,              # out [T][Y]  valid from `first`: exp(mu) o beta, scaled to sum 1
    double[:, ::1] p,              # out [T][Y]  valid from `first` to `last`: p(y_t = y | x)
):
    """log Z, from forward scores up to `last` and backward scores down to `first` only.

    What coordinate descent needs of a sequence where an observation occurs between `first` and `last`
    (Sokolovska et al. 2010, section 4.4). The probability of a label pair at t is proportional to
    alpha[t-1][y'] psi[y'][y] v[t][y].
    """
    cdef int64_t T = mu.shape[0], Y = chain.Y, t, y
    cdef const crf_operations* op = operations()
    cdef double log_forward = 0.0, log_backward = 0.0, total, largest, scale = 0.0, log_z = NAN
    cdef double* beta
    if chain.log_domain or not 0 <= first <= last < T:
        raise ValueError("truncated recursions are scaled, from first to last < T")
    beta = <double*> malloc(chain.links.P * sizeof(double))
    if beta == NULL:
        raise MemoryError
    with nogil:
        for t in range(last + 1):
            log_forward += forward_position(&chain.links, T, t, &transition[0], &mu[t, 0], &alpha[t, 0], &scale, beta)
        for y in range(Y):
            beta[y] = 1.0
        for t in range(T - 1, first - 1, -1):
            if t <= last:                            # both messages are here: normalise
                for y in range(Y):
                    p[t, y] = alpha[t, y] * beta[y]
                total = op.sum(Y, &p[t, 0])
                if t == last:
                    log_z = log_forward + log_backward + log(total)
                for y in range(Y):
                    p[t, y] /= total
            else:
                add_boundaries(&chain.links, T, t, &transition[0], &mu[t, 0])
                largest = op.maximum(Y, &mu[t, 0])
                op.exp_shifted(Y, &mu[t, 0], largest, &mu[t, 0])
                log_backward += largest
            for y in range(Y):
                v[t, y] = mu[t, y] * beta[y]
            total = op.sum(Y, &v[t, 0])
            for y in range(Y):
                v[t, y] /= total
            if t > last:
                log_backward += log(total) + chain.links.shift[transition[t]]
            if t > 0:
                step(&chain.links, transition[t], False, &v[t, 0], beta)
    free(beta)
    return log_z


cdef inline double pair_probability(
    const Links* links, bint log_domain, int32_t c, const double* a, const double* v, int64_t previous,
    int64_t y) noexcept nogil:
    """p(y_{t-1} = previous, y_t = y | x), from the messages alpha[t-1] and v[t]."""
    if log_domain:
        return exp(a[previous] + links.lam[links.slot[c] * links.stride + previous * links.Y + y] + v[y])
    return a[previous] * pair_factor(links, c, previous, y) * v[y]


cdef double segment_share(
    const Links* links, bint log_domain, int64_t T,
    const int32_t* transition,           # in  [T]
    const double* alpha,                 # in  [T][Y]  messages of sequence_sums
    const double* v,                     # in  [T][Y]
    const double* p,                     # in  [T][Y]
    const int32_t* labels,               # in  [T]
    int64_t first, int64_t last,         # of the segment
    const unsigned char* starts,         # in  [Y][stride]  whether a segment may start between two labels
    const unsigned char* ends,           # in  [Y][stride]  whether it may end between them
    int64_t stride,
) noexcept nogil:
    """The probability that a segment has just these labels, and starts and ends where it does: the share of
    Z that paths have which fulfil all that."""
    cdef int64_t Y = links.Y, t, y
    cdef double total, share = p[first * Y + labels[first]]
    if first > 0:
        share = 0.0
        for y in range(Y):
            if starts[y * stride + labels[first]]:
                share += pair_probability(links, log_domain, transition[first], alpha + (first - 1) * Y,
                                          v + first * Y, y, labels[first])
    for t in range(first + 1, last + 2):             # p(y_t | y_{t-1}), and the end after the last
        if t == T or share == 0.0:
            break
        total = 0.0
        if t <= last:
            total = pair_probability(links, log_domain, transition[t], alpha + (t - 1) * Y, v + t * Y,
                                     labels[t - 1], labels[t])
        else:
            for y in range(Y):
                if ends[labels[last] * stride + y]:
                    total += pair_probability(links, log_domain, transition[t], alpha + (t - 1) * Y, v + t * Y,
                                              labels[last], y)
        share *= total / p[(t - 1) * Y + labels[t - 1]]
    return share


def segment_probabilities(
    Chain chain, const double[:, ::1] mu, const int32_t[::1] transition, const int64_t[::1] offsets,
    const int32_t[::1] labels,           # in  [N]
    const int64_t[::1] bounds,           # in  [S + 1]  the segments of each sequence
    const int64_t[:, ::1] segments,      # in  [M][2]   first and last token
    const unsigned char[:, ::1] starts,  # in  [Y][Y]
    const unsigned char[:, ::1] ends,    # in  [Y][Y]
    double[::1] probability,             # out [M]
    int64_t[::1] counter,
):
    """segment_share of many segments; NaN where the scaled recursion failed."""
    cdef int64_t S = offsets.shape[0] - 1, Y = chain.Y, s, m, start, T, longest = 0
    cdef double log_z
    cdef double* v
    cdef double* alpha
    cdef double* p
    cdef double* memory
    for s in range(S):
        longest = max(longest, offsets[s + 1] - offsets[s])
    memory = <double*> malloc((3 * longest * Y + longest + 4 * chain.links.P) * sizeof(double))
    if memory == NULL:
        raise MemoryError
    with nogil:
        while True:
            s = crf_next_task(&counter[0])
            if s >= S:
                break
            if bounds[s] == bounds[s + 1]:
                continue
            start, T = offsets[s], offsets[s + 1] - offsets[s]
            v, alpha, p = memory, memory + T * Y, memory + 2 * T * Y
            memcpy(v, &mu[start, 0], T * Y * sizeof(double))
            log_z = sequence_sums(chain, T, &transition[start], v, alpha, p, memory + 3 * T * Y)
            for m in range(bounds[s], bounds[s + 1]):
                probability[m] = NAN if log_z != log_z else segment_share(
                    &chain.links, chain.log_domain, T, &transition[start], alpha, v, p, &labels[start],
                    segments[m, 0] - start, segments[m, 1] - start, &starts[0, 0], &ends[0, 0], Y)
    free(memory)


# Entropy --------------------------------------------------------------------------------------------------

cdef double expected_score(
    const Links* links, int64_t T, const int32_t* transition, const double* mu, const double* alpha,
    const double* v, const double* p, double* row) noexcept nogil:
    """E[score], from the probabilities of labels and pairs."""
    cdef int64_t Y = links.Y, t, y, i, e
    cdef int32_t c
    cdef double expected = 0.0, pair
    cdef const double* lam
    for t in range(T):
        memcpy(row, mu + t * Y, Y * sizeof(double))
        add_boundaries(links, T, t, transition, row)
        for y in range(Y):
            if p[t * Y + y] > 0.0:                   # forbidden labels have score -inf
                expected += p[t * Y + y] * row[y]
        if t == 0:
            continue
        c = transition[t]
        if links.slot[c] >= 0:
            lam = links.lam + links.slot[c] * links.stride
            for i in range(Y):
                for y in range(Y):
                    pair = (alpha[(t - 1) * Y + i] * v[t * Y + y]
                            * links.psi[(links.slot[c] * Y + i) * links.P + y])
                    if pair > 0.0:
                        expected += pair * lam[i * Y + y]
        else:
            for y in range(Y):
                for e in range(links.into[c * Y + y], links.into[c * Y + y + 1]):
                    pair = alpha[(t - 1) * Y + links.previous[e]] * v[t * Y + y] * links.factor[e]
                    if pair > 0.0:
                        expected += pair * links.weight[e]
    return expected


cdef double entropy_by_steps(
    const Links* links, int64_t T, const int32_t* transition, const double* alpha, const double* v,
    const double* p, double* row) noexcept nogil:
    """By the chain rule: -sum p(y_1) log p(y_1) - sum p(y', y) log p(y | y'). Scores as large as the log
    domain allows would cancel in log Z - E[score]."""
    cdef int64_t Y = links.Y, t, y, i
    cdef double entropy = 0.0, before
    for y in range(Y):
        if p[y] > 0.0:
            entropy -= p[y] * log(p[y])
    for t in range(1, T):
        for i in range(Y):
            before = 0.0
            for y in range(Y):
                row[y] = pair_probability(links, True, transition[t], alpha + (t - 1) * Y, v + t * Y, i, y)
                before += row[y]
            for y in range(Y):
                if row[y] > 0.0:
                    entropy -= row[y] * log(row[y] / before)
    return entropy


cdef double sequence_entropy(
    const Links* links, bint log_domain, int64_t T,
    const int32_t* transition,           # in  [T]
    const double* mu,                    # in  [T][Y]
    const double* alpha,                 # in  [T][Y]  messages of sequence_sums
    const double* v,                     # in  [T][Y]
    const double* p,                     # in  [T][Y]
    double log_z,
    double* row,                         # [Y]  scratch
) noexcept nogil:
    """Entropy of p(y | x) in nats."""
    if log_domain:
        return entropy_by_steps(links, T, transition, alpha, v, p, row)
    return log_z - expected_score(links, T, transition, mu, alpha, v, p, row)


def entropies(
    Chain chain, const double[:, ::1] mu, const int32_t[::1] transition, const int64_t[::1] offsets,
    double[::1] entropy,           # in out [S]  NaN: still to do; NaN where the scaled recursion failed
    int64_t[::1] counter,
):
    """sequence_entropy of the sequences whose entropy is NaN."""
    cdef int64_t S = offsets.shape[0] - 1, Y = chain.Y, s, start, T, longest = 0
    cdef double log_z
    cdef double* memory
    cdef double* v
    cdef double* alpha
    cdef double* p
    for s in range(S):
        longest = max(longest, offsets[s + 1] - offsets[s])
    memory = <double*> malloc((3 * longest * Y + longest + 4 * chain.links.P) * sizeof(double))
    if memory == NULL:
        raise MemoryError
    with nogil:
        while True:
            s = crf_next_task(&counter[0])
            if s >= S:
                break
            start, T = offsets[s], offsets[s + 1] - offsets[s]
            if T == 0:
                entropy[s] = 0.0
            if entropy[s] == entropy[s]:
                continue
            v, alpha, p = memory, memory + T * Y, memory + 2 * T * Y
            memcpy(v, &mu[start, 0], T * Y * sizeof(double))
            log_z = sequence_sums(chain, T, &transition[start], v, alpha, p, memory + 3 * T * Y)
            if log_z == log_z:
                entropy[s] = sequence_entropy(&chain.links, chain.log_domain, T, &transition[start], &mu[start, 0],
                                              alpha, v, p, log_z, memory + 3 * T * Y)
    free(memory)

"""What else can be asked of a chain: truncated recursions, probabilities of segments, entropy.

The notation is that of chain.pyx.
"""

from libc.math cimport NAN, exp, log
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from crftool.kernels.chain cimport (Chain, Links, add_boundaries, forward_backward, forward_position, pair_factor,
                                    sequence_sums, step_backward)
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
                step_backward(&chain.links, transition[t], &v[t, 0], beta)
    free(beta)
    return log_z


cdef inline double pair_probability(
    Chain chain, int32_t c, const double* a, const double* v, int64_t previous, int64_t y) noexcept nogil:
    """p(y_{t-1} = previous, y_t = y | x), from the messages alpha[t-1] and v[t]."""
    if chain.log_domain:
        return exp(a[previous] + chain.links.lam[chain.links.slot[c] * chain.links.stride + previous * chain.Y + y]
                   + v[y])
    return a[previous] * pair_factor(&chain.links, c, previous, y) * v[y]


def segment_probabilities(
    Chain chain, const double[:, ::1] mu, const int32_t[::1] transition, const int64_t[::1] offsets,
    const int32_t[::1] labels,           # in  [N]
    const int64_t[::1] bounds,           # in  [S + 1]  the segments of each sequence
    const int64_t[:, ::1] segments,      # in  [M][2]   first and last token
    const unsigned char[:, ::1] starts,  # in  [Y][Y]   whether a segment may start between two labels
    const unsigned char[:, ::1] ends,    # in  [Y][Y]   whether it may end between them
    double[::1] probability,             # out [M]
    int64_t[::1] counter,
):
    """The probability that a segment has just these labels, and starts and ends where it does: the share of
    Z that paths have which fulfil all that. NaN where the scaled recursion failed."""
    cdef int64_t S = offsets.shape[0] - 1, Y = chain.Y, s, m, t, y, first, last, start, T, longest = 0
    cdef double log_z, share, total
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
                if log_z != log_z:
                    probability[m] = NAN
                    continue
                first, last = segments[m, 0] - start, segments[m, 1] - start
                share = p[first * Y + labels[start + first]]
                if first > 0:
                    share = 0.0
                    for y in range(Y):
                        if starts[y, labels[start + first]]:
                            share += pair_probability(chain, transition[start + first], alpha + (first - 1) * Y,
                                                      v + first * Y, y, labels[start + first])
                for t in range(first + 1, last + 2):         # p(y_t | y_{t-1}), and the end after the last
                    if t == T or share == 0.0:
                        break
                    total = 0.0
                    if t <= last:
                        total = pair_probability(chain, transition[start + t], alpha + (t - 1) * Y, v + t * Y,
                                                 labels[start + t - 1], labels[start + t])
                    else:
                        for y in range(Y):
                            if ends[labels[start + last], y]:
                                total += pair_probability(chain, transition[start + t], alpha + (t - 1) * Y,
                                                          v + t * Y, labels[start + last], y)
                    share *= total / p[(t - 1) * Y + labels[start + t - 1]]
                probability[m] = share
    free(memory)


def entropies(
    Chain chain, const double[:, ::1] mu, const int32_t[::1] transition, const int64_t[::1] offsets,
    double[::1] entropy,           # out [S]
    int64_t[::1] counter,
):
    """Entropy of p(y | x) in nats: log Z - E[score], the expectation from token and pair probabilities."""
    cdef int64_t S = offsets.shape[0] - 1, Y = chain.Y, s, t, y, i, e, c, start, T, longest = 0
    cdef double log_z, expected, pair
    cdef double* memory
    cdef double* u
    cdef double* alpha
    cdef double* p
    cdef const double* lam
    cdef const Links* links = &chain.links
    if chain.log_domain:
        raise ValueError("entropies are computed by the scaled recursions")
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
                continue
            u, alpha, p = memory, memory + T * Y, memory + 2 * T * Y
            memcpy(u, &mu[start, 0], T * Y * sizeof(double))
            log_z = forward_backward(links, T, &transition[start], u, alpha, p, memory + 3 * T * Y)
            expected = 0.0
            for t in range(T):
                memcpy(memory + 3 * T * Y, &mu[start + t, 0], Y * sizeof(double))
                add_boundaries(links, T, t, &transition[start], memory + 3 * T * Y)
                for y in range(Y):
                    if p[t * Y + y] > 0.0:           # forbidden labels have score -inf
                        expected += p[t * Y + y] * (memory + 3 * T * Y)[y]
                if t == 0:
                    continue
                c = transition[start + t]
                if links.slot[c] >= 0:
                    lam = links.lam + links.slot[c] * links.stride
                    for i in range(Y):
                        for y in range(Y):
                            pair = (alpha[(t - 1) * Y + i] * u[t * Y + y]
                                    * links.psi[(links.slot[c] * Y + i) * links.P + y])
                            if pair > 0.0:
                                expected += pair * lam[i * Y + y]
                else:
                    for y in range(Y):
                        for e in range(links.into[c * Y + y], links.into[c * Y + y + 1]):
                            pair = (alpha[(t - 1) * Y + links.previous[e]] * u[t * Y + y]
                                    * links.factor[e])
                            if pair > 0.0:
                                expected += pair * links.weight[e]
            entropy[s] = log_z - expected
    free(memory)

"""Sums over the chain: forward-backward, scaled, sparse and in the log domain. (queries.pyx asks more.)

One sequence is a lattice of T positions with Y labels:

    score(y) = sum_t  mu[t][y_t]  +  sum_t  lam[transition[t]][y_{t-1}][y_t]

mu [T][Y] holds the unigram scores. The bigram scores of a position depend only on its transition id, so
they are kept, and exponentiated, once per distinct id. A transition is either dense, a block [Y][Y], or
sparse: pairs without an entry have lam = 0, and with M = exp(lam) - 1 on the entries

    alpha[t] = exp(mu[t]) o (sum(alpha[t-1]) + alpha[t-1] M)          (Sokolovska et al. 2010, eq. 9)

costs Y + entries instead of Y^2. Both kinds may occur in one sequence. With a begin label, the first
position has lam[transition[0]][begin][y] too; without, its transition id is not used.
"""

from libc.math cimport INFINITY, NAN, exp, isfinite, log
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from crftool.kernels.vector cimport crf_next_task, crf_operations, operations

cdef enum:
    GRAIN = 8                    # sequences that a thread takes at a time

# The scaled recursion must not lose a path that may matter later. A label whose forward score has vanished
# can win back, in the next step, only what the weights of one transition differ by; if that is at most
# SPREAD, what is lost weighs less than 1e-150 of the rest, whatever the unigram scores. Where labels are
# forbidden that argument fails, for a path may have nowhere else to go: there scores of one position and
# weights of one transition may differ by CONSTRAINED_SPREAD, and forward scores must stay above TINY, from
# where they cannot vanish in one step. What fails these tests is done in the log domain.
SPREAD = 350.0
CONSTRAINED_SPREAD = 150.0
cdef double TINY = 1e-170
# A sparse sum that comes out smaller than this share of its terms is added up again pair by pair.
cdef double CANCELLED = 1e-3


def padded(int64_t Y):
    """Y, rounded up to whole vectors."""
    return (Y + 7) / 8 * 8


cdef class Chain:
    """The transitions of a set of sequences; made by crftool.kernels.transitions."""

    def __cinit__(
        self,
        const int32_t[::1] slot,             # [C]
        const double[:, :, ::1] lam,         # [D][R][Y]
        double[:, :, ::1] psi,               # [D][Y][P]  filled by `exponentiate`; None in the log domain
        double[:, :, ::1] psi_t,             # [D][Y][P]
        double[::1] shift,                   # [C]
        const double[::1] rest,              # [C]
        const int64_t[::1] into,             # [C * Y + 1]
        const int32_t[::1] previous, const double[::1] weight, const double[::1] factor,
        const double[::1] excess,
        const int32_t[::1] ranked, const double[::1] ranked_weight,
        const int64_t[::1] out_of,           # [C * Y + 1]
        const int32_t[::1] following, const double[::1] factor_out, const double[::1] excess_out,
        const double[:, ::1] begin=None,     # [C][Y]
        const double[::1] start=None, const double[::1] end=None, bint constrained=False,
    ):
        self.C, self.Y = slot.shape[0], lam.shape[2]
        self.begin_label = begin is not None
        self.log_domain = psi is None
        self._memory = dict(slot=slot, lam=lam, psi=psi, psi_t=psi_t, shift=shift, rest=rest, into=into,
                            previous=previous, weight=weight, factor=factor, excess=excess, ranked=ranked,
                            ranked_weight=ranked_weight, out_of=out_of,
                            following=following, factor_out=factor_out, excess_out=excess_out, begin=begin, start=start, end=end)
        self._check()
        self.links.Y, self.links.stride = self.Y, lam.shape[1] * lam.shape[2]
        self.links.P = padded(self.Y)
        self.links.slot = &slot[0]
        self.links.lam = &lam[0, 0, 0] if lam.shape[0] else NULL
        self.links.psi = NULL if psi is None or psi.shape[0] == 0 else &psi[0, 0, 0]
        self.links.psi_t = NULL if psi is None or psi.shape[0] == 0 else &psi_t[0, 0, 0]
        self.links.shift, self.links.rest = &shift[0], &rest[0]
        self.links.into, self.links.out_of = &into[0], &out_of[0]
        if previous.shape[0]:
            self.links.previous, self.links.following = &previous[0], &following[0]
            self.links.weight, self.links.excess = &weight[0], &excess[0]
            self.links.factor, self.links.factor_out = &factor[0], &factor_out[0]
            self.links.excess_out = &excess_out[0]
            self.links.ranked, self.links.ranked_weight = &ranked[0], &ranked_weight[0]
        self.links.begin = NULL if begin is None else &begin[0, 0]
        self.links.start = NULL if start is None else &start[0]
        self.links.end = NULL if end is None else &end[0]
        self.links.constrained = constrained

    def _check(self):
        """Shapes that fit each other; the recursions rely on it."""
        cdef dict m = self._memory
        D, C, Y, n = m["lam"].shape[0], self.C, self.Y, m["previous"].shape[0]
        good = (C > 0 and m["shift"].shape[0] == C and m["rest"].shape[0] == C
                and m["into"].shape[0] == C * Y + 1 and m["out_of"].shape[0] == C * Y + 1
                and m["into"][C * Y] == n and m["out_of"][C * Y] == n
                and all(m[name].shape[0] == n for name in ("weight", "factor", "excess", "ranked", "ranked_weight", "following", "factor_out", "excess_out")))
        if m["psi"] is not None:
            good = good and m["psi"].shape == m["psi_t"].shape == (D, Y, padded(Y))
        for name in ("start", "end"):
            good = good and (m[name] is None or m[name].shape[0] == Y)
        if not good or (m["begin"] is not None and m["begin"].shape != (C, Y)):
            raise ValueError("arrays of a chain do not fit each other")

    def judge(self, const double[::1] spread):
        """Let the scaled recursion refuse transitions whose weights differ too much: their shift is NaN."""
        cdef int64_t c
        cdef double[::1] shift = self._memory["shift"]
        for c in range(spread.shape[0]):
            if too_wide(spread[c], self.links.constrained):
                shift[c] = NAN

    def __getattr__(self, name):
        """The arrays, by name."""
        try:
            return self._memory[name]
        except KeyError:
            raise AttributeError(name) from None


cdef bint too_wide(double spread, bint constrained) noexcept nogil:
    """Whether the scaled recursion must refuse a transition whose finite weights differ by so much."""
    return not spread <= (CONSTRAINED_SPREAD if constrained else SPREAD)


cdef double exponentiate_block(
    int64_t Y, int64_t P, const double* lam, double* psi, double* psi_t, double* shift) noexcept nogil:
    """psi [Y][P] = exp(lam - shift) and its transpose, shift being the largest lam; how much the finite lam
    differ."""
    cdef int64_t i, j
    cdef double lowest
    shift[0] = operations().maximum(Y * Y, lam)
    if not isfinite(shift[0]):
        shift[0] = 0.0                               # nothing but forbidden pairs
    lowest = operations().minimum(Y * Y, lam)
    if lowest == -INFINITY:
        lowest = shift[0]
        for i in range(Y * Y):
            if -INFINITY < lam[i] < lowest:
                lowest = lam[i]
    for i in range(Y):
        operations().exp_shifted(Y, lam + i * Y, shift[0], psi + i * P)
        for j in range(Y, P):
            psi[i * P + j] = psi_t[i * P + j] = 0.0
    for i in range(Y):
        for j in range(Y):
            psi_t[j * P + i] = psi[i * P + j]
    return shift[0] - lowest


def exponentiate(
    Chain chain, double[:, :, ::1] psi, double[:, :, ::1] psi_t,
    double[::1] shift,           # out [C]  its largest lam
    double[::1] spread,          # out [C]  how much its finite lam differ
    int64_t[::1] counter,
):
    """psi = exp(lam - shift) of every dense transition, once."""
    cdef int64_t c, d
    with nogil:
        while True:
            c = crf_next_task(&counter[0])
            if c >= chain.C:
                break
            d = chain.links.slot[c]
            if d < 0:
                continue
            spread[c] = exponentiate_block(chain.Y, chain.links.P, chain.links.lam + d * chain.links.stride,
                                           &psi[d, 0, 0], &psi_t[d, 0, 0], &shift[c])


# One step -------------------------------------------------------------------------------------------------

cdef double sum_pairs(double rest, int64_t Y, const double* a, const Side* side, int64_t y) noexcept nogil:
    """Sum of a[i] psi[i][y], term by term: what total + sum a excess is without cancellation."""
    cdef int64_t i, e = side.bounds[y]
    cdef double x = 0.0
    for i in range(Y):
        if e < side.bounds[y + 1] and side.others[e] == i:
            x += a[i] * side.factor[e]
            e += 1
        else:
            x += a[i] * rest
    return x


cdef Side side_of(const Links* links, int32_t c, bint forward) noexcept nogil:
    """A transition, as a step forward or backward sees it."""
    cdef Side side
    side.psi = NULL
    if links.slot[c] >= 0:
        side.psi = (links.psi if forward else links.psi_t) + links.slot[c] * links.Y * links.P
    side.bounds = (links.into if forward else links.out_of) + c * links.Y
    side.others = links.previous if forward else links.following
    side.factor = links.factor if forward else links.factor_out
    side.excess = links.excess if forward else links.excess_out
    return side


cdef void step(const Links* links, int32_t c, bint forward, const double* a, double* out) noexcept nogil:
    """out [P] = a psi, a step forward, or psi a, a step backward."""
    cdef const crf_operations* op = operations()
    cdef Side side = side_of(links, c, forward)
    cdef int64_t Y = links.Y, y, e
    cdef double total, x
    if side.psi != NULL:
        op.row_times_matrix(Y, links.P, a, side.psi, out)
        return
    total = links.rest[c] * op.sum(Y, a)
    for y in range(Y):
        x = total
        for e in range(side.bounds[y], side.bounds[y + 1]):
            x += a[side.others[e]] * side.excess[e]
        out[y] = x if x >= CANCELLED * total else sum_pairs(links.rest[c], Y, a, &side, y)


cdef void add_boundaries(
    const Links* links, int64_t T, int64_t t, const int32_t* transition, double* scores) noexcept nogil:
    """Scores that only a first or last position has."""
    if t == 0:
        if links.begin != NULL:
            operations().add(links.Y, links.begin + transition[0] * links.Y, scores)
        if links.start != NULL:
            operations().add(links.Y, links.start, scores)
    if t == T - 1 and links.end != NULL:
        operations().add(links.Y, links.end, scores)


cdef double settle_position(
    const Links* links, int64_t T, int64_t t, const int32_t* transition,
    const double* row,           # in: alpha[t-1] psi, unless t = 0
    double* u,                   # in: mu[t];  out: exp(mu[t] - its maximum)
    double* a,                   # out: scaled forward scores of t
    double* scale,               # out: what they were multiplied by
) noexcept nogil:
    """log of the factor that scaling took out of this position; NaN when a path underflows."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = links.Y, y
    cdef double largest, total, taken
    cdef bint constrained
    add_boundaries(links, T, t, transition, u)
    largest = op.maximum(Y, u)
    if not isfinite(largest):
        return NAN
    constrained = links.constrained or op.minimum(Y, u) == -INFINITY
    if constrained:
        for y in range(Y):
            if u[y] != -INFINITY and largest - u[y] > CONSTRAINED_SPREAD:
                return NAN
    op.exp_shifted(Y, u, largest, u)
    taken = largest
    if t > 0:
        total = op.multiply(Y, row, u, a)
        taken += links.shift[transition[t]]
    else:
        memcpy(a, u, Y * sizeof(double))
        total = op.sum(Y, a)
    scale[0] = 1.0 / total
    if not (total > 0.0 and isfinite(total) and isfinite(scale[0])):
        return NAN
    op.scale(Y, scale[0], a)
    if constrained:
        for y in range(Y):
            if 0.0 < a[y] < TINY:
                return NAN
    return taken + log(total)


cdef double forward_position(
    const Links* links, int64_t T, int64_t t, const int32_t* transition,
    double* u,                   # in: mu[t];  out: exp(mu[t] - its maximum)
    double* a,                   # out: scaled forward scores of t; those of t - 1 lie before them
    double* scale,               # out: what they were multiplied by
    double* row,                 # [P]
) noexcept nogil:
    """log of the factor that scaling took out of this position; NaN when a path underflows."""
    if t > 0:
        step(links, transition[t], True, a - links.Y, row)
    return settle_position(links, T, t, transition, row, u, a, scale)


cdef double pair_factor(const Links* links, int32_t c, int64_t previous, int64_t y) noexcept nogil:
    """psi[c][previous][y]"""
    cdef int64_t e
    if links.slot[c] >= 0:
        return links.psi[(links.slot[c] * links.Y + previous) * links.P + y]
    for e in range(links.into[c * links.Y + y], links.into[c * links.Y + y + 1]):
        if links.previous[e] == previous:
            return links.factor[e]
    return links.rest[c]


# Whole sequences ------------------------------------------------------------------------------------------

cdef double forward_backward(
    const Links* links, int64_t T,
    const int32_t* transition,   # in  [T]
    double* u,                   # in  [T][Y] mu;  out v[t] = exp(mu[t]) o beta[t] / c[t]
    double* alpha,               # out [T][Y]  forward scores, each row scaled to sum 1
    double* p,                   # out [T][Y]  p(y_t = y | x)
    double* work,                # [T + 2 P]   scale factors, beta, one row more
) noexcept nogil:
    """log Z, by the scaled recursions; NaN when all paths underflow.

    With M = psi[transition[t]]:  alpha[t] = (alpha[t-1] M) o exp(mu[t]) / c[t],  c[t] such that the row
    sums to 1;  beta[t-1] = M v[t].  Then p[t] = alpha[t] o beta[t], and the probability of the label
    pair (y', y) at t is alpha[t-1][y'] M[y'][y] v[t][y].
    """
    cdef int64_t Y = links.Y, t, y
    cdef double* scale = work
    cdef double* beta = work + T
    cdef double log_z = 0.0
    for t in range(T):
        log_z += forward_position(links, T, t, transition, u + t * Y, alpha + t * Y, scale + t, beta + links.P)
        if log_z != log_z:
            return NAN
    for y in range(Y):
        beta[y] = 1.0
    for t in range(T - 1, -1, -1):
        operations().leave(Y, scale[t], alpha + t * Y, beta, u + t * Y, p + t * Y)
        if t > 0:
            step(links, transition[t], False, u + t * Y, beta)
    return log_z


cdef inline double log_sum(int64_t n, double* x) noexcept nogil:
    """log of the sum of exp(x); spoils x."""
    cdef double largest = operations().maximum(n, x)
    if largest == -INFINITY:
        return largest
    operations().exp_shifted(n, x, largest, x)
    return largest + log(operations().sum(n, x))


cdef double forward_backward_log(
    const Links* links, int64_t T,
    const int32_t* transition,   # in  [T]
    double* u,                   # in  [T][Y] mu;  out mu[t] + log beta[t] - log Z
    double* alpha,               # out [T][Y]  log alpha
    double* p,                   # out [T][Y]  p(y_t = y | x)
    double* work,                # [4 Y]
) noexcept nogil:
    """log Z, by the recursions in the log domain: slow, never out of range. Needs every transition dense.

    The probability of the label pair (y', y) at t is exp(alpha[t-1][y'] + lam[y'][y] + u[t][y]).
    """
    cdef const crf_operations* op = operations()
    cdef int64_t Y = links.Y, t, y, i
    cdef double* column = work
    cdef double* beta = work + Y
    cdef double* largest = work + 2 * Y
    cdef int32_t* origin = <int32_t*> (work + 3 * Y)
    cdef double* a
    cdef double* x
    cdef const double* lam
    cdef double log_z
    for t in range(T):
        a, x = alpha + t * Y, u + t * Y
        add_boundaries(links, T, t, transition, x)
        if t == 0:
            memcpy(a, x, Y * sizeof(double))
            continue
        # log of the sums of exp(a[i] + lam[i][y]) for all y at once, each shifted by its largest term
        lam = links.lam + links.slot[transition[t]] * links.stride
        op.best_predecessor(Y, Y, a - Y, lam, largest, origin)
        for y in range(Y):
            if largest[y] == -INFINITY:
                largest[y] = 0.0
            a[y] = 0.0
        for i in range(Y):
            for y in range(Y):
                column[y] = (a - Y)[i] + lam[i * Y + y] - largest[y]
            op.exp_shifted(Y, column, 0.0, column)
            op.add(Y, column, a)
        for y in range(Y):
            a[y] = log(a[y]) + largest[y] + x[y]
    memcpy(column, alpha + (T - 1) * Y, Y * sizeof(double))
    log_z = log_sum(Y, column)
    if not isfinite(log_z):
        return NAN
    for y in range(Y):
        beta[y] = 0.0
    for t in range(T - 1, -1, -1):
        a, x = alpha + t * Y, u + t * Y
        for y in range(Y):
            p[t * Y + y] = exp(a[y] + beta[y] - log_z)
            x[y] += beta[y]
        if t > 0:
            lam = links.lam + links.slot[transition[t]] * links.stride
            for i in range(Y):
                for y in range(Y):
                    column[y] = lam[i * Y + y] + x[y]
                beta[i] = log_sum(Y, column)
        for y in range(Y):
            x[y] -= log_z
    return log_z


cdef double sequence_sums(
    Chain chain, int64_t T, const int32_t* transition, double* u, double* alpha, double* p, double* work,
) noexcept nogil:
    if chain.log_domain:
        return forward_backward_log(&chain.links, T, transition, u, alpha, p, work)
    return forward_backward(&chain.links, T, transition, u, alpha, p, work)


def marginals(
    Chain chain, const double[:, ::1] mu, const int32_t[::1] transition, const int64_t[::1] offsets,
    double[:, ::1] p,              # out [N][Y]  p(y_t = y | x)
    double[::1] log_z,             # out [S]     NaN where the scaled recursion failed
    int64_t[::1] counter,
):
    """Forward-backward over many sequences."""
    cdef int64_t S = offsets.shape[0] - 1, Y = chain.Y, s, first, start, T, longest = 0
    cdef double* memory
    for s in range(S):
        longest = max(longest, offsets[s + 1] - offsets[s])
    memory = <double*> malloc((2 * longest * Y + longest + 4 * chain.links.P) * sizeof(double))
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
                log_z[s] = sequence_sums(chain, T, &transition[start], memory, memory + T * Y, &p[start, 0],
                                         memory + 2 * T * Y)
    free(memory)


def messages(
    Chain chain,
    double[:, ::1] mu,             # in  [T][Y]; out: v, or in the log domain mu + log beta - log Z
    const int32_t[::1] transition, # in  [T]
    double[:, ::1] alpha,          # out [T][Y]
    double[:, ::1] p,              # out [T][Y]
):
    """log Z of one sequence, with the messages that probabilities of label pairs are made from."""
    cdef int64_t T = mu.shape[0]
    cdef double log_z
    cdef double* work = <double*> malloc((T + 4 * chain.links.P) * sizeof(double))
    if work == NULL:
        raise MemoryError
    with nogil:
        log_z = sequence_sums(chain, T, &transition[0], &mu[0, 0], &alpha[0, 0], &p[0, 0], work)
    free(work)
    return log_z

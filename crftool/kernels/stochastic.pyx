"""Stochastic gradient descent: one sequence after the other, each moves the weights it saw.

The weights are kept as scale * theta: the l2 penalty shrinks all of them in every step by moving `scale`
alone (Bottou 2010). The l1 penalty is Tsuruoka's cumulative one (Tsuruoka, Tsujii & Ananiadou 2009): `due`
is the sum of all the shrinking that a weight should have had, `paid` what each weight has had, and a weight
settles the difference when a sequence touches it; it stops at zero, never crosses it.
"""

from libc.math cimport INFINITY, NAN, isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from crftool.kernels.chain cimport CONSTRAINED_SPREAD, SPREAD, Links, forward_backward
from crftool.kernels.vector cimport crf_operations, operations

cdef enum:
    AHEAD = 2                    # tokens whose rows are on their way from memory
    HOT_BYTES = 1 << 18          # see gradient.pyx
cdef double SMALLEST_SCALE = 1e-6


cdef struct Task:
    # What a pass works on; shapes as in `descend`
    int64_t Y, R, K, Kb, P, O, Ob
    const int32_t* unigrams
    const int32_t* bigrams
    const double* allowed
    double* mu
    double* lam
    float* paid_mu
    float* paid_lam
    const uint8_t* barred_mu
    const uint8_t* barred_lam
    double scale, due
    # of the sequence at hand
    int64_t slots                # distinct transitions so far
    int32_t* slot_of             # [C]         slot of a transition + 1, 0 = none
    int32_t* transition_of       # [slots]
    int32_t* local               # [T]         transitions as slots
    double* scores               # [slots][R][Y]
    double* psi                  # [slots][Y][P]
    double* psi_t                # [slots][Y][P]
    double* shift                # [slots]
    double* begin                # [slots][Y]
    int32_t* identity            # [slots]     slot i has block i
    double* u                    # [T][Y]
    double* alpha                # [T][Y]
    double* p                    # [T][Y]
    double* work                 # [T + 4 P]
    double* expected             # [Y][Y]
    int32_t* columns             # [K]  0, 1, ...


cdef bint exponentiate_slot(Task* task, int64_t d) noexcept nogil:
    """Scores of a transition from its weights, and their exp; False if they differ too much."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = task.Y, P = task.P, n = task.R * Y, i, j, k, row
    cdef double* scores = task.scores + d * n
    cdef double* psi = task.psi + d * Y * task.P
    cdef double* psi_t = task.psi_t + d * Y * task.P
    cdef double scale = task.scale, lowest = INFINITY, highest = -INFINITY
    memset(scores, 0, n * sizeof(double))
    for k in range(task.Kb):
        row = task.bigrams[task.transition_of[d] * task.Kb + k]
        if row >= 0:
            op.add(n, task.lam + row * n, scores)
    for i in range(n):
        scores[i] *= scale
    if task.R > Y:
        for i in range(Y):
            task.begin[d * Y + i] = scores[Y * Y + i]
    if task.allowed != NULL:
        for i in range(Y * Y):
            if task.allowed[i] == 0.0:
                highest, lowest = max(highest, scores[i]), min(lowest, scores[i])
            else:
                scores[i] = -INFINITY
    else:
        highest, lowest = op.maximum(Y * Y, scores), op.minimum(Y * Y, scores)
    if not highest - lowest <= (CONSTRAINED_SPREAD if task.allowed != NULL else SPREAD):
        return False
    task.shift[d] = highest
    for i in range(Y):
        op.exp_shifted(Y, scores + i * Y, highest, psi + i * P)
        for j in range(Y):
            psi_t[j * P + i] = psi[i * P + j]
    return True


cdef double sequence_loss(
    Task* task, Links* links, int64_t start, int64_t T, int64_t N,
    const int32_t* transition, const int32_t* labels) noexcept nogil:
    """log Z - score of a sequence; leaves its messages in the task. NaN when out of range."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = task.Y, K = task.K, t, y, hot = HOT_BYTES / (8 * Y)
    cdef const int32_t* ids = task.unigrams + start * K
    cdef double gold = 0.0
    cdef double* x
    cdef int32_t c
    for t in range(task.slots):
        task.slot_of[task.transition_of[t]] = 0
    task.slots = 0
    for t in range(T):
        if t == 0 and task.R == Y:
            task.local[t] = 0                        # not used
            continue
        c = transition[start + t]
        if task.slot_of[c] == 0:
            task.transition_of[task.slots] = c
            task.slots += 1
            task.slot_of[c] = task.slots
            if not exponentiate_slot(task, task.slots - 1):
                return NAN
        task.local[t] = task.slot_of[c] - 1
    for t in range(T):
        x = task.u + t * Y
        op.sum_rows(Y, K, ids + t * K, ids + (t + AHEAD) * K if start + t + AHEAD < N else NULL, hot, task.mu, x)
        for y in range(Y):
            x[y] *= task.scale
        gold += x[labels[start + t]]
        if t > 0:
            gold += task.scores[(task.local[t] * task.R + labels[start + t - 1]) * Y + labels[start + t]]
        elif task.R > Y:
            gold += task.begin[task.local[0] * Y + labels[start]]
    return forward_backward(links, T, task.local, task.u, task.alpha, task.p, task.work) - gold


cdef void clear_barred(int64_t n, double* weights, const uint8_t* barred) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if barred[i]:
            weights[i] = 0.0


cdef void move_unigrams(Task* task, int64_t start, int64_t T, double step, const int32_t* labels) noexcept nogil:
    """mu -= step (p - observed) on the rows of the sequence."""
    cdef int64_t Y = task.Y, K = task.K, t, k
    cdef const int32_t* ids = task.unigrams + start * K
    if task.O == 0:
        return
    for t in range(T):
        task.p[t * Y + labels[start + t]] -= 1.0
    operations().add_to_rows(Y, T, K, ids, K, task.columns, HOT_BYTES / (8 * Y), -step / task.scale, task.p, task.mu)
    if task.barred_mu != NULL:
        for t in range(T * K):
            if ids[t] >= 0:
                clear_barred(Y, task.mu + ids[t] * Y, task.barred_mu + ids[t] * Y)
    if task.paid_mu != NULL:
        for t in range(T * K):
            if ids[t] >= 0:
                operations().settle(Y, task.scale, task.due, task.mu + ids[t] * Y, task.paid_mu + ids[t] * Y)


cdef void move_bigrams(Task* task, int64_t start, int64_t T, double step, const int32_t* labels) noexcept nogil:
    """lam -= step (expected - observed pairs), transition after transition."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = task.Y, n = task.R * Y, d, t, i, y, k, row
    cdef const double* a
    cdef const double* v
    cdef double* target
    cdef double* expected = task.expected
    cdef const double* psi
    cdef double rate = step / task.scale
    for d in range(task.slots):
        memset(task.expected, 0, Y * Y * sizeof(double))
        for t in range(1, T):
            if task.local[t] == d:
                a, v = task.alpha + (t - 1) * Y, task.u + t * Y
                op.add_outers(Y, Y, 1, &a, &v, task.expected)
        for i in range(Y):
            psi = task.psi + (d * Y + i) * task.P
            for y in range(Y):
                expected[i * Y + y] *= psi[y]
        for t in range(1, T):
            if task.local[t] == d:
                task.expected[labels[start + t - 1] * Y + labels[start + t]] -= 1.0
        for k in range(task.Kb):
            row = task.bigrams[task.transition_of[d] * task.Kb + k]
            if row < 0:
                continue
            target = task.lam + row * n
            for i in range(Y * Y):
                target[i] -= rate * expected[i]
            if task.R > Y and task.local[0] == d:    # p holds p - observed by now
                for y in range(Y):
                    target[Y * Y + y] -= rate * task.p[y]
            if task.barred_lam != NULL:
                clear_barred(n, target, task.barred_lam + row * n)
            if task.paid_lam != NULL:
                operations().settle(n, task.scale, task.due, target, task.paid_lam + row * n)


cdef void rescale(Task* task) noexcept nogil:
    """Let the weights be themselves again: scale = 1."""
    cdef int64_t i
    for i in range(task.O * task.Y):
        task.mu[i] *= task.scale
    for i in range(task.Ob * task.R * task.Y):
        task.lam[i] *= task.scale
    task.scale = 1.0


def descend(
    double[:, ::1] mu,                   # in/out [O][Y]      unigram weights
    double[:, :, ::1] lam,               # in/out [Ob][R][Y]  bigram weights
    const int32_t[:, ::1] unigrams,      # in  [N][K]
    const int32_t[::1] transition,       # in  [N]
    const int32_t[:, ::1] bigrams,       # in  [C][Kb]
    const int32_t[::1] labels,           # in  [N]
    const int64_t[::1] offsets,          # in  [S + 1]
    const int64_t[::1] order,            # in  [n]  sequences to visit
    const double[::1] steps,             # in  [n]  size of each step; 0: only evaluate
    double shrink,                       # rho2 / S: share of a step that shrinks all weights
    double threshold,                    # rho1 / S
    float[:, ::1] paid_mu,               # in/out [O][Y], or None without l1 penalty
    float[:, :, ::1] paid_lam,           # in/out [Ob][R][Y], or None
    const uint8_t[:, ::1] barred_mu,     # in  [O][Y]  1: this weight stays zero; or None
    const uint8_t[:, :, ::1] barred_lam, # in  [Ob][R][Y]
    double due,                          # the l1 penalty due so far
    const double[:, ::1] allowed,        # in  [Y][Y]  0 or -inf, or None
    const double[::1] first, const double[::1] last,     # in  [Y] the same for boundaries, or None
):
    """(sum of the losses, each at the weights that its sequence met; sequences left out because scores were
    out of range; penalty due after the pass)."""
    cdef Task task
    cdef Links links
    cdef int64_t S = offsets.shape[0] - 1, N = unigrams.shape[0], C = bigrams.shape[0], Y = mu.shape[1], j, s
    cdef int64_t longest = 0, failed = 0, slots, T
    cdef double total = 0.0, loss
    memset(&task, 0, sizeof(Task))
    memset(&links, 0, sizeof(Links))
    for s in range(S):
        longest = max(longest, offsets[s + 1] - offsets[s])
    task.Y, task.R, task.K, task.Kb, task.P = Y, lam.shape[1], unigrams.shape[1], bigrams.shape[1], (Y + 7) / 8 * 8
    task.O, task.Ob, task.scale, task.due = mu.shape[0], lam.shape[0], 1.0, due
    slots = max(1, min(C, longest))
    task.unigrams = &unigrams[0, 0] if N * task.K else NULL
    task.bigrams = &bigrams[0, 0] if C * task.Kb else NULL
    task.mu = &mu[0, 0] if task.O else NULL
    task.lam = &lam[0, 0, 0] if task.Ob else NULL
    task.allowed = NULL if allowed is None else &allowed[0, 0]
    task.paid_mu = NULL if paid_mu is None or task.O == 0 else &paid_mu[0, 0]
    task.paid_lam = NULL if paid_lam is None or task.Ob == 0 else &paid_lam[0, 0, 0]
    task.barred_mu = NULL if barred_mu is None or task.O == 0 else &barred_mu[0, 0]
    task.barred_lam = NULL if barred_lam is None or task.Ob == 0 else &barred_lam[0, 0, 0]
    task.slot_of = <int32_t*> calloc(C + 3 * slots + longest + task.K, sizeof(int32_t))
    task.scores = <double*> calloc(
        slots * (task.R * Y + 2 * Y * task.P + 2 + Y) + longest * (3 * Y + 1) + 4 * task.P + Y * Y + 8, sizeof(double))
    if task.slot_of == NULL or task.scores == NULL:
        free(task.slot_of)
        free(task.scores)
        raise MemoryError
    task.transition_of = task.slot_of + C
    task.identity = task.transition_of + slots
    task.local = task.identity + slots
    task.columns = task.local + longest
    task.psi = task.scores + slots * task.R * Y
    task.psi_t = task.psi + slots * Y * task.P
    task.shift = task.psi_t + slots * Y * task.P
    task.begin = task.shift + slots
    task.u = task.begin + slots * Y
    task.alpha = task.u + longest * Y
    task.p = task.alpha + longest * Y
    task.expected = task.p + longest * Y
    task.work = task.expected + Y * Y
    for j in range(slots):
        task.identity[j] = <int32_t> j
    for j in range(task.K):
        task.columns[j] = <int32_t> j
    links.Y, links.P, links.stride = Y, task.P, task.R * Y
    links.slot, links.lam, links.psi, links.psi_t, links.shift = \
        task.identity, task.scores, task.psi, task.psi_t, task.shift
    links.begin = task.begin if task.R > Y else NULL
    links.start = NULL if first is None else &first[0]
    links.end = NULL if last is None else &last[0]
    links.constrained = allowed is not None
    with nogil:
        for j in range(order.shape[0]):
            s = order[j]
            T = offsets[s + 1] - offsets[s]
            if T == 0:
                continue
            loss = sequence_loss(&task, &links, offsets[s], T, N, &transition[0], &labels[0])
            if not isfinite(loss):
                failed += 1
                continue
            total += loss
            if steps[j] == 0.0:
                continue
            task.scale *= 1.0 - steps[j] * shrink
            task.due += steps[j] * threshold
            move_unigrams(&task, offsets[s], T, steps[j], &labels[0])
            move_bigrams(&task, offsets[s], T, steps[j], &labels[0])
            if task.scale < SMALLEST_SCALE:
                rescale(&task)
        if task.scale != 1.0:
            rescale(&task)
        if task.paid_mu != NULL:
            operations().settle(task.O * Y, 1.0, task.due, task.mu, task.paid_mu)
        if task.paid_lam != NULL:
            operations().settle(task.Ob * task.R * Y, 1.0, task.due, task.lam, task.paid_lam)
    free(task.slot_of)
    free(task.scores)
    return total, failed, task.due

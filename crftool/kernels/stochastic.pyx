"""Stochastic gradient descent: group after group of a few sequences, each moves the weights it saw.

The weights are kept as scale * theta: the l2 penalty shrinks all of them in every step by moving `scale`
alone (Bottou 2010). The l1 penalty is Tsuruoka's cumulative one (Tsuruoka, Tsujii & Ananiadou 2009): `due`
is the sum of all the shrinking that a weight should have had, `paid` what each weight has had, and a weight
settles the difference when a sequence touches it; it stops at zero, never crosses it.

The work on a group is cut into tasks, which threads take in order:
1. for each sequence, its gradient at the weights from before the group (`read_sequence`);
2. for each share of the bigram rows, then for each lane of unigram columns, the steps of all sequences on
   them, in their order (`move_bigrams`, `move_unigrams`). No two tasks write one row.
A task waits for those of the part before it. The result has the same bits for any number of threads.
"""

from libc.math cimport INFINITY, NAN, isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from crftool.kernels.chain cimport CONSTRAINED_SPREAD, SPREAD, Links, forward_backward
from crftool.kernels.vector cimport crf_await_tasks, crf_end_task, crf_next_task, crf_operations, \
    next_chunk, operations

cdef enum:
    AHEAD = 2                    # tokens whose rows are on their way from memory
    HOT_BYTES = 1 << 18          # see gradient.pyx


cdef struct Room:
    # Of a sequence at hand
    Links links
    int64_t slots                # distinct transitions so far
    int32_t* slot_of             # [C]         slot of a transition + 1, 0 = none
    int32_t* transition_of       # [slots]
    int32_t* identity            # [slots]     slot i has block i
    int32_t* local               # [T]         transitions as slots
    double* scores               # [slots][R][Y]
    double* psi                  # [slots][Y][P]
    double* psi_t                # [slots][Y][P]
    double* shift                # [slots]
    double* begin                # [slots][Y]
    double* u                    # [T][Y]
    double* alpha                # [T][Y]
    double* p                    # [T][Y]      in the end p - observed
    double* work                 # [T + 4 P]


cdef struct Data:
    # What a pass works on; shapes as in `descend`
    int64_t Y, R, K, Kb, P, N
    const int32_t* unigrams
    const int32_t* transition
    const int32_t* bigrams
    const int32_t* labels
    const int64_t* offsets
    const double* allowed
    const double* first
    const double* last
    double* mu
    double* lam
    float* paid_mu
    float* paid_lam
    const uint8_t* barred_mu
    const uint8_t* barred_lam
    int32_t* settled_mu          # [O]   the last group that settled a row
    int32_t* settled_lam         # [Ob]


cdef struct Settling:
    # After a group
    double scale, due
    int32_t group


def room_size(int64_t Y, int64_t R, int64_t C, int64_t longest):
    """(slots, 4-byte integers, doubles) that a sequence takes at most."""
    cdef int64_t P = (Y + 7) / 8 * 8, slots = max(1, min(C, longest))
    return slots, C + 2 * slots + longest, slots * (R * Y + 2 * Y * P + 1 + Y) + longest * (3 * Y + 1) + 4 * P + 8


cdef class Rooms:
    """Room for a group of sequences, and for the expectations of each share of the bigram rows."""
    cdef Room* rooms
    cdef double* expected        # [shares][Y][Y]
    cdef readonly int64_t n, shares

    def __cinit__(self, int64_t n, int64_t shares, int64_t Y, int64_t R, int64_t C, int64_t longest):
        cdef int64_t slots, integers, doubles, P = (Y + 7) / 8 * 8, i, j
        cdef int32_t* at
        cdef Room* room
        slots, integers, doubles = room_size(Y, R, C, longest)
        self.shares = shares
        self.rooms = <Room*> calloc(max(1, n), sizeof(Room))
        self.expected = <double*> calloc(max(1, shares * Y * Y), sizeof(double))
        if self.rooms == NULL or self.expected == NULL:
            raise MemoryError
        for i in range(n):
            room = self.rooms + i
            room.slot_of = <int32_t*> calloc(integers, sizeof(int32_t))
            room.scores = <double*> calloc(doubles, sizeof(double))
            self.n = i + 1
            if room.slot_of == NULL or room.scores == NULL:
                raise MemoryError
            room.transition_of = room.slot_of + C
            room.identity = room.transition_of + slots
            room.local = room.identity + slots
            room.psi = room.scores + slots * R * Y
            room.psi_t = room.psi + slots * Y * P
            room.shift = room.psi_t + slots * Y * P
            room.begin = room.shift + slots
            room.u = room.begin + slots * Y
            room.alpha = room.u + longest * Y
            room.p = room.alpha + longest * Y
            room.work = room.p + longest * Y
            for j in range(slots):
                room.identity[j] = <int32_t> j
            room.links.Y, room.links.P, room.links.stride = Y, P, R * Y
            room.links.slot, room.links.lam, room.links.shift = room.identity, room.scores, room.shift
            room.links.psi, room.links.psi_t = room.psi, room.psi_t
            room.links.begin = room.begin if R > Y else NULL

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.n):
            free(self.rooms[i].slot_of)
            free(self.rooms[i].scores)
        free(self.rooms)
        free(self.expected)


cdef bint exponentiate_slot(const Data* data, Room* room, double scale, int64_t d) noexcept nogil:
    """Scores of a transition from its weights, and their exp; False if they differ too much."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = data.Y, P = data.P, n = data.R * Y, i, j, k, row
    cdef double* scores = room.scores + d * n
    cdef double* psi = room.psi + d * Y * P
    cdef double* psi_t = room.psi_t + d * Y * P
    cdef double lowest = INFINITY, highest = -INFINITY
    memset(scores, 0, n * sizeof(double))
    for k in range(data.Kb):
        row = data.bigrams[room.transition_of[d] * data.Kb + k]
        if row >= 0:
            op.add(n, data.lam + row * n, scores)
    for i in range(n):
        scores[i] *= scale
    if data.R > Y:
        for i in range(Y):
            room.begin[d * Y + i] = scores[Y * Y + i]
    if data.allowed != NULL:
        for i in range(Y * Y):
            if data.allowed[i] == 0.0:
                highest, lowest = max(highest, scores[i]), min(lowest, scores[i])
            else:
                scores[i] = -INFINITY
    else:
        highest, lowest = op.maximum(Y * Y, scores), op.minimum(Y * Y, scores)
    if not highest - lowest <= (CONSTRAINED_SPREAD if data.allowed != NULL else SPREAD):
        return False
    room.shift[d] = highest
    for i in range(Y):
        op.exp_shifted(Y, scores + i * Y, highest, psi + i * P)
        for j in range(Y):
            psi_t[j * P + i] = psi[i * P + j]
    return True


cdef void read_sequence(const Data* data, Room* room, int64_t s, double scale, double* loss) noexcept nogil:
    """log Z - score of a sequence, NaN when out of range; leaves its messages and p - observed in the room."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = data.Y, K = data.K, start = data.offsets[s], T = data.offsets[s + 1] - start
    cdef int64_t t, y, hot = HOT_BYTES / (8 * Y)
    cdef const int32_t* ids = data.unigrams + start * K
    cdef const int32_t* labels = data.labels + start
    cdef double gold = 0.0
    cdef double* x
    cdef int32_t c
    for t in range(room.slots):
        room.slot_of[room.transition_of[t]] = 0
    room.slots, loss[0] = 0, 0.0
    if T == 0:
        return
    for t in range(T):
        if t == 0 and data.R == Y:
            room.local[t] = 0                        # not used
            continue
        c = data.transition[start + t]
        if room.slot_of[c] == 0:
            room.transition_of[room.slots] = c
            room.slots += 1
            room.slot_of[c] = <int32_t> room.slots
            if not exponentiate_slot(data, room, scale, room.slots - 1):
                loss[0] = NAN
                return
        room.local[t] = room.slot_of[c] - 1
    for t in range(T):
        x = room.u + t * Y
        op.sum_rows(Y, K, ids + t * K, ids + (t + AHEAD) * K if start + t + AHEAD < data.N else NULL, hot, data.mu, x)
        for y in range(Y):
            x[y] *= scale
        gold += x[labels[t]]
        if t > 0:
            gold += room.scores[(room.local[t] * data.R + labels[t - 1]) * Y + labels[t]]
        elif data.R > Y:
            gold += room.begin[room.local[0] * Y + labels[0]]
    room.links.start, room.links.end, room.links.constrained = data.first, data.last, data.allowed != NULL
    loss[0] = forward_backward(&room.links, T, room.local, room.u, room.alpha, room.p, room.work) - gold
    for t in range(T):
        room.p[t * Y + labels[t]] -= 1.0


cdef void move_unigrams(
    const Data* data, const Room* room, int64_t s, int64_t n, const int32_t* columns, double rate) noexcept nogil:
    """mu -= rate (p - observed) on the rows of n columns of the sequence."""
    cdef int64_t T = data.offsets[s + 1] - data.offsets[s]
    operations().add_to_rows(data.Y, T, data.K, data.unigrams + data.offsets[s] * data.K, n, columns,
                             HOT_BYTES / (8 * data.Y), -rate, room.p, data.mu)


cdef void move_bigrams(
    const Data* data, const Room* room, int64_t s, int64_t share, int64_t shares, double rate,
    double* expected) noexcept nogil:
    """lam -= rate (expected - observed pairs) on a share of the rows, transition after transition."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = data.Y, n = data.R * Y, T = data.offsets[s + 1] - data.offsets[s], d, t, i, y, k, row
    cdef const int32_t* labels = data.labels + data.offsets[s]
    cdef const double* a
    cdef const double* v
    cdef const double* psi
    cdef double* target
    cdef bint ready
    for d in range(room.slots):
        ready = False
        for k in range(data.Kb):
            row = data.bigrams[room.transition_of[d] * data.Kb + k]
            if row < 0 or row % shares != share:
                continue
            if not ready:
                memset(expected, 0, Y * Y * sizeof(double))
                for t in range(1, T):
                    if room.local[t] == d:
                        a, v = room.alpha + (t - 1) * Y, room.u + t * Y
                        op.add_outers(Y, Y, 1, &a, &v, expected)
                for i in range(Y):
                    psi = room.psi + (d * Y + i) * data.P
                    for y in range(Y):
                        expected[i * Y + y] *= psi[y]
                for t in range(1, T):
                    if room.local[t] == d:
                        expected[labels[t - 1] * Y + labels[t]] -= 1.0
                ready = True
            target = data.lam + row * n
            for i in range(Y * Y):
                target[i] -= rate * expected[i]
            if data.R > Y and room.local[0] == d:
                for y in range(Y):
                    target[Y * Y + y] -= rate * room.p[y]


cdef void settle_row(
    int64_t n, double* weights, float* paid, const uint8_t* barred, int32_t* settled, const Settling* now) noexcept nogil:
    """Make good what a group has moved, once: weights that must stay zero, and what is due of the l1 penalty."""
    cdef int64_t i
    if settled[0] == now.group:
        return
    settled[0] = now.group
    if barred != NULL:
        for i in range(n):
            if barred[i]:
                weights[i] = 0.0
    if paid != NULL:
        operations().settle(n, now.scale, now.due, weights, paid)


cdef void settle_unigrams(
    const Data* data, int64_t s, int64_t n, const int32_t* columns, const Settling* now) noexcept nogil:
    """The rows of n columns of the sequence."""
    cdef int64_t Y = data.Y, K = data.K, T = data.offsets[s + 1] - data.offsets[s], t, k, row
    cdef const int32_t* ids = data.unigrams + data.offsets[s] * K
    for t in range(T):
        for k in range(n):
            row = ids[t * K + columns[k]]
            if row >= 0:
                settle_row(Y, data.mu + row * Y, data.paid_mu + row * Y if data.paid_mu != NULL else NULL,
                           data.barred_mu + row * Y if data.barred_mu != NULL else NULL, data.settled_mu + row, now)


cdef void settle_bigrams(
    const Data* data, const Room* room, int64_t share, int64_t shares, const Settling* now) noexcept nogil:
    """A share of the rows that the sequence has moved."""
    cdef int64_t n = data.R * data.Y, d, k, row
    for d in range(room.slots):
        for k in range(data.Kb):
            row = data.bigrams[room.transition_of[d] * data.Kb + k]
            if row >= 0 and row % shares == share:
                settle_row(n, data.lam + row * n, data.paid_lam + row * n if data.paid_lam != NULL else NULL,
                           data.barred_lam + row * n if data.barred_lam != NULL else NULL, data.settled_lam + row, now)


def descend(
    Rooms rooms not None,
    double[:, ::1] mu,                   # in/out [O][Y]      unigram weights / scale
    double[:, :, ::1] lam,               # in/out [Ob][R][Y]  bigram weights / scale
    const int32_t[:, ::1] unigrams,      # in  [N][K]
    const int32_t[::1] transition,       # in  [N]
    const int32_t[:, ::1] bigrams,       # in  [C][Kb]
    const int32_t[::1] labels,           # in  [N]
    const int64_t[::1] offsets,          # in  [S + 1]
    const int32_t[::1] lane_bounds,      # in  [lanes + 1]  columns of `unigrams` that no other lane's rows are in
    const int32_t[::1] lane_columns,     # in  [K]
    const int64_t[::1] order,            # in  [n]  sequences to visit
    const double[::1] steps,             # in  [n]  size of each step; 0: only evaluate
    const double[::1] scale,             # in  [groups + 1]  the first before, the others after each group
    const double[::1] due,               # in  [groups + 1]  the l1 penalty due so far, likewise
    float[:, ::1] paid_mu,               # in/out [O][Y], or None without l1 penalty
    float[:, :, ::1] paid_lam,           # in/out [Ob][R][Y], or None
    const uint8_t[:, ::1] barred_mu,     # in  [O][Y]  1: this weight stays zero; or None
    const uint8_t[:, :, ::1] barred_lam, # in  [Ob][R][Y]
    int32_t[::1] settled,                # in/out [O + Ob]  see Data; None without l1 penalty and barred weights
    int64_t first_group,                 # number of the first group, for `settled`
    const double[:, ::1] allowed,        # in  [Y][Y]  0 or -inf, or None
    const double[::1] first, const double[::1] last,     # in  [Y] the same for boundaries, or None
    double[::1] loss,                    # out [n]  of each sequence at the weights that it met; NaN: out of range, left out
    int64_t[::1] ended,                  # in/out [1]  tasks that have ended, 0 at first
    int64_t[::1] counter,
):
    """Visit sequences in groups of as many as there are rooms."""
    cdef Data data
    cdef int64_t n = order.shape[0], G = rooms.n, groups = (n + G - 1) / G
    cdef int64_t tasks = G + rooms.shares + lane_bounds.shape[0] - 1, task, group, kind, j, end, i, share, lane, width = 0
    cdef const int32_t* columns = NULL
    cdef Settling now
    data.Y, data.R, data.K, data.Kb, data.N = mu.shape[1], lam.shape[1], unigrams.shape[1], bigrams.shape[1], unigrams.shape[0]
    data.P = (data.Y + 7) / 8 * 8
    data.unigrams = &unigrams[0, 0] if data.N * data.K else NULL
    data.bigrams = &bigrams[0, 0] if bigrams.shape[0] * data.Kb else NULL
    data.transition = &transition[0] if data.N else NULL
    data.labels = &labels[0] if data.N else NULL
    data.offsets = &offsets[0]
    data.mu = &mu[0, 0] if mu.shape[0] else NULL
    data.lam = &lam[0, 0, 0] if lam.shape[0] else NULL
    data.allowed = NULL if allowed is None else &allowed[0, 0]
    data.paid_mu = NULL if paid_mu is None or data.mu == NULL else &paid_mu[0, 0]
    data.paid_lam = NULL if paid_lam is None or data.lam == NULL else &paid_lam[0, 0, 0]
    data.barred_mu = NULL if barred_mu is None or data.mu == NULL else &barred_mu[0, 0]
    data.barred_lam = NULL if barred_lam is None or data.lam == NULL else &barred_lam[0, 0, 0]
    data.settled_mu = NULL if settled is None else &settled[0]
    data.settled_lam = NULL if settled is None else data.settled_mu + mu.shape[0]
    data.first = NULL if first is None else &first[0]
    data.last = NULL if last is None else &last[0]
    with nogil:
        while True:
            task = crf_next_task(&counter[0])
            group, kind = task / tasks, task % tasks
            if group >= groups:
                break
            crf_await_tasks(&ended[0], group * tasks + (0 if kind < G else G))
            j, end = group * G, min(n, group * G + G)
            if kind < G:
                if j + kind < end:
                    read_sequence(&data, rooms.rooms + kind, order[j + kind], scale[group], &loss[j + kind])
            else:
                now.scale, now.due, now.group = scale[group + 1], due[group + 1], <int32_t> (first_group + group)
                share, lane = kind - G, kind - G - rooms.shares
                if lane >= 0:
                    columns, width = &lane_columns[lane_bounds[lane]], lane_bounds[lane + 1] - lane_bounds[lane]
                for i in range(j, end):
                    if steps[i] == 0.0 or not isfinite(loss[i]):
                        continue
                    if lane < 0:
                        move_bigrams(&data, rooms.rooms + (i - j), order[i], share, rooms.shares, steps[i] / now.scale,
                                     rooms.expected + share * data.Y * data.Y)
                    else:
                        move_unigrams(&data, rooms.rooms + (i - j), order[i], width, columns, steps[i] / now.scale)
                for i in range(j, end):
                    if settled is None or steps[i] == 0.0 or not isfinite(loss[i]):
                        continue
                    if lane < 0:
                        settle_bigrams(&data, rooms.rooms + (i - j), share, rooms.shares, &now)
                    else:
                        settle_unigrams(&data, order[i], width, columns, &now)
            crf_end_task(&ended[0])


def settle(double[::1] weights, float[::1] paid, double due, int64_t[::1] counter):
    """Let all weights have what is due of the l1 penalty."""
    cdef int64_t start = 0, n = 0
    with nogil:
        while next_chunk(weights.shape[0], &counter[0], &start, &n):
            operations().settle(n, 1.0, due, &weights[start], &paid[start])

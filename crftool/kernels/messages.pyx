"""Forward and backward messages of all sequences, kept in memory and repaired where weights change.

    alpha[t]  ~  (alpha[t-1] psi[t]) o u[t]          beta[t-1]  ~  psi[t] (u[t] o beta[t])

Every message has sum 1, so the probability of the label pair (y', y) at t is proportional to
alpha[t-1][y'] psi[t][y'][y] u[t][y] beta[t][y]. When the scores of token t change, alpha before t and
beta from t on stay as they are; the others are computed anew when somebody needs them (`extend`). A
step from one changed token to the next thus costs their distance, not the length of the sequence.

The matrix psi[t] of a transition is the product of a dense base, shared by transitions, and of the
few factors exp(lam) of its other observations; it is composed when needed.
"""

import numpy as np

from libc.math cimport NAN, isfinite, log
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from crftool.kernels.chain import padded
from crftool.kernels.rows cimport LABEL_MASK, PAIR_BITS, Row, WeightRows
from crftool.kernels.vector cimport crf_next_task, crf_operations, crf_prefetch, operations

cdef enum:
    LINE = 8                     # numbers in a line of the cache
    GRAIN = 8                    # sequences that a thread takes at a time
    SPARSE = 10                  # pairs of labels per entry from which a sparse product is faster

# Beyond this range of log scores at one place, products of messages may vanish.
cdef double LARGEST_SCORE = 300.0
cdef double SMALLEST_FACTOR = 5e-131             # about exp(-LARGEST_SCORE)
# A corrected sum that comes out smaller than this share of what it was is added up again.
cdef double CANCELLED = 1e-3


def aligned(n):
    """n zeros that begin with a line of the cache."""
    room = np.zeros(n + LINE)
    start = -room.ctypes.data // 8 % LINE
    return room[start:start + n]


def shared_scores(dataset, constraint):
    """(score_of [N], example [rows]), int32: tokens with the same unigram observations share a row of scores; a token
    of each row."""
    first, last = np.zeros(dataset.N, bool), np.zeros(dataset.N, bool)
    if constraint is not None:                       # which forbids labels at the ends
        some = np.diff(dataset.offsets) > 0
        first[dataset.offsets[:-1][some]] = last[dataset.offsets[1:][some] - 1] = True
    row = first * 2 + last.astype(np.int64)
    for column in dataset.unigrams.T:
        key = row * (int(column.max(initial=0)) + 2) + column + 1
        _, example, row = np.unique(key, return_index=True, return_inverse=True)
    _, example, row = np.unique(row, return_index=True, return_inverse=True)
    return row.astype(np.int32), example.astype(np.int32)


cdef class Messages:
    def __cinit__(self, dataset, space, bases, WeightRows mu, WeightRows lam, constraint=None):
        """`bases`: how transitions share dense matrices, a corpus.occurrences.Bases."""
        cdef int64_t Y = space.Y, P = padded(Y), N = dataset.N
        self.S, self.N, self.bases = dataset.S, N, len(bases.bounds) - 1
        self.mu, self.lam = mu, lam
        sequence_of = np.repeat(np.arange(dataset.S, dtype=np.int32), np.diff(dataset.offsets))
        ends = [None] * 3 if constraint is None else [
            np.ascontiguousarray(part, float) for part in (constraint.pairs, constraint.start, constraint.end)]
        score_of, example = shared_scores(dataset, constraint)
        self.rows = len(example)
        self._memory = dict(
            score_of=score_of, example=example,
            offsets=dataset.offsets, sequence_of=sequence_of, transition=dataset.transition, labels=dataset.labels,
            unigrams=dataset.unigrams, base_of=bases.base_of, extra_bounds=bases.extra_bounds, extras=bases.extras,
            base_bounds=bases.bounds, members=bases.members, allowed=ends[0], start=ends[1], end=ends[2],
            psi=aligned(self.bases * space.R * P), psi_t=aligned(self.bases * Y * P),
            u=aligned(self.rows * P), alpha=aligned(N * P), beta=aligned(N * P), scale=np.ones(N),
            valid_to=np.zeros(dataset.S, np.int64), valid_from=np.zeros(dataset.S, np.int64))
        self.lattice.Y, self.lattice.R, self.lattice.P, self.lattice.K = Y, space.R, P, dataset.unigrams.shape[1]
        self.lattice.begin_label = space.R > Y
        self.lattice.offsets = <const int64_t*> self._address("offsets", np.int64)
        self.lattice.sequence_of = <const int32_t*> self._address("sequence_of", np.int32)
        self.lattice.transition = <const int32_t*> self._address("transition", np.int32)
        self.lattice.labels = <const int32_t*> self._address("labels", np.int32)
        self.lattice.score_of = <const int32_t*> self._address("score_of", np.int32)
        self.lattice.example = <const int32_t*> self._address("example", np.int32)
        self.lattice.unigrams = <const int32_t*> self._address("unigrams", np.int32)
        self.lattice.base_of = <const int32_t*> self._address("base_of", np.int32)
        self.lattice.extra_bounds = <const int64_t*> self._address("extra_bounds", np.int64)
        self.lattice.extras = <const int32_t*> self._address("extras", np.int32)
        self.lattice.base_bounds = <const int64_t*> self._address("base_bounds", np.int64)
        self.lattice.members = <const int32_t*> self._address("members", np.int32)
        self.lattice.psi = <double*> self._address("psi", np.float64)
        self.lattice.psi_t = <double*> self._address("psi_t", np.float64)
        self.lattice.allowed = <const double*> self._address("allowed", np.float64)
        self.lattice.start = <const double*> self._address("start", np.float64)
        self.lattice.end = <const double*> self._address("end", np.float64)
        self.lattice.u = <double*> self._address("u", np.float64)
        self.lattice.alpha = <double*> self._address("alpha", np.float64)
        self.lattice.beta = <double*> self._address("beta", np.float64)
        self.lattice.scale = <double*> self._address("scale", np.float64)
        self.lattice.valid_to = <int64_t*> self._address("valid_to", np.int64)
        self.lattice.valid_from = <int64_t*> self._address("valid_from", np.int64)
        self.lattice.mu, self.lattice.lam = mu.rows, lam.rows
        self.lattice.sparse = constraint is None

    @property
    def score_of(self):
        """[N]  which row of scores a token has"""
        return self._memory["score_of"]

    cdef void* _address(self, name, dtype) except? NULL:
        array = self._memory[name]
        if array is None:
            return NULL
        if array.dtype != dtype or not array.flags.c_contiguous:
            raise ValueError(f"{name}: not a plain array of {dtype}")
        return <void*> <size_t> array.ctypes.data

    def build_scores(self):
        """exp(mu) of every row, and exp(lam) of every base; whether all are in range."""
        cdef int64_t base, r
        cdef bint good = True
        with nogil:
            for r in range(self.rows):
                good = good and rescore(&self.lattice, r)
            for base in range(self.bases):
                good = good and build_base(&self.lattice, base)
        return good


# Transitions ----------------------------------------------------------------------------------------------

cdef bint build_base(const Lattice* x, int64_t base) noexcept nogil:
    """psi of a base from the weights of its members; False if out of range."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = x.Y, P = x.P, i, y, k, e
    cdef double* psi = x.psi + base * x.R * P
    cdef double* psi_t = x.psi_t + base * Y * P
    cdef const Row* row
    cdef bint good = True
    memset(psi, 0, x.R * P * sizeof(double))
    for k in range(x.base_bounds[base], x.base_bounds[base + 1]):
        row = &x.lam[x.members[k]]
        for e in range(row.n):
            psi[(row.pair[e] >> PAIR_BITS) * P + (row.pair[e] & LABEL_MASK)] += row.value[e]
    for i in range(x.R):
        if not (op.maximum(Y, psi + i * P) < LARGEST_SCORE and op.minimum(Y, psi + i * P) > -LARGEST_SCORE):
            good = False
        op.exp_shifted(Y, psi + i * P, 0.0, psi + i * P)
    if x.allowed != NULL:
        for i in range(Y):
            for y in range(Y):
                psi[i * P + y] *= x.allowed[i * Y + y]
    for i in range(Y):
        for y in range(Y):
            psi_t[y * P + i] = psi[i * P + y]
    return good


cdef const double* matrix(const Lattice* x, int32_t c, bint transposed, double* scratch) noexcept nogil:
    """psi [Y][P] of a transition, or its transpose; composed in `scratch` if it is more than its base."""
    cdef int64_t P = x.P, k, e, previous, y
    cdef const double* base = x.psi_t + x.base_of[c] * x.Y * P if transposed else x.psi + x.base_of[c] * x.R * P
    cdef const Row* row
    cdef bint composed = False
    for k in range(x.extra_bounds[c], x.extra_bounds[c + 1]):
        row = &x.lam[x.extras[k]]
        if row.n == 0:
            continue
        if not composed:
            memcpy(scratch, base, x.Y * P * sizeof(double))
            composed = True
        for e in range(row.n):
            previous, y = row.pair[e] >> PAIR_BITS, row.pair[e] & LABEL_MASK
            if previous == x.Y:                      # the begin label comes last
                break
            if transposed:
                scratch[y * P + previous] *= row.factor[e]
            else:
                scratch[previous * P + y] *= row.factor[e]
    return scratch if composed else base


cdef double factor_before(const Lattice* x, int32_t c, int64_t k, int32_t pair) noexcept nogil:
    """The product of the factors of a pair in the extras of transition c before the k-th."""
    cdef int64_t i, low, high, middle
    cdef double product = 1.0
    cdef const Row* row
    for i in range(x.extra_bounds[c], k):
        row = &x.lam[x.extras[i]]
        low, high = 0, row.n
        while low < high:
            middle = (low + high) / 2
            if row.pair[middle] < pair:
                low = middle + 1
            else:
                high = middle
        if low < row.n and row.pair[low] == pair:
            product *= row.factor[low]
    return product


cdef bint times_sparse(const Lattice* x, const Row* row, bint transposed, const double* a, double* out) noexcept nogil:
    """out [P] = a psi or psi a for a psi of one row: sum(a) plus (exp(lam) - 1) on its entries (the paper's eq. 9).
    False if that cancels most of a sum. Padding of `a` must be zero."""
    cdef const crf_operations* op = operations()
    cdef int64_t e, y, n = row.n
    cdef double total = op.sum(x.P, a)
    for y in range(x.Y):
        out[y] = total
    for y in range(x.Y, x.P):
        out[y] = 0.0
    if x.begin_label:                                # whose pairs come last
        while n > 0 and row.pair[n - 1] >> PAIR_BITS == x.Y:
            n -= 1
    if transposed:
        for e in range(n):
            out[row.pair[e] >> PAIR_BITS] += a[row.pair[e] & LABEL_MASK] * (row.factor[e] - 1.0)
    else:
        for e in range(n):
            out[row.pair[e] & LABEL_MASK] += a[row.pair[e] >> PAIR_BITS] * (row.factor[e] - 1.0)
    return op.minimum(x.Y, out) >= CANCELLED * total


cdef void times_matrix(
    const Lattice* x, int32_t c, bint transposed, const double* a, double* out, double* scratch) noexcept nogil:
    """out [P] = a psi, or psi a. A few factors beyond the base are added as corrections of its product; where
    these would cancel most of a sum, and where they are many, the matrix is composed."""
    cdef const crf_operations* op = operations()
    cdef int64_t P = x.P, k, e, previous, y, many = 0, source, target
    cdef const double* base = x.psi + x.base_of[c] * x.R * P
    cdef double factor
    cdef const Row* row
    if x.sparse and x.base_bounds[x.base_of[c] + 1] == x.base_bounds[x.base_of[c]] + 1 \
            and x.extra_bounds[c] == x.extra_bounds[c + 1]:
        row = &x.lam[x.members[x.base_bounds[x.base_of[c]]]]
        if row.n * SPARSE <= x.Y * x.Y and times_sparse(x, row, transposed, a, out):
            return
    for k in range(x.extra_bounds[c], x.extra_bounds[c + 1]):
        many += x.lam[x.extras[k]].n
    if many > FEW:
        op.row_times_matrix(x.Y, P, a, matrix(x, c, transposed, scratch), out)
        return
    op.row_times_matrix(x.Y, P, a, x.psi_t + x.base_of[c] * x.Y * P if transposed else base, out)
    if many == 0:
        return
    memcpy(scratch, out, P * sizeof(double))
    for k in range(x.extra_bounds[c], x.extra_bounds[c + 1]):
        row = &x.lam[x.extras[k]]
        for e in range(row.n):
            previous, y = row.pair[e] >> PAIR_BITS, row.pair[e] & LABEL_MASK
            if previous == x.Y:
                break
            factor = base[previous * P + y] * (row.factor[e] - 1.0)
            if k > x.extra_bounds[c]:
                factor *= factor_before(x, c, k, row.pair[e])
            source, target = y if transposed else previous, previous if transposed else y
            out[target] += a[source] * factor
    for y in range(x.Y):
        if out[y] < CANCELLED * scratch[y]:
            op.row_times_matrix(x.Y, P, a, matrix(x, c, transposed, scratch), out)
            return


cdef void begin_row(const Lattice* x, int32_t c, double* out) noexcept nogil:
    """out [P] = psi of the begin label"""
    cdef int64_t k, e
    cdef const Row* row
    memcpy(out, x.psi + (x.base_of[c] * x.R + x.Y) * x.P, x.P * sizeof(double))
    for k in range(x.extra_bounds[c], x.extra_bounds[c + 1]):
        row = &x.lam[x.extras[k]]
        for e in range(row.n - 1, -1, -1):
            if row.pair[e] >> PAIR_BITS != x.Y:
                break
            out[row.pair[e] & LABEL_MASK] *= row.factor[e]


# Messages -------------------------------------------------------------------------------------------------

cdef void prefetch(const Lattice* x, int64_t first, int64_t last) noexcept nogil:
    """Ask for what a visit to tokens first to last of a sequence will read: their messages, and those on the way
    from the messages that hold."""
    cdef int64_t t, y, s = x.sequence_of[first], low = max(x.offsets[s], min(first - 1, x.valid_to[s]))
    cdef int64_t high = max(last, x.valid_from[s])
    for y in range(low * x.P, (last + 1) * x.P, 8):
        crf_prefetch(x.alpha + y)
    for y in range(first * x.P, (high + 1) * x.P, 8):
        crf_prefetch(x.beta + y)
    for t in range(min(first, low + 1), high + 1):
        for y in range(0, x.P, 8):
            crf_prefetch(scores(x, t) + y)


cdef bint forward(const Lattice* x, int64_t t, bint first, double* scratch) noexcept nogil:
    """alpha[t] from alpha[t-1]; False if it vanishes."""
    cdef const crf_operations* op = operations()
    cdef int64_t P = x.P
    cdef double* a = x.alpha + t * P
    cdef double total
    if not first:
        times_matrix(x, x.transition[t], False, a - P, a, scratch)
    elif x.begin_label:
        begin_row(x, x.transition[t], a)
    if first and not x.begin_label:
        memcpy(a, scores(x, t), P * sizeof(double))
        total = op.sum(P, a)
    else:
        total = op.product(P, 1.0, a, scores(x, t), a)
    if not (total > 0.0 and isfinite(total) and isfinite(1.0 / total)):
        return False
    x.scale[t] = total
    op.scale(P, 1.0 / total, a)
    return True


cdef inline bint backward(const Lattice* x, int64_t t, double* scratch) noexcept nogil:
    """beta[t] from beta[t+1]; False if it vanishes."""
    cdef const crf_operations* op = operations()
    cdef int64_t P = x.P
    cdef double* b = x.beta + t * P
    cdef double* v = scratch + x.Y * P
    cdef double total
    op.product(P, 1.0, scores(x, t + 1), b + P, v)
    times_matrix(x, x.transition[t + 1], True, v, b, scratch)
    total = op.sum(P, b)
    if not (total > 0.0 and isfinite(total) and isfinite(1.0 / total)):
        return False
    op.scale(P, 1.0 / total, b)
    return True


cdef bint extend(const Lattice* x, int64_t s, int64_t to, int64_t down_to, double* scratch) noexcept nogil:
    """Make alpha hold up to token `to` and beta down to token `down_to`; scratch has (Y + 1) P numbers."""
    cdef int64_t t
    for t in range(x.valid_to[s] + 1, to + 1):
        if not forward(x, t, t == x.offsets[s], scratch):
            return False
    for t in range(x.valid_from[s] - 1, down_to - 1, -1):
        if not backward(x, t, scratch):
            return False
    x.valid_to[s] = max(x.valid_to[s], to)
    x.valid_from[s] = min(x.valid_from[s], down_to)
    return True


cdef bint rescore(const Lattice* x, int64_t r) noexcept nogil:
    """Row r of u = exp(mu), as the product of the factors of its weights; False if out of range."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = x.Y, k, e, y, t = x.example[r], s = x.sequence_of[t]
    cdef double* u = x.u + r * x.P
    cdef const Row* row
    for y in range(Y):
        u[y] = 1.0
    for k in range(x.K):
        if x.unigrams[t * x.K + k] >= 0:
            row = &x.mu[x.unigrams[t * x.K + k]]
            for e in range(row.n):
                u[row.pair[e]] *= row.factor[e]
    if not (op.minimum(Y, u) > SMALLEST_FACTOR and op.maximum(Y, u) < 1.0 / SMALLEST_FACTOR):
        return False
    if x.start != NULL and t == x.offsets[s]:
        for y in range(Y):
            u[y] *= x.start[y]
    if x.end != NULL and t == x.offsets[s + 1] - 1:
        for y in range(Y):
            u[y] *= x.end[y]
    return True


cdef double gold_scores(const Lattice* x, int64_t t, bint first) noexcept nogil:
    """The weights of the gold labels at t."""
    cdef int64_t k
    cdef double total = gold_transition(x, t, first)
    for k in range(x.K):
        if x.unigrams[t * x.K + k] >= 0:
            total += find(&x.mu[x.unigrams[t * x.K + k]], x.labels[t])
    return total


cdef double gold_transition(const Lattice* x, int64_t t, bint first) noexcept nogil:
    """The bigram weights of the gold labels at t."""
    cdef int32_t pair, c = x.transition[t]
    cdef int64_t k, low, high, middle, side
    cdef double total = 0.0
    cdef const Row* row
    if first and not x.begin_label:
        return 0.0
    pair = (<int32_t> x.Y if first else x.labels[t - 1]) << PAIR_BITS | x.labels[t]
    for side in range(2):
        low = x.extra_bounds[c] if side else x.base_bounds[x.base_of[c]]
        high = x.extra_bounds[c + 1] if side else x.base_bounds[x.base_of[c] + 1]
        for k in range(low, high):
            row = &x.lam[x.extras[k] if side else x.members[k]]
            total += find(row, pair)
    return total


cdef double find(const Row* row, int32_t pair) noexcept nogil:
    """The weight of a pair, by bisection."""
    cdef int64_t low = 0, high = row.n, middle
    while low < high:
        middle = (low + high) / 2
        if row.pair[middle] < pair:
            low = middle + 1
        else:
            high = middle
    return row.value[low] if low < row.n and row.pair[low] == pair else 0.0


cdef bint beaten(const Lattice* x, int64_t t, double* p) noexcept nogil:
    """Whether another label is more probable at t; the first of equals wins, as in decoding. p [P] is scratch."""
    cdef int64_t y, label = x.labels[t]
    operations().product(x.P, 1.0, x.alpha + t * x.P, x.beta + t * x.P, p)
    for y in range(label):
        if p[y] == p[label]:
            return True
    return operations().maximum(x.Y, p) > p[label]


def score(Messages messages, double[::1] loss, int64_t[::1] counter):
    """All forward messages from the scores; loss [S] is NaN where these are out of range."""
    cdef Lattice* x = &messages.lattice
    cdef int64_t s, t, y, start, end, first, S = messages.S, P = x.P
    cdef double* scratch = <double*> malloc((x.Y + 1) * P * sizeof(double))
    if scratch == NULL:
        raise MemoryError
    with nogil:
        while True:
            first = crf_next_task(&counter[0]) * GRAIN
            if first >= S:
                break
            for s in range(first, min(S, first + GRAIN)):
                loss[s], start, end = 0.0, x.offsets[s], x.offsets[s + 1]
                for t in range(start, end):
                    if not forward(x, t, t == start, scratch):
                        loss[s] = NAN
                        break
                    loss[s] += log(x.scale[t]) - gold_scores(x, t, t == start)
                if start < end:
                    x.valid_to[s] = x.valid_from[s] = end - 1
                    for y in range(P):
                        x.beta[(end - 1) * P + y] = 1.0 / x.Y if y < x.Y else 0.0
    free(scratch)


def complete(Messages messages, int64_t[::1] errors, int64_t[::1] counter):
    """All backward messages after `score`; errors [S] counts the tokens whose most probable label is wrong, and is -1
    where messages are out of range."""
    cdef Lattice* x = &messages.lattice
    cdef int64_t s, t, first, S = messages.S
    cdef double* scratch = <double*> malloc((x.Y + 1) * x.P * sizeof(double))
    if scratch == NULL:
        raise MemoryError
    with nogil:
        while True:
            first = crf_next_task(&counter[0]) * GRAIN
            if first >= S:
                break
            for s in range(first, min(S, first + GRAIN)):
                errors[s] = 0
                if x.offsets[s] == x.offsets[s + 1]:
                    continue
                if not extend(x, s, x.valid_to[s], x.offsets[s], scratch):
                    errors[s] = -1
                    continue
                for t in range(x.offsets[s], x.offsets[s + 1]):
                    errors[s] += beaten(x, t, scratch)
    free(scratch)

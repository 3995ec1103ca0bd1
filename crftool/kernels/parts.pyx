"""What a step of blockwise descent needs to know of the data: sums over the occurrences of an observation x.

- `repair`: messages of the sequences that hold x, as far as they are needed.
- `gather`: for every weight of the block the expected and the observed count.
- `add_hessian`: products of the probabilities of the weights that may move.
- `evaluate`: takes new weights over, and tells the exact change of the log loss. Between the first and the
  last occurrence of x in a sequence the forward recursion is run with the new weights; messages outside
  do not change. `restore` undoes it.

The work on a block is split into parts of fixed size, whose sums are added in order, so that parts may
be done by several threads with the same result. Within a part it goes by chunks, whose messages stay in
the cache from one of the above to the next.
"""

import numpy as np

from libc.math cimport isfinite, log
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from crftool.kernels.messages import aligned
from crftool.kernels.messages cimport FEW, Lattice, Messages, extend, factor_before, forward, matrix, prefetch, rescore, scores
from crftool.kernels.rows cimport LABEL_MASK, PAIR_BITS, Row
from crftool.kernels.vector cimport crf_next_task, crf_operations, operations

cdef enum:
    WAIT = 32                    # positions whose pairs are added at once
    PART = 4                     # chunks that make a part worth while
    AHEAD = 4                    # occurrences, for prefetching
    SAMPLE = 1024                # occurrences that a Hessian is made of

cdef double IMPROBABLE = 1e-3    # what the off-diagonal of the Hessian leaves out


cdef class BlockParts:
    def __cinit__(self, pool, Messages messages, occurrences, bases, Ob, penalty, observed_only=False, grow=False,
                  no_revisit=False, exact=False):
        cdef Lattice* x = &messages.lattice
        cdef int64_t W = x.P + x.R * x.P, P = x.P, k
        cdef Part* part
        self.pool, self.messages, self.x, self.W, self._memory = pool, messages, x, W, []
        self.unigram, self.bigram, self.bounds = occurrences.unigram, occurrences.bigram, occurrences.bounds
        self.token, self.by_base = occurrences.token, occurrences.by_base
        self.chunks, self.chunk_bounds = occurrences.chunks, occurrences.chunk_bounds
        self.times_unigram, self.times_bigram = occurrences.times_unigram, occurrences.times_bigram
        self.base_bounds, self.bases = bases.bases_of(Ob)
        self.rho1, self.rho2, self.rho_group = penalty.rho1, penalty.rho2, penalty.rho_group
        self.observed_only, self.grow, self.no_revisit, self.exact = observed_only, grow, no_revisit, exact
        self.damping, self.wide_damping = np.ones(occurrences.blocks), np.ones(occurrences.blocks)
        self.threads = pool.threads
        self._count(occurrences)
        self.visited = np.zeros(occurrences.blocks, np.uint8)
        for k in range(PARTS):
            part = &self.part[k]
            self._memory.append(aligned(2 * W + (2 * x.Y + 2 + WAIT) * P))
            part.expected = <double*> <size_t> self._memory[k].ctypes.data
            part.gold, part.scratch = part.expected + W, part.expected + 2 * W
            part.outers = part.scratch + (x.Y + 1) * P
            part.rows = part.outers + x.Y * P
            part.marginal = part.rows + WAIT * P
            part.hessian = <double*> malloc((NEWTON * NEWTON + 3 * NEWTON) * sizeof(double))
            if part.hessian == NULL:
                raise MemoryError
            part.probability = part.hessian + NEWTON * NEWTON
            part.mass = part.probability + NEWTON
            part.probable = <int32_t*> (part.mass + NEWTON)
        self.theta = <double*> calloc(5 * W + P, sizeof(double))
        self.candidates = <int32_t*> malloc((2 * W + P) * sizeof(int32_t))
        if self.theta == NULL or self.candidates == NULL:
            raise MemoryError
        self.fresh, self.gradient, self.curvature = self.theta + W, self.theta + 2 * W, self.theta + 3 * W
        self.values, self.ratio, self.pairs = self.theta + 4 * W, self.theta + 5 * W, self.candidates + W
        self.unigram_place = self.candidates + 2 * W

    def __dealloc__(self):
        cdef int64_t k
        for k in range(PARTS):
            free(self.part[k].hessian)
        free(self.theta)
        free(self.candidates)

    def _count(self, occurrences):
        """What the numbers of occurrences at a token say about each block."""
        starts = occurrences.bounds[:-1][np.diff(occurrences.bounds) > 0]
        some = np.flatnonzero(np.diff(occurrences.bounds))
        times = np.maximum(occurrences.times_unigram, occurrences.times_bigram).astype(float)
        alone = (occurrences.times_bigram != 0) & (occurrences.times_unigram != 1)
        most, squares = np.ones(occurrences.blocks), np.zeros(occurrences.blocks)
        together = np.ones(occurrences.blocks, np.uint8)
        if len(starts):
            most[some] = np.maximum.reduceat(times, starts)
            squares[some] = np.add.reduceat(times * times, starts)
            together[some] = ~np.logical_or.reduceat(alone, starts)
        self.most_times, self.squares, self.always_together = most, squares, together
        block = np.repeat(np.arange(occurrences.blocks), np.diff(occurrences.bounds))
        entries = np.flatnonzero(occurrences.times_unigram)
        keys = block[entries] * self.messages.rows + np.asarray(self.messages.score_of)[occurrences.token[entries]]
        keys, first = np.unique(keys, return_index=True)
        self.score_rows = (keys % self.messages.rows).astype(np.int32)
        self.score_times = occurrences.times_unigram[entries[first]]
        self.score_bounds = np.searchsorted(keys // self.messages.rows, np.arange(occurrences.blocks + 1))

    cdef int64_t parts(self, int64_t b) noexcept nogil:
        return min(<int64_t> PARTS, 1 + (self.chunks[b + 1] - self.chunks[b]) / PART)

    cdef int64_t cut(self, int64_t b, int64_t k) noexcept nogil:
        """The first chunk of part k."""
        return self.chunks[b] + (self.chunks[b + 1] - self.chunks[b]) * k / self.parts(b)

    cdef void on_part(self, int task, int64_t b, int64_t k) noexcept nogil:
        cdef int64_t c, start = self.cut(b, k), end = self.cut(b, k + 1)
        cdef int64_t W = self.W if self.bigram[b] >= 0 else self.x.P
        cdef Part* part = &self.part[k]
        cdef bint gathers = task == GATHER or (task == EVALUATE and self.goes_on)
        part.failed, part.change = False, 0.0
        if task == ADD_HESSIAN:
            self.add_hessian(b, part, self.chunk_bounds[start], self.chunk_bounds[end])
            return
        if gathers:
            memset(part.expected, 0, W * sizeof(double))
            memset(part.gold, 0, W * sizeof(double))
        for c in range(start, end):
            if task == EVALUATE:
                self.evaluate(part, self.chunk_bounds[c], self.chunk_bounds[c + 1])
            elif task == RESTORE:
                self.restore(part, self.chunk_bounds[c], self.chunk_bounds[c + 1])
            if gathers and not part.failed:
                self.repair(part, self.chunk_bounds[c], self.chunk_bounds[c + 1])
                self.gather(part, self.chunk_bounds[c], self.chunk_bounds[c + 1])

    cdef bint on_parts(self, int task, int64_t b) noexcept nogil:
        """Every part of a block, on several threads if it has several; False if one fails."""
        cdef int64_t k, parts = self.parts(b)
        if self.threads > 1 and parts > 1:
            with gil:
                self.pool.run(self.share, task, b)
        else:
            for k in range(parts):
                self.on_part(task, b, k)
        for k in range(parts):
            if self.part[k].failed:
                return False
        return True

    def share(self, int task, int64_t b, int64_t[::1] counter):
        """One thread's share of the parts."""
        cdef int64_t k
        with nogil:
            while True:
                k = crf_next_task(&counter[0])
                if k >= self.parts(b):
                    break
                self.on_part(task, b, k)

    cdef int64_t last_of_sequence(self, int64_t i, int64_t end) noexcept nogil:
        """The last occurrence in the sequence of occurrence i."""
        cdef int32_t s = self.x.sequence_of[self.token[i]]
        while i + 1 < end and self.x.sequence_of[self.token[i + 1]] == s:
            i += 1
        return i

    cdef void repair(self, Part* part, int64_t i, int64_t end) noexcept nogil:
        """Messages that reach occurrences i to end."""
        cdef int64_t j
        while i < end:
            j = self.last_of_sequence(i, end)
            if j + AHEAD < end:
                prefetch(self.x, self.token[j + AHEAD], self.token[j + AHEAD])
            if not extend(self.x, self.x.sequence_of[self.token[i]], self.token[j], self.token[i], part.scratch):
                part.failed = True
                return
            i = j + 1

    cdef void gather(self, Part* part, int64_t start, int64_t end) noexcept nogil:
        """Add expected and observed counts of the occurrences from start to end."""
        cdef const crf_operations* op = operations()
        cdef Lattice* x = self.x
        cdef int64_t P = x.P, i, e, t, m, n = 0
        cdef int32_t base = -1, gold
        cdef double inverse
        cdef bint first
        cdef const double* alpha
        cdef const double* beta
        cdef const double* before[WAIT]
        for i in range(start, end):
            e = self.by_base[i]
            t = self.token[e]
            first = t == x.offsets[x.sequence_of[t]]
            alpha, beta, gold = x.alpha + t * P, x.beta + t * P, x.labels[t]
            inverse = 1.0 / op.dot(P, alpha, beta)
            m = self.times_unigram[e]
            if m:
                op.add_product(P, m * inverse, alpha, beta, part.expected)
                part.gold[gold] += m
            m = self.times_bigram[e]
            if m and first:
                op.add_product(P, m * inverse, alpha, beta, part.expected + P + x.Y * P)
                part.gold[P + x.Y * P + gold] += m
            elif m:
                if n == WAIT or x.base_of[x.transition[t]] != base:
                    self.add_waiting(part, base, n, before)
                    n, base = 0, x.base_of[x.transition[t]]
                op.product(P, inverse * m / x.scale[t], scores(x, t), beta, part.rows + n * P)
                part.gold[P + x.labels[t - 1] * P + gold] += m
                if self.extras_overlap(x.transition[t]):
                    self.add_composed(part, x.transition[t], alpha - P, part.rows + n * P)
                else:
                    self.add_extras(part, t, alpha - P, part.rows + n * P)
                    before[n] = alpha - P
                    n += 1
        self.add_waiting(part, base, n, before)

    cdef void add_waiting(self, Part* part, int32_t base, int64_t n, const double** before) noexcept nogil:
        """Add base o sum of alpha[t-1] w[t]^T over the positions that wait."""
        cdef int64_t Y = self.x.Y, P = self.x.P, i
        cdef const double* psi = self.x.psi + base * self.x.R * P
        cdef double* outers = part.outers
        cdef double* out = part.expected + P
        cdef const double* w[WAIT]
        if n == 0:
            return
        for i in range(n):
            w[i] = part.rows + i * P
        memset(outers, 0, Y * P * sizeof(double))
        operations().add_outers(Y, P, n, before, w, outers)
        for i in range(Y * P):
            out[i] += outers[i] * psi[i]

    cdef bint extras_overlap(self, int32_t c) noexcept nogil:
        """Whether so many factors of transition c may meet others beyond the base that looking for those costs more
        than composing its matrix."""
        cdef int64_t k, entries = 0
        for k in range(self.x.extra_bounds[c] + 1, self.x.extra_bounds[c + 1]):
            entries += self.x.lam[self.x.extras[k]].n
        return entries > FEW

    cdef void add_composed(self, Part* part, int32_t c, const double* alpha, const double* w) noexcept nogil:
        """Add psi o alpha w^T of one position."""
        cdef int64_t P = self.x.P, previous
        cdef const double* psi = matrix(self.x, c, False, part.scratch)
        for previous in range(self.x.Y):
            operations().add_product(P, alpha[previous], w, psi + previous * P, part.expected + P + previous * P)

    cdef void add_extras(self, Part* part, int64_t t, const double* alpha, const double* w) noexcept nogil:
        """What the factors beyond the base add at position t."""
        cdef Lattice* x = self.x
        cdef int64_t P = x.P, j, k, e, previous, y
        cdef int32_t c = x.transition[t]
        cdef const double* base = x.psi + x.base_of[c] * x.R * P
        cdef double factor
        cdef const Row* row
        for k in range(x.extra_bounds[c], x.extra_bounds[c + 1]):
            row = &x.lam[x.extras[k]]
            for e in range(row.n):
                previous, y = row.pair[e] >> PAIR_BITS, row.pair[e] & LABEL_MASK
                if previous == x.Y:
                    break
                j, factor = previous * P + y, row.factor[e] - 1.0
                if k > x.extra_bounds[c]:
                    factor *= factor_before(x, c, k, row.pair[e])
                part.expected[P + j] += alpha[previous] * w[y] * base[j] * factor

    cdef double pair_factor(self, int32_t c, int64_t previous, int64_t y) noexcept nogil:
        """psi[previous][y] of transition c"""
        cdef Lattice* x = self.x
        cdef double factor = x.psi[x.base_of[c] * x.R * x.P + previous * x.P + y]
        if x.extra_bounds[c + 1] > x.extra_bounds[c]:
            factor *= factor_before(x, c, x.extra_bounds[c + 1], <int32_t> (previous << PAIR_BITS | y))
        return factor

    cdef int64_t stride(self, int64_t b) noexcept nogil:
        """Of how many occurrences one is taken for the Hessian."""
        return 1 + (self.bounds[b + 1] - self.bounds[b]) / SAMPLE

    cdef void add_hessian(self, int64_t b, Part* part, int64_t start, int64_t end) noexcept nogil:
        """The Hessian of the candidates, position by position (thesis, appendix D), of a part: -E[f] E[g], to
        which `finish_hessian` adds E[f g]. Products with improbable labels are left out, and of a large block
        a sample is taken: what counts is the direction, the exact objective decides on the step."""
        cdef const crf_operations* op = operations()
        cdef Lattice* x = self.x
        cdef int64_t P = x.P, n = self.n, i, t, c, d, y, found, previous, stride = self.stride(b)
        cdef double inverse, p
        cdef bint first
        cdef double* p_t = part.marginal
        for i in range(n):
            memset(part.hessian + i * NEWTON, 0, (i + 1) * sizeof(double))
            part.mass[i] = 0.0
        for i in range(start, end):
            if (i - self.bounds[b]) % stride:
                continue
            t, found = self.token[i], 0
            first = t == x.offsets[x.sequence_of[t]]
            inverse = 1.0 / op.dot(P, x.alpha + t * P, x.beta + t * P)
            op.product(P, inverse, x.alpha + t * P, x.beta + t * P, p_t)
            inverse /= x.scale[t]
            for c in range(n):
                y = self.pairs[c] & LABEL_MASK
                if p_t[y] <= IMPROBABLE:
                    continue
                if self.candidates[c] < P:
                    p = self.times_unigram[i] * p_t[y]
                else:
                    previous = self.pairs[c] >> PAIR_BITS
                    if first != (previous == x.Y):
                        continue
                    p = self.times_bigram[i]
                    if first:
                        p *= p_t[y]
                    else:
                        p *= x.alpha[(t - 1) * P + previous] * scores(x, t)[y] * x.beta[t * P + y] * inverse
                        p *= self.pair_factor(x.transition[t], previous, y)
                if p > IMPROBABLE:
                    part.probable[found], part.probability[found] = <int32_t> c, p
                    part.mass[c] += p
                    found += 1
                    for d in range(found):
                        if self.together or (self.candidates[c] < P) == (self.candidates[part.probable[d]] < P):
                            part.hessian[c * NEWTON + part.probable[d]] -= p * part.probability[d]

    cdef void evaluate(self, Part* part, int64_t i, int64_t end) noexcept nogil:
        """Take the weights in place over into scores and forward messages, from the first to the last occurrence
        in each sequence; part.change = the change of the log loss. The messages before and after stay."""
        cdef const crf_operations* op = operations()
        cdef Lattice* x = self.x
        cdef int64_t P = x.P, j, t, e, s
        cdef double before, old, ratio
        cdef const double* beta
        cdef bint good
        while i < end:
            j, e, s = self.last_of_sequence(i, end), i, x.sequence_of[self.token[i]]
            if j + AHEAD < end:
                prefetch(x, self.token[j + AHEAD], self.token[j + AHEAD])
            beta = x.beta + self.token[j] * P
            before = op.dot(P, x.alpha + self.token[j] * P, beta)
            ratio, good = 1.0, True
            for t in range(self.token[i], self.token[j] + 1):
                old = x.scale[t]
                if e <= j and self.token[e] == t:
                    part.change -= self.gold_change(e, t)
                    if t == self.token[i] and not self.moves_bigrams:
                        self.reweigh(t, self.times_unigram[e])
                    e += 1
                if t > self.token[i] or self.moves_bigrams:
                    good = forward(x, t, t == x.offsets[s], part.scratch) and good
                ratio *= x.scale[t] / old
                if not 1e-200 < ratio < 1e200:       # before it leaves the range
                    part.change += log(ratio)
                    ratio = 1.0
            part.change += log(ratio * op.dot(P, x.alpha + self.token[j] * P, beta) / before)
            x.valid_to[s] = x.valid_from[s] = self.token[j]
            if not good or not isfinite(part.change):
                part.failed = True
            i = j + 1

    cdef void reweigh(self, int64_t t, int64_t times) noexcept nogil:
        """alpha[t] where only unigram weights change, and nothing before: p'(y) ~ p(y) exp(change), no recursion."""
        cdef const crf_operations* op = operations()
        cdef int64_t m
        cdef double* alpha = self.x.alpha + t * self.x.P
        cdef double total
        for m in range(times):
            total = op.product(self.x.P, 1.0, alpha, self.ratio, alpha)
            self.x.scale[t] *= total
            op.scale(self.x.P, 1.0 / total, alpha)

    cdef void reweigh_scores(self, int64_t b) noexcept nogil:
        """The scores that the unigram observation of a block takes part in, by the change of its weights."""
        cdef int64_t i, m
        cdef double* u
        for i in range(self.score_bounds[b], self.score_bounds[b + 1]):
            u = self.x.u + self.score_rows[i] * self.x.P
            for m in range(self.score_times[i]):
                operations().product(self.x.P, 1.0, u, self.ratio, u)

    cdef bint take_back(self, int64_t b) noexcept nogil:
        """Scores and messages of the weights in place, after a step that was not good; False if out of range."""
        cdef int64_t i
        for i in range(self.score_bounds[b], self.score_bounds[b + 1]):
            if not rescore(self.x, self.score_rows[i]):
                return False
        return self.on_parts(RESTORE, b)

    cdef void restore(self, Part* part, int64_t i, int64_t end) noexcept nogil:
        """Messages of the weights in place, after a step was taken back."""
        cdef int64_t start = i
        cdef Lattice* x = self.x
        cdef int32_t s
        for i in range(start, end):
            s = x.sequence_of[self.token[i]]
            x.valid_to[s] = min(x.valid_to[s], self.token[i] - 1)
            x.valid_from[s] = max(x.valid_from[s], self.token[i])
        self.repair(part, start, end)

    cdef double gold_change(self, int64_t e, int64_t t) noexcept nogil:
        """Change of the gold labels' score at occurrence e, token t."""
        cdef Lattice* x = self.x
        cdef int64_t y = x.labels[t], previous
        cdef double change = 0.0
        if self.times_unigram[e]:
            change = self.times_unigram[e] * (self.fresh[y] - self.theta[y])
        if self.times_bigram[e]:
            previous = x.Y if t == x.offsets[x.sequence_of[t]] else x.labels[t - 1]
            y += x.P + previous * x.P
            change += self.times_bigram[e] * (self.fresh[y] - self.theta[y])
        return change

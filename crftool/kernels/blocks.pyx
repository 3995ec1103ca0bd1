"""Blockwise coordinate descent: one visit to the block of an observation x (SBCD, Sokolovska et al. 2010, alg. 2).

A visit has four steps.
1. `repair`: messages of the sequences that hold x, as far as they are needed.
2. `gather`: for every weight of the block the expected count, and the sum of squared probabilities, whose
   difference is the second derivative under approximation (16).
3. `propose`: the soft-thresholded Newton step (13)-(14), second derivatives multiplied by a damping.
4. `evaluate`: the exact change of the objective. Between the first and the last occurrence of x in a
   sequence the forward recursion is run with the new weights; messages outside do not change. A step
   that does not lower the objective enough is proposed again with twice the damping. The exact change
   also tells the curvature along the step, which is the damping that the next visit begins with: no
   factor is tuned by hand, and no step raises the objective.

The work on a block is split into parts of fixed size, whose sums are added in order, so that parts may
be done by several threads with the same result.
"""

import numpy as np

from libc.math cimport INFINITY, fabs, fmax, fmin, isfinite, log, sqrt
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from crftool.kernels.messages import aligned
from crftool.kernels.messages cimport (
    Lattice, Messages, build_base, extend, factor_before, forward, prefetch, rescore, scores, times_matrix)
from crftool.kernels.rows cimport LABEL_MASK, PAIR_BITS, Row, set_row
from crftool.kernels.vector cimport crf_next_task, crf_operations, operations

cdef enum:
    WAIT = 32                    # positions whose pairs are added at once
    PARTS = 8                    # at most so many parts of a block
    PART = 4                     # chunks that make a part worth while
    MAX_TRIALS = 40              # steps tried in one visit
    AHEAD = 4                    # occurrences, for prefetching
    SAMPLE = 1024                # occurrences that a Hessian is made of
    STEPS = 2                    # in a row on one block
    NEWTON = 512                 # candidates up to which the Hessian of a block is used, not its diagonal
    PASSES = 30                  # over the candidates, to solve the quadratic model
    GOOD = 0
    MOVED = 1
    STAYED = 2
    NO_MEMORY = -1
    OUT_OF_RANGE = -2
    # What can be done to the parts of a block at once
    GATHER, ADD_HESSIAN, EVALUATE, RESTORE

cdef double SUFFICIENT = 0.1     # share of the predicted decrease that a step must bring
cdef double ENOUGH = 0.1         # share of the block's violation with which the next step is left out
cdef double ENTRY = 0.02          # share of the block's largest violation that lets a weight leave zero
cdef double IMPROBABLE = 1e-3    # what the off-diagonal of the Hessian leaves out

# What one part of a block works with. W = P + R P numbers: unigram weights by label, then bigram weights by
# previous label and label.
cdef struct Part:
    double* expected             # [W]  sum of probabilities
    double* gold                 # [W]  observed counts
    double* scratch              # [(Y + 1) P]  a transition matrix
    double* outers               # [Y P]
    double* rows                 # [WAIT][P]  of the positions that wait
    double* marginal             # [P]
    double* hessian              # [NEWTON][NEWTON]  lower triangle, of the candidates
    double* mass                 # [NEWTON]  sum of the probabilities that went into it
    int32_t* probable            # [NEWTON]
    double* probability          # [NEWTON]
    double change                # of the log loss
    bint failed


cdef class BlockDescent:
    cdef Messages messages
    cdef object pool
    cdef Lattice* x
    cdef int64_t W
    cdef list _memory
    cdef const int32_t[::1] unigram, bigram, token
    cdef const int64_t[::1] bounds, chunks, chunk_bounds, by_base, base_bounds
    cdef const int32_t[::1] bases
    cdef const int8_t[::1] times_unigram, times_bigram
    cdef const int64_t[::1] score_bounds             # [blocks + 1]
    cdef const int32_t[::1] score_rows               # rows of scores that a block's unigram observation is in
    cdef const int8_t[::1] score_times               # how often
    cdef const double[::1] most_times, squares       # [blocks]  of the occurrences at one token: most; sum of squares
    cdef const uint8_t[::1] always_together          # [blocks]
    cdef double rho1, rho2, rho_group
    cdef bint observed_only, grow, exact
    cdef public bint no_revisit
    cdef int threads
    cdef public double noise     # rounding errors of the objective: differences below say nothing
    cdef readonly double[::1] damping        # [blocks]
    cdef readonly double[::1] wide_damping   # [blocks]  of steps by the diagonal
    cdef readonly uint8_t[::1] visited       # [blocks]
    cdef Part part[PARTS]
    # Of the block that is being visited
    cdef double* theta           # [W]  its weights
    cdef double* fresh           # [W]  those proposed
    cdef double* gradient        # [W]
    cdef double* curvature       # [W]  second derivatives; negative: the weight must stay
    cdef double* ratio           # [P]  exp of the change of the unigram weights
    cdef int32_t* candidates     # [W]  weights that are not zero, or may leave it
    cdef int32_t* pairs          # [W]
    cdef double* values          # [W]
    cdef int64_t n
    cdef int32_t* unigram_place  # [P]  which candidate the unigram weight of a label is, or -1
    cdef bint moves_bigrams, newton
    cdef bint goes_on            # another step follows, for which `evaluate` had better gather at once
    cdef double most             # occurrences at one token
    cdef bint together           # the unigram observation occurs, once, wherever the bigram one does; if it does
                                 # not, the Hessian is kept positive without the products of both kinds
    cdef double norm, worst, group_norm

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
        most, squares, together = np.ones(occurrences.blocks), np.zeros(occurrences.blocks), np.ones(occurrences.blocks, np.uint8)
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

    # Parts of a block -------------------------------------------------------------------------------------

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
                inverse *= m / x.scale[t]
                before[n] = alpha - P
                op.product(P, inverse, scores(x, t), beta, part.rows + n * P)
                self.add_extras(part, t, alpha - P, part.rows + n * P)
                part.gold[P + x.labels[t - 1] * P + gold] += m
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

    cdef inline double pair_factor(self, int32_t c, int64_t previous, int64_t y) noexcept nogil:
        """psi[previous][y] of transition c"""
        cdef Lattice* x = self.x
        cdef double factor = x.psi[x.base_of[c] * x.R * x.P + previous * x.P + y]
        if x.extra_bounds[c + 1] > x.extra_bounds[c]:
            factor *= factor_before(x, c, x.extra_bounds[c + 1], <int32_t> (previous << PAIR_BITS | y))
        return factor

    cdef void solve(self, int64_t b, double damping) noexcept nogil:
        """fresh = the minimum of the quadratic model with its l1 penalty, by coordinate descent on it."""
        cdef double* H = self.part[0].hessian
        cdef double* slope = self.values             # [n]  gradient + damping H (fresh - theta)
        cdef int64_t n = self.n, c, d, j, trial
        cdef double a, h, step, largest
        for c in range(n):
            slope[c] = self.gradient[self.candidates[c]]
            self.fresh[self.candidates[c]] = self.theta[self.candidates[c]]
        for trial in range(PASSES):
            largest = 0.0
            for c in range(n):
                j = self.candidates[c]
                h = damping * self.curvature[j]
                if not (h >= 0.0 and h + self.rho2 > 0.0):
                    continue
                a = h * self.fresh[j] - slope[c]
                a = a - self.rho1 if a > self.rho1 else a + self.rho1 if a < -self.rho1 else 0.0
                step = a / (h + self.rho2) - self.fresh[j]
                if step == 0.0:
                    continue
                self.fresh[j] += step
                largest = fmax(largest, fabs(step) * sqrt(h))
                slope[c] += h * step
                step *= damping
                for d in range(c):
                    slope[d] += H[c * NEWTON + d] * step
                for d in range(c + 1, n):
                    slope[d] += H[d * NEWTON + c] * step
            if largest <= 1e-3 * sqrt(self.norm):
                break

    cdef void finish_hessian(self, int64_t b) noexcept nogil:
        """Add up the parts, and E[f g]: the expected count of a weight with itself, and of a bigram weight with
        the unigram weight of its label, where both act at the same tokens."""
        cdef int64_t c, d, j, k, place, stride = self.stride(b)
        cdef double* H = self.part[0].hessian
        cdef double mass
        for c in range(self.n):
            j, mass = self.candidates[c], self.part[0].mass[c]
            for k in range(1, self.parts(b)):
                mass += self.part[k].mass[c]
                for d in range(c + 1):
                    H[c * NEWTON + d] += self.part[k].hessian[c * NEWTON + d]
            for d in range(c + 1):
                H[c * NEWTON + d] *= stride
            # With the mass of the sample the matrix is one of variances; what the sample lacks only adds to it.
            self.curvature[j] = fmax(self.most * fmax(stride * mass, self.part[0].expected[j]) + H[c * NEWTON + c],
                                     self.curvature[j])
            place = self.unigram_place[self.pairs[c] & LABEL_MASK]
            if j >= self.x.P and place >= 0 and self.together:
                H[c * NEWTON + place] += stride * mass

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

    cdef inline void reweigh(self, int64_t t, int64_t times) noexcept nogil:
        """alpha[t] where only the unigram weights change, and nothing before: p'(y) ~ p(y) exp(change), no recursion."""
        cdef const crf_operations* op = operations()
        cdef int64_t m
        cdef double* alpha = self.x.alpha + t * self.x.P
        cdef double total
        for m in range(times):
            total = op.product(self.x.P, 1.0, alpha, self.ratio, alpha)
            self.x.scale[t] *= total
            op.rescale(self.x.P, 1.0 / total, alpha)

    cdef void reweigh_scores(self, int64_t b) noexcept nogil:
        """The scores that the unigram observation of a block takes part in, by the change of its weights."""
        cdef int64_t i, m
        cdef double* u
        for i in range(self.score_bounds[b], self.score_bounds[b + 1]):
            u = self.x.u + self.score_rows[i] * self.x.P
            for m in range(self.score_times[i]):
                operations().product(self.x.P, 1.0, u, self.ratio, u)

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

    # The block --------------------------------------------------------------------------------------------

    cdef void load(self, int64_t b) noexcept nogil:
        """theta from the rows of the block."""
        cdef int64_t P = self.x.P, e
        cdef const Row* row
        memset(self.theta, 0, (self.W if self.bigram[b] >= 0 else P) * sizeof(double))
        self.group_norm = 0.0
        if self.unigram[b] >= 0:
            row = &self.x.mu[self.unigram[b]]
            for e in range(row.n):
                self.theta[row.pair[e]] = row.value[e]
                self.group_norm += row.value[e] * row.value[e]
        if self.bigram[b] >= 0:
            row = &self.x.lam[self.bigram[b]]
            for e in range(row.n):
                self.theta[P + (row.pair[e] >> PAIR_BITS) * P + (row.pair[e] & LABEL_MASK)] = row.value[e]
                self.group_norm += row.value[e] * row.value[e]
        self.group_norm = sqrt(self.group_norm)
        memcpy(self.fresh, self.theta, (self.W if self.bigram[b] >= 0 else P) * sizeof(double))

    cdef int store(self, int64_t b, const double* weights) noexcept nogil:
        """Put weights into the rows of the block, and into the bases that have them."""
        cdef int64_t P = self.x.P, i, k = 0, n = 0, low
        cdef int32_t o = self.bigram[b]
        cdef bint good = True
        while k < self.n and self.candidates[k] < P:
            if weights[self.candidates[k]] != 0.0:
                self.pairs[n], self.values[n] = self.candidates[k], weights[self.candidates[k]]
                n += 1
            k += 1
        if self.unigram[b] >= 0 and not set_row(&self.x.mu[self.unigram[b]], n, self.pairs, self.values):
            return NO_MEMORY
        if o < 0 or not self.moves_bigrams:
            return GOOD
        n = 0
        for k in range(k, self.n):
            i = self.candidates[k] - P
            if weights[i + P] != 0.0:
                self.pairs[n], self.values[n] = <int32_t> (i / P << PAIR_BITS | i % P), weights[i + P]
                n += 1
        if not set_row(&self.x.lam[o], n, self.pairs, self.values):
            return NO_MEMORY
        for low in range(self.base_bounds[o], self.base_bounds[o + 1]):
            good = build_base(self.x, self.bases[low]) and good
        return GOOD if good else OUT_OF_RANGE

    cdef inline void consider(self, int64_t b, int64_t j, double h, bint may_enter) noexcept nogil:
        """Add weight j to the candidates if it counts, and to the violation of the optimality conditions."""
        cdef double w = self.theta[j], g = self.gradient[j], pseudo
        if w != 0.0:
            pseudo = g + self.rho2 * w + (self.rho1 if w > 0.0 else -self.rho1)
            pseudo += self.rho_group * w / self.group_norm
        elif may_enter and fabs(g) > self.rho1:
            pseudo = g - self.rho1 if g > 0.0 else g + self.rho1
        else:
            return
        self.norm += pseudo * pseudo
        self.worst = fmax(self.worst, fabs(pseudo))
        # The thesis' damping (7.4) keeps a step below 1: the curvature is taken as |g| at least.
        self.curvature[j] = fmax(h, fabs(pseudo))
        self.candidates[self.n] = <int32_t> j
        self.n += 1

    cdef void condition(self, int64_t b, int64_t only, bint newton) noexcept nogil:
        """Gradient, curvature and candidates of the block; `only`: the one weight that may move, or -1."""
        cdef int64_t P = self.x.P, Y = self.x.Y, j, i, k
        cdef double total
        cdef Part* all = &self.part[0]
        cdef bint frozen = self.no_revisit and self.visited[b], may_enter
        self.most, self.together, total = self.most_times[b], self.always_together[b], self.squares[b]
        for k in range(1, self.parts(b)):
            for j in range(self.W if self.bigram[b] >= 0 else P):
                all.expected[j] += self.part[k].expected[j]
                all.gold[j] += self.part[k].gold[j]
        self.n, self.norm, self.worst = 0, 0.0, 0.0
        for i in range(-1, self.x.R if self.bigram[b] >= 0 else 0):
            if i < 0 and self.unigram[b] < 0:
                continue
            for j in range(P + i * P, P + i * P + Y):
                self.gradient[j] = all.expected[j] - all.gold[j]
                if fabs(self.gradient[j]) <= self.rho1 and self.theta[j] == 0.0:
                    continue
                may_enter = not frozen and (not self.observed_only or all.gold[j] > 0.0)
                if self.grow and i >= 0 and self.unigram[b] >= 0 and self.theta[j % P] == 0.0:
                    may_enter = False
                if only >= 0 and j != only:
                    may_enter = False
                # At most what (16) gives if probabilities are the same everywhere; Newton's step knows better.
                self.consider(b, j, 0.0 if newton else all.expected[j] * (self.most - all.expected[j] / total), may_enter)
                if only >= 0 and j != only and self.n and self.candidates[self.n - 1] == j:
                    self.curvature[j] = -1.0
        if only >= 0:
            self.norm = self.worst = 0.0
            if self.n:
                self.only_violation(only)
        elif self.rho_group > 0.0 and self.group_norm == 0.0:
            self.norm = fmax(0.0, sqrt(self.norm) - self.rho_group) ** 2
            self.worst = fmin(self.worst, sqrt(self.norm))

    cdef void select(self) noexcept nogil:
        """Keep the candidates that are not zero, and of the others those that violate most."""
        cdef int64_t k, j, n, support = 0, P = self.x.P
        cdef double entry = ENTRY * self.worst
        for k in range(self.n):
            support += self.theta[self.candidates[k]] != 0.0
        while True:
            n = 0
            for k in range(self.n):
                j = self.candidates[k]
                n += self.theta[j] != 0.0 or fabs(self.gradient[j]) - self.rho1 >= entry
            if n <= NEWTON or support >= NEWTON / 2:
                break
            entry *= 1.5
        n = 0
        for k in range(self.n):
            j = self.candidates[k]
            if self.theta[j] != 0.0 or fabs(self.gradient[j]) - self.rho1 >= entry:
                self.candidates[n] = <int32_t> j
                n += 1
        self.n, self.newton = n, n <= NEWTON
        if not self.newton:
            for k in range(n):
                j = self.candidates[k]
                self.curvature[j] = fmax(self.curvature[j], self.part[0].expected[j])
        for j in range(P):
            self.unigram_place[j] = -1
        for k in range(n if self.newton else 0):
            j = self.candidates[k]
            if j < P:
                self.unigram_place[j], self.pairs[k] = <int32_t> k, <int32_t> j
            else:
                self.pairs[k] = <int32_t> ((j - P) / P << PAIR_BITS | (j - P) % P)

    cdef void only_violation(self, int64_t j) noexcept nogil:
        cdef double w = self.theta[j], g = self.gradient[j], pseudo
        if w != 0.0:
            pseudo = g + self.rho2 * w + (self.rho1 if w > 0.0 else -self.rho1)
        else:
            pseudo = fmax(0.0, fabs(g) - self.rho1)
        self.norm, self.worst = pseudo * pseudo, fabs(pseudo)

    cdef bint propose(self, int64_t b, double damping, double* linear, double* quadratic) noexcept nogil:
        """fresh = the step (13)-(14) with damped curvature; False if nothing moves.

        linear: gradient . step + change of the penalty; quadratic: step . curvature . step
        """
        cdef int64_t k, j, i
        cdef double a, d, h, w, old = 0.0, new = 0.0
        cdef bint moves = False
        linear[0] = quadratic[0] = 0.0
        self.moves_bigrams = False
        for j in range(self.x.P):
            self.ratio[j] = 0.0
        if self.newton:
            self.solve(b, damping)
        for k in range(0 if self.newton else self.n):
            j = self.candidates[k]
            w, h = self.theta[j], damping * self.curvature[j]
            self.fresh[j] = w
            if h >= 0.0 and h + self.rho2 > 0.0:
                a = h * w - self.gradient[j]
                a = a - self.rho1 if a > self.rho1 else a + self.rho1 if a < -self.rho1 else 0.0
                self.fresh[j] = a / (h + self.rho2)
        if self.rho_group > 0.0:
            self.shrink_group(damping)
        for k in range(self.n):
            j = self.candidates[k]
            w, d = self.theta[j], self.fresh[j] - self.theta[j]
            old, new = old + w * w, new + self.fresh[j] * self.fresh[j]
            if d == 0.0:
                continue
            moves = True
            if j < self.x.P:
                self.ratio[j] = d
            else:
                self.moves_bigrams = True
            linear[0] += self.gradient[j] * d + self.rho1 * (fabs(self.fresh[j]) - fabs(w)) \
                + 0.5 * self.rho2 * d * (self.fresh[j] + w)
            quadratic[0] += self.curvature[j] * d * d
            if self.newton:
                for i in range(k):
                    quadratic[0] += 2.0 * d * self.part[0].hessian[k * NEWTON + i] \
                        * (self.fresh[self.candidates[i]] - self.theta[self.candidates[i]])
        linear[0] += self.rho_group * (sqrt(new) - sqrt(old))
        operations().exp_shifted(self.x.P, self.ratio, 0.0, self.ratio)
        return moves

    cdef void shrink_group(self, double damping) noexcept nogil:
        """The same step with the group penalty: D theta + rho_group theta / |theta| = a, where a are the
        soft-thresholded numerators and D the denominators of (13). |theta| = s solves
        sum (a / (D s + rho_group))^2 = 1."""
        cdef int64_t k, j, trial
        cdef double low = 0.0, high = 0.0, s, total, norm = 0.0, D
        for k in range(self.n):
            j = self.candidates[k]
            D = damping * self.curvature[j] + self.rho2
            if D > 0.0:
                norm += (self.fresh[j] * D) ** 2
                high += self.fresh[j] * self.fresh[j]
        if sqrt(norm) <= self.rho_group:
            for k in range(self.n):
                self.fresh[self.candidates[k]] = 0.0
            return
        high = sqrt(high)                            # without the penalty |theta| can only be larger
        for trial in range(60):
            s, total = 0.5 * (low + high), 0.0
            for k in range(self.n):
                j = self.candidates[k]
                D = damping * self.curvature[j] + self.rho2
                total += (self.fresh[j] * D / (D * s + self.rho_group)) ** 2
            if total > 1.0:
                low = s
            else:
                high = s
        for k in range(self.n):
            j = self.candidates[k]
            D = damping * self.curvature[j] + self.rho2
            self.fresh[j] *= D * high / (D * high + self.rho_group)

    cdef int visit(self, int64_t b, bint update, double tolerance, double* gain, double* norm, double* worst) noexcept nogil:
        """Up to STEPS steps on a block; adds the decrease of the objective to `gain`. norm, worst: squared norm and
        largest entry of the block's pseudo-gradient before them."""
        cdef int64_t j
        cdef bint wide
        cdef int status = MOVED
        if not self.on_parts(GATHER, b):
            return OUT_OF_RANGE
        for j in range(STEPS):
            # Without an l1 penalty every weight counts, and the last step is for all of them.
            wide = self.rho_group > 0.0 or (self.rho1 == 0.0 and j == STEPS - 1)
            self.load(b)
            self.condition(b, -1, not wide)
            if j == 0:
                norm[0], worst[0] = self.norm, self.worst
                self.visited[b] = update or self.visited[b]
            else:
                tolerance = fmax(tolerance, ENOUGH * sqrt(norm[0]))
            if not update or self.norm <= tolerance * tolerance:
                return GOOD
            self.goes_on = j + 1 < STEPS
            status = self.step(b, -1, wide, gain)
            if status == STAYED and self.goes_on and not self.on_parts(GATHER, b):
                return OUT_OF_RANGE
            if status < 0:
                return status
        return GOOD

    cdef int visit_weight(self, int64_t b, int64_t j, bint update, double tolerance, double* gain) noexcept nogil:
        """The same for a single weight, one step."""
        self.goes_on = False
        if not self.on_parts(GATHER, b):
            return OUT_OF_RANGE
        self.load(b)
        self.condition(b, j, False)
        self.visited[b] = update or self.visited[b]
        if not update or self.norm <= tolerance * tolerance:
            return GOOD
        self.curvature[j] = fmax(self.second_derivative(b, j), self.worst)
        self.damping[b] = 1.0
        return min(self.step(b, j, False, gain), <int> GOOD)

    cdef int step(self, int64_t b, int64_t only, bint wide, double* gain) noexcept nogil:
        """One step on a block whose gradient is known. `wide`: for all weights at once, by the diagonal of the
        Hessian; `only`: for one weight."""
        cdef int64_t trial
        cdef double* damping = &self.wide_damping[b] if wide else &self.damping[b]
        cdef double linear, quadratic, change, needed
        cdef int status
        self.newton = False
        if only < 0 and not wide:
            self.select()
            if self.newton:
                self.on_parts(ADD_HESSIAN, b)
                self.finish_hessian(b)
        for trial in range(MAX_TRIALS):
            if not self.propose(b, damping[0], &linear, &quadratic) or not linear < 0.0:
                return STAYED
            status = self.store(b, self.fresh)
            if status == NO_MEMORY:
                return status
            change = INFINITY if status == OUT_OF_RANGE else self.change(b, linear)
            needed = 2.0 * (change - linear) / quadratic
            if change <= SUFFICIENT * linear + self.noise:
                if linear < -100.0 * self.noise:
                    damping[0] = min(max(needed, 0.5 * damping[0]), 2.0 * damping[0])
                gain[0] -= change
                return MOVED
            damping[0] *= min(max(needed / damping[0], 2.0), 16.0)
            if self.store(b, self.theta) != GOOD:
                return NO_MEMORY
            if status == GOOD and not self.take_back(b):
                return OUT_OF_RANGE
        return STAYED

    cdef bint take_back(self, int64_t b) noexcept nogil:
        cdef int64_t i
        for i in range(self.score_bounds[b], self.score_bounds[b + 1]):
            if not rescore(self.x, self.score_rows[i]):
                return False
        return self.on_parts(RESTORE, b)

    cdef double change(self, int64_t b, double linear) noexcept nogil:
        """Exact change of the objective by the weights in place."""
        cdef int64_t k, j
        cdef double total = linear
        for k in range(self.n):                      # linear without gradient . step: the penalty's change
            j = self.candidates[k]
            total -= self.gradient[j] * (self.fresh[j] - self.theta[j])
        self.reweigh_scores(b)
        if not self.on_parts(EVALUATE, b):
            return INFINITY
        for k in range(self.parts(b)):
            total += self.part[k].change
        return total

    cdef double second_derivative(self, int64_t b, int64_t j) noexcept nogil:
        """Of one weight: by (16), position by position; or by (15), with the recursions of the first and second
        derivatives of the forward messages between the occurrences in a sequence:

            a'[t] = (a'[t-1] + f a[t-1]) psi u,    a''[t] = (a''[t-1] + 2 f a'[t-1] + f^2 a[t-1]) psi u
        """
        cdef const crf_operations* op = operations()
        cdef Lattice* x = self.x
        cdef Part* part = &self.part[0]
        cdef int64_t P = x.P, i = self.bounds[b], end = self.bounds[b + 1], last, e, t
        cdef double total = 0.0, z, first, second
        while i < end:
            last = self.last_of_sequence(i, end) if self.exact else i
            self.start_derivatives(part, self.token[i])
            e = i
            for t in range(self.token[i], self.token[last] + 1):
                if t > self.token[i]:
                    self.advance_derivatives(part, t)
                if self.token[e] == t:
                    self.differentiate(part, e, t, j)
                    e += 1
            t = self.token[last]
            z = op.dot(P, part.rows, x.beta + t * P)
            first = op.dot(P, part.rows + P, x.beta + t * P) / z
            second = op.dot(P, part.rows + 2 * P, x.beta + t * P) / z
            total += second - first * first
            i = last + 1
        return total

    cdef void start_derivatives(self, Part* part, int64_t t) noexcept nogil:
        """Rows 0, 1, 2 of the part: the forward message of t and its derivatives, which are zero before an
        occurrence; rows 3, 4, 5: the same of t - 1."""
        cdef int64_t P = self.x.P
        memset(part.rows, 0, 6 * P * sizeof(double))
        memcpy(part.rows, self.x.alpha + t * P, P * sizeof(double))
        if t > 0:
            memcpy(part.rows + 3 * P, self.x.alpha + (t - 1) * P, P * sizeof(double))

    cdef void advance_derivatives(self, Part* part, int64_t t) noexcept nogil:
        """The rows from t - 1 to t, on the scale of alpha."""
        cdef Lattice* x = self.x
        cdef int64_t P = x.P, y, k
        memcpy(part.rows + 3 * P, part.rows, 3 * P * sizeof(double))
        for k in range(3):
            times_matrix(x, x.transition[t], False, part.rows + (3 + k) * P, part.rows + k * P, part.scratch)
            for y in range(P):
                part.rows[k * P + y] *= scores(x, t)[y] / x.scale[t]

    cdef void differentiate(self, Part* part, int64_t e, int64_t t, int64_t j) noexcept nogil:
        """Add what occurrence e at token t contributes to the derivatives with respect to weight j."""
        cdef Lattice* x = self.x
        cdef int64_t P = x.P, y, previous, m
        cdef double step
        cdef bint first = t == x.offsets[x.sequence_of[t]]
        cdef double* rows = part.rows
        if j < P:
            m, y = self.times_unigram[e], j
            rows[2 * P + y] += 2 * m * rows[P + y] + m * m * rows[y]
            rows[P + y] += m * rows[y]
            return
        m, y, previous = self.times_bigram[e], (j - P) % P, (j - P) / P
        if m == 0 or first != (previous == x.Y):
            return
        if first:
            rows[P + y], rows[2 * P + y] = m * rows[y], m * m * rows[y]
            return
        step = self.pair_factor(x.transition[t], previous, y) * scores(x, t)[y] / x.scale[t]
        rows[2 * P + y] += step * (2 * m * rows[4 * P + previous] + m * m * rows[3 * P + previous])
        rows[P + y] += step * m * rows[3 * P + previous]

    def second_derivatives(self, int64_t b):
        """[W] of the weights of a block, by (15) or (16), at the messages in place."""
        cdef int64_t k, j
        cdef double[::1] out = np.zeros(self.W)
        self.repair(&self.part[0], self.bounds[b], self.bounds[b + 1])
        for j in range(self.W if self.bigram[b] >= 0 else self.x.P):
            if j % self.x.P < self.x.Y:
                out[j] = self.second_derivative(b, j)
        return np.asarray(out)

    def active_blocks(self):
        """[blocks] bool: those with a weight that is not zero."""
        cdef int64_t b
        cdef uint8_t[::1] out = np.zeros(self.unigram.shape[0], np.uint8)
        for b in range(out.shape[0]):
            if self.unigram[b] >= 0 and self.x.mu[self.unigram[b]].n:
                out[b] = 1
            if self.bigram[b] >= 0 and self.x.lam[self.bigram[b]].n:
                out[b] = 1
        return np.asarray(out).view(bool)

    def group_norms(self):
        """Sum over the blocks of the 2-norm of their weights."""
        cdef int64_t b
        cdef double total = 0.0
        for b in range(self.unigram.shape[0]):
            self.load(b)
            total += self.group_norm
        return total

    def sweep(self, const int32_t[::1] which, double tolerance, bint update, bint by_coordinate,
              double[::1] norms, double[::1] worst):
        """Visit blocks in the order given; (status, decrease of the objective).

        norms [blocks]: squared norm of the block's pseudo-gradient when it was visited; worst [blocks]: its
        largest entry. Blocks with a norm of at most `tolerance` are left as they are.
        """
        cdef int64_t i, b, j, P = self.x.P, W
        cdef double gain = 0.0
        cdef int status = GOOD
        with nogil:
            for i in range(which.shape[0]):
                b = which[i]
                if not by_coordinate:
                    status = self.visit(b, update, tolerance, &gain, &norms[b], &worst[b])
                else:
                    norms[b] = worst[b] = 0.0
                    W = self.W if self.bigram[b] >= 0 else P
                    for j in range(0 if self.unigram[b] >= 0 else P, W):
                        if j % P < self.x.Y and status == GOOD:
                            status = self.visit_weight(b, j, update, tolerance, &gain)
                            norms[b] += self.norm
                            worst[b] = fmax(worst[b], self.worst)
                if status != GOOD:
                    break
        return status, gain

"""Blockwise coordinate descent: visits to the blocks of observations (SBCD, Sokolovska et al. 2010, alg. 2).

A visit gathers what is known of a block (parts.pyx), proposes a step (steps.pyx) and evaluates the exact
change of the objective. A step that does not lower it enough is taken back and proposed again with twice
the damping. The exact change also tells the curvature along the step, which is the damping that the next
visit begins with: no factor is tuned by hand, and no step raises the objective.
"""

import numpy as np

from libc.math cimport INFINITY, fmax, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from crftool.kernels.messages cimport Lattice, scores, times_matrix
from crftool.kernels.parts cimport ADD_HESSIAN, EVALUATE, GATHER, GOOD, NO_MEMORY, OUT_OF_RANGE, Part
from crftool.kernels.steps cimport BlockSteps
from crftool.kernels.vector cimport crf_operations, operations

cdef enum:
    MAX_TRIALS = 40              # steps tried in one visit
    STEPS = 2                    # in a row on one block
    # What became of a step
    MOVED = 1
    STAYED = 2

cdef double SUFFICIENT = 0.1     # share of the predicted decrease that a step must bring
cdef double ENOUGH = 0.1         # share of the block's violation with which the next step is left out


cdef class BlockDescent(BlockSteps):
    cdef int visit(
        self, int64_t b, bint update, double tolerance, double* gain, double* norm, double* worst) noexcept nogil:
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

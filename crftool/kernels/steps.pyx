"""Steps of blockwise descent: the weights of a block, its optimality conditions, and the soft-thresholded Newton
step (13)-(14), second derivatives multiplied by a damping."""

from libc.math cimport fabs, fmax, fmin, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from crftool.kernels.messages cimport build_base
from crftool.kernels.parts cimport GOOD, NEWTON, NO_MEMORY, OUT_OF_RANGE, BlockParts, Part
from crftool.kernels.rows cimport LABEL_MASK, PAIR_BITS, Row, set_row
from crftool.kernels.vector cimport operations

cdef enum:
    PASSES = 30                  # over the candidates, to solve the quadratic model

cdef double ENTRY = 0.02         # share of the block's largest violation that lets a weight leave zero


cdef class BlockSteps(BlockParts):
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

    cdef void consider(self, int64_t b, int64_t j, double h, bint may_enter) noexcept nogil:
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

    cdef void only_violation(self, int64_t j) noexcept nogil:
        cdef double w = self.theta[j], g = self.gradient[j], pseudo
        if w != 0.0:
            pseudo = g + self.rho2 * w + (self.rho1 if w > 0.0 else -self.rho1)
        else:
            pseudo = fmax(0.0, fabs(g) - self.rho1)
        self.norm, self.worst = pseudo * pseudo, fabs(pseudo)

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

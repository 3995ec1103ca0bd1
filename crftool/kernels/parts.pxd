from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from crftool.kernels.messages cimport Lattice, Messages

cdef enum:
    PARTS = 8                    # at most so many parts of a block
    NEWTON = 512                 # candidates up to which the Hessian of a block is used, not its diagonal
    GOOD = 0
    NO_MEMORY = -1
    OUT_OF_RANGE = -2
    # What can be done to the parts of a block at once
    GATHER, ADD_HESSIAN, EVALUATE, RESTORE

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


cdef class BlockParts:
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

    cdef int64_t parts(self, int64_t b) noexcept nogil
    cdef int64_t cut(self, int64_t b, int64_t k) noexcept nogil
    cdef void on_part(self, int task, int64_t b, int64_t k) noexcept nogil
    cdef bint on_parts(self, int task, int64_t b) noexcept nogil
    cdef int64_t last_of_sequence(self, int64_t i, int64_t end) noexcept nogil
    cdef void repair(self, Part* part, int64_t i, int64_t end) noexcept nogil
    cdef void gather(self, Part* part, int64_t start, int64_t end) noexcept nogil
    cdef void add_waiting(self, Part* part, int32_t base, int64_t n, const double** before) noexcept nogil
    cdef bint extras_overlap(self, int32_t c) noexcept nogil
    cdef void add_composed(self, Part* part, int32_t c, const double* alpha, const double* w) noexcept nogil
    cdef void add_extras(self, Part* part, int64_t t, const double* alpha, const double* w) noexcept nogil
    cdef double pair_factor(self, int32_t c, int64_t previous, int64_t y) noexcept nogil
    cdef int64_t stride(self, int64_t b) noexcept nogil
    cdef void add_hessian(self, int64_t b, Part* part, int64_t start, int64_t end) noexcept nogil
    cdef void evaluate(self, Part* part, int64_t i, int64_t end) noexcept nogil
    cdef void reweigh(self, int64_t t, int64_t times) noexcept nogil
    cdef void reweigh_scores(self, int64_t b) noexcept nogil
    cdef bint take_back(self, int64_t b) noexcept nogil
    cdef void restore(self, Part* part, int64_t i, int64_t end) noexcept nogil
    cdef double gold_change(self, int64_t e, int64_t t) noexcept nogil

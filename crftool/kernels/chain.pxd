from libc.stdint cimport int32_t, int64_t

cdef double SPREAD, CONSTRAINED_SPREAD, CANCELLED    # see chain.pyx

# The transitions of a chain, for the recursions; see chain.pyx for what is what.
cdef struct Links:
    int64_t Y
    int64_t P                    # length of a row of psi: Y, rounded up to whole vectors
    int64_t stride               # from one block of `lam` to the next: R * Y
    const int32_t* slot          # [C]  block of lam, psi and psi_t; -1: the transition is sparse
    const double* lam            # [D][R][Y]
    const double* psi            # [D][Y][P]  exp(lam - shift)
    const double* psi_t          # [D][Y][P]  transposed
    const double* shift          # [C]  NaN: weights differ too much for the scaled recursion
    const double* rest           # [C]  exp(-shift): psi of the pairs that have no entry
    const int64_t* into          # [C * Y + 1]  entries by label: bounds
    const int32_t* previous      # [entries]    their previous label, rising
    const double* weight         # [entries]    their lam
    const int32_t* ranked        # [entries]    labels by previous label (see out_of) and falling weight
    const double* ranked_weight  # [entries]
    const double* factor         # [entries]    their psi
    const double* excess         # [entries]    their psi - rest
    const int64_t* out_of        # [C * Y + 1]  the same entries by previous label: bounds
    const int32_t* following     # [entries]
    const double* factor_out     # [entries]
    const double* excess_out     # [entries]
    const double* begin          # [C][Y]  lam of the begin label, or NULL
    const double* start          # [Y]     added to the scores of a first position, or NULL
    const double* end            # [Y]     added to those of a last position, or NULL
    bint constrained             # some pairs or boundary labels are forbidden (-inf)


# One transition in one direction: sums run over `others`, the labels before it or after it.
cdef struct Side:
    const double* psi            # [Y][P]  NULL: sparse
    const int64_t* bounds        # [Y + 1]  entries of each label
    const int32_t* others
    const double* factor
    const double* excess


cdef class Chain:
    cdef readonly int64_t Y, C
    cdef readonly bint begin_label, log_domain
    cdef Links links
    cdef dict _memory


cdef double forward_backward(
    const Links* links, int64_t T, const int32_t* transition,
    double* u, double* alpha, double* p, double* work) noexcept nogil

cdef double forward_backward_log(
    const Links* links, int64_t T, const int32_t* transition,
    double* u, double* alpha, double* p, double* work) noexcept nogil

cdef bint too_wide(double spread, bint constrained) noexcept nogil

cdef double exponentiate_block(
    int64_t Y, int64_t P, const double* lam, double* psi, double* psi_t, double* shift) noexcept nogil

cdef double pair_factor(const Links* links, int32_t c, int64_t previous, int64_t y) noexcept nogil

cdef double sum_pairs(double rest, int64_t Y, const double* a, const Side* side, int64_t y) noexcept nogil

cdef Side side_of(const Links* links, int32_t c, bint forward) noexcept nogil

cdef void step(const Links* links, int32_t c, bint forward, const double* a, double* out) noexcept nogil

cdef void add_boundaries(
    const Links* links, int64_t T, int64_t t, const int32_t* transition, double* scores) noexcept nogil

cdef double settle_position(
    const Links* links, int64_t T, int64_t t, const int32_t* transition,
    const double* row, double* u, double* a, double* scale) noexcept nogil

cdef double forward_position(
    const Links* links, int64_t T, int64_t t, const int32_t* transition,
    double* u, double* a, double* scale, double* row) noexcept nogil

cdef double sequence_sums(
    Chain chain, int64_t T, const int32_t* transition, double* u, double* alpha, double* p,
    double* work) noexcept nogil

from libc.stdint cimport int32_t, int64_t

from crftool.kernels.chain cimport Chain, Links

cdef enum:
    WAIT = 16                    # positions of one transition that are added up at once

# Positions whose pairs wait to be added: a matrix is then read and written once for all of them.
cdef struct Waiting:
    int64_t position[WAIT]
    int64_t n


# Where pair probabilities are added up.
cdef struct PairSums:
    const Links* links
    bint log_domain, begin_label
    int64_t C
    const int64_t* candidates    # [C + 1]  label pairs that may have weights, by transition: bounds
    const int32_t* pairs         # [candidates][2]; NULL: all pairs may
    Waiting* waiting             # [C]
    double* row                  # [Y]


cdef bint make_pair_sums(PairSums* sums, Chain chain, const int64_t[::1] candidates, const int32_t[:, ::1] pairs)

cdef void free_pair_sums(PairSums* sums) noexcept nogil

cdef void add_pairs(
    PairSums* sums, const int64_t* offsets, int64_t S, const int32_t* transition, int64_t share, int64_t shares,
    const double* alpha, const double* v, const double* p, double* expected, double* begin) noexcept nogil

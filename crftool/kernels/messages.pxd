from libc.stdint cimport int32_t, int64_t

from crftool.kernels.rows cimport Row, WeightRows

cdef enum:
    FEW = 64                     # factors beyond the base that are cheaper as corrections

# Everything about the sequences that the block updates touch; see messages.pyx for what is what.
cdef struct Lattice:
    int64_t Y
    int64_t R                    # Y, or Y + 1 with a begin label
    int64_t P                    # Y rounded up to whole vectors: the length of a row of messages
    int64_t K                    # U templates
    bint begin_label
    bint sparse                  # psi is 1 where no weight says otherwise
    const int64_t* offsets       # [S + 1]
    const int32_t* sequence_of   # [N]
    const int32_t* transition    # [N]
    const int32_t* labels        # [N]
    const int32_t* unigrams      # [N][K]
    const int32_t* base_of       # [C]  which base a transition has
    const int64_t* extra_bounds  # [C + 1]
    const int32_t* extras        # bigram observations of a transition that are not in its base
    const int64_t* base_bounds   # [bases + 1]
    const int32_t* members       # bigram observations that make up a base
    double* psi                  # [bases][R][P]  exp(lam) of a base; 0 where forbidden
    double* psi_t                # [bases][Y][P]  transposed, without the begin label
    const double* allowed        # [Y][Y]  1, or 0 where forbidden; NULL: all allowed
    const double* start          # [Y]  the same for first and last labels
    const double* end
    const int32_t* score_of      # [N]     which row of u a token has
    const int32_t* example       # [rows]  a token with that row
    double* u                    # [rows][P]  exp(mu)
    double* alpha                # [N][P]  forward messages, each of sum 1
    double* beta                 # [N][P]  backward messages, each of sum 1
    double* scale                # [N]     what the forward message was divided by
    int64_t* valid_to            # [S]     alpha holds up to this token
    int64_t* valid_from          # [S]     beta holds from this token on
    Row* mu
    Row* lam


cdef class Messages:
    cdef Lattice lattice
    cdef readonly int64_t S, N, bases, rows
    cdef readonly WeightRows mu, lam
    cdef dict _memory

    cdef void* _address(self, name, dtype) except? NULL


cdef const double* matrix(const Lattice* x, int32_t c, bint transposed, double* scratch) noexcept nogil
cdef double factor_before(const Lattice* x, int32_t c, int64_t k, int32_t pair) noexcept nogil
cdef void times_matrix(
    const Lattice* x, int32_t c, bint transposed, const double* a, double* out, double* scratch) noexcept nogil
cdef void prefetch(const Lattice* x, int64_t first, int64_t last) noexcept nogil
cdef void begin_row(const Lattice* x, int32_t c, double* out) noexcept nogil
cdef bint rescore(const Lattice* x, int64_t r) noexcept nogil


cdef inline double* scores(const Lattice* x, int64_t t) noexcept nogil:
    """[P]  exp(mu) of token t"""
    return x.u + x.score_of[t] * x.P


cdef bint forward(const Lattice* x, int64_t t, bint first, double* scratch) noexcept nogil
cdef bint extend(const Lattice* x, int64_t s, int64_t to, int64_t down_to, double* scratch) noexcept nogil
cdef bint build_base(const Lattice* x, int64_t base) noexcept nogil

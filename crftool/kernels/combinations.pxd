from libc.stdint cimport int32_t, int64_t, uint8_t

from crftool.kernels.chain cimport Links
from crftool.kernels.keys cimport KeyTable
from crftool.kernels.kinds cimport Kind

# A weight of a pair of labels (or of the begin label and a label) of some transition.
cdef struct Entry:
    int64_t pair                 # previous * Y + label
    int64_t order                # among the weights of this transition
    double weight


cdef class Blocks:
    cdef readonly bint log_domain        # sums are asked for in the log domain alone
    cdef bint sums                       # sums will be asked for
    cdef int64_t Y, R, P
    cdef double limit                    # entries with which a transition is kept sparse at most
    cdef const uint8_t[::1] allowed      # [Y + 1][Y + 1]  row Y: the beginning, column Y: the end; or None
    cdef KeyTable combinations           # rows of the B lines -> transition
    cdef Links links                     # what the recursions work on
    cdef Links dense                     # the same with a block for every transition, for the log domain
    cdef int64_t capacity                # transitions
    cdef int32_t* slot                   # [C]
    cdef int32_t* dense_slot             # [C]  -1: not made yet
    cdef double* shift                   # [C]
    cdef double* rest                    # [C]
    cdef double* begin                   # [C][Y]
    cdef int64_t* into                   # [C * Y + 1]
    cdef int64_t* out_of                 # [C * Y + 1]
    cdef int64_t D, block_capacity       # blocks
    cdef double* lam                     # [D][Y][Y]
    cdef double* psi                     # [D][Y][P]
    cdef double* psi_t                   # [D][Y][P]
    cdef int64_t E, entry_capacity       # entries of all sparse transitions
    cdef int32_t* previous               # [E]
    cdef int32_t* ranked                 # [E]
    cdef int32_t* following              # [E]
    cdef double* weight                  # [E]
    cdef double* ranked_weight           # [E]
    cdef double* factor                  # [E]
    cdef double* excess                  # [E]
    cdef double* factor_out              # [E]
    cdef double* excess_out              # [E]
    cdef double* start                   # [Y]
    cdef double* end                     # [Y]
    cdef Entry* scratch                  # weights of a transition under way
    cdef int64_t scratch_capacity

    cdef int64_t find(self, const Kind* kind, const int32_t* rows) noexcept nogil
    cdef bint all_dense(self, const Kind* kind, int64_t T, const int32_t* transition) noexcept nogil
    cdef void forget(self) noexcept nogil
    cdef int64_t bytes_used(self) noexcept nogil
    cdef bint _add(self, const Kind* kind, const int32_t* rows, int64_t c) noexcept nogil
    cdef int64_t _few_entries(self, const Kind* kind, const int32_t* rows) noexcept nogil
    cdef bint _gather(self, const Kind* kind, const int32_t* rows, int64_t c, int64_t n) noexcept nogil
    cdef double* _block(self, const Kind* kind, const int32_t* rows, int64_t c) noexcept nogil
    cdef int _sparsify(self, const double* lam, int64_t c) noexcept nogil
    cdef bint _store(self, int64_t c, int64_t n) noexcept nogil
    cdef bint _room(self, int64_t n) noexcept nogil
    cdef bint _room_for_entries(self, int64_t n) noexcept nogil
    cdef void _connect(self) noexcept nogil

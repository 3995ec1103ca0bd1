from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from crftool.kernels.chain cimport Links
from crftool.kernels.keys cimport KeyTable
from crftool.kernels.strings cimport StringTable

cdef enum:
    NOT_RUN = -2                 # of a macro: not yet, on this value


cdef class Workspace:
    cdef int64_t capacity        # tokens, with so many columns:
    cdef int64_t columns
    cdef int64_t* fields         # [T][columns][2]
    cdef int32_t* ids            # [T][sources]
    cdef uint8_t* risky          # [T]  holds a byte that separates fields in some template
    cdef int32_t* transition     # [T]
    cdef int32_t* keys           # [T][widest line]  of one template line
    cdef uint8_t* state          # [T]  KNOWN, RISKY
    cdef uint64_t* hashes        # [T]
    cdef int32_t* rows           # [T][lines]
    cdef double* mu              # [T][Y]
    cdef double* delta           # [T][Y]  best score of a path to each label
    cdef double* best            # [T][Y]  the same without mu[t]
    cdef int32_t* labels         # [T]
    cdef char* out
    cdef int64_t out_size, out_capacity
    cdef char* text              # one observation spelt out
    cdef int64_t text_capacity
    cdef readonly StringTable overlay    # values that the model does not know; None without macros
    cdef int level               # 0 labels, 1 probabilities, 2 those of all labels
    cdef int64_t sources
    cdef int32_t** derived       # [sources][derived_size]  what the macro makes of each value; NOT_RUN, or its id
    cdef int64_t* derived_size   # [sources]
    cdef KeyTable combinations   # rows of the B lines -> transition
    cdef double* lam             # [combinations][Y][Y], then begin rows
    cdef int64_t lam_capacity
    cdef object error
    # For probabilities: messages of a sequence, and the exponentiated transitions
    cdef double* u               # [T][Y]
    cdef double* alpha           # [T][Y]
    cdef double* p               # [T][Y]
    cdef double* work            # [T + 4 P]
    cdef double* psi             # [combinations][Y][P]
    cdef double* psi_t           # [combinations][Y][P]
    cdef double* shift           # [combinations]
    cdef int32_t* slot           # [combinations]
    cdef Links links

    cdef void release(self) noexcept nogil
    cdef void forget(self) noexcept
    cdef bint remember(self, int64_t s, int64_t index, int32_t made) noexcept
    cdef bint reserve(self, int64_t T, int64_t columns, int64_t sources, int64_t Y, int64_t lines,
                      int64_t widest) noexcept nogil
    cdef bint room(self, int64_t more) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from crftool.kernels.combinations cimport Blocks
from crftool.kernels.strings cimport StringTable
from crftool.kernels.viterbi cimport BestPaths

cdef enum:
    NOT_RUN = -2                 # of a macro: not yet, on this value

# What becomes of a sequence
cdef enum:
    GOOD = 0
    UNEVEN = 1                   # a token with another number of columns
    TOO_FEW = 2                  # fewer columns than the template needs
    NO_MEMORY = 3
    FAILED = 4                   # a Python error in a macro
    OUT_OF_RANGE = 5             # scores that the form of inference asked for cannot handle
    FORBIDDEN = 6                # the rules leave no labelling


# A phrase of a labelling.
cdef struct Phrase:
    int64_t first, last
    double confidence


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
    cdef int32_t* forced         # [T]  label that a token must have, or -1
    cdef double* mu              # [T][Y]
    cdef double* delta           # [T][Y]  best score of a path to each label
    cdef double* best            # [T][Y]  the same without mu[t]
    cdef int32_t* back           # [T][Y]  best predecessors, of sparse transitions
    cdef int32_t* labels         # [T]
    cdef double* u               # [T][Y]  messages: see chain.forward_backward
    cdef double* alpha           # [T][Y]
    cdef double* p               # [T][Y]
    cdef double* work            # [T + 4 P]
    cdef double* confidence      # [T]  of the phrase that a token belongs to
    cdef Phrase* phrases         # [T]
    cdef int64_t n_phrases
    cdef double score            # of the best path
    cdef double log_z, probability, entropy
    cdef bint in_log_domain      # the messages are those of the log domain
    cdef int64_t dead_end        # token at which the rules leave no label
    cdef char* out
    cdef int64_t out_size, out_capacity
    cdef char* text              # one observation spelt out
    cdef int64_t text_capacity
    cdef readonly StringTable overlay    # values that the model does not know; None without macros
    cdef int64_t sources
    cdef int32_t** derived       # [sources][derived_size]  what the macro makes of each value; NOT_RUN, or its id
    cdef int64_t* derived_size   # [sources]
    cdef int64_t failed          # source whose macro failed
    cdef readonly Blocks blocks
    cdef BestPaths paths

    cdef void release(self) noexcept nogil
    cdef void forget(self) noexcept
    cdef bint remember(self, int64_t s, int64_t index, int32_t made) noexcept nogil
    cdef bint reserve(self, int64_t T, int64_t columns, int64_t sources, int64_t Y, int64_t lines,
                      int64_t widest) noexcept nogil
    cdef bint room(self, int64_t more) noexcept nogil
    cdef bint spell(self, int64_t* size, const char* source, int64_t length) noexcept nogil

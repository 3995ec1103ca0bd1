from libc.stdint cimport int64_t, uint8_t

from crftool.kernels.kinds cimport Kind
from crftool.kernels.workspace cimport Workspace

# What is wanted of each sequence.
cdef struct Wishes:
    int64_t best                 # that many labellings, best first; 0: one, without rank
    bint sums                    # probabilities
    bint posterior               # the most probable label of each token instead of the best path
    bint phrases                 # the probabilities of phrases
    bint entropy
    bint may_use_logs            # where the scaled recursion fails
    const uint8_t* starts        # [Y + 1][Y + 1]  whether a phrase starts between two labels; Y: outside
    const uint8_t* ends          # [Y + 1][Y + 1]  whether one ends between them


cdef int decode(const Wishes* wishes, const Kind* bigrams, Workspace work, int64_t T) noexcept nogil

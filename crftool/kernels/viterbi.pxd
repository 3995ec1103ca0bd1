from libc.stdint cimport int32_t, int64_t

from crftool.kernels.chain cimport Links

cdef int64_t best_of(int64_t n, const double* x) noexcept nogil

cdef void sparse_step(
    const Links* links, int32_t c, const double* delta, double* best, int32_t* origin) noexcept nogil

cdef double path_score(
    const Links* links, int64_t T, const int32_t* transition, const double* mu, const int32_t* labels) noexcept nogil


# One of the ways to leave a path; see viterbi.pyx.
cdef struct Detour:
    double loss                  # how much worse than the best path
    int64_t path                 # the path it leaves
    int64_t position             # where; its labels after this position are kept
    int32_t label                # the label it takes there


cdef class BestPaths:
    cdef int64_t found
    cdef int32_t* paths          # [found][T]  best first
    cdef double* scores          # [found]
    cdef double* delta           # [T][Y]
    cdef int32_t* back           # [T][Y]
    cdef Detour* queue           # [waiting]   best first
    cdef int64_t first, waiting  # of the queue: it begins here and holds so many
    cdef int64_t path_capacity, score_capacity, lattice_capacity, queue_capacity

    cdef int64_t find(self, const Links* links, int64_t T, const int32_t* transition, const double* mu,
                      int64_t n) noexcept nogil
    cdef bint _reserve(self, int64_t T, int64_t Y, int64_t paths) noexcept nogil
    cdef bint _wait(self, Detour detour, int64_t most) noexcept nogil
    cdef void _draw(self, const Links* links, int64_t T, int64_t found, const Detour* detour) noexcept nogil

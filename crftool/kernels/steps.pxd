from libc.stdint cimport int64_t

from crftool.kernels.parts cimport BlockParts


cdef class BlockSteps(BlockParts):
    cdef void load(self, int64_t b) noexcept nogil
    cdef int store(self, int64_t b, const double* weights) noexcept nogil
    cdef void consider(self, int64_t b, int64_t j, double h, bint may_enter) noexcept nogil
    cdef void condition(self, int64_t b, int64_t only, bint newton) noexcept nogil
    cdef void only_violation(self, int64_t j) noexcept nogil
    cdef void select(self) noexcept nogil
    cdef void finish_hessian(self, int64_t b) noexcept nogil
    cdef void solve(self, int64_t b, double damping) noexcept nogil
    cdef bint propose(self, int64_t b, double damping, double* linear, double* quadratic) noexcept nogil
    cdef void shrink_group(self, double damping) noexcept nogil

from libc.stdint cimport int32_t, int64_t

cdef double forward_backward(
    int64_t T, int64_t Y, int64_t R,
    const int32_t* transition, const double* psi, const double* psi_t, const double* shift,
    double* u, double* alpha, double* p, double* work) noexcept nogil

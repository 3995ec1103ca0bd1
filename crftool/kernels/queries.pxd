from libc.stdint cimport int32_t, int64_t

from crftool.kernels.chain cimport Links

cdef double segment_share(
    const Links* links, bint log_domain, int64_t T, const int32_t* transition, const double* alpha,
    const double* v, const double* p, const int32_t* labels, int64_t first, int64_t last,
    const unsigned char* starts, const unsigned char* ends, int64_t stride) noexcept nogil

cdef double sequence_entropy(
    const Links* links, bint log_domain, int64_t T, const int32_t* transition, const double* mu,
    const double* alpha, const double* v, const double* p, double log_z, double* row) noexcept nogil

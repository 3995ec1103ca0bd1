from libc.stdint cimport int32_t, int64_t

from crftool.kernels.chain cimport Links

# Room for a batch of sequences, which a thread works on at once.
cdef struct Batch:
    int64_t* alive               # [S]  sequences that reach the position of the moment
    int64_t* next                # [S]  the next one with the same transition, or -1
    int64_t* shorter             # [S]  the next one of the same length, or -1
    int64_t* by_length           # [T + 1]  the first of this length, or -1
    int64_t* first               # [C]  the first with this transition, or -1
    int32_t* met                 # [S]  transitions that occur
    double* scale                # [N]  what scaled the forward scores of each token
    double* rows                 # [TOGETHER][P]  results of a step
    double* columns              # [2][Y][TOGETHER]


cdef bint make_batch(Batch* batch, const Links* links, int64_t C, int64_t S, int64_t N, int64_t T) noexcept nogil

cdef void free_batch(Batch* batch) noexcept nogil

cdef void forward_backward_many(
    const Links* links, Batch* batch, int64_t S, const int64_t* offsets, const int32_t* transition,
    double* u, double* alpha, double* p, double* log_z) noexcept nogil

from libc.stdint cimport int32_t, int64_t

cdef extern from "operations.h":
    int64_t crf_next_task(int64_t* counter) noexcept nogil
    void crf_end_task(int64_t* ended) noexcept nogil
    void crf_await_tasks(int64_t* ended, int64_t n) noexcept nogil
    void crf_prefetch(const void* address) noexcept nogil
    ctypedef struct crf_operations:
        const char* name
        double (*sum)(int64_t, const double*) noexcept nogil
        double (*maximum)(int64_t, const double*) noexcept nogil
        double (*minimum)(int64_t, const double*) noexcept nogil
        double (*dot)(int64_t, const double*, const double*) noexcept nogil
        double (*dot_single)(int64_t, const float*, const double*) noexcept nogil
        void (*add)(int64_t, const double*, double*) noexcept nogil
        void (*add_single)(int64_t, const float*, double*) noexcept nogil
        void (*exp_shifted)(int64_t, const double*, double, double*) noexcept nogil
        void (*row_times_matrix)(int64_t, int64_t, const double*, const double*, double*) noexcept nogil
        void (*rows_times_matrix)(int64_t, int64_t, int64_t, const double**, const double*, double*) noexcept nogil
        int (*rows_times_entries)(int64_t, const double*, const int64_t*, const int32_t*, const double*, double,
                                  const double*, double*) noexcept nogil
        void (*add_outers)(int64_t, int64_t, int64_t, const double**, const double**, double*) noexcept nogil
        double (*multiply)(int64_t, const double*, const double*, double*) noexcept nogil
        void (*scale)(int64_t, double, double*) noexcept nogil
        void (*leave)(int64_t, double, const double*, const double*, double*, double*) noexcept nogil
        void (*best_score)(int64_t, int64_t, const double*, const double*, double*) noexcept nogil
        void (*best_predecessor)(int64_t, int64_t, const double*, const double*, double*, int32_t*) noexcept nogil
        void (*sum_rows)(int64_t, int64_t, const int32_t*, const int32_t*, int64_t, const double*,
                         double*) noexcept nogil
        void (*add_to_rows)(int64_t, int64_t, int64_t, const int32_t*, int64_t, const int32_t*, int64_t, double,
                            const double*, double*) noexcept nogil
        void (*three_dots)(int64_t, const float*, const double*, const double*, const double*, double*) noexcept nogil
        void (*add_scaled_single)(int64_t, double, const float*, double*) noexcept nogil
        double (*turn)(int64_t, const double*, const float*, const float*, float*, double*, double*,
                       double*) noexcept nogil
        double (*largest)(int64_t, const double*) noexcept nogil
        void (*take_step)(int64_t, double, const double*, const double*, const float*, float*, float*,
                          double*) noexcept nogil
        void (*settle)(int64_t, double, double, double*, float*) noexcept nogil
        double (*product)(int64_t, double, const double*, const double*, double*) noexcept nogil
        void (*add_product)(int64_t, double, const double*, const double*, double*) noexcept nogil

cdef enum:
    CHUNK_SIZE = 16384           # weights in a chunk
cdef bint next_chunk(int64_t F, int64_t* counter, int64_t* start, int64_t* n) noexcept nogil
cdef const crf_operations* operations() noexcept nogil

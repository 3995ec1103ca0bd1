/* The table of vector operations that kernels call through, and the shared task counter.
 * The operations themselves are in vector.h, which only vector.pyx includes. */
#ifndef CRFTOOL_OPERATIONS_H
#define CRFTOOL_OPERATIONS_H

#include <stdint.h>

#if defined(_MSC_VER)
#include <intrin.h>
#define CRF_RESTRICT __restrict
static inline int64_t crf_next_task(int64_t *counter) { return _InterlockedExchangeAdd64(counter, 1); }
#define crf_prefetch(address)
#else
#define CRF_RESTRICT restrict
static inline int64_t crf_next_task(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
#define crf_prefetch(address) __builtin_prefetch(address)
#endif

typedef struct {
    const char *name;
    double (*sum)(int64_t, const double *);
    double (*maximum)(int64_t, const double *);
    double (*minimum)(int64_t, const double *);
    double (*dot)(int64_t, const double *, const double *);
    double (*dot_single)(int64_t, const float *, const double *);
    void (*add)(int64_t, const double *, double *);
    void (*add_single)(int64_t, const float *, double *);
    void (*exp_shifted)(int64_t, const double *, double, double *);
    void (*row_times_matrix)(int64_t, int64_t, const double *, const double *, double *);
    void (*rows_times_matrix)(int64_t, int64_t, int64_t, const double *const *, const double *, double *);
    int (*rows_times_entries)(int64_t, const double *, const int64_t *, const int32_t *, const double *, double,
                              const double *, double *);
    void (*add_outers)(int64_t, int64_t, int64_t, const double *const *, const double *const *, double *);
    double (*multiply)(int64_t, const double *, const double *, double *);
    void (*scale)(int64_t, double, double *);
    void (*leave)(int64_t, double, const double *, const double *, double *, double *);
    void (*best_score)(int64_t, int64_t, const double *, const double *, double *);
    void (*best_predecessor)(int64_t, int64_t, const double *, const double *, double *, int32_t *);
    void (*sum_rows)(int64_t, int64_t, const int32_t *, const int32_t *, int64_t, const double *, double *);
    void (*add_to_rows)(int64_t, int64_t, int64_t, const int32_t *, int64_t, const int32_t *, int64_t, double,
                        const double *, double *);
    void (*three_dots)(int64_t, const float *, const double *, const double *, const double *, double *);
    void (*add_scaled_single)(int64_t, double, const float *, double *);
    double (*turn)(int64_t, const double *, const float *, const float *, float *, double *, double *, double *);
    double (*largest)(int64_t, const double *);
    void (*take_step)(int64_t, double, const double *, const double *, const float *, float *, float *, double *);
    void (*settle)(int64_t, double, double, double *, float *);
    double (*product)(int64_t, double, const double *, const double *, double *);
    void (*add_product)(int64_t, double, const double *, const double *, double *);
} crf_operations;

#endif

/* The table of vector operations that kernels call through, and the counters that threads share.
 * Tasks are taken in order; one that needs others waits until as many have ended as come before it. Those are all
 * in the hands of threads at work, so that a wait ends, whatever the number of threads.
 * The operations themselves are in vector.h, which only vector.pyx includes. */
#ifndef CRFTOOL_OPERATIONS_H
#define CRFTOOL_OPERATIONS_H

#include <stdint.h>

#if defined(_MSC_VER)
#include <intrin.h>
#define CRF_RESTRICT __restrict
#include <windows.h>
static inline int64_t crf_next_task(int64_t *counter) { return _InterlockedExchangeAdd64(counter, 1); }
static inline void crf_end_task(int64_t *ended) { _InterlockedExchangeAdd64(ended, 1); }
static inline int64_t crf_tasks_ended(int64_t *ended) { return _InterlockedExchangeAdd64(ended, 0); }
#define crf_give_way() SwitchToThread()
#define crf_prefetch(address)
#else
#include <sched.h>
#define CRF_RESTRICT restrict
static inline int64_t crf_next_task(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
static inline void crf_end_task(int64_t *ended) { __atomic_fetch_add(ended, 1, __ATOMIC_RELEASE); }
static inline int64_t crf_tasks_ended(int64_t *ended) { return __atomic_load_n(ended, __ATOMIC_ACQUIRE); }
#define crf_give_way() sched_yield()
#define crf_prefetch(address) __builtin_prefetch(address)
#endif

/* Waits until n tasks have ended: a moment at full attention, then leaving the processor to others. */
static inline void crf_await_tasks(int64_t *ended, int64_t n) {
    for (int tries = 0; crf_tasks_ended(ended) < n; tries++)
        if (tries > 2000) crf_give_way();
}

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

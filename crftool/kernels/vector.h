/* The few vector operations that inference and training spend their time in, and the choice of CPU level.
 *
 * vector_body.h and products_body.h are compiled once per level. Contraction is off and every sum has a fixed order, so all
 * levels compute the same bits; they differ in speed only. CRFTOOL_ISA=base|avx2|avx512 forces a level.
 */
#ifndef CRFTOOL_VECTOR_H
#define CRFTOOL_VECTOR_H

#include <stdlib.h>
#include <string.h>

#include "operations.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CRF_X86 1
#endif

#define CRF_LEVEL(name) name##_base
#define CRF_TARGET
#if defined(__GNUC__)
#define CRF_LANES 2
#endif
#include "vector_body.h"
#include "products_body.h"
#undef CRF_LEVEL
#undef CRF_TARGET
#undef CRF_LANES

#ifdef CRF_X86
#define CRF_LEVEL(name) name##_avx2
#define CRF_TARGET __attribute__((target("avx2")))
#define CRF_LANES 4
#include "vector_body.h"
#include "products_body.h"
#undef CRF_LEVEL
#undef CRF_TARGET
#undef CRF_LANES

#define CRF_LEVEL(name) name##_avx512
#define CRF_TARGET __attribute__((target("avx512f,avx512dq,prefer-vector-width=512")))
#define CRF_LANES 8
#include "vector_body.h"
#include "products_body.h"
#undef CRF_LEVEL
#undef CRF_TARGET
#undef CRF_LANES
#endif

#define CRF_OPERATIONS(level)                                                                             \
    {#level, sum_##level, maximum_##level, minimum_##level, dot_##level, dot_single_##level, add_##level, add_single_##level, \
     exp_shifted_##level, row_times_matrix_##level, rows_times_matrix_##level, rows_times_entries_##level, \
     add_outers_##level, multiply_##level, scale_##level, leave_##level, best_score_##level, best_predecessor_##level, \
     sum_rows_##level, add_to_rows_##level, three_dots_##level, \
     add_scaled_single_##level, turn_##level, largest_##level, take_step_##level, settle_##level, \
     product_##level, add_product_##level}

/* The operations of the level asked for; NULL if this CPU or build does not have it. */
static inline const crf_operations *crf_operations_named(const char *name) {
    static const crf_operations base = CRF_OPERATIONS(base);
#ifdef CRF_X86
    static const crf_operations avx2 = CRF_OPERATIONS(avx2), avx512 = CRF_OPERATIONS(avx512);
    __builtin_cpu_init();
    if (strcmp(name, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512 : NULL;
    if (strcmp(name, "avx2") == 0) return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
#endif
    return strcmp(name, "base") == 0 ? &base : NULL;
}

/* The best level of this CPU, or the one CRFTOOL_ISA names; NULL if that one is not to be had. */
static inline const crf_operations *crf_operations_chosen(void) {
    const char *forced = getenv("CRFTOOL_ISA");
    const crf_operations *operations;
    if (forced && *forced) return crf_operations_named(forced);
    if ((operations = crf_operations_named("avx512"))) return operations;
    if ((operations = crf_operations_named("avx2"))) return operations;
    return crf_operations_named("base");
}

#endif

/* One CPU level of the vector operations; included by vector.h, once per level.
 *
 * Plain loops that the compiler vectorises. Sums run in eight fixed lanes that are then added in a fixed
 * order, everything else is elementwise: the width of the registers cannot change a result.
 */

#ifdef CRF_LANES
typedef double CRF_LEVEL(lanes) __attribute__((vector_size(8 * CRF_LANES)));
typedef double CRF_LEVEL(loaded) __attribute__((vector_size(8 * CRF_LANES), aligned(8), may_alias));
typedef float CRF_LEVEL(floats) __attribute__((vector_size(4 * CRF_LANES), aligned(4), may_alias));
#endif

static CRF_TARGET inline double CRF_LEVEL(join)(const double *s) {
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* Sums of n >= 8 numbers end with the last eight, of which those added before count as zero. */
#ifdef CRF_LANES
typedef int64_t CRF_LEVEL(bits) __attribute__((vector_size(8 * CRF_LANES)));
typedef int64_t CRF_LEVEL(loaded_bits) __attribute__((vector_size(8 * CRF_LANES), aligned(8), may_alias));
#endif

static CRF_TARGET double CRF_LEVEL(sum)(int64_t n, const double *x) {
    static const int64_t rest[16] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
    double s[8] = {0};
    int64_t i = 0;
    if (n < 8) {
        for (; i < n; i++) s[i] = x[i];
        return CRF_LEVEL(join)(s);
    }
#ifdef CRF_LANES
    enum { width = 8 / CRF_LANES };
    CRF_LEVEL(lanes) t[width];
    for (int w = 0; w < width; w++) t[w] = (CRF_LEVEL(lanes)){0};
    for (; i + 8 <= n; i += 8)
        for (int w = 0; w < width; w++) t[w] += *(const CRF_LEVEL(loaded) *)(x + i + w * CRF_LANES);
    for (int w = 0; w < width; w++)
        t[w] += (CRF_LEVEL(lanes))(*(const CRF_LEVEL(loaded_bits) *)(x + n - 8 + w * CRF_LANES) &
                                   *(const CRF_LEVEL(loaded_bits) *)(rest + n % 8 + w * CRF_LANES));
    memcpy(s, t, sizeof s);
#else
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += x[i + k];
    for (int k = 0; k < 8; k++) s[k] += rest[n % 8 + k] ? x[n - 8 + k] : 0.0;
#endif
    return CRF_LEVEL(join)(s);
}

/* The largest of n >= 1 numbers. */
static CRF_TARGET double CRF_LEVEL(maximum)(int64_t n, const double *x) {
    double s[4] = {x[0], x[0], x[0], x[0]};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) s[k] = x[i + k] > s[k] ? x[i + k] : s[k];
    for (; i < n; i++) s[0] = x[i] > s[0] ? x[i] : s[0];
    s[0] = s[1] > s[0] ? s[1] : s[0];
    s[2] = s[3] > s[2] ? s[3] : s[2];
    return s[2] > s[0] ? s[2] : s[0];
}

/* The smallest of n >= 1 numbers. */
static CRF_TARGET double CRF_LEVEL(minimum)(int64_t n, const double *x) {
    double s[4] = {x[0], x[0], x[0], x[0]};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) s[k] = x[i + k] < s[k] ? x[i + k] : s[k];
    for (; i < n; i++) s[0] = x[i] < s[0] ? x[i] : s[0];
    s[0] = s[1] < s[0] ? s[1] : s[0];
    s[2] = s[3] < s[2] ? s[3] : s[2];
    return s[2] < s[0] ? s[2] : s[0];
}

static CRF_TARGET double CRF_LEVEL(dot)(int64_t n, const double *x, const double *y) {
    double s[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += x[i + k] * y[i + k];
    for (int k = 0; i < n; i++, k++) s[k] += x[i] * y[i];
    return CRF_LEVEL(join)(s);
}

static CRF_TARGET double CRF_LEVEL(dot_single)(int64_t n, const float *x, const double *y) {
    double s[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += (double)x[i + k] * y[i + k];
    for (int k = 0; i < n; i++, k++) s[k] += (double)x[i] * y[i];
    return CRF_LEVEL(join)(s);
}

/* sums[0..2] += x . a, x . b, x . c, with x in single precision; n is a multiple of 8 */
static CRF_TARGET void CRF_LEVEL(three_dots)(int64_t n, const float *CRF_RESTRICT x, const double *CRF_RESTRICT a,
                                             const double *CRF_RESTRICT b, const double *CRF_RESTRICT c,
                                             double *CRF_RESTRICT sums) {
    double s[8] = {0}, t[8] = {0}, u[8] = {0};
#ifdef CRF_LANES
    enum { width = 8 / CRF_LANES };
    CRF_LEVEL(lanes) p[width], q[width], r[width];
    for (int w = 0; w < width; w++) p[w] = q[w] = r[w] = (CRF_LEVEL(lanes)){0};
    for (int64_t i = 0; i < n; i += 8)
        for (int w = 0; w < width; w++) {
            const int64_t at = i + w * CRF_LANES;
            const CRF_LEVEL(lanes) v = __builtin_convertvector(*(const CRF_LEVEL(floats) *)(x + at), CRF_LEVEL(lanes));
            p[w] += v * *(const CRF_LEVEL(loaded) *)(a + at);
            q[w] += v * *(const CRF_LEVEL(loaded) *)(b + at);
            r[w] += v * *(const CRF_LEVEL(loaded) *)(c + at);
        }
    memcpy(s, p, sizeof s), memcpy(t, q, sizeof t), memcpy(u, r, sizeof u);
#else
    for (int64_t i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++) {
            s[k] += (double)x[i + k] * a[i + k];
            t[k] += (double)x[i + k] * b[i + k];
            u[k] += (double)x[i + k] * c[i + k];
        }
#endif
    sums[0] += CRF_LEVEL(join)(s);
    sums[1] += CRF_LEVEL(join)(t);
    sums[2] += CRF_LEVEL(join)(u);
}

/* For L-BFGS (history.pyx): g = w grad, kept = g - kept; s and kept in double precision too. Returns grad . grad. */
static CRF_TARGET double CRF_LEVEL(turn)(int64_t n, const double *CRF_RESTRICT grad, const float *CRF_RESTRICT w,
                                         const float *CRF_RESTRICT step, float *CRF_RESTRICT kept,
                                         double *CRF_RESTRICT g, double *CRF_RESTRICT s, double *CRF_RESTRICT y) {
    for (int64_t i = 0; i < n; i++) {
        g[i] = grad[i] * (double)w[i];
        kept[i] = (float)(g[i] - (double)kept[i]);
        y[i] = (double)kept[i];
        s[i] = (double)step[i];
    }
    return CRF_LEVEL(dot)(n, grad, grad);
}

/* The largest |x[i]|; 0 if there is none. */
static CRF_TARGET double CRF_LEVEL(largest)(int64_t n, const double *x) {
    double s[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) {
            const double v = x[i + k] < 0.0 ? -x[i + k] : x[i + k];
            s[k] = v > s[k] ? v : s[k];
        }
    for (; i < n; i++) {
        const double v = x[i] < 0.0 ? -x[i] : x[i];
        s[0] = v > s[0] ? v : s[0];
    }
    for (int k = 1; k < 8; k++) s[0] = s[k] > s[0] ? s[k] : s[0];
    return s[0];
}

/* For L-BFGS: the step is length times direction; theta moves by w step. The scaled gradient is kept as y. */
static CRF_TARGET void CRF_LEVEL(take_step)(int64_t n, double length, const double *CRF_RESTRICT direction,
                                            const double *CRF_RESTRICT grad, const float *CRF_RESTRICT w,
                                            float *CRF_RESTRICT s, float *CRF_RESTRICT y, double *CRF_RESTRICT theta) {
    for (int64_t i = 0; i < n; i++) {
        s[i] = (float)(length * direction[i]);
        y[i] = (float)(grad[i] * (double)w[i]);
        theta[i] += (double)s[i] * (double)w[i];
    }
}

/* The cumulative l1 penalty of stochastic.pyx: shrink each weight by what is due, not beyond zero. */
static CRF_TARGET void CRF_LEVEL(settle)(int64_t n, double scale, double due, double *CRF_RESTRICT weights,
                                         float *CRF_RESTRICT paid) {
    const double unscale = 1.0 / scale;
    for (int64_t i = 0; i < n; i++) {
        const double before = weights[i] * scale, q = (double)paid[i];
        const double from_above = before - (due + q), from_below = before + (due - q);
        const double positive = from_above > 0.0 ? from_above : 0.0, negative = from_below < 0.0 ? from_below : 0.0;
        const double kept = before > 0.0 ? positive : negative, after = before == 0.0 ? 0.0 : kept;
        weights[i] = after * unscale;
        paid[i] = (float)(q + (after - before));
    }
}

/* out += a x, x in single precision */
static CRF_TARGET void CRF_LEVEL(add_scaled_single)(int64_t n, double a, const float *CRF_RESTRICT x,
                                                    double *CRF_RESTRICT out) {
    for (int64_t i = 0; i < n; i++) out[i] += a * (double)x[i];
}

static CRF_TARGET inline double CRF_LEVEL(exp_one)(double x) {
    /* exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2. Adding 1.5 * 2^52 rounds to an integer
     * and leaves it in the low bits. The scale is applied in two halves so that results in the subnormal
     * range round and results out of range become 0 or inf by themselves. NaN passes both comparisons. */
    const double magic = 6755399441055744.0;
    double n, half, rest, r, p, first, second;
    int64_t first_bits, second_bits;
    x = x < -800.0 ? -800.0 : x;
    x = x > 720.0 ? 720.0 : x;
    n = (x * 1.4426950408889634074 + magic) - magic;
    r = x - n * 6.93147180369123816490e-01;          /* high part of ln 2: n * high is exact */
    r = r - n * 1.90821492927058770002e-10;          /* low part */
    p = 1.0 / 6227020800.0;                          /* Taylor to r^13: the rest is below 2^-57 */
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    half = (n * 0.5 + magic) - magic;
    rest = n - half;
    half += magic;
    rest += magic;
    memcpy(&first_bits, &half, 8);
    memcpy(&second_bits, &rest, 8);
    first_bits = (int64_t)((uint64_t)(first_bits + 1023) << 52);
    second_bits = (int64_t)((uint64_t)(second_bits + 1023) << 52);
    memcpy(&first, &first_bits, 8);
    memcpy(&second, &second_bits, 8);
    return p * first * second;
}

/* out = exp(x - shift); out may be x. Whole vectors; the last one, which overlaps the one before, comes first. */
static CRF_TARGET void CRF_LEVEL(exp_shifted)(int64_t n, const double *x, double shift, double *out) {
    enum { width = 8 };
    double last[width];
    if (n < width) {
        for (int64_t i = 0; i < n; i++) out[i] = CRF_LEVEL(exp_one)(x[i] - shift);
        return;
    }
    for (int k = 0; k < width; k++) last[k] = CRF_LEVEL(exp_one)(x[n - width + k] - shift);
    for (int64_t i = 0; i + width < n; i += width)
        for (int k = 0; k < width; k++) out[i + k] = CRF_LEVEL(exp_one)(x[i + k] - shift);
    memcpy(out + n - width, last, sizeof last);
}

/* out += x */
static CRF_TARGET void CRF_LEVEL(add)(int64_t n, const double *CRF_RESTRICT x, double *CRF_RESTRICT out) {
    for (int64_t i = 0; i < n; i++) out[i] += x[i];
}

/* out += x, x in single precision */
static CRF_TARGET void CRF_LEVEL(add_single)(int64_t n, const float *CRF_RESTRICT x, double *CRF_RESTRICT out) {
    for (int64_t i = 0; i < n; i++) out[i] += (double)x[i];
}

/* Rows of Y labels are worked on as whole vectors; the last one overlaps the one before it, which does no harm
 * where a row is read before it is written. CRF_AT(w): where vector w of such a row begins. */
#define CRF_AT(w) ((w) == width - 1 ? Y - CRF_LANES : (w) * CRF_LANES)
#define CRF_WIDTHS(Y, body)                                                                                 \
    switch ((Y) < CRF_LANES ? 0 : ((Y) + CRF_LANES - 1) / CRF_LANES) {                                      \
        case 1: { enum { width = 1 }; body } return;                                                        \
        case 2: { enum { width = 2 }; body } return;                                                        \
        case 3: { enum { width = 3 }; body } return;                                                        \
        case 4: { enum { width = 4 }; body } return;                                                        \
        case 5: { enum { width = 5 }; body } return;                                                        \
        case 6: { enum { width = 6 }; body } return;                                                        \
        case 7: { enum { width = 7 }; body } return;                                                        \
        case 8: { enum { width = 8 }; body } return;                                                        \
    }

static CRF_TARGET inline void CRF_LEVEL(prefetch_row)(const double *row, int64_t Y) {
    for (int64_t y = 0; y < Y; y += 8) crf_prefetch(row + y);
    crf_prefetch(row + Y - 1);
}

/* out = sum of the rows of `weights` that ids [K] names, in this order; -1 names none. The rows of `later` [K]
 * (or NULL) are fetched meanwhile, those below `hot` excepted: they are in the cache. */
static CRF_TARGET void CRF_LEVEL(sum_rows)(int64_t Y, int64_t K, const int32_t *ids, const int32_t *later,
                                           int64_t hot, const double *CRF_RESTRICT weights,
                                           double *CRF_RESTRICT out) {
    if (later)
        for (int64_t k = 0; k < K; k++)
            if (later[k] >= hot) CRF_LEVEL(prefetch_row)(weights + later[k] * Y, Y);
#ifdef CRF_LANES
    CRF_WIDTHS(Y, {
        CRF_LEVEL(lanes) s[width];
        for (int w = 0; w < width; w++) s[w] = (CRF_LEVEL(lanes)){0};
        for (int64_t k = 0; k < K; k++) {
            if (ids[k] < 0) continue;
            const double *row = weights + ids[k] * Y;
            for (int w = 0; w < width; w++) s[w] += *(const CRF_LEVEL(loaded) *)(row + CRF_AT(w));
        }
        for (int w = 0; w < width; w++) *(CRF_LEVEL(loaded) *)(out + CRF_AT(w)) = s[w];
    })
#endif
    for (int64_t y = 0; y < Y; y++) out[y] = 0.0;
    for (int64_t k = 0; k < K; k++)
        if (ids[k] >= 0) CRF_LEVEL(add)(Y, weights + ids[k] * Y, out);
}

/* rows[ids[t][columns[c]]] += scale * x[t] for n tokens t, one after the other; -1 names no row. */
static CRF_TARGET void CRF_LEVEL(add_to_rows)(int64_t Y, int64_t n, int64_t K, const int32_t *CRF_RESTRICT ids,
                                              int64_t C, const int32_t *CRF_RESTRICT columns, int64_t hot,
                                              double scale, const double *CRF_RESTRICT x,
                                              double *CRF_RESTRICT rows) {
    const int64_t ahead = 4;
#define CRF_FETCH(t)                                                                                        \
    if (t + ahead < n)                                                                                      \
        for (int64_t c = 0; c < C; c++) {                                                                   \
            const int64_t id = ids[(t + ahead) * K + columns[c]];                                           \
            if (id >= hot) CRF_LEVEL(prefetch_row)(rows + id * Y, Y);                                       \
        }
#ifdef CRF_LANES
    CRF_WIDTHS(Y, {
        for (int64_t t = 0; t < n; t++, x += Y) {
            CRF_LEVEL(lanes) r[width];
            for (int w = 0; w < width; w++) r[w] = scale * *(const CRF_LEVEL(loaded) *)(x + CRF_AT(w));
            CRF_FETCH(t)
            for (int64_t c = 0; c < C; c++) {
                const int64_t id = ids[t * K + columns[c]];
                if (id < 0) continue;
                CRF_LEVEL(lanes) s[width];
                for (int w = 0; w < width; w++) s[w] = *(CRF_LEVEL(loaded) *)(rows + id * Y + CRF_AT(w)) + r[w];
                for (int w = 0; w < width; w++) *(CRF_LEVEL(loaded) *)(rows + id * Y + CRF_AT(w)) = s[w];
            }
        }
    })
#endif
    for (int64_t t = 0; t < n; t++, x += Y) {
        CRF_FETCH(t)
        for (int64_t c = 0; c < C; c++) {
            const int64_t id = ids[t * K + columns[c]];
            if (id >= 0)
                for (int64_t y = 0; y < Y; y++) rows[id * Y + y] += scale * x[y];
        }
    }
#undef CRF_FETCH
}

/* best[j] = max over i of a[i] + m[i][j] */
static CRF_TARGET void CRF_LEVEL(best_score)(int64_t rows, int64_t columns, const double *CRF_RESTRICT a,
                                             const double *CRF_RESTRICT m, double *CRF_RESTRICT best) {
    for (int64_t j = 0; j < columns; j++) best[j] = a[0] + m[j];
    for (int64_t i = 1; i < rows; i++) {
        m += columns;
        for (int64_t j = 0; j < columns; j++) {
            const double candidate = a[i] + m[j];
            best[j] = candidate > best[j] ? candidate : best[j];
        }
    }
}

/* best[j] = max over i of a[i] + m[i][j], from[j] = the lowest such i. */
static CRF_TARGET void CRF_LEVEL(best_predecessor)(int64_t rows, int64_t columns, const double *CRF_RESTRICT a,
                                                   const double *CRF_RESTRICT m, double *CRF_RESTRICT best,
                                                   int32_t *CRF_RESTRICT from) {
    for (int64_t j = 0; j < columns; j++) best[j] = a[0] + m[j], from[j] = 0;
    for (int64_t i = 1; i < rows; i++) {
        m += columns;
        for (int64_t j = 0; j < columns; j++) {
            const double candidate = a[i] + m[j];
            from[j] = candidate > best[j] ? (int32_t)i : from[j];
            best[j] = candidate > best[j] ? candidate : best[j];
        }
    }
}

/* out = a x y, and its sum; n is a multiple of 8, out may be x */
static CRF_TARGET double CRF_LEVEL(product)(int64_t n, double a, const double *x, const double *y, double *out) {
    double s[8] = {0};
#ifdef CRF_LANES
    enum { width = 8 / CRF_LANES };
    CRF_LEVEL(lanes) t[width];
    for (int w = 0; w < width; w++) t[w] = (CRF_LEVEL(lanes)){0};
    for (int64_t i = 0; i < n; i += 8)
        for (int w = 0; w < width; w++) {
            const int64_t at = i + w * CRF_LANES;
            const CRF_LEVEL(lanes) v = a * *(const CRF_LEVEL(loaded) *)(x + at) * *(const CRF_LEVEL(loaded) *)(y + at);
            t[w] += v;
            *(CRF_LEVEL(loaded) *)(out + at) = v;
        }
    memcpy(s, t, sizeof s);
#else
    for (int64_t i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++) {
            out[i + k] = a * x[i + k] * y[i + k];
            s[k] += out[i + k];
        }
#endif
    return CRF_LEVEL(join)(s);
}

/* out += a x y */
static CRF_TARGET void CRF_LEVEL(add_product)(int64_t n, double a, const double *CRF_RESTRICT x,
                                              const double *CRF_RESTRICT y, double *CRF_RESTRICT out) {
    for (int64_t i = 0; i < n; i++) out[i] += a * x[i] * y[i];
}

#undef CRF_WIDTHS
#undef CRF_AT

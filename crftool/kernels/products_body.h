/* One CPU level of the products of vectors and matrices; included by vector.h, once per level.
 *
 * The order of a sum never depends on the width of registers, nor on how many vectors are multiplied at once.
 */

/* Registers that hold sums: 16 or, with AVX-512, 32 in all, some of which hold what is multiplied. */
#define CRF_MOST(few) (CRF_LANES == 8 ? 2 * (few) : (few))
#define CRF_LOAD(address) ((CRF_LEVEL(lanes))*(const CRF_LEVEL(loaded) *)(address))

#ifdef CRF_LANES
/* `width` vectors of columns, from column j on, of n row vectors times a matrix. */
#define CRF_STRIP(n, width)                                                                                 \
    {                                                                                                       \
        CRF_LEVEL(lanes) s[n][width], p[width], q[width];                                                   \
        const double *row = m + j;                                                                          \
        int64_t i = 0;                                                                                      \
        for (int k = 0; k < n; k++)                                                                         \
            for (int w = 0; w < width; w++) s[k][w] = (CRF_LEVEL(lanes)){0};                                \
        for (; i + 2 <= rows; i += 2, row += 2 * columns) {                                                 \
            for (int w = 0; w < width; w++) p[w] = CRF_LOAD(row + w * CRF_LANES);                           \
            for (int w = 0; w < width; w++) q[w] = CRF_LOAD(row + columns + w * CRF_LANES);                 \
            for (int k = 0; k < n; k++) {                                                                   \
                const CRF_LEVEL(lanes) x = a[k][i] - (CRF_LEVEL(lanes)){0};                                 \
                const CRF_LEVEL(lanes) y = a[k][i + 1] - (CRF_LEVEL(lanes)){0};                             \
                for (int w = 0; w < width; w++) s[k][w] += x * p[w] + y * q[w];                             \
            }                                                                                               \
        }                                                                                                   \
        if (i < rows)                                                                                       \
            for (int k = 0; k < n; k++)                                                                     \
                for (int w = 0; w < width; w++) s[k][w] += a[k][i] * CRF_LOAD(row + w * CRF_LANES);         \
        for (int k = 0; k < n; k++)                                                                         \
            for (int w = 0; w < width; w++)                                                                 \
                *(CRF_LEVEL(loaded) *)(out + k * columns + j + w * CRF_LANES) = s[k][w];                    \
        j += width * CRF_LANES;                                                                             \
    }
#define CRF_STRIPS(n, most)                                                                                 \
    while (j + most * CRF_LANES <= columns) CRF_STRIP(n, most)                                              \
    switch ((columns - j) / CRF_LANES) {                                                                    \
        case 7: if (most > 7) CRF_STRIP(n, 7) break;                                                        \
        case 6: if (most > 6) CRF_STRIP(n, 6) break;                                                        \
        case 5: if (most > 5) CRF_STRIP(n, 5) break;                                                        \
        case 4: if (most > 4) CRF_STRIP(n, 4) break;                                                        \
        case 3: if (most > 3) CRF_STRIP(n, 3) break;                                                        \
        case 2: if (most > 2) CRF_STRIP(n, 2) break;                                                        \
        case 1: if (most > 1) CRF_STRIP(n, 1) break;                                                        \
    }
#endif

/* out[k][j] = sum over i of a[k][i] * m[i][j], for n rows a[k]; `columns` is a multiple of 8. Two rows of m are
 * added at a time. Very wide ones had better be read as they lie. */
static CRF_TARGET void CRF_LEVEL(rows_times_matrix)(int64_t rows, int64_t columns, int64_t n, const double *const *a,
                                                    const double *CRF_RESTRICT m, double *CRF_RESTRICT out) {
#ifdef CRF_LANES
    if (columns <= 256) {
        for (; n >= 4; n -= 4, a += 4, out += 4 * columns) {
            int64_t j = 0;
            CRF_STRIPS(4, CRF_MOST(2))
        }
        for (; n >= 2; n -= 2, a += 2, out += 2 * columns) {
            int64_t j = 0;
            CRF_STRIPS(2, CRF_MOST(2))
        }
        if (n && columns <= 64) {
            int64_t j = 0;
            CRF_STRIPS(1, CRF_MOST(4))
            return;
        }
    }
#endif
    for (int64_t k = 0; k < n; k++, out += columns) {
        const double *row = m;
        int64_t i = 0;
        for (int64_t j = 0; j < columns; j++) out[j] = 0.0;
        for (; i + 2 <= rows; i += 2, row += 2 * columns) {
            const double x = a[k][i], y = a[k][i + 1];
            for (int64_t j = 0; j < columns; j++) out[j] += x * row[j] + y * row[columns + j];
        }
        for (; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) out[j] += a[k][i] * row[j];
    }
}

static CRF_TARGET void CRF_LEVEL(row_times_matrix)(int64_t rows, int64_t columns, const double *a, const double *m,
                                                   double *out) {
    CRF_LEVEL(rows_times_matrix)(rows, columns, 1, &a, m, out);
}

/* The same for a matrix that differs from a constant in few entries, and eight vectors side by side:
 * out[y][k] = total[k] + sum over the entries e of y, bounds[y] to bounds[y + 1], of a[others[e]][k] * excess[e].
 * Returns whether a sum is smaller than `share` of total[k]. */
static CRF_TARGET int CRF_LEVEL(rows_times_entries)(int64_t Y, const double *total, const int64_t *bounds,
                                                    const int32_t *others, const double *excess, double share,
                                                    const double *CRF_RESTRICT a, double *CRF_RESTRICT out) {
    int64_t small = 0;
    for (int64_t y = 0; y < Y; y++) {
        double s[8];
        for (int k = 0; k < 8; k++) s[k] = total[k];
        for (int64_t e = bounds[y]; e < bounds[y + 1]; e++) {
            const double *x = a + 8 * (int64_t)others[e];
            for (int k = 0; k < 8; k++) s[k] += x[k] * excess[e];
        }
        for (int k = 0; k < 8; k++) small |= s[k] < share * total[k];
        for (int k = 0; k < 8; k++) out[8 * y + k] = s[k];
    }
    return small != 0;
}

#ifdef CRF_LANES
/* Two rows (or the last one twice) and `width` vectors of columns, from column j on, of a sum of outer products.
 * If the last vector would pass the end, it overlaps the one before: there it adds zeros, and is stored first. */
#define CRF_TILE(width)                                                                                     \
    {                                                                                                       \
        const int64_t tail = j + width * CRF_LANES > columns ? columns - CRF_LANES : j + (width - 1) * CRF_LANES; \
        CRF_LEVEL(lanes) keep, s[width], t[width], c[width];                                                \
        for (int l = 0; l < CRF_LANES; l++) keep[l] = tail + l < j + (width - 1) * CRF_LANES ? 0.0 : 1.0;   \
        for (int64_t i = 0; i < rows; i += 2) {                                                             \
            const int64_t other = i + 1 < rows ? i + 1 : i;                                                 \
            double *p = m + i * columns, *q = m + other * columns;                                          \
            for (int w = 0; w < width; w++) s[w] = CRF_LOAD(p + CRF_TILE_AT(width));                        \
            for (int w = 0; w < width; w++) t[w] = CRF_LOAD(q + CRF_TILE_AT(width));                        \
            for (int64_t k = 0; k < n; k++) {                                                               \
                const CRF_LEVEL(lanes) x = a[k][i] - (CRF_LEVEL(lanes)){0};                                 \
                const CRF_LEVEL(lanes) y = a[k][other] - (CRF_LEVEL(lanes)){0};                             \
                for (int w = 0; w < width; w++) c[w] = CRF_LOAD(b[k] + CRF_TILE_AT(width));                 \
                c[width - 1] *= keep;                                                                       \
                for (int w = 0; w < width; w++) s[w] += x * c[w];                                           \
                for (int w = 0; w < width; w++) t[w] += y * c[w];                                           \
            }                                                                                               \
            for (int w = width - 1; w >= 0; w--) *(CRF_LEVEL(loaded) *)(q + CRF_TILE_AT(width)) = t[w];     \
            for (int w = width - 1; w >= 0; w--) *(CRF_LEVEL(loaded) *)(p + CRF_TILE_AT(width)) = s[w];     \
        }                                                                                                   \
        j += width * CRF_LANES;                                                                             \
    }
#define CRF_TILE_AT(width) (w == width - 1 ? tail : j + w * CRF_LANES)
#endif

/* m[i][j] += a[k][i] * b[k][j] for n pairs of vectors, k after k; m is read and written once for all. */
static CRF_TARGET void CRF_LEVEL(add_outers)(int64_t rows, int64_t columns, int64_t n, const double *const *a,
                                             const double *const *b, double *CRF_RESTRICT m) {
    int64_t j = 0;
#ifdef CRF_LANES
    if (columns >= CRF_LANES) {
        while (j + CRF_MOST(4) * CRF_LANES <= columns) CRF_TILE(CRF_MOST(4))
        switch ((columns - j + CRF_LANES - 1) / CRF_LANES) {
            case 8: if (CRF_MOST(4) >= 8) CRF_TILE(8) break;
            case 7: if (CRF_MOST(4) >= 7) CRF_TILE(7) break;
            case 6: if (CRF_MOST(4) >= 6) CRF_TILE(6) break;
            case 5: if (CRF_MOST(4) >= 5) CRF_TILE(5) break;
            case 4: CRF_TILE(4) break;
            case 3: CRF_TILE(3) break;
            case 2: CRF_TILE(2) break;
            case 1: CRF_TILE(1) break;
        }
        return;
    }
#endif
    for (; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t k = 0; k < n; k++) m[i * columns + j] += a[k][i] * b[k][j];
}

/* x *= a */
static CRF_TARGET void CRF_LEVEL(scale)(int64_t n, double a, double *x) {
    for (int64_t i = 0; i < n; i++) x[i] *= a;
}

/* out = x o y; its sum. */
static CRF_TARGET double CRF_LEVEL(multiply)(int64_t n, const double *x, const double *y, double *CRF_RESTRICT out) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * y[i];
    return CRF_LEVEL(sum)(n, out);
}

/* The end of a step backward: p = alpha o beta, u *= scale beta. */
static CRF_TARGET void CRF_LEVEL(leave)(int64_t n, double scale, const double *CRF_RESTRICT alpha,
                                        const double *CRF_RESTRICT beta, double *CRF_RESTRICT u,
                                        double *CRF_RESTRICT p) {
    for (int64_t i = 0; i < n; i++) {
        p[i] = alpha[i] * beta[i];
        u[i] *= beta[i] * scale;
    }
}

#undef CRF_MOST
#undef CRF_LOAD
#undef CRF_STRIP
#undef CRF_STRIPS
#undef CRF_TILE
#undef CRF_TILE_AT

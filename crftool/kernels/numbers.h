/* Numbers as text: six decimals as printf has them, and the shortest text that means the same number, as
 * Python's repr has it. No locks, no allocation. */
#ifndef CRFTOOL_NUMBERS_H
#define CRFTOOL_NUMBERS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* p with six decimals, rounded as printf rounds; printf itself is only asked near a tie. At most 15 bytes for
 * what is a probability. */
static inline char *crf_put_probability(char *out, double p) {
    const double scaled = p * 1e6;
    int64_t n;
    double rest;
    int k;
    if (!(p >= 0.0 && p <= 1.0)) return out + snprintf(out, 15, "%f", p);
    n = (int64_t)scaled;
    rest = scaled - (double)n;
    if (rest > 0.4999 && rest < 0.5001) return out + snprintf(out, 15, "%f", p);
    n += rest > 0.5;
    out[0] = n >= 1000000 ? '1' : '0';
    out[1] = '.';
    for (k = 7; k > 1; k--, n /= 10) out[k] = (char)('0' + n % 10);
    return out + 8;
}

/* Shortest text of a double: R. Giulietti, "The Schubfach way to render doubles" (2020). crf_powers holds
 * 10^k for k from CRF_LEAST to CRF_MOST as 128 bits, rounded up, the highest of them set; it is filled once. */
#define CRF_LEAST (-292)
#define CRF_MOST 324
static uint64_t crf_powers[CRF_MOST - CRF_LEAST + 1][2]; /* high half, low half */

static inline uint64_t crf_high_half(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    return (uint64_t)((unsigned __int128)a * b >> 64);
#else
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

/* The upper 64 bits of power * c / 2^64; its last bit is set if anything was cut off. */
static inline uint64_t crf_rounded_to_odd(const uint64_t *power, uint64_t c) {
    const uint64_t low = crf_high_half(power[1], c), middle = power[0] * c + low;
    const uint64_t high = crf_high_half(power[0], c) + (middle < low);
    return high | (middle > 1);
}

static inline int64_t crf_floor_shift(int64_t x, int n) { return x >= 0 ? x >> n : -((-x + ((int64_t)1 << n) - 1) >> n); }

/* The decimal digits * 10^exponent, digits as few as possible, that is nearest to x > 0 of all that read as x. */
static inline uint64_t crf_shortest(double x, int *exponent) {
    uint64_t bits, c, lower, upper, value, s, tens;
    int64_t q, k, h;
    int closer, odd, in, out;
    const uint64_t *power;
    memcpy(&bits, &x, 8);
    c = bits & 0xFFFFFFFFFFFFFu;
    q = (int64_t)(bits >> 52 & 0x7FF);
    closer = c == 0 && q > 1;                /* below a power of two numbers lie twice as close */
    if (q) c |= (uint64_t)1 << 52;
    q = (q ? q : 1) - 1075;                  /* x = c * 2^q */
    odd = (int)(c & 1);                      /* reading rounds to even: then the ends of the interval count too */
    k = crf_floor_shift(q * 1262611 - (closer ? 524031 : 0), 22);    /* floor(log10 of the interval's length) */
    h = q + crf_floor_shift(-k * 1741647, 19) + 1;
    power = crf_powers[-k - CRF_LEAST];
    value = crf_rounded_to_odd(power, 4 * c << h);
    lower = crf_rounded_to_odd(power, (4 * c - 2 + closer) << h) + odd;
    upper = crf_rounded_to_odd(power, (4 * c + 2) << h) - odd;
    s = value / 4;
    if (s >= 10) {                           /* one digit less */
        tens = s / 10;
        in = lower <= 40 * tens;
        out = 40 * tens + 40 <= upper;
        if (in != out) {
            *exponent = (int)k + 1;
            return tens + out;
        }
    }
    *exponent = (int)k;
    in = lower <= 4 * s;
    out = 4 * s + 4 <= upper;
    if (in != out) return s + out;
    return s + (value > 4 * s + 2 || (value == 4 * s + 2 && (s & 1)));
}

/* x as Python's repr and JSON have it; at most 25 bytes. */
static inline char *crf_put_shortest(char *out, double x) {
    char digits[24];
    uint64_t number;
    int exponent, n = 0, point, i;
    if (x != x) return memcpy(out, "NaN", 3), out + 3;
    if (x < 0.0 || (x == 0.0 && 1.0 / x < 0.0)) *out++ = '-', x = -x;
    if (x == 0.0) return memcpy(out, "0.0", 3), out + 3;
    if (x > 1.7976931348623157e308) return memcpy(out, "Infinity", 8), out + 8;
    number = crf_shortest(x, &exponent);
    for (; number % 10 == 0; number /= 10) exponent++;
    for (i = 23; number; number /= 10, n++) digits[i--] = (char)('0' + number % 10);
    memmove(digits, digits + i + 1, (size_t)n);
    point = n + exponent;                    /* x = 0.digits * 10^point */
    if (point > 16 || point < -3) {
        *out++ = digits[0];
        if (n > 1) *out++ = '.', memcpy(out, digits + 1, (size_t)n - 1), out += n - 1;
        return out + snprintf(out, 8, "e%c%02d", point < 1 ? '-' : '+', point < 1 ? 1 - point : point - 1);
    }
    if (point <= 0) {
        memcpy(out, "0.000", 5);
        memcpy(out + 2 - point, digits, (size_t)n);
        return out + 2 - point + n;
    }
    for (i = 0; i < point || i < n; i++) {
        if (i == point) *out++ = '.';
        *out++ = i < n ? digits[i] : '0';
    }
    if (n <= point) *out++ = '.', *out++ = '0';
    return out;
}

#endif

/* UTF-8, one character at a time, as Python reads it with "surrogateescape". */
#ifndef CRFTOOL_UTF8_H
#define CRFTOOL_UTF8_H

#include <stdint.h>

/* The character at text[0], of `length` bytes that are left, and how many bytes it takes. A byte that is not
 * part of a well-formed character becomes the lone surrogate U+DC00 + byte. */
static inline int crf_character(const unsigned char *text, int64_t length, int32_t *character) {
    const int32_t first = text[0];
    int32_t c, lowest;
    int size, i;
    *character = first;
    if (first < 0x80) return 1;
    *character = 0xDC00 + first;
    if (first >= 0xC2 && first <= 0xDF) size = 2, c = first & 0x1F, lowest = 0x80;
    else if (first >= 0xE0 && first <= 0xEF) size = 3, c = first & 0x0F, lowest = 0x800;
    else if (first >= 0xF0 && first <= 0xF4) size = 4, c = first & 0x07, lowest = 0x10000;
    else return 1;
    if (length < size) return 1;
    for (i = 1; i < size; i++) {
        if ((text[i] & 0xC0) != 0x80) return 1;
        c = c << 6 | (text[i] & 0x3F);
    }
    if (c < lowest || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 1;
    *character = c;
    return size;
}

/* Text as JSON has it between quotes, in ASCII, as Python's json writes it; at most 6 bytes for each byte. */
static inline char *crf_put_json(char *out, const char *text, int64_t length) {
    static const char hex[] = "0123456789abcdef", special[] = "\"\\\n\r\t\f\b", named[] = "\"\\nrtfb";
    int64_t i = 0;
    int32_t c, half;
    int k;
    while (i < length) {
        i += crf_character((const unsigned char *)text + i, length - i, &c);
        if (c >= 32 && c < 127 && c != '"' && c != '\\') {
            *out++ = (char)c;
            continue;
        }
        *out++ = '\\';
        for (k = 0; special[k] && special[k] != c; k++) {}
        if (special[k]) {
            *out++ = named[k];
            continue;
        }
        half = c < 0x10000 ? c : 0xD800 + ((c - 0x10000) >> 10);
        for (;;) {
            *out++ = 'u';
            for (k = 12; k >= 0; k -= 4) *out++ = hex[half >> k & 15];
            if (half == c || c < 0x10000 || (half & 0xFC00) == 0xDC00) break;
            *out++ = '\\';
            half = 0xDC00 + ((c - 0x10000) & 0x3FF);
        }
    }
    return out;
}

#endif

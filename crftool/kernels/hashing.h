/* A 64-bit hash for byte strings and for tuples of 32-bit ids.
 *
 * It is part of the model format (tables are used where they lie in the file), so it may change only
 * together with the format version. Words are read little-endian, like everything in a model file.
 */
#ifndef CRFTOOL_HASHING_H
#define CRFTOOL_HASHING_H

#include <stdint.h>
#include <string.h>

static inline uint64_t crf_mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ (h >> 29);
}

static inline uint64_t crf_finish(uint64_t h) {
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return h ^ (h >> 32);
}

static inline uint64_t crf_hash_bytes(const char *text, int64_t length) {
    uint64_t h = UINT64_C(0x27D4EB2F165667C5) ^ (uint64_t)length, word;
    for (; length >= 8; length -= 8, text += 8) {
        memcpy(&word, text, 8);
        h = crf_mix(h, word);
    }
    if (length > 0) {
        word = 0;
        memcpy(&word, text, (size_t)length);
        h = crf_mix(h, word);
    }
    return crf_finish(h);
}

static inline uint64_t crf_hash_ids(const int32_t *ids, int width) {
    uint64_t h = UINT64_C(0x85EBCA77C2B2AE63);
    for (int i = 0; i < width; i++) h = crf_mix(h, (uint32_t)ids[i]);
    return crf_finish(h);
}

#endif

"""Observations that occur at the very same tokens: twins. No data can tell them apart."""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

cdef struct Kind:
    int64_t size                 # observations of this kind
    int64_t token                # the last token that split it
    int32_t part                 # the kind of those that occur there


def kinds(
    const int32_t[:, ::1] unigrams,      # in  [N][K]  observations below O, or negative
    int64_t O,
):
    """[O] int32  the same number for observations that occur at the same tokens, as often at each.

    Partition refinement: at first all are of one kind; then each token splits the kinds that it meets into those
    that occur there and those that do not. An observation that occurs twice at a token is moved twice. Takes a
    few operations for each entry of `unigrams`.
    """
    cdef int64_t N = unigrams.shape[0], K = unigrams.shape[1], t, k, o, free_kinds = 0, met, i
    cdef int32_t old, new
    # A token meets at most K kinds and makes K; emptied ones are used again after it.
    cdef int64_t most = O + 2 * K + 1
    cdef int32_t[::1] kind = np.zeros(O, np.int32)
    cdef Kind* table = <Kind*> malloc(most * sizeof(Kind))
    cdef int32_t* unused = <int32_t*> malloc(most * sizeof(int32_t))
    cdef int32_t* seen = <int32_t*> malloc((K + 1) * sizeof(int32_t))
    if table == NULL or unused == NULL or seen == NULL or most > 0x7fffffff:
        free(table)
        free(unused)
        free(seen)
        raise MemoryError
    with nogil:
        table[0].size, table[0].token = O, -1
        for i in range(most - 1):
            unused[i] = <int32_t> (most - 1 - i)
        free_kinds = most - 1
        for t in range(N):
            met = 0
            for k in range(K):
                o = unigrams[t, k]
                if o < 0 or o >= O:
                    continue
                old = kind[o]
                if table[old].token != t:
                    free_kinds -= 1
                    new = unused[free_kinds]
                    table[new].size, table[new].token = 0, -1
                    table[old].token, table[old].part = t, new
                    seen[met] = old
                    met += 1
                new = table[old].part
                kind[o] = new
                table[old].size -= 1
                table[new].size += 1
            for i in range(met):
                if table[seen[i]].size == 0:
                    unused[free_kinds] = seen[i]
                    free_kinds += 1
    free(table)
    free(unused)
    free(seen)
    return np.asarray(kind)

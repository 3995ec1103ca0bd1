"""Best paths through the chain: Viterbi, dense and sparse, and exact n-best lists.

The notation is that of chain.pyx. Ties go to the lowest previous label and the lowest last label, as in
CRF++.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from crftool.kernels.chain cimport Chain, Links
from crftool.kernels.vector cimport crf_next_task, crf_operations, operations

cdef enum:
    GRAIN = 8                    # sequences that a thread takes at a time


cdef int64_t best_of(int64_t n, const double* x) noexcept nogil:
    """Index of the first largest number."""
    cdef int64_t i
    cdef double largest = operations().maximum(n, x)
    for i in range(n):
        if x[i] == largest:
            return i
    return 0


cdef enum:
    LEADERS = 16


cdef inline int64_t find_leaders(int64_t Y, const double* delta, int32_t* leaders) noexcept nogil:
    """The labels with the largest delta, best first and lowest first among equals; how many."""
    cdef int64_t y, k, n = 0
    for y in range(Y):
        if n == LEADERS and delta[y] <= delta[leaders[n - 1]]:
            continue
        k = n if n < LEADERS else LEADERS - 1
        n = k + 1
        while k > 0 and delta[leaders[k - 1]] < delta[y]:
            leaders[k] = leaders[k - 1]
            k -= 1
        leaders[k] = <int32_t> y
    return n


cdef inline bint listed(int32_t y, const int32_t* labels, int64_t n) noexcept nogil:
    """Whether rising `labels` hold y."""
    cdef int64_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) / 2
        if labels[middle] < y:
            low = middle + 1
        else:
            high = middle
    return low < n and labels[low] == y


cdef int64_t best_without(
    int64_t Y, const double* delta, const int32_t* leaders, int64_t n_leaders, const int32_t* excluded,
    int64_t n) noexcept nogil:
    """The label with the first largest delta that `excluded` (rising) does not list; -1 if there is none."""
    cdef int64_t k, y, e = 0, best = -1
    for k in range(n_leaders):
        if not listed(leaders[k], excluded, n):
            return leaders[k]
    for y in range(Y):
        if e < n and excluded[e] == y:
            e += 1
        elif best < 0 or delta[y] > delta[best]:
            best = y
    return best


cdef void sparse_step(const Links* links, int32_t c, const double* delta, double* best, int32_t* origin) noexcept nogil:
    """`step` for a transition with few entries (eq. 10 of the paper).

    The best label of all, found once, serves every y to which it has no entry. Another can only beat it
    through an entry that makes up for the difference; entries of a label come by falling weight, so few
    are looked at. Where the best label does have an entry, the best one without is looked for.
    """
    cdef int32_t leaders[LEADERS]
    cdef int64_t Y = links.Y, y, e, k, first, last, rival, n = 0
    cdef int32_t top = <int32_t> best_of(Y, delta), i
    cdef double floor = delta[top], score, candidate
    cdef const int64_t* bounds = links.out_of + c * Y
    for y in range(Y):
        best[y], origin[y] = floor, top
    for i in range(<int32_t> Y):
        for e in range(bounds[i], bounds[i + 1]):
            candidate = delta[i] + links.ranked_weight[e]
            if candidate < floor:
                break
            y = links.ranked[e]
            if candidate > best[y] or (candidate == best[y] and i < origin[y]):
                best[y], origin[y] = candidate, i
    if bounds[top + 1] > bounds[top] and Y > 4 * LEADERS:            # else a plain search is as good
        n = find_leaders(Y, delta, leaders)
    for k in range(bounds[top], bounds[top + 1]):
        y = links.following[k]
        first, last = links.into[c * Y + y], links.into[c * Y + y + 1]
        rival = best_without(Y, delta, leaders, n, links.previous + first, last - first)
        score = delta[rival] if rival >= 0 else -INFINITY
        for e in range(first, last):
            candidate = delta[links.previous[e]] + links.weight[e]
            if candidate > score or (candidate == score and links.previous[e] < rival):
                score, rival = candidate, links.previous[e]
        best[y], origin[y] = score, <int32_t> (rival if rival >= 0 else 0)


cdef inline void step(const Links* links, int32_t c, const double* delta, double* best, int32_t* origin) noexcept nogil:
    """best[y] = max over y' of delta[y'] + lam[c][y'][y]; origin[y] = the lowest such y'."""
    if links.slot[c] >= 0:
        operations().best_predecessor(links.Y, links.Y, delta, links.lam + links.slot[c] * links.stride, best, origin)
    else:
        sparse_step(links, c, delta, best, origin)


cdef inline void position(
    const Links* links, int64_t T, int64_t t, const int32_t* transition, const double* mu,
    const double* before, double* delta, int32_t* origin) noexcept nogil:
    """delta, the score of the best path to each label of position t, from that of position t - 1."""
    cdef const crf_operations* op = operations()
    cdef int64_t Y = links.Y
    if t > 0:
        step(links, transition[t], before, delta, origin)
        op.add(Y, mu + t * Y, delta)
    else:
        memcpy(delta, mu, Y * sizeof(double))
        if links.begin != NULL:
            op.add(Y, links.begin + transition[0] * Y, delta)
        if links.start != NULL:
            op.add(Y, links.start, delta)
    if t == T - 1 and links.end != NULL:
        op.add(Y, links.end, delta)


# Back-pointers take one byte where that is enough, which is what a long sequence costs.

cdef inline void store(void* back, bint wide, int64_t at, int64_t Y, const int32_t* origin) noexcept nogil:
    cdef int64_t y
    if wide:
        for y in range(Y):
            (<uint16_t*> back)[at + y] = <uint16_t> origin[y]
    else:
        for y in range(Y):
            (<uint8_t*> back)[at + y] = <uint8_t> origin[y]


cdef inline int64_t load(const void* back, bint wide, int64_t at) noexcept nogil:
    return (<const uint16_t*> back)[at] if wide else (<const uint8_t*> back)[at]


def viterbi(
    Chain chain, const double[:, ::1] mu, const int32_t[::1] transition, const int64_t[::1] offsets,
    int32_t[::1] labels,           # out [N]  the best path
    double[::1] scores,            # out [S]  its score; -inf if every path is forbidden
    int64_t[::1] counter,
):
    """The best path of many sequences."""
    cdef int64_t S = offsets.shape[0] - 1, Y = chain.Y, s, t, y, first, start, T, longest = 0
    cdef bint wide = Y > 256
    cdef double* delta
    cdef double* swap
    cdef double* before
    cdef int32_t* origin
    cdef void* back
    for s in range(S):
        longest = max(longest, offsets[s + 1] - offsets[s])
    delta = <double*> malloc(Y * sizeof(double))
    before = <double*> malloc(Y * sizeof(double))
    origin = <int32_t*> malloc(Y * sizeof(int32_t))
    back = malloc((longest * Y + 1) * (sizeof(uint16_t) if wide else sizeof(uint8_t)))
    if delta == NULL or before == NULL or origin == NULL or back == NULL:
        free(delta)
        free(before)
        free(origin)
        free(back)
        raise MemoryError
    with nogil:
        while True:
            first = crf_next_task(&counter[0]) * GRAIN
            if first >= S:
                break
            for s in range(first, min(S, first + GRAIN)):
                start, T = offsets[s], offsets[s + 1] - offsets[s]
                if T == 0:
                    scores[s] = 0.0
                    continue
                for t in range(T):
                    swap, before, delta = before, delta, before
                    position(&chain.links, T, t, &transition[start], &mu[start, 0], before, delta, origin)
                    if t > 0:
                        store(back, wide, t * Y, Y, origin)
                y = best_of(Y, delta)
                scores[s] = delta[y]
                for t in range(T - 1, -1, -1):
                    labels[start + t] = <int32_t> y
                    if t > 0:
                        y = load(back, wide, t * Y + y)
    free(delta)
    free(before)
    free(origin)
    free(back)


# n-best paths -------------------------------------------------------------------------------------------
#
# Every path other than the best one leaves some path found before it at one position: it keeps that
# path's labels after the position, takes another label there, and goes back to the start along the best
# way. Its loss is the loss of that path plus the loss of the detour, so the paths come out in order if
# the detours of each path found are put on a queue. A detour is only taken before the position where the
# path itself branched off, so no path is found twice (Lawler 1972).

# Of those that wait, only as many can matter as paths are still wanted; they are kept in order, equal ones
# as they were found.

cdef double pair_weight(const Links* links, int32_t c, int64_t previous, int64_t y) noexcept nogil:
    """lam[c][previous][y]"""
    cdef int64_t e
    if links.slot[c] >= 0:
        return links.lam[links.slot[c] * links.stride + previous * links.Y + y]
    for e in range(links.into[c * links.Y + y], links.into[c * links.Y + y + 1]):
        if links.previous[e] == previous:
            return links.weight[e]
    return 0.0


cdef class BestPaths:
    """The n best paths of one sequence, and the memory to find them, which is used again."""

    def __dealloc__(self):
        free(self.paths)
        free(self.scores)
        free(self.delta)
        free(self.back)
        free(self.queue)

    cdef bint _reserve(self, int64_t T, int64_t Y, int64_t paths) noexcept nogil:
        """Room for so many paths; what has been found is kept, the lattice is not."""
        cdef void* moved
        if T * Y > self.lattice_capacity:
            free(self.delta)
            free(self.back)
            self.lattice_capacity = 0
            self.delta = <double*> malloc(T * Y * sizeof(double))
            self.back = <int32_t*> malloc(T * Y * sizeof(int32_t))
            if self.delta == NULL or self.back == NULL:
                return False
            self.lattice_capacity = T * Y
        if paths * T > self.path_capacity:
            moved = realloc(self.paths, 2 * paths * T * sizeof(int32_t))
            if moved == NULL:
                return False
            self.paths, self.path_capacity = <int32_t*> moved, 2 * paths * T
        if paths > self.score_capacity:
            moved = realloc(self.scores, 2 * paths * sizeof(double))
            if moved == NULL:
                return False
            self.scores, self.score_capacity = <double*> moved, 2 * paths
        return True

    cdef bint _wait(self, Detour detour, int64_t most) noexcept nogil:
        """Put a detour on the queue, of which at most `most` are kept."""
        cdef Detour* queue = self.queue + self.first
        cdef int64_t low = 0, high = self.waiting, middle
        cdef void* moved
        if self.waiting == most:
            if most == 0 or detour.loss >= queue[most - 1].loss:
                return True
            self.waiting -= 1
            high -= 1
        if self.first + self.waiting == self.queue_capacity:
            if self.first > self.waiting:            # the front is free by now
                memmove(self.queue, queue, self.waiting * sizeof(Detour))
                self.first = 0
            else:
                moved = realloc(self.queue, (2 * self.queue_capacity + 64) * sizeof(Detour))
                if moved == NULL:
                    return False
                self.queue, self.queue_capacity = <Detour*> moved, 2 * self.queue_capacity + 64
            queue = self.queue + self.first
        while low < high:                            # after all that are as good
            middle = (low + high) / 2
            if queue[middle].loss <= detour.loss:
                low = middle + 1
            else:
                high = middle
        memmove(queue + low + 1, queue + low, (self.waiting - low) * sizeof(Detour))
        queue[low] = detour
        self.waiting += 1
        return True

    cdef void _draw(self, const Links* links, int64_t T, int64_t found, const Detour* detour) noexcept nogil:
        """Write down the path that takes a detour."""
        cdef int32_t* path = self.paths + found * T
        cdef int64_t t, y = detour.label
        for t in range(detour.position + 1, T):
            path[t] = self.paths[detour.path * T + t]
        for t in range(detour.position, -1, -1):
            path[t] = <int32_t> y
            if t > 0:
                y = self.back[t * links.Y + y]

    cdef int64_t find(self, const Links* links, int64_t T, const int32_t* transition, const double* mu,
                      int64_t n) noexcept nogil:
        """How many paths were found: n, or all that are not forbidden if those are fewer; -1: no memory."""
        cdef int64_t Y = links.Y, found = 0, t, i, y, previous
        cdef double best, loss
        cdef const double* delta
        cdef Detour detour
        if T == 0 or n == 0:
            return 0
        if not self._reserve(T, Y, 1):
            return -1
        self.first = self.waiting = 0
        for t in range(T):
            position(links, T, t, transition, mu, self.delta + (t - 1) * Y, self.delta + t * Y, self.back + t * Y)
        delta = self.delta + (T - 1) * Y
        best = delta[best_of(Y, delta)]
        for i in range(Y):                           # the last label is a detour from the end of the chain
            if delta[i] > -INFINITY and not self._wait(Detour(best - delta[i], -1, T - 1, <int32_t> i), n):
                return -1
        while found < n and self.waiting > 0:
            detour = self.queue[self.first]
            self.first += 1
            self.waiting -= 1
            if not self._reserve(T, Y, found + 1):
                return -1
            self._draw(links, T, found, &detour)
            self.scores[found] = best - detour.loss
            for t in range(detour.position if found + 1 < n else 0, 0, -1):
                y, previous = self.paths[found * T + t], self.paths[found * T + t - 1]
                delta = self.delta + (t - 1) * Y
                for i in range(Y):
                    if i == previous:
                        continue
                    loss = ((delta[previous] + pair_weight(links, transition[t], previous, y))
                            - (delta[i] + pair_weight(links, transition[t], i, y)))
                    if loss < INFINITY and not self._wait(
                            Detour(detour.loss + loss, found, t - 1, <int32_t> i), n - found - 1):
                        return -1
            found += 1
        return found


def best_paths(
    Chain chain,
    const double[:, ::1] mu,             # in  [T][Y]
    const int32_t[::1] transition,       # in  [T]
    int64_t n,
):
    """(paths, scores), best first, as int32 [m][T] and float64 [m] memory: the m <= n best paths."""
    cdef BestPaths best = BestPaths()
    cdef int64_t T = mu.shape[0], found = 0
    if T:
        with nogil:
            found = best.find(&chain.links, T, &transition[0], &mu[0, 0], n)
    if found < 0:
        raise MemoryError
    return (<char*> best.paths)[:found * T * sizeof(int32_t)], (<char*> best.scores)[:found * sizeof(double)]


cdef double path_score(
    const Links* links, int64_t T, const int32_t* transition, const double* mu, const int32_t* labels) noexcept nogil:
    """The score of a given path."""
    cdef int64_t Y = links.Y, t
    cdef double score = 0.0
    for t in range(T):
        score += mu[t * Y + labels[t]]
        if t > 0:
            score += pair_weight(links, transition[t], labels[t - 1], labels[t])
        else:
            if links.begin != NULL:
                score += links.begin[transition[t] * Y + labels[t]]
            if links.start != NULL:
                score += links.start[labels[t]]
        if t == T - 1 and links.end != NULL:
            score += links.end[labels[t]]
    return score


def path_scores(
    Chain chain, const double[:, ::1] mu, const int32_t[::1] transition, const int64_t[::1] offsets,
    const int32_t[::1] labels,     # in  [N]
    double[::1] scores,            # out [S]
):
    """The score of one given path per sequence."""
    cdef int64_t S = offsets.shape[0] - 1, s, start, T
    with nogil:
        for s in range(S):
            start, T = offsets[s], offsets[s + 1] - offsets[s]
            scores[s] = 0.0 if T == 0 else path_score(&chain.links, T, &transition[start], &mu[start, 0], &labels[start])

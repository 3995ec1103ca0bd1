"""The transitions that one thread meets while it tags, each ready for the recursions of chain.pyx.

As kernels.transitions does it for a whole data set, but one by one: a combination of bigram rows that has not
been met before is added up to a block or, if it has few weights, to a list of entries.
"""

from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy, memset

from crftool.kernels.chain cimport exponentiate_block, too_wide
from crftool.kernels.keys cimport KeyTable
from crftool.kernels.kinds cimport Kind, add_row
from crftool.kernels.vector cimport operations

cdef enum:
    DONE = 0
    TOO_MANY = 1
    NOTHING_LEFT = 2             # of memory


cdef int by_label(const void* a, const void* b) noexcept nogil:
    """Entries by label and previous label; those of one pair as they were found."""
    cdef const Entry* x = <const Entry*> a
    cdef const Entry* y = <const Entry*> b
    if x.pair != y.pair:
        return -1 if x.pair < y.pair else 1
    return -1 if x.order < y.order else 1


cdef int by_weight(const void* a, const void* b) noexcept nogil:
    """Entries by falling weight, then label. (`order` is the label by now.)"""
    cdef const Entry* x = <const Entry*> a
    cdef const Entry* y = <const Entry*> b
    if x.weight != y.weight:
        return -1 if x.weight > y.weight else 1
    return -1 if x.order < y.order else 1


cdef bint grow(void** memory, int64_t n, int64_t size) noexcept nogil:
    cdef void* moved = realloc(memory[0], n * size + 1)
    if moved != NULL:
        memory[0] = moved
    return moved != NULL


cdef class Blocks:
    def __cinit__(self, int64_t Y, bint begin_label, int lines, double limit, bint sums, bint log_domain,
                  const uint8_t[::1] allowed=None):
        """`limit`: how many entries a transition may have to be kept sparse; `sums`: whether more than best
        paths will be asked for."""
        cdef int64_t y
        self.Y, self.R, self.P = Y, Y + begin_label, (Y + 7) / 8 * 8
        self.limit, self.sums, self.log_domain, self.allowed = limit, sums, log_domain, allowed
        self.combinations = KeyTable(lines)
        if allowed is not None:
            if allowed.shape[0] != (Y + 1) * (Y + 1):
                raise ValueError("a constraint of other labels")
            self.start, self.end = <double*> malloc(Y * sizeof(double)), <double*> malloc(Y * sizeof(double))
            if self.start == NULL or self.end == NULL:
                raise MemoryError
            for y in range(Y):
                self.start[y] = 0.0 if allowed[Y * (Y + 1) + y] else -INFINITY
                self.end[y] = 0.0 if allowed[y * (Y + 1) + Y] else -INFINITY
        self.scratch_capacity = 1
        if not self._room(1) or not self._room_for_entries(1) or not grow(<void**> &self.scratch, 1, sizeof(Entry)):
            raise MemoryError
        self.into[0] = self.out_of[0] = 0
        self._connect()

    def __dealloc__(self):
        free(self.slot)
        free(self.dense_slot)
        free(self.shift)
        free(self.rest)
        free(self.begin)
        free(self.into)
        free(self.out_of)
        free(self.lam)
        free(self.psi)
        free(self.psi_t)
        free(self.previous)
        free(self.ranked)
        free(self.following)
        free(self.weight)
        free(self.ranked_weight)
        free(self.factor)
        free(self.excess)
        free(self.factor_out)
        free(self.excess_out)
        free(self.start)
        free(self.end)
        free(self.scratch)

    cdef int64_t bytes_used(self) noexcept nogil:
        """What the transitions take, about."""
        return 8 * (self.D * self.Y * (self.Y + 2 * self.P * self.sums) + 8 * self.E
                    + self.combinations.n * (3 * self.Y + 4))

    cdef void forget(self) noexcept nogil:
        self.combinations.clear()
        self.D = self.E = 0

    cdef int64_t find(self, const Kind* kind, const int32_t* rows) noexcept nogil:
        """The transition that a combination of bigram rows makes; -1: no memory."""
        cdef int64_t c = self.combinations.find_key(rows)
        if c >= 0:
            return c
        c = self.combinations.intern_key(rows)
        if c >= 0 and not self._add(kind, rows, c):
            self.combinations.n -= 1                 # the tagger gives up now
            return -1
        return c

    cdef bint _add(self, const Kind* kind, const int32_t* rows, int64_t c) noexcept nogil:
        cdef int64_t Y = self.Y, y, n
        cdef double* lam
        cdef double spread
        cdef int status
        if not self._room(c + 1):
            return False
        self.slot[c] = self.dense_slot[c] = -1
        self.shift[c], self.rest[c] = 0.0, 1.0
        n = self._few_entries(kind, rows)
        if n >= 0:
            if not self._gather(kind, rows, c, n):
                return False
        else:
            lam = self._block(kind, rows, c)
            if lam == NULL:
                return False
            status = self._sparsify(lam, c) if self.limit >= 0 else TOO_MANY
            if status == NOTHING_LEFT:
                return False
            if status == DONE:
                self.D -= 1                          # the block has served
            else:
                self.slot[c] = self.dense_slot[c] = <int32_t> (self.D - 1)
                for y in range(Y):
                    self.into[c * Y + y + 1] = self.out_of[c * Y + y + 1] = self.E
                if self.sums and not self.log_domain:
                    spread = exponentiate_block(Y, self.P, lam, self.psi + (self.D - 1) * Y * self.P,
                                                self.psi_t + (self.D - 1) * Y * self.P, self.shift + c)
                    if too_wide(spread, self.allowed is not None):
                        self.shift[c] = NAN
        self._connect()
        return True

    cdef int64_t _few_entries(self, const Kind* kind, const int32_t* rows) noexcept nogil:
        """Stored weights of a combination of rows, if these are few and it may stay sparse; else -1."""
        cdef int64_t n = 0
        cdef int k
        if self.limit < 0 or self.allowed is not None:
            return -1
        for k in range(kind.K):
            if rows[k] >= kind.whole:
                n += kind.bounds[rows[k] - kind.whole + 1] - kind.bounds[rows[k] - kind.whole]
            elif rows[k] >= 0:
                return -1
        return n if n <= self.limit else -1

    cdef bint _gather(self, const Kind* kind, const int32_t* rows, int64_t c, int64_t n) noexcept nogil:
        """Entries from compressed rows; weights of a pair from several rows add up."""
        cdef int64_t Y = self.Y, i, j = 0, previous, y
        cdef int k
        if n > self.scratch_capacity:
            if not grow(<void**> &self.scratch, 2 * n, sizeof(Entry)):
                return False
            self.scratch_capacity = 2 * n
        if self.begin != NULL:
            memset(self.begin + c * Y, 0, Y * sizeof(double))
        for k in range(kind.K):
            if rows[k] < 0:
                continue
            for i in range(kind.bounds[rows[k] - kind.whole], kind.bounds[rows[k] - kind.whole + 1]):
                previous, y = kind.columns[i] / Y, kind.columns[i] % Y
                if previous == Y:
                    self.begin[c * Y + y] += kind.values[i]
                else:
                    self.scratch[j] = Entry(y * Y + previous, j, kind.values[i])
                    j += 1
        qsort(self.scratch, j, sizeof(Entry), by_label)
        n = 0
        for i in range(j):
            if n and self.scratch[n - 1].pair == self.scratch[i].pair:
                self.scratch[n - 1].weight += self.scratch[i].weight
            else:
                self.scratch[n] = self.scratch[i]
                n += 1
        return self._store(c, n)

    cdef double* _block(self, const Kind* kind, const int32_t* rows, int64_t c) noexcept nogil:
        """A new block [Y][Y], and `begin`; NULL: no memory."""
        cdef int64_t Y = self.Y, i, j, size, capacity
        cdef double* lam
        cdef int k
        if self.D >= self.block_capacity:
            capacity = 2 * self.D + 2
            if not grow(<void**> &self.lam, (capacity * Y + 1) * Y, sizeof(double)):    # a row for `begin`
                return NULL
            size = capacity * Y * self.P
            if self.sums and not self.log_domain and (not grow(<void**> &self.psi, size, sizeof(double))
                                                      or not grow(<void**> &self.psi_t, size, sizeof(double))):
                return NULL
            self.block_capacity = capacity
        lam = self.lam + self.D * Y * Y
        memset(lam, 0, self.R * Y * sizeof(double))
        for k in range(kind.K):
            if rows[k] >= 0:
                add_row(kind, rows[k], lam)
        if self.begin != NULL:
            memcpy(self.begin + c * Y, lam + Y * Y, Y * sizeof(double))
        if self.allowed is not None:
            for i in range(Y):
                for j in range(Y):
                    if not self.allowed[i * (Y + 1) + j]:
                        lam[i * Y + j] = -INFINITY
        self.D += 1
        return lam

    cdef int _sparsify(self, const double* lam, int64_t c) noexcept nogil:
        """Entries from a block, unless they are too many."""
        cdef int64_t Y = self.Y, i, y, n = 0
        for i in range(Y * Y):
            n += lam[i] != 0.0
        if n > self.limit:
            return TOO_MANY
        if n > self.scratch_capacity:
            if not grow(<void**> &self.scratch, 2 * n, sizeof(Entry)):
                return NOTHING_LEFT
            self.scratch_capacity = 2 * n
        n = 0
        for y in range(Y):
            for i in range(Y):
                if lam[i * Y + y] != 0.0:
                    self.scratch[n] = Entry(y * Y + i, n, lam[i * Y + y])
                    n += 1
        return DONE if self._store(c, n) else NOTHING_LEFT

    cdef bint _store(self, int64_t c, int64_t n) noexcept nogil:
        """Entries of transition c, from n of them by label in `scratch`, in the three orders of Links."""
        cdef int64_t Y = self.Y, first = self.E, i, y, e, start
        cdef double below, shift = 0.0, spread
        cdef Entry* entries = self.scratch
        if not self._room_for_entries(first + n):
            return False
        for i in range(n):
            shift = max(shift, entries[i].weight)
        spread = shift
        self.rest[c] = -shift
        operations().exp_shifted(1, self.rest + c, 0.0, self.rest + c)
        for i in range(n):
            below = shift - entries[i].weight
            if below < INFINITY:
                spread = max(spread, below)
            self.factor[first + i] = -below
        operations().exp_shifted(n, self.factor + first, 0.0, self.factor + first)
        i = 0
        for y in range(Y):                           # by label, then previous label
            while i < n and entries[i].pair / Y == y:
                self.previous[first + i] = <int32_t> (entries[i].pair % Y)
                self.weight[first + i] = entries[i].weight
                self.excess[first + i] = self.factor[first + i] - self.rest[c]
                i += 1
            self.into[c * Y + y + 1] = first + i
        memset(self.out_of + c * Y + 1, 0, Y * sizeof(int64_t))
        for i in range(n):
            self.out_of[c * Y + self.previous[first + i] + 1] += 1
        for y in range(Y):
            self.out_of[c * Y + y + 1] += self.out_of[c * Y + y]
        for y in range(Y):                           # by previous label, then label; the bounds mark how far
            for i in range(self.into[c * Y + y], self.into[c * Y + y + 1]):
                e = self.out_of[c * Y + self.previous[i]]
                self.following[e], self.factor_out[e], self.excess_out[e] = <int32_t> y, self.factor[i], self.excess[i]
                self.ranked_weight[e] = self.weight[i]
                self.out_of[c * Y + self.previous[i]] += 1
        for y in range(Y - 1, -1, -1):               # the bounds have moved on by one label: back
            self.out_of[c * Y + y + 1] = self.out_of[c * Y + y]
        self.out_of[c * Y] = first
        for y in range(Y):                           # by previous label, then falling weight
            start, e = self.out_of[c * Y + y], self.out_of[c * Y + y + 1]
            for i in range(start, e):
                entries[i - start] = Entry(0, self.following[i], self.ranked_weight[i])
            qsort(entries, e - start, sizeof(Entry), by_weight)
            for i in range(start, e):
                self.ranked[i], self.ranked_weight[i] = <int32_t> entries[i - start].order, entries[i - start].weight
        self.shift[c] = NAN if too_wide(spread, self.allowed is not None) else shift
        self.E = first + n
        return True

    cdef bint _room(self, int64_t n) noexcept nogil:
        """Room for n transitions."""
        cdef int64_t capacity = 2 * n, bounds = capacity * self.Y + 1
        if n <= self.capacity:
            return True
        if not (grow(<void**> &self.slot, capacity, sizeof(int32_t))
                and grow(<void**> &self.dense_slot, capacity, sizeof(int32_t))
                and grow(<void**> &self.shift, capacity, sizeof(double))
                and grow(<void**> &self.rest, capacity, sizeof(double))
                and grow(<void**> &self.into, bounds, sizeof(int64_t))
                and grow(<void**> &self.out_of, bounds, sizeof(int64_t))):
            return False
        if self.R > self.Y and not grow(<void**> &self.begin, capacity * self.Y, sizeof(double)):
            return False
        self.capacity = capacity
        return True

    cdef bint _room_for_entries(self, int64_t n) noexcept nogil:
        """Room for n entries."""
        if n <= self.entry_capacity:
            return True
        if not (grow(<void**> &self.previous, 2 * n, sizeof(int32_t))
                and grow(<void**> &self.ranked, 2 * n, sizeof(int32_t))
                and grow(<void**> &self.following, 2 * n, sizeof(int32_t))
                and grow(<void**> &self.weight, 2 * n, sizeof(double))
                and grow(<void**> &self.ranked_weight, 2 * n, sizeof(double))
                and grow(<void**> &self.factor, 2 * n, sizeof(double))
                and grow(<void**> &self.excess, 2 * n, sizeof(double))
                and grow(<void**> &self.factor_out, 2 * n, sizeof(double))
                and grow(<void**> &self.excess_out, 2 * n, sizeof(double))):
            return False
        self.entry_capacity = 2 * n
        return True

    cdef void _connect(self) noexcept nogil:
        """Let `links` and `dense` point to where everything lies now."""
        cdef int64_t Y = self.Y
        self.links.Y, self.links.P, self.links.stride = Y, self.P, Y * Y
        self.links.slot, self.links.lam, self.links.psi, self.links.psi_t = self.slot, self.lam, self.psi, self.psi_t
        self.links.shift, self.links.rest = self.shift, self.rest
        self.links.into, self.links.previous, self.links.weight = self.into, self.previous, self.weight
        self.links.factor, self.links.excess = self.factor, self.excess
        self.links.ranked, self.links.ranked_weight = self.ranked, self.ranked_weight
        self.links.out_of, self.links.following = self.out_of, self.following
        self.links.factor_out, self.links.excess_out = self.factor_out, self.excess_out
        self.links.begin, self.links.start, self.links.end = self.begin, self.start, self.end
        self.links.constrained = self.allowed is not None
        self.dense = self.links
        self.dense.slot = self.dense_slot

    cdef bint all_dense(self, const Kind* kind, int64_t T, const int32_t* transition) noexcept nogil:
        """Make blocks of the sparse transitions of a sequence too, for `dense`; False: no memory."""
        cdef int64_t t
        cdef int32_t c
        for t in range(0 if self.begin != NULL else 1, T):
            c = transition[t]
            if self.dense_slot[c] < 0:
                if self._block(kind, self.combinations.keys + c * self.combinations.width, c) == NULL:
                    return False
                self.dense_slot[c] = <int32_t> (self.D - 1)
        self._connect()
        return True

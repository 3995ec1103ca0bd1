"""What one thread needs while it tags: room for a sequence, its output, and what it has met so far."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from crftool.kernels.combinations cimport Blocks
from crftool.kernels.viterbi cimport BestPaths


cdef class Workspace:
    """Grows as sequences demand; see workspace.pxd for what is what."""

    def __cinit__(self, int64_t sources, Blocks blocks not None):
        self.sources, self.blocks, self.paths = 0, blocks, BestPaths()
        self.derived = <int32_t**> calloc(sources + 1, sizeof(int32_t*))
        self.derived_size = <int64_t*> calloc(sources + 1, sizeof(int64_t))
        if self.derived == NULL or self.derived_size == NULL:
            raise MemoryError
        self.sources = sources

    def __dealloc__(self):
        self.release()
        free(self.fields)
        free(self.out)
        free(self.text)
        self.forget()
        free(self.derived)
        free(self.derived_size)

    cdef void release(self) noexcept nogil:
        """Give back what has room for one sequence."""
        free(self.ids)
        free(self.risky)
        free(self.transition)
        free(self.keys)
        free(self.state)
        free(self.hashes)
        free(self.rows)
        free(self.forced)
        free(self.mu)
        free(self.delta)
        free(self.best)
        free(self.back)
        free(self.labels)
        free(self.u)
        free(self.alpha)
        free(self.p)
        free(self.work)
        free(self.confidence)
        free(self.phrases)
        self.ids = self.transition = self.keys = self.rows = self.forced = self.back = self.labels = NULL
        self.risky = self.state = NULL
        self.hashes = NULL
        self.mu = self.delta = self.best = self.u = self.alpha = self.p = self.work = self.confidence = NULL
        self.phrases = NULL

    cdef void forget(self) noexcept:
        """Drop what the macros have made of values."""
        cdef int64_t s
        for s in range(self.sources):
            free(self.derived[s])
            self.derived[s], self.derived_size[s] = NULL, 0

    cdef bint remember(self, int64_t s, int64_t index, int32_t made) noexcept nogil:
        """Note what the macro of source s makes of a value."""
        cdef int64_t size = self.derived_size[s]
        cdef void* moved
        if index >= size:
            size = 2 * index + 64
            moved = realloc(self.derived[s], size * sizeof(int32_t))
            if moved == NULL:
                return False
            self.derived[s] = <int32_t*> moved
            while self.derived_size[s] < size:
                self.derived[s][self.derived_size[s]] = NOT_RUN
                self.derived_size[s] += 1
        self.derived[s][index] = made
        return True

    cdef bint reserve(self, int64_t T, int64_t columns, int64_t sources, int64_t Y, int64_t lines,
                      int64_t widest) noexcept nogil:
        """Room for T tokens. Fields are kept, the rest is scratch."""
        cdef int64_t capacity = 2 * T + 64
        cdef void* moved = realloc(self.fields, capacity * columns * 2 * sizeof(int64_t))
        if moved == NULL:
            return False
        self.fields = <int64_t*> moved
        self.release()
        self.keys = <int32_t*> malloc((capacity * widest + 1) * sizeof(int32_t))
        self.state = <uint8_t*> malloc(capacity)
        self.hashes = <uint64_t*> malloc(capacity * sizeof(uint64_t))
        self.rows = <int32_t*> malloc((capacity * lines + 1) * sizeof(int32_t))
        self.ids = <int32_t*> malloc((capacity * sources + 1) * sizeof(int32_t))
        self.risky = <uint8_t*> malloc(capacity)
        self.transition = <int32_t*> malloc(capacity * sizeof(int32_t))
        self.forced = <int32_t*> malloc(capacity * sizeof(int32_t))
        self.mu = <double*> malloc(capacity * Y * sizeof(double))
        self.delta = <double*> malloc(capacity * Y * sizeof(double))
        self.best = <double*> malloc(capacity * Y * sizeof(double))
        self.back = <int32_t*> malloc(capacity * Y * sizeof(int32_t))
        self.labels = <int32_t*> malloc(capacity * sizeof(int32_t))
        self.u = <double*> malloc(capacity * Y * sizeof(double))
        self.alpha = <double*> malloc(capacity * Y * sizeof(double))
        self.p = <double*> malloc(capacity * Y * sizeof(double))
        self.work = <double*> malloc((capacity + 4 * Y + 32) * sizeof(double))
        self.confidence = <double*> malloc(capacity * sizeof(double))
        self.phrases = <Phrase*> malloc(capacity * sizeof(Phrase))
        self.capacity = 0
        if (self.forced == NULL or self.back == NULL or self.confidence == NULL or self.phrases == NULL
                or self.keys == NULL or self.state == NULL or self.hashes == NULL or self.rows == NULL
                or self.ids == NULL or self.risky == NULL or self.transition == NULL or self.mu == NULL
                or self.delta == NULL or self.best == NULL or self.labels == NULL or self.u == NULL
                or self.alpha == NULL or self.p == NULL or self.work == NULL):
            return False
        self.capacity, self.columns = capacity, columns
        return True

    cdef bint room(self, int64_t more) noexcept nogil:
        """Room for more output."""
        cdef int64_t capacity
        cdef void* moved
        if self.out_size + more <= self.out_capacity:
            return True
        capacity = 2 * (self.out_size + more)
        moved = realloc(self.out, capacity)
        if moved == NULL:
            return False
        self.out, self.out_capacity = <char*> moved, capacity
        return True

    cdef bint spell(self, int64_t* size, const char* source, int64_t length) noexcept nogil:
        """Append to `text`, of which so much is used."""
        cdef void* moved
        if size[0] + length > self.text_capacity:
            moved = realloc(self.text, 2 * (size[0] + length) + 64)
            if moved == NULL:
                return False
            self.text, self.text_capacity = <char*> moved, 2 * (size[0] + length) + 64
        memcpy(self.text + size[0], source, length)
        size[0] += length
        return True

"""What %X, %t and %m make of a value, without Python: the pattern language of corpus.patterns, compiled.

Lower-casing of more than ASCII is left to Python, whose rules for it are long; everything else runs without
the GIL. Patterns work on characters; what is no UTF-8 counts as one character a byte.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from crftool.kernels.strings cimport StringTable

cdef extern from "utf8.h":
    int crf_character(const unsigned char* text, int64_t length, int32_t* character) noexcept nogil

cdef extern from "Python.h":             # plain look-ups in tables that never change
    bint Py_UNICODE_ISALPHA(int32_t c) noexcept nogil
    bint Py_UNICODE_ISDECIMAL(int32_t c) noexcept nogil
    bint Py_UNICODE_ISSPACE(int32_t c) noexcept nogil
    bint Py_UNICODE_ISLOWER(int32_t c) noexcept nogil
    bint Py_UNICODE_ISUPPER(int32_t c) noexcept nogil

cdef enum:
    CHARACTERS = 0x110000
    NO = 1
    YES = 2

cdef uint8_t[CHARACTERS] punctuation     # 0: not asked yet


cdef bint is_punctuation(int32_t c) noexcept nogil:
    """Whether a character is punctuation or a symbol; Python is asked once for each."""
    if punctuation[c] == 0:
        with gil:
            import unicodedata
            punctuation[c] = YES if unicodedata.category(chr(c))[0] in "PS" else NO
    return punctuation[c] == YES


cdef bint in_class(char letter, int32_t c) noexcept nogil:
    if letter == 100:                    # d
        return Py_UNICODE_ISDECIMAL(c)
    if letter == 97:                     # a
        return Py_UNICODE_ISALPHA(c)
    if letter == 119:                    # w
        return Py_UNICODE_ISALPHA(c) or Py_UNICODE_ISDECIMAL(c)
    if letter == 108:                    # l
        return Py_UNICODE_ISALPHA(c) and Py_UNICODE_ISLOWER(c)
    if letter == 117:                    # u
        return Py_UNICODE_ISALPHA(c) and Py_UNICODE_ISUPPER(c)
    if letter == 115:                    # s
        return Py_UNICODE_ISSPACE(c)
    return is_punctuation(c)             # p


cdef inline bint fits(const Item* item, int32_t c) noexcept nogil:
    if item.kind == 0:
        return item.character == c
    if item.kind == 46:
        return True
    if item.kind < 97:                   # upper case: anything else
        return not in_class(item.kind + 32, c)
    return in_class(item.kind, c)


cdef int64_t match(const Spec* spec, int k, const int32_t* characters, int64_t n, int64_t position,
                   uint8_t* failed) noexcept nogil:
    """Where a match of the items from k ends that starts at `position`; -1 if there is none.

    `failed` [items][n + 1], in bits, tells what has been tried in vain: with it the work is bounded by
    items times characters.
    """
    cdef const Item* item = spec.items + k
    cdef int64_t end = -1, bit = k * (n + 1) + position
    if k == spec.n:
        return -1 if spec.to_end and position < n else position
    if failed[bit >> 3] & (1 << (bit & 7)):
        return -1
    if item.repeat == 42:            # as few as will do
        while True:
            failed[bit >> 3] |= 1 << (bit & 7)
            end = match(spec, k + 1, characters, n, position, failed)
            if end >= 0 or position >= n or not fits(item, characters[position]):
                return end
            position += 1
            bit += 1
            if failed[bit >> 3] & (1 << (bit & 7)):
                return -1
    if position < n and fits(item, characters[position]):
        end = match(spec, k + 1, characters, n, position + 1, failed)
    if end < 0 and item.repeat == 63:
        end = match(spec, k + 1, characters, n, position, failed)
    if end < 0:
        failed[bit >> 3] |= 1 << (bit & 7)
    return end


cdef bint search(const Spec* spec, const char* text, int64_t length, int64_t* start, int64_t* end) noexcept nogil:
    """The leftmost match, as bytes from start to end; start is -1 if memory ran out."""
    cdef int64_t n = 0, position = 0, first, last = -1
    cdef int32_t* characters = <int32_t*> malloc((length + 1) * sizeof(int32_t))
    cdef int64_t* bounds = <int64_t*> malloc((length + 1) * sizeof(int64_t))
    cdef uint8_t* failed = NULL
    if characters != NULL and bounds != NULL:
        while position < length:
            bounds[n] = position
            position += crf_character(<const unsigned char*> text + position, length - position, characters + n)
            n += 1
        bounds[n] = length
        failed = <uint8_t*> calloc(spec.n * (n + 1) / 8 + 1, 1)
    if failed == NULL:
        start[0] = -1
    else:
        for first in range(1 if spec.from_start else n + 1):
            last = match(spec, 0, characters, n, first, failed)
            if last >= 0:
                start[0], end[0] = bounds[first], bounds[last]
                break
    free(characters)
    free(bounds)
    free(failed)
    return last >= 0


cdef int64_t in_python(const Spec* spec, StringTable values, int64_t index) noexcept nogil:
    with gil:
        macro = <Macro> spec.owner
        try:
            return values.intern(macro.in_python(values.text(index)))
        except Exception as error:
            macro.error = error
            return MACRO_FAILED


cdef int64_t derive(const Spec* spec, StringTable values, int64_t index) noexcept nogil:
    """Id of what the macro makes of a value, or MACRO_NO_MEMORY, or MACRO_FAILED."""
    cdef const char* text = NULL
    cdef char* made
    cdef int64_t length = values.locate(index, &text), start = 0, end = length, i
    cdef bint found = True, ascii = True
    if spec.command != 88:           # X looks for nothing
        found = search(spec, text, length, &start, &end)
        if start < 0:
            return MACRO_NO_MEMORY
        if spec.command == 116:      # t
            i = values.intern_bytes(b"true" if found else b"false", 4 if found else 5)
            return i if i >= 0 else MACRO_NO_MEMORY
        if not found:
            start = end = 0
    if spec.lower:
        for i in range(start, end):
            ascii &= <unsigned char> text[i] < 128
        if not ascii:
            return in_python(spec, values, index)
    made = <char*> malloc(end - start + 1)       # a copy: the table may move its text as it grows
    if made == NULL:
        return MACRO_NO_MEMORY
    memcpy(made, text + start, end - start)
    if spec.lower:
        for i in range(end - start):
            if 65 <= made[i] <= 90:
                made[i] += 32
    i = values.intern_bytes(made, end - start)
    free(made)
    return i if i >= 0 else MACRO_NO_MEMORY


cdef class Macro:
    """One macro, compiled."""

    def __cinit__(self, str command, bint lower, items, bint from_start, bint to_end, in_python):
        """`items`: [(character, class letter or "." or "", "" or "*" or "?")] of the pattern."""
        cdef int i
        self.spec.command, self.spec.lower, self.in_python = ord(command), lower, in_python
        self.spec.from_start, self.spec.to_end = from_start, to_end
        self.spec.items = <Item*> calloc(len(items) + 1, sizeof(Item))
        if self.spec.items == NULL:
            raise MemoryError
        self.spec.n, self.spec.owner = len(items), <PyObject*> self
        for i, (character, kind, repeat) in enumerate(items):
            self.spec.items[i].character = ord(character)
            self.spec.items[i].kind = ord(kind) if kind else 0
            self.spec.items[i].repeat = ord(repeat) if repeat else 0

    def __dealloc__(self):
        free(self.spec.items)

    def fault(self):
        """The error of the last value that failed."""
        return self.error

    def of(self, StringTable values not None, const int32_t[::1] ids, int32_t[::1] derived):
        """derived[id] for those of `ids` for which it is negative."""
        cdef int64_t i, made = 0
        with nogil:
            for i in range(ids.shape[0]):
                if derived[ids[i]] < 0:
                    made = derive(&self.spec, values, ids[i])
                    if made < 0:
                        break
                    derived[ids[i]] = <int32_t> made
        if made == MACRO_FAILED:
            raise self.fault()
        if made < 0:
            raise MemoryError

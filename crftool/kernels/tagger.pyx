"""From bytes to labelled bytes in one go, on the model as it lies in its file.

Sequence by sequence: fields, value ids, observations (lookup.pyx), scores (blocks.pyx), labels (decoding.pyx),
output (writing.pyx); no Python object and no allocation per token. The arithmetic, and so every label and
number, is that of the general path (scoring.pyx, chain.pyx, queries.pyx, viterbi.pyx).
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memset

from crftool.kernels.combinations cimport Blocks
from crftool.kernels.decoding cimport Wishes, decode
from crftool.kernels.kinds cimport Kind, add_row
from crftool.kernels.lookup cimport Lookup
from crftool.kernels.patterns cimport Macro
from crftool.kernels.strings cimport StringTable
from crftool.kernels.vector cimport operations
from crftool.kernels.workspace cimport (FAILED, FORBIDDEN, GOOD, NO_MEMORY, OUT_OF_RANGE, TOO_FEW, UNEVEN,
                                        Workspace)
from crftool.kernels.writing cimport Writer

STATUS = {"good": GOOD, "uneven": UNEVEN, "too few": TOO_FEW, "out of range": OUT_OF_RANGE, "forbidden": FORBIDDEN}


cdef class Tagger:
    """A model ready to tag; shared by all threads, each with a Workspace of its own."""

    cdef Lookup lookup
    cdef Writer writer
    cdef StringTable label_table
    cdef Wishes wishes
    cdef int64_t Y
    cdef bint begin_label, log_domain
    cdef double limit            # see Blocks
    cdef const uint8_t[::1] allowed, starts, ends
    cdef public int64_t forget_after     # unknown values that a workspace keeps before it drops them
    cdef public int64_t cache            # bytes of transitions that it keeps

    def __cinit__(self, Lookup lookup not None, Writer writer not None, StringTable label_table not None,
                  bint begin_label, str inference, double limit, const uint8_t[::1] allowed,
                  const uint8_t[::1] starts=None, const uint8_t[::1] ends=None, int64_t best=0, bint posterior=False):
        """`limit`: entries with which a transition is kept sparse; `allowed` [Y + 1][Y + 1]: what may follow
        what, or None; `starts`, `ends` [Y + 1][Y + 1]: where phrases do, Y being outside, if they matter."""
        self.lookup, self.writer, self.label_table = lookup, writer, label_table
        self.Y, self.begin_label, self.limit, self.allowed = len(label_table), begin_label, limit, allowed
        self.starts, self.ends, self.log_domain = starts, ends, inference == "log"
        if writer.Y != self.Y:
            raise ValueError("other labels")
        self.wishes = Wishes(best, writer.sums, posterior, writer.confidence, writer.entropy, inference == "auto",
                             NULL, NULL)
        if writer.confidence:
            if starts is None or ends is None or not starts.shape[0] == ends.shape[0] == (self.Y + 1) ** 2:
                raise ValueError("phrases of other labels")
            self.wishes.starts, self.wishes.ends = &starts[0], &ends[0]
        self.forget_after, self.cache = 1000000, 1 << 26

    def workspace(self):
        cdef Workspace work = Workspace(self.lookup.sources, Blocks(
            self.Y, self.begin_label, self.lookup.bigrams.K, self.limit, self.wishes.sums, self.log_domain,
            self.allowed))
        if self.lookup.derives:
            self._forget(work)
        return work

    cdef _forget(self, Workspace work):
        work.overlay = StringTable(self.lookup.values)
        work.forget()

    def tag(self, const unsigned char[::1] block, Workspace work not None, int64_t columns, int64_t force_column=-1):
        """(status, line, detail, output) for whole sequences of `columns` columns each.

        Status 0 is good; else `line`, from 0, is at fault, and `detail` says more: for UNEVEN and TOO_FEW how
        many columns there are, for FORBIDDEN the labels imposed there and before (-1: any; None: none).
        """
        cdef int64_t size = block.shape[0], start = 0, i, stop, T = 0, n, line = 0, there = 0, end
        cdef int status = GOOD
        cdef const char* text = <const char*> &block[0] if size else NULL
        cdef const char* found
        work.out_size = 0
        if self.lookup.derives and len(work.overlay) - len(self.lookup.values) > self.forget_after:
            self._forget(work)                       # bounded memory, however many words come
        if not -1 <= force_column < columns:
            raise ValueError("no such column")
        if columns < self.lookup.needed and size:
            return TOO_FEW, 0, columns, b""
        if columns != work.columns:
            work.capacity = 0                        # what it has room for are tokens of another width
        with nogil:
            while start < size and status == GOOD:
                found = <const char*> memchr(text + start, 10, size - start)
                end = size if found == NULL else <int64_t> (found - text)
                stop = end - 1 if end > start and text[end - 1] == 13 else end
                if T == work.capacity and not work.reserve(T, columns, self.lookup.sources, self.Y,
                                                           self.lookup.lines, self.lookup.widest):
                    status = NO_MEMORY
                    break
                n, i = 0, start
                while i < stop:
                    if text[i] == 32 or text[i] == 9:
                        i += 1
                        continue
                    if n < columns:
                        work.fields[(T * columns + n) * 2] = i
                    while i < stop and text[i] != 32 and text[i] != 9:
                        i += 1
                    if n < columns:
                        work.fields[(T * columns + n) * 2 + 1] = i
                    n += 1
                if n == 0:
                    if T:
                        status = self.sequence(text, work, T, columns, force_column)
                        if status != GOOD:
                            break
                    T = 0
                elif n != columns:
                    status, there = UNEVEN, n
                    break
                else:
                    T += 1
                line += 1
                start = end + 1
            if T and status == GOOD:
                status = self.sequence(text, work, T, columns, force_column)
        if status == NO_MEMORY:
            raise MemoryError
        if status == FAILED:
            raise (<Macro> self.lookup.macros[work.failed]).fault()
        if status == FORBIDDEN:
            i = work.dead_end
            return status, line - T + i, (work.forced[i - 1] if i else None, work.forced[i]), b""
        return status, line - T if status == OUT_OF_RANGE else line, there, work.out[:work.out_size]

    cdef int sequence(self, const char* text, Workspace work, int64_t T, int64_t columns,
                      int64_t force_column) noexcept nogil:
        """Label one sequence and write it out."""
        cdef int64_t k
        cdef double probability
        cdef int status = self.lookup.value_ids(text, work, T, columns)
        if status != GOOD:
            return status
        if work.blocks.bytes_used() > self.cache:
            work.blocks.forget()
        status = self.scores(text, work, T, columns)
        if status != GOOD:
            return status
        self.force(text, work, T, columns, force_column)
        status = decode(&self.wishes, &self.lookup.bigrams, work, T)
        if status != GOOD:
            return status
        if self.wishes.best == 0:
            return GOOD if self.writer.write(work, text, T, columns, work.labels, 0, work.probability) else NO_MEMORY
        for k in range(work.paths.found):
            probability = work.paths.scores[k] - work.log_z
            operations().exp_shifted(1, &probability, 0.0, &probability)
            if not self.writer.write(work, text, T, columns, work.paths.paths + k * T, k, probability):
                return NO_MEMORY
        return GOOD

    cdef int scores(self, const char* text, Workspace work, int64_t T, int64_t columns) noexcept nogil:
        """mu [T][Y], and the transition of every position."""
        cdef const Kind* kind = &self.lookup.unigrams
        cdef int64_t t, Y = self.Y, index, first = 0 if self.begin_label else 1
        cdef int k
        self.lookup.find_unigrams(text, work, T, columns)
        for t in range(T):
            memset(work.mu + t * Y, 0, Y * sizeof(double))
            for k in range(kind.K):
                if work.rows[t * kind.K + k] >= 0:
                    add_row(kind, work.rows[t * kind.K + k], work.mu + t * Y)
        kind = &self.lookup.bigrams
        self.lookup.find_bigrams(text, work, first, T, columns)
        for t in range(first, T):
            index = work.blocks.find(kind, work.rows + t * kind.K)
            if index < 0:
                return NO_MEMORY
            work.transition[t] = <int32_t> index
        return GOOD

    cdef void force(self, const char* text, Workspace work, int64_t T, int64_t columns,
                    int64_t column) noexcept nogil:
        """Forbid all labels but the one in the column, where there is one of the model's."""
        cdef int64_t t, y, Y = self.Y
        cdef const int64_t* field
        for t in range(T):
            work.forced[t] = -1
            if column < 0:
                continue
            field = work.fields + (t * columns + column) * 2
            work.forced[t] = <int32_t> self.label_table.find_bytes(text + field[0], field[1] - field[0])
            if work.forced[t] >= 0:
                for y in range(Y):
                    if y != work.forced[t]:
                        work.mu[t * Y + y] = -INFINITY

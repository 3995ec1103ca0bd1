"""From the fields of a sequence to rows of weights, on the tables of a model as they lie in its file.

Values to ids, macros, observations to rows; no Python object and no allocation per token.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from crftool.kernels.keys cimport KeyTable
from crftool.kernels.kinds cimport Kind, Line, Table, Text
from crftool.kernels.patterns cimport MACRO_FAILED, Macro, Spec, derive
from crftool.kernels.strings cimport StringTable
from crftool.kernels.vector cimport crf_prefetch
from crftool.kernels.workspace cimport FAILED, GOOD, NO_MEMORY, NOT_RUN, Workspace

cdef extern from "hashing.h":
    uint64_t crf_hash_ids(const int32_t* ids, int width) noexcept nogil

cdef enum:
    KNOWN = 1                    # of the values of an observation: the model has all of them
    RISKY = 2                    # their text might be split into fields in another way


cdef inline int64_t find(const Table* table, const int32_t* key, uint64_t h) noexcept nogil:
    """The row of a key with hash h, -1 if it has none. As KeyTable.find_key, without the indirection."""
    cdef int64_t slot = <int64_t> (h & 0x7FFFFFFF) & table.mask, index
    cdef uint32_t tag = <uint32_t> (h >> 32)
    cdef int k
    while table.slots[2 * slot + 1] != 0:
        if table.slots[2 * slot] == tag:
            index = <int64_t> table.slots[2 * slot + 1] - 1
            k = 0
            while k < table.width and table.keys[index * table.width + k] == key[k]:
                k += 1
            if k == table.width:
                return table.rows[index]
        slot = (slot + 1) & table.mask
    return -1


cdef inline int64_t position_of(const Line* line, int f, int64_t t, int64_t T) noexcept nogil:
    """Where field f of a template line points to at t; outside of 0 to T - 1 there is padding."""
    if line.absolute[f] == 0:
        return t + line.row[f]
    if line.absolute[f] > 0:
        return line.row[f] - 1
    return T - line.row[f]


cdef inline void key_at(Lookup self, Workspace work, const Line* line, int64_t t, int64_t T, int32_t* key,
                        uint8_t* state) noexcept nogil:
    """The value ids that a template line sees at t; whether the model knows all, and whether their text
    might be split in another way."""
    cdef int64_t position
    cdef int f
    cdef bint known = True, risky = line.ambiguous
    for f in range(line.width):
        position = position_of(line, f, t, T)
        if position < 0:
            key[f] = self.before[line.source[f] * self.reach - position - 1]
            risky |= self.risky_before[line.source[f] * self.reach - position - 1]
        elif position >= T:
            key[f] = self.after[line.source[f] * self.reach + position - T]
            risky |= self.risky_after[line.source[f] * self.reach + position - T]
        else:
            key[f] = work.ids[position * self.sources + line.source[f]]
            risky |= work.risky[position]
        known &= 0 <= key[f] < self.values.n
    state[0] = KNOWN * known + RISKY * risky


cdef class Lookup:
    """The tables of a model; shared by all threads, each with a Workspace of its own."""

    def __cinit__(self, StringTable values, sources, int64_t reach, int64_t needed, separators, unigrams, bigrams):
        """`sources`: [(column, Macro or None, paddings before, paddings after)], quickest if those of a
        column follow each other; `unigrams`, `bigrams`: see _kind."""
        cdef int i, d
        self.sources, self.reach, self.needed, self.values = len(sources), reach, needed, values
        self.macros = [source[1] for source in sources]
        self.derives = any(macro is not None for macro in self.macros)
        self.column_of = <int32_t*> calloc(self.sources + 1, sizeof(int32_t))
        self.is_plain = <uint8_t*> calloc(self.sources + 1, 1)
        self.specs = <const Spec**> calloc(self.sources + 1, sizeof(Spec*))
        self.before = <int32_t*> calloc(self.sources * reach + 1, sizeof(int32_t))
        self.after = <int32_t*> calloc(self.sources * reach + 1, sizeof(int32_t))
        self.risky_before = <uint8_t*> calloc(self.sources * reach + 1, 1)
        self.risky_after = <uint8_t*> calloc(self.sources * reach + 1, 1)
        self.text_before = <Text*> calloc(self.sources * reach + 1, sizeof(Text))
        self.text_after = <Text*> calloc(self.sources * reach + 1, sizeof(Text))
        if (self.column_of == NULL or self.is_plain == NULL or self.specs == NULL or self.before == NULL or self.after == NULL
                or self.risky_before == NULL or self.risky_after == NULL or self.text_before == NULL
                or self.text_after == NULL):
            raise MemoryError
        memset(self.separator, 0, 256)
        for byte in separators:
            self.separator[byte] = 1
        # what a macro makes of a value has no separator that the value has not, unless letters separate
        self.letters_separate = any(byte >= 128 or chr(byte).isalpha() for byte in separators)
        for i, (column, macro, paddings_before, paddings_after) in enumerate(sources):
            self.column_of[i], self.is_plain[i] = column, macro is None
            if macro is not None:
                self.specs[i] = &(<Macro?> macro).spec
            for d in range(reach):
                self.before[i * reach + d] = <int32_t> values.find(paddings_before[d])
                self.after[i * reach + d] = <int32_t> values.find(paddings_after[d])
                self.risky_before[i * reach + d] = self._risky(paddings_before[d])
                self.risky_after[i * reach + d] = self._risky(paddings_after[d])
                self.text_before[i * reach + d] = Text(<const char*> <bytes?> paddings_before[d], len(paddings_before[d]))
                self.text_after[i * reach + d] = Text(<const char*> <bytes?> paddings_after[d], len(paddings_after[d]))
        alive = [values, sources, unigrams, bigrams]
        self.unigram_texts, self.unigram_text_rows = unigrams["texts"], unigrams["text_rows"]
        self.bigram_texts, self.bigram_text_rows = bigrams["texts"], bigrams["text_rows"]
        self._kind(&self.unigrams, unigrams, alive)
        self._kind(&self.bigrams, bigrams, alive)
        self._alive = alive
        self.lines = max(self.unigrams.K, self.bigrams.K)
        self.widest = max([len(line[3]) for line in unigrams["lines"] + bigrams["lines"]], default=0)

    cdef bint _risky(self, bytes text):
        cdef unsigned char byte
        for byte in text:
            if self.separator[byte]:
                return True
        return False

    cdef _kind(self, Kind* kind, given, list alive):
        """given: width, tables [KeyTable], rows [[int32]], lines [(table, ambiguous, literals,
        [(source, row, absolute)])], and the stored weights dense, bounds, columns, values."""
        cdef KeyTable table
        cdef const int32_t[::1] rows, columns
        cdef const float[::1] dense, values
        cdef const int64_t[::1] bounds
        cdef Line* line
        cdef int64_t i, j, position
        kind.width, kind.has_texts = given["width"], len(given["texts"]) > 0
        dense, bounds, columns, values = given["dense"], given["bounds"], given["columns"], given["values"]
        kind.whole = dense.shape[0] / kind.width
        kind.dense = &dense[0] if dense.shape[0] else NULL
        kind.bounds = &bounds[0]
        kind.columns = &columns[0] if columns.shape[0] else NULL
        kind.values = &values[0] if values.shape[0] else NULL
        kind.n_tables = len(given["tables"])
        kind.tables = <Table*> calloc(kind.n_tables + 1, sizeof(Table))
        if kind.tables == NULL:
            raise MemoryError
        for i in range(kind.n_tables):
            table, rows = given["tables"][i], given["rows"][i]
            kind.tables[i].width, kind.tables[i].n = table.width, table.n
            kind.tables[i].mask = table.slot_capacity - 1
            kind.tables[i].keys, kind.tables[i].slots = table.keys, table.slots
            kind.tables[i].rows = &rows[0] if rows.shape[0] else NULL
            if table.width == 1:
                kind.tables[i].direct = <int32_t*> malloc((len(self.values) + 1) * sizeof(int32_t))
                if kind.tables[i].direct == NULL:
                    raise MemoryError
                memset(kind.tables[i].direct, 255, (len(self.values) + 1) * sizeof(int32_t))
                for j in range(table.n):
                    kind.tables[i].direct[table.keys[j]] = rows[j]
            alive += (table, rows)
        kind.K = len(given["lines"])
        kind.lines = <Line*> calloc(kind.K + 1, sizeof(Line))
        if kind.lines == NULL:
            raise MemoryError
        literals = b"".join(b"".join(line[2]) for line in given["lines"])
        kind.literals = <const char*> literals
        alive += (literals, dense, bounds, columns, values)
        position = 0
        for i, (table_index, ambiguous, parts, fields) in enumerate(given["lines"]):
            line = &kind.lines[i]
            line.table, line.ambiguous, line.width = table_index, ambiguous, len(fields)
            for j, (source, row, absolute) in enumerate(fields):
                line.source[j], line.row[j], line.absolute[j] = source, row, absolute
            for j, part in enumerate(parts):
                line.literal[j] = position
                position += len(part)
            line.literal[len(parts)] = position

    def __dealloc__(self):
        cdef int i
        for i in range(self.unigrams.n_tables if self.unigrams.tables != NULL else 0):
            free(self.unigrams.tables[i].direct)
        for i in range(self.bigrams.n_tables if self.bigrams.tables != NULL else 0):
            free(self.bigrams.tables[i].direct)
        free(self.unigrams.tables)
        free(self.unigrams.lines)
        free(self.bigrams.tables)
        free(self.bigrams.lines)
        free(self.column_of)
        free(self.is_plain)
        free(self.specs)
        free(self.before)
        free(self.after)
        free(self.risky_before)
        free(self.risky_after)
        free(self.text_before)
        free(self.text_after)

    # Values -------------------------------------------------------------------------------------------------

    cdef int value_ids(self, const char* text, Workspace work, int64_t T, int64_t columns) noexcept nogil:
        """ids [T][sources], -1 for what the model does not know; and which tokens are risky to compare."""
        cdef int64_t t, s, i, index = -1, column
        cdef int status
        cdef const int64_t* field
        cdef bint watch = self.unigrams.has_texts or self.bigrams.has_texts
        for t in range(T):
            work.risky[t] = watch and self.derives and self.letters_separate
            column = -1
            for s in range(self.sources):            # sources of one column follow each other
                if self.column_of[s] != column:
                    column = self.column_of[s]
                    field = work.fields + (t * columns + column) * 2
                    if self.derives:
                        index = work.overlay.intern_bytes(text + field[0], field[1] - field[0])
                        if index < 0:
                            return NO_MEMORY
                    else:
                        index = self.values.find_bytes(text + field[0], field[1] - field[0])
                    if watch:
                        for i in range(field[0], field[1]):
                            work.risky[t] |= self.separator[<unsigned char> text[i]]
                if self.is_plain[s]:
                    work.ids[t * self.sources + s] = <int32_t> index
                    continue
                if index >= work.derived_size[s] or work.derived[s][index] == NOT_RUN:
                    status = self.derive(work, s, index)
                    if status != GOOD:
                        return status
                work.ids[t * self.sources + s] = work.derived[s][index]
        return GOOD

    cdef int derive(self, Workspace work, int64_t s, int64_t index) noexcept nogil:
        """Run a macro on a value that this workspace has not seen."""
        cdef int64_t made = derive(self.specs[s], work.overlay, index)
        if made == MACRO_FAILED:
            work.failed = s
            return FAILED
        return GOOD if made >= 0 and work.remember(s, index, <int32_t> made) else NO_MEMORY

    # Observations -------------------------------------------------------------------------------------------

    cdef void find_unigrams(self, const char* text, Workspace work, int64_t T, int64_t columns) noexcept nogil:
        """work.rows [T][K] of the U lines."""
        self.find_rows(text, work, &self.unigrams, self.unigram_texts,
                       &self.unigram_text_rows[0] if self.unigrams.has_texts else NULL, 0, T, columns)

    cdef void find_bigrams(self, const char* text, Workspace work, int64_t first, int64_t T,
                           int64_t columns) noexcept nogil:
        """work.rows [T][K] of the B lines, from position `first` on."""
        self.find_rows(text, work, &self.bigrams, self.bigram_texts,
                       &self.bigram_text_rows[0] if self.bigrams.has_texts else NULL, first, T, columns)

    cdef void find_rows(self, const char* text, Workspace work, const Kind* kind, StringTable texts,
                        const int32_t* text_rows, int64_t first, int64_t T, int64_t columns) noexcept nogil:
        """work.rows [T][K]: the weight row of what each template line observes at each position from `first` on,
        -1 if it has none. Line by line, and each line twice over the sequence: keys and hashes first, then
        the tables, whose memory is under way by then."""
        cdef const Line* line
        cdef const Table* table
        cdef int64_t t, row
        cdef int k, w
        for k in range(kind.K):
            line = &kind.lines[k]
            table = &kind.tables[line.table]
            w = line.width
            for t in range(first, T):
                key_at(self, work, line, t, T, work.keys + t * w, work.state + t)
                if work.state[t] & KNOWN and w != 1:
                    work.hashes[t] = crf_hash_ids(work.keys + t * w, w)
                    crf_prefetch(table.slots + 2 * (<int64_t> (work.hashes[t] & 0x7FFFFFFF) & table.mask))
            for t in range(first, T):
                row = -1
                if work.state[t] & KNOWN:
                    row = table.direct[work.keys[t]] if w == 1 else find(table, work.keys + t * w, work.hashes[t])
                if row < 0 and work.state[t] & RISKY and kind.has_texts and (w > 1 or line.ambiguous):
                    row = self.row_by_text(text, work, kind, line, texts, text_rows, t, T, columns)
                work.rows[t * kind.K + k] = <int32_t> row
                if 0 <= row < kind.whole:
                    crf_prefetch(kind.dense + row * kind.width)
                    crf_prefetch(kind.dense + (row + 1) * kind.width - 1)

    cdef int64_t row_by_text(self, const char* text, Workspace work, const Kind* kind, const Line* line,
                             StringTable texts, const int32_t* text_rows, int64_t t, int64_t T,
                             int64_t columns) noexcept nogil:
        """The row of an observation by spelling it out: another split into fields may be known."""
        cdef int64_t size = 0, part, index, position
        cdef const char* source
        cdef const int64_t* field
        cdef int f
        for f in range(line.width + 1):
            part = line.literal[f + 1] - line.literal[f]
            if not work.spell(&size, kind.literals + line.literal[f], part):
                return -1
            if f == line.width:
                break
            position = position_of(line, f, t, T)
            if 0 <= position < T and self.is_plain[line.source[f]]:
                field = work.fields + (position * columns + self.column_of[line.source[f]]) * 2
                source, part = text + field[0], field[1] - field[0]
                if not work.spell(&size, source, part):
                    return -1
            elif not self.spell_other(work, &size, line.source[f], position, T):
                return -1
        index = texts.find_bytes(work.text, size)
        return -1 if index < 0 else text_rows[index]

    cdef bint spell_other(self, Workspace work, int64_t* size, int64_t s, int64_t position,
                          int64_t T) noexcept nogil:
        """Append padding, or what a macro gave."""
        cdef const char* source = NULL
        cdef int64_t length
        if position < 0:
            return work.spell(size, self.text_before[s * self.reach - position - 1].start,
                              self.text_before[s * self.reach - position - 1].size)
        if position >= T:
            return work.spell(size, self.text_after[s * self.reach + position - T].start,
                              self.text_after[s * self.reach + position - T].size)
        length = work.overlay.locate(work.ids[position * self.sources + s], &source)
        return work.spell(size, source, length)

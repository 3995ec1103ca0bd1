"""From bytes to labelled bytes in one go, on the model as it lies in its file.

Sequence by sequence: fields, value ids, observations, scores, Viterbi, output; no Python object and no
allocation per token. The arithmetic, and so every label, is that of the general path (scoring.pyx,
viterbi.pyx); only what needs less than it is done differently: the best predecessor of a label is looked for
on the best path alone.
"""

from libc.math cimport exp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcpy, memset

from crftool.kernels.chain cimport Links, forward_backward
from crftool.kernels.keys cimport KeyTable
from crftool.kernels.strings cimport StringTable
from crftool.kernels.vector cimport crf_operations, crf_prefetch, operations
from crftool.kernels.workspace cimport NOT_RUN, Workspace

cdef extern from "hashing.h":
    uint64_t crf_hash_ids(const int32_t* ids, int width) noexcept nogil

cdef enum:
    GOOD = 0
    UNEVEN = 1                   # a token with another number of columns
    TOO_FEW = 2                  # fewer columns than the template needs
    NO_MEMORY = 3
    FAILED = 4                   # a Python error in a macro
    OUT_OF_RANGE = 5             # scores that the scaled recursion refuses
    KNOWN = 1                    # of the values of an observation: the model has all of them
    RISKY = 2                    # their text might be split into fields in another way
    MAX_WIDTH = 64
    CACHE = 1 << 26              # bytes of transition blocks that a workspace keeps


cdef struct Table:
    int width
    int64_t n, mask
    const int32_t* keys          # [n][width]
    const uint32_t* slots        # [mask + 1][2]
    const int32_t* rows          # [n]  row of the weights
    int32_t* direct              # width 1: [values]  row of each value, -1 if none


cdef struct Line:
    int table, width
    bint ambiguous               # its observations may always be spelt in several ways
    int32_t row[MAX_WIDTH]
    int32_t absolute[MAX_WIDTH]
    int32_t source[MAX_WIDTH]
    int64_t literal[MAX_WIDTH + 2]       # bounds of its literals in Kind.literals


cdef struct Kind:
    int K                        # lines
    Line* lines
    int n_tables
    Table* tables
    int64_t width                # weights in a row
    int64_t whole                # rows stored whole
    const float* dense           # [whole][width]
    const int64_t* bounds
    const int32_t* columns
    const float* values
    const char* literals
    bint has_texts


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


cdef inline void add_row(const Kind* kind, int64_t row, double* out) noexcept nogil:
    cdef int64_t j
    if row < kind.whole:
        operations().add_single(kind.width, kind.dense + row * kind.width, out)
    else:
        for j in range(kind.bounds[row - kind.whole], kind.bounds[row - kind.whole + 1]):
            out[kind.columns[j]] += kind.values[j]


cdef inline char* write_probability(char* out, double p) noexcept nogil:
    """Append `/p` with six decimals, as printf rounds them; printf itself is only asked near a tie."""
    cdef double scaled = p * 1e6
    cdef int64_t n = <int64_t> scaled, k
    cdef double rest = scaled - <double> n
    out[0] = 47
    if not 0.0 <= p <= 1.0 or 0.4999 < rest < 0.5001:
        return out + 1 + snprintf(out + 1, 15, b"%f", p)
    n += rest > 0.5
    out[1], out[2] = 49 if n >= 1000000 else 48, 46
    for k in range(8, 2, -1):
        out[k] = <char> (48 + n % 10)
        n = n / 10
    return out + 9


cdef class Tagger:
    """A model ready to tag; shared by all threads, each with a Workspace of its own."""

    cdef readonly int64_t Y, sources, reach, needed
    cdef int64_t lines, widest   # the larger number of U or B lines; fields of the widest line
    cdef public int64_t forget_after     # unknown values that a workspace keeps before it drops them
    cdef bint begin_label, derives
    cdef Kind unigrams, bigrams
    cdef StringTable values, unigram_texts, bigram_texts
    cdef const int32_t[::1] unigram_text_rows, bigram_text_rows
    cdef list derivers           # per source: what runs its macro
    cdef list made               # per source: {value: what its macro makes of it}, for all threads
    cdef int32_t* column_of      # [sources]
    cdef uint8_t* is_plain       # [sources]  %x: the column as it is
    cdef int32_t* before         # [sources][reach]  value ids of the padding
    cdef int32_t* after
    cdef uint8_t* risky_before   # [sources][reach]
    cdef uint8_t* risky_after
    cdef list paddings_before, paddings_after
    cdef uint8_t separator[256]
    cdef const char** label_text
    cdef int64_t* label_size
    cdef object _alive           # everything whose memory is used

    def __cinit__(self, labels, StringTable values, sources, int64_t reach, int64_t needed, bint begin_label,
                  separators, unigrams, bigrams):
        """`sources`: [(column, derive or None, paddings before, paddings after)], derive and the paddings
        being bytes functions and lists, quickest if those of a column follow each other; `unigrams`,
        `bigrams`: see _kind."""
        cdef int i, d
        self.Y, self.sources, self.reach, self.needed = len(labels), len(sources), reach, needed
        self.values, self.begin_label, self.forget_after = values, begin_label, 1000000
        self.derivers = [source[1] for source in sources]
        self.made = [{} for _ in sources]
        self.derives = any(derive is not None for derive in self.derivers)
        self.column_of = <int32_t*> calloc(self.sources + 1, sizeof(int32_t))
        self.is_plain = <uint8_t*> calloc(self.sources + 1, 1)
        self.before = <int32_t*> calloc(self.sources * reach + 1, sizeof(int32_t))
        self.after = <int32_t*> calloc(self.sources * reach + 1, sizeof(int32_t))
        self.risky_before = <uint8_t*> calloc(self.sources * reach + 1, 1)
        self.risky_after = <uint8_t*> calloc(self.sources * reach + 1, 1)
        self.label_text = <const char**> calloc(self.Y, sizeof(char*))
        self.label_size = <int64_t*> calloc(self.Y, sizeof(int64_t))
        memset(self.separator, 0, 256)
        for byte in separators:
            self.separator[byte] = 1
        self.paddings_before = [source[2] for source in sources]
        self.paddings_after = [source[3] for source in sources]
        for i, (column, derive, paddings_before, paddings_after) in enumerate(sources):
            self.column_of[i], self.is_plain[i] = column, derive is None
            for d in range(reach):
                self.before[i * reach + d] = <int32_t> values.find(paddings_before[d])
                self.after[i * reach + d] = <int32_t> values.find(paddings_after[d])
                self.risky_before[i * reach + d] = self._risky(paddings_before[d])
                self.risky_after[i * reach + d] = self._risky(paddings_after[d])
        alive = [labels, values, unigrams, bigrams]
        for i, label in enumerate(labels):
            self.label_text[i], self.label_size[i] = <const char*> label, len(label)
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
        for i in range(kind.n_tables):
            table, rows = given["tables"][i], given["rows"][i]
            kind.tables[i].width, kind.tables[i].n = table.width, table.n
            kind.tables[i].mask = table.slot_capacity - 1
            kind.tables[i].keys, kind.tables[i].slots = table.keys, table.slots
            kind.tables[i].rows = &rows[0] if rows.shape[0] else NULL
            if table.width == 1:
                kind.tables[i].direct = <int32_t*> malloc((len(self.values) + 1) * sizeof(int32_t))
                memset(kind.tables[i].direct, 255, (len(self.values) + 1) * sizeof(int32_t))
                for j in range(table.n):
                    kind.tables[i].direct[table.keys[j]] = rows[j]
            alive += (table, rows)
        kind.K = len(given["lines"])
        kind.lines = <Line*> calloc(kind.K + 1, sizeof(Line))
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
        for i in range(self.unigrams.n_tables):
            free(self.unigrams.tables[i].direct)
        for i in range(self.bigrams.n_tables):
            free(self.bigrams.tables[i].direct)
        free(self.unigrams.tables)
        free(self.unigrams.lines)
        free(self.bigrams.tables)
        free(self.bigrams.lines)
        free(self.column_of)
        free(self.is_plain)
        free(self.before)
        free(self.after)
        free(self.risky_before)
        free(self.risky_after)
        free(self.label_text)
        free(self.label_size)

    def workspace(self):
        cdef Workspace work = Workspace(self.sources)
        work.combinations = KeyTable(self.bigrams.K)
        if self.derives:
            self._forget(work)
        return work

    cdef _forget(self, Workspace work):
        work.overlay = StringTable(self.values)
        work.forget()

    def tag(self, const unsigned char[::1] block, Workspace work, int64_t columns, bint labels_only, int level=0):
        """(status, line, columns there, output) for whole sequences of `columns` columns each.

        `level`: 0 labels, 1 their probabilities too, 2 those of all labels, in CRF++'s layout. Status 0 is
        good; else `line`, from 0, is at fault: 1 has another number of columns, 2 fewer than the template
        needs; 5: the scores of some sequence need the log domain.
        """
        cdef int64_t size = block.shape[0], start = 0, stop, i, T = 0, n, line = 0, there = 0
        cdef int status = GOOD
        cdef const char* text = <const char*> &block[0] if size else NULL
        cdef const char* found
        cdef int64_t end
        work.out_size = 0
        if self.derives and len(work.overlay) - len(self.values) > self.forget_after:
            self._forget(work)                       # bounded memory, however many words come
        if columns < self.needed and size:
            return TOO_FEW, 0, columns, b""
        work.level = level
        if columns != work.columns:
            work.capacity = 0                        # what it has room for are tokens of another width
        with nogil:
            while start < size and status == GOOD:
                found = <const char*> memchr(text + start, 10, size - start)
                end = size if found == NULL else <int64_t> (found - text)
                stop = end - 1 if end > start and text[end - 1] == 13 else end
                if T == work.capacity and not work.reserve(T, columns, self.sources, self.Y, self.lines, self.widest):
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
                        status = self.sequence(text, work, T, columns, labels_only)
                    T = 0
                elif n != columns:
                    status, there = UNEVEN, n
                    break
                else:
                    T += 1
                line += 1
                start = end + 1
            if T and status == GOOD:
                status = self.sequence(text, work, T, columns, labels_only)
        if status == NO_MEMORY:
            raise MemoryError
        if status == FAILED:
            error, work.error = work.error, None
            raise error
        return status, line, there, work.out[:work.out_size]

    cdef int sequence(self, const char* text, Workspace work, int64_t T, int64_t columns,
                      bint labels_only) noexcept nogil:
        """Label one sequence and write it out."""
        cdef int64_t t, k
        cdef int status = self.value_ids(text, work, T, columns)
        cdef int64_t* field
        cdef char* out
        if status != GOOD:
            return status
        status = self.scores(text, work, T, columns)
        if status != GOOD:
            return status
        self.viterbi(work, T)
        if work.level > 0:
            status = self.probabilities(work, T)
            if status != GOOD:
                return status
        for t in range(T):
            field = work.fields + t * columns * 2
            if not work.room(field[2 * columns - 1] - field[0] + columns + self.label_size[work.labels[t]] + 2
                             + self.room_for_probabilities(work.level)):
                return NO_MEMORY
            out = work.out + work.out_size
            if not labels_only:
                for k in range(columns):
                    memcpy(out, text + field[2 * k], field[2 * k + 1] - field[2 * k])
                    out += field[2 * k + 1] - field[2 * k]
                    out[0] = 9
                    out += 1
            memcpy(out, self.label_text[work.labels[t]], self.label_size[work.labels[t]])
            out += self.label_size[work.labels[t]]
            if work.level > 0:
                out = write_probability(out, work.p[t * self.Y + work.labels[t]])
            if work.level > 1:
                for k in range(self.Y):
                    out[0] = 9
                    memcpy(out + 1, self.label_text[k], self.label_size[k])
                    out = write_probability(out + 1 + self.label_size[k], work.p[t * self.Y + k])
            out[0] = 10
            work.out_size = out + 1 - work.out
        work.out[work.out_size] = 10                 # `room` left a byte for it
        work.out_size += 1
        return GOOD

    cdef int64_t room_for_probabilities(self, int level) noexcept nogil:
        """Bytes that the probabilities of one token may take."""
        cdef int64_t k, size = 16 if level > 0 else 0
        if level > 1:
            for k in range(self.Y):
                size += self.label_size[k] + 16
        return size

    cdef int probabilities(self, Workspace work, int64_t T) noexcept nogil:
        """p [T][Y], and the line `# P` with the probability of the best path."""
        cdef int64_t Y = self.Y
        cdef double log_z, score = work.delta[(T - 1) * Y + work.labels[T - 1]]
        memcpy(work.u, work.mu, T * Y * sizeof(double))
        if self.begin_label:
            operations().add(Y, work.lam + work.transition[0] * self.bigrams.width + Y * Y, work.u)
        work.links.Y, work.links.P, work.links.stride = Y, (Y + 7) / 8 * 8, self.bigrams.width
        work.links.slot, work.links.lam, work.links.shift = work.slot, work.lam, work.shift
        work.links.psi, work.links.psi_t = work.psi, work.psi_t
        log_z = forward_backward(&work.links, T, work.transition, work.u, work.alpha, work.p, work.work)
        if log_z != log_z:
            return OUT_OF_RANGE
        if not work.room(24):
            return NO_MEMORY
        work.out_size += snprintf(work.out + work.out_size, 24, b"# %f\n", exp(score - log_z))
        return GOOD

    cdef bint exponentiate(self, Workspace work, int64_t c) noexcept nogil:
        """psi of a new transition; as chain.exponentiate."""
        cdef const crf_operations* op = operations()
        cdef int64_t Y = self.Y, P = (Y + 7) / 8 * 8, i, j
        cdef const double* lam = work.lam + c * self.bigrams.width
        cdef double* psi = work.psi + c * Y * P
        cdef double* psi_t = work.psi_t + c * Y * P
        work.slot[c] = <int32_t> c
        work.shift[c] = op.maximum(Y * Y, lam)
        if work.shift[c] - op.minimum(Y * Y, lam) > 350.0:
            work.links.wide = True                   # chain.pyx says why
        memset(psi, 0, Y * P * sizeof(double))
        memset(psi_t, 0, Y * P * sizeof(double))
        for i in range(Y):
            op.exp_shifted(Y, lam + i * Y, work.shift[c], psi + i * P)
            for j in range(Y):
                psi_t[j * P + i] = psi[i * P + j]
        return True

    # Values -------------------------------------------------------------------------------------------------

    cdef int value_ids(self, const char* text, Workspace work, int64_t T, int64_t columns) noexcept nogil:
        """ids [T][sources], -1 for what the model does not know; and which tokens are risky to compare."""
        cdef int64_t t, s, i, index = -1, column
        cdef const int64_t* field
        cdef bint watch = self.unigrams.has_texts or self.bigrams.has_texts
        for t in range(T):
            work.risky[t] = watch and self.derives   # rare: compare what macros give as text
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
                    if not self.derive(work, s, index):
                        return FAILED
                work.ids[t * self.sources + s] = work.derived[s][index]
        return GOOD

    cdef bint derive(self, Workspace work, int64_t s, int64_t index) noexcept nogil:
        """Run a macro on a value that this workspace has not seen; whatever thread has seen it, saves time."""
        with gil:
            try:
                value = work.overlay.text(index)
                made = self.made[s].get(value)
                if made is None:
                    if len(self.made[s]) > self.forget_after:
                        self.made[s].clear()
                    made = self.made[s][value] = self.derivers[s](value)
                made = work.overlay.intern(made)
                if not work.remember(s, index, made):
                    raise MemoryError
                return True
            except Exception as error:
                work.error = error
                return False

    # Scores -------------------------------------------------------------------------------------------------

    cdef void observations(self, const char* text, Workspace work, const Kind* kind, StringTable texts,
                           const int32_t* text_rows, int64_t first, int64_t T, int64_t columns,
                           int32_t* rows) noexcept nogil:
        """rows [T][K]: the weight row of what each template line observes at each position from `first` on,
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
                self.key_at(work, line, t, T, work.keys + t * w, work.state + t)
                if work.state[t] & KNOWN and w != 1:
                    work.hashes[t] = crf_hash_ids(work.keys + t * w, w)
                    crf_prefetch(table.slots + 2 * (<int64_t> (work.hashes[t] & 0x7FFFFFFF) & table.mask))
            for t in range(first, T):
                row = -1
                if work.state[t] & KNOWN:
                    row = table.direct[work.keys[t]] if w == 1 else find(table, work.keys + t * w, work.hashes[t])
                if row < 0 and work.state[t] & RISKY and kind.has_texts and (w > 1 or line.ambiguous):
                    row = self.observation_by_text(text, work, kind, line, texts, text_rows, t, T, columns)
                rows[t * kind.K + k] = <int32_t> row
                if 0 <= row < kind.whole:
                    crf_prefetch(kind.dense + row * kind.width)
                    crf_prefetch(kind.dense + (row + 1) * kind.width - 1)

    cdef inline int64_t position_of(self, const Line* line, int f, int64_t t, int64_t T) noexcept nogil:
        """Where field f of a template line points to at t; outside of 0 to T - 1 there is padding."""
        if line.absolute[f] == 0:
            return t + line.row[f]
        if line.absolute[f] > 0:
            return line.row[f] - 1
        return T - line.row[f]

    cdef inline void key_at(self, Workspace work, const Line* line, int64_t t, int64_t T, int32_t* key,
                            uint8_t* state) noexcept nogil:
        """The value ids that a template line sees at t; whether the model knows all, and whether their text
        might be split in another way."""
        cdef int64_t position
        cdef int f
        cdef bint known = True, risky = line.ambiguous
        for f in range(line.width):
            position = self.position_of(line, f, t, T)
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

    cdef int64_t observation_by_text(self, const char* text, Workspace work, const Kind* kind, const Line* line,
                                     StringTable texts, const int32_t* text_rows, int64_t t,
                                     int64_t T, int64_t columns) noexcept nogil:
        """The row of an observation by spelling it out: another split into fields may be known."""
        cdef int64_t size = 0, part, index, position
        cdef const char* source
        cdef const int64_t* field
        cdef int f
        for f in range(line.width + 1):
            part = line.literal[f + 1] - line.literal[f]
            if not self.spell(work, &size, kind.literals + line.literal[f], part):
                return -1
            if f == line.width:
                break
            position = self.position_of(line, f, t, T)
            if 0 <= position < T and self.is_plain[line.source[f]]:
                field = work.fields + (position * columns + self.column_of[line.source[f]]) * 2
                source, part = text + field[0], field[1] - field[0]
                if not self.spell(work, &size, source, part):
                    return -1
            elif not self.spell_other(work, &size, line.source[f], position, T):
                return -1
        index = texts.find_bytes(work.text, size)
        return -1 if index < 0 else text_rows[index]

    cdef bint spell(self, Workspace work, int64_t* size, const char* source, int64_t length) noexcept nogil:
        cdef void* moved
        if size[0] + length > work.text_capacity:
            moved = realloc(work.text, 2 * (size[0] + length) + 64)
            if moved == NULL:
                return False
            work.text, work.text_capacity = <char*> moved, 2 * (size[0] + length) + 64
        memcpy(work.text + size[0], source, length)
        size[0] += length
        return True

    cdef bint spell_other(self, Workspace work, int64_t* size, int64_t s, int64_t position, int64_t T) noexcept nogil:
        """Append padding, or what a macro gave."""
        cdef const char* source
        with gil:
            if position < 0:
                value = self.paddings_before[s][-position - 1]
            elif position >= T:
                value = self.paddings_after[s][position - T]
            else:
                value = work.overlay.text(work.ids[position * self.sources + s])
            source = <const char*> <bytes> value
            return self.spell(work, size, source, len(value))

    cdef int scores(self, const char* text, Workspace work, int64_t T, int64_t columns) noexcept nogil:
        """mu [T][Y], and the transition of every position."""
        cdef int64_t t, index, Y = self.Y
        cdef int64_t first = 0 if self.begin_label else 1
        cdef int k, K = self.unigrams.K
        cdef int32_t* rows = work.rows
        self.observations(text, work, &self.unigrams, self.unigram_texts,
                          &self.unigram_text_rows[0] if self.unigrams.has_texts else NULL, 0, T, columns, rows)
        for t in range(T):
            memset(work.mu + t * Y, 0, Y * sizeof(double))
            for k in range(K):
                if rows[t * K + k] >= 0:
                    add_row(&self.unigrams, rows[t * K + k], work.mu + t * Y)
        K = self.bigrams.K
        self.observations(text, work, &self.bigrams, self.bigram_texts,
                          &self.bigram_text_rows[0] if self.bigrams.has_texts else NULL, first, T, columns, rows)
        for t in range(first, T):
            index = work.combinations.find_key(rows + t * K)
            if index < 0:
                index = self.new_transition(work, rows + t * K)
                if index < 0:
                    return NO_MEMORY
            work.transition[t] = <int32_t> index
        return GOOD

    cdef int64_t new_transition(self, Workspace work, const int32_t* rows) noexcept nogil:
        """Number a new combination of bigram rows, and add up its block [R][Y]."""
        cdef int64_t index = work.combinations.intern_key(rows), width = self.bigrams.width, capacity
        cdef void* moved
        cdef int k
        if index < 0:
            return -1
        if index >= work.lam_capacity:
            capacity = 2 * index + 4
            moved = realloc(work.lam, capacity * width * sizeof(double))
            if moved == NULL:
                return -1
            work.lam, work.lam_capacity = <double*> moved, capacity
            if not self.more_transitions(work, capacity):
                return -1
        memset(work.lam + index * width, 0, width * sizeof(double))
        for k in range(self.bigrams.K):
            if rows[k] >= 0:
                add_row(&self.bigrams, rows[k], work.lam + index * width)
        self.exponentiate(work, index)
        return index

    cdef bint more_transitions(self, Workspace work, int64_t capacity) noexcept nogil:
        """Room for the exponentiated blocks of so many transitions."""
        cdef int64_t size = capacity * self.Y * ((self.Y + 7) / 8 * 8) * sizeof(double)
        cdef void* moved = realloc(work.psi, size)
        if moved == NULL:
            return False
        work.psi = <double*> moved
        moved = realloc(work.psi_t, size)
        if moved == NULL:
            return False
        work.psi_t = <double*> moved
        moved = realloc(work.shift, capacity * sizeof(double))
        if moved == NULL:
            return False
        work.shift = <double*> moved
        moved = realloc(work.slot, capacity * sizeof(int32_t))
        if moved == NULL:
            return False
        work.slot = <int32_t*> moved
        return True

    # Decoding -----------------------------------------------------------------------------------------------

    cdef void viterbi(self, Workspace work, int64_t T) noexcept nogil:
        """labels [T]: the best path; ties go to the lowest previous label and the lowest last label."""
        cdef const crf_operations* op = operations()
        cdef int64_t Y = self.Y, t, y, i, label = 0
        cdef const double* lam
        cdef const double* delta
        cdef double best
        for t in range(T):
            if t == 0:
                memcpy(work.delta, work.mu, Y * sizeof(double))
                if self.begin_label:
                    op.add(Y, work.lam + work.transition[0] * self.bigrams.width + Y * Y, work.delta)
                continue
            lam = work.lam + work.transition[t] * self.bigrams.width
            op.best_score(Y, Y, work.delta + (t - 1) * Y, lam, work.best + t * Y)
            memcpy(work.delta + t * Y, work.best + t * Y, Y * sizeof(double))
            op.add(Y, work.mu + t * Y, work.delta + t * Y)
        delta = work.delta + (T - 1) * Y
        for y in range(1, Y):
            if delta[y] > delta[label]:
                label = y
        for t in range(T - 1, -1, -1):
            work.labels[t] = <int32_t> label
            if t > 0:
                lam = work.lam + work.transition[t] * self.bigrams.width
                delta = work.delta + (t - 1) * Y
                best = work.best[t * Y + label]
                for i in range(Y):
                    if delta[i] + lam[i * Y + label] == best:
                        label = i
                        break

    def too_many_transitions(self, Workspace work):
        """Whether a workspace has gathered so many transition blocks that a new one should take its place."""
        return work.combinations.n * self.bigrams.width * 8 > CACHE

"""Labelled sequences as text: CRF++'s columns, labels alone, or JSON lines.

CRF++'s layout, byte for byte: every input column followed by a tab, then the label; an empty line after each
sequence. With probabilities: `# P` before the sequence and `LABEL/p` as the label, then, if asked for, `y/p`
of all labels. N-best lists: a block per labelling, headed `# k P`. JSON is what Python's json would write;
bytes that are no UTF-8 appear as lone surrogates.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from crftool.kernels.workspace cimport Workspace

cdef extern from "utf8.h":
    char* crf_put_json(char* out, const char* text, int64_t length) noexcept nogil

cdef extern from "numbers.h":
    int CRF_LEAST, CRF_MOST
    uint64_t crf_powers[1][2]
    char* crf_put_probability(char* out, double p) noexcept nogil
    char* crf_put_shortest(char* out, double x) noexcept nogil

cdef enum:
    NUMBER = 26                  # bytes that a number may take, with a separator
LAYOUTS = {"conll": CONLL, "labels": LABELS, "json": JSON}


def _fill_powers():
    """10^k in 128 bits, rounded up; see numbers.h."""
    for k in range(CRF_LEAST, CRF_MOST + 1):
        if k >= 0:
            shift = 128 - (10 ** k).bit_length()
            power = 10 ** k << shift if shift >= 0 else -(-(10 ** k) >> -shift)
        else:
            shift = 127 + (10 ** -k).bit_length()            # 10^k lies between 2^-n and 2^(1-n), n bits
            power = -(-(1 << shift) // 10 ** -k)
        crf_powers[k - CRF_LEAST][0], crf_powers[k - CRF_LEAST][1] = power >> 64, power & 0xFFFFFFFFFFFFFFFF


_powers_are_there = False


def _need_powers():
    global _powers_are_there
    if not _powers_are_there:
        _fill_powers()
        _powers_are_there = True


def shortest(double x):
    """What `repr` gives for a float, as bytes."""
    cdef char text[32]
    _need_powers()
    return text[:crf_put_shortest(text, x) - text]


def probability_text(double p):
    """What `%f` gives for a probability, as bytes."""
    cdef char text[32]
    return text[:crf_put_probability(text, p) - text]


def json_text(bytes text):
    """What json.dumps gives for the text, without quotes, as bytes."""
    cdef bytearray out = bytearray(6 * len(text) + 1)
    cdef char* start = out
    return bytes(out[:crf_put_json(start, text, len(text)) - start])


cdef inline char* put(char* out, const char* text, int64_t size) noexcept nogil:
    memcpy(out, text, size)
    return out + size


cdef class Writer:
    def __cinit__(self, labels, types, layout, int level, bint ranks, bint sums, bint confidence, bint entropy,
                  double min_confidence, bytes abstain):
        cdef int64_t i
        self.layout, self.level, self.ranks, self.Y = LAYOUTS[layout], level, ranks, len(labels)
        self.sums, self.confidence, self.entropy, self.min_confidence = sums, confidence, entropy, min_confidence
        if self.layout == JSON:
            _need_powers()
            quoted = [[b'"%s"' % json_text(text) for text in texts] for texts in (labels, types, [abstain])]
            labels, types, (abstain,) = quoted
        self.labels = <Text*> calloc(self.Y, sizeof(Text))
        self.types = <Text*> calloc(self.Y, sizeof(Text))
        if self.labels == NULL or self.types == NULL:
            raise MemoryError
        for i in range(self.Y):
            self.labels[i].start, self.labels[i].size = <const char*> <bytes?> labels[i], len(labels[i])
            self.types[i].start, self.types[i].size = <const char*> <bytes?> types[i], len(types[i])
        self.abstain.start, self.abstain.size = <const char*> abstain, len(abstain)
        self._alive = (labels, types, abstain)
        self.all_labels = sum(len(label) + NUMBER + 4 for label in labels)
        self.longest = max(map(len, [*labels, *types, abstain]))

    def __dealloc__(self):
        free(self.labels)
        free(self.types)

    cdef bint write(self, Workspace work, const char* text, int64_t T, int64_t columns, const int32_t* labels,
                    int64_t rank, double probability) noexcept nogil:
        """Append one labelling to work.out; False: no memory."""
        if self.layout == JSON:
            return self.write_json(work, text, T, columns, labels, rank, probability)
        return self.write_lines(work, text, T, columns, labels, rank, probability)

    cdef inline const Text* label_of(self, Workspace work, int64_t t, const int32_t* labels) noexcept nogil:
        """What is printed as the label of a token."""
        if self.min_confidence > 0.0 and work.p[t * self.Y + labels[t]] < self.min_confidence:
            return &self.abstain
        return &self.labels[labels[t]]

    # Lines ----------------------------------------------------------------------------------------------------

    cdef bint write_lines(self, Workspace work, const char* text, int64_t T, int64_t columns, const int32_t* labels,
                          int64_t rank, double probability) noexcept nogil:
        cdef int64_t t, k, most = self.longest + 2 * NUMBER + (self.all_labels if self.level > 1 else 0)
        cdef const int64_t* field
        cdef const Text* label
        cdef char* out
        if not work.room(3 * NUMBER):
            return False
        out = work.out + work.out_size
        if self.ranks:
            out += snprintf(out, NUMBER, b"# %lld ", <long long> rank)
            out = crf_put_probability(out, probability)
            out = put(out, b"\n", 1)
        elif self.level > 0:
            out = crf_put_probability(put(out, b"# ", 2), probability)
            out = put(out, b"\n", 1)
        work.out_size = out - work.out
        for t in range(T):
            field = work.fields + t * columns * 2
            if not work.room(field[2 * columns - 1] - field[0] + columns + most + 2):
                return False
            out = work.out + work.out_size
            if self.layout == CONLL:
                for k in range(columns):
                    out = put(out, text + field[2 * k], field[2 * k + 1] - field[2 * k])
                    out[0] = 9
                    out += 1
            label = self.label_of(work, t, labels)
            out = put(out, label.start, label.size)
            if self.level > 0:
                out[0] = 47
                out = crf_put_probability(out + 1, work.p[t * self.Y + labels[t]])
            if self.level > 1:
                for k in range(self.Y):
                    out[0] = 9
                    out = put(out + 1, self.labels[k].start, self.labels[k].size)
                    out[0] = 47
                    out = crf_put_probability(out + 1, work.p[t * self.Y + k])
            if self.confidence:
                out[0] = 9
                out = crf_put_probability(out + 1, work.confidence[t])
            out[0] = 10
            work.out_size = out + 1 - work.out
        work.out[work.out_size] = 10                 # `room` left a byte for it
        work.out_size += 1
        return True

    # JSON -----------------------------------------------------------------------------------------------------

    cdef bint write_json(self, Workspace work, const char* text, int64_t T, int64_t columns, const int32_t* labels,
                         int64_t rank, double probability) noexcept nogil:
        cdef int64_t t, k
        cdef const int64_t* field
        cdef const Text* label
        cdef char* out
        for t in range(T):
            field = work.fields + t * columns * 2
            if not work.room(6 * (field[2 * columns - 1] - field[0]) + 4 * columns + NUMBER):
                return False
            out = work.out + work.out_size
            out = put(out, b'], [', 4) if t else put(out, b'{"tokens": [[', 13)
            for k in range(columns):
                out = put(out, b', "', 3) if k else put(out, b'"', 1)
                out = crf_put_json(out, text + field[2 * k], field[2 * k + 1] - field[2 * k])
                out = put(out, b'"', 1)
            work.out_size = out - work.out
        if not work.room(T * (self.longest + 2) + 4 * NUMBER + 64):
            return False
        out = put(work.out + work.out_size, b']], "labels": [', 15)
        for t in range(T):
            label = self.label_of(work, t, labels)
            if t:
                out = put(out, b", ", 2)
            out = put(out, label.start, label.size)
        out = put(out, b"]", 1)
        if self.ranks:
            out += snprintf(out, NUMBER + 16, b', "rank": %lld', <long long> rank)
        if self.ranks or self.sums:
            out = crf_put_shortest(put(out, b', "probability": ', 17), probability)
        work.out_size = out - work.out
        if self.level > 0 and not self.json_numbers(work, T, labels):
            return False
        if self.confidence and not self.json_phrases(work, labels):
            return False
        if not work.room(2 * NUMBER):
            return False
        out = work.out + work.out_size
        if self.entropy:
            out = crf_put_shortest(put(out, b', "entropy": ', 13), work.entropy)
        work.out_size = put(out, b"}\n", 2) - work.out
        return True

    cdef bint json_numbers(self, Workspace work, int64_t T, const int32_t* labels) noexcept nogil:
        """Probabilities of the labels, and of all labels."""
        cdef int64_t t, k
        cdef char* out
        if not work.room(T * (NUMBER + 2) + 64):
            return False
        out = put(work.out + work.out_size, b', "label_probability": [', 24)
        for t in range(T):
            if t:
                out = put(out, b", ", 2)
            out = crf_put_shortest(out, work.p[t * self.Y + labels[t]])
        out = put(out, b"]", 1)
        work.out_size = out - work.out
        if self.level < 2:
            return True
        for t in range(T):
            if not work.room(self.all_labels + 64):
                return False
            out = work.out + work.out_size
            out = put(out, b"}, {", 4) if t else put(out, b', "marginals": [{', 17)
            for k in range(self.Y):
                if k:
                    out = put(out, b", ", 2)
                out = put(out, self.labels[k].start, self.labels[k].size)
                out = crf_put_shortest(put(out, b": ", 2), work.p[t * self.Y + k])
            work.out_size = out - work.out
        work.out_size = put(out, b"}]", 2) - work.out
        return True

    cdef bint json_phrases(self, Workspace work, const int32_t* labels) noexcept nogil:
        cdef int64_t i
        cdef const Text* kind
        cdef char* out
        if not work.room(work.n_phrases * (self.longest + 3 * NUMBER + 64) + 64):
            return False
        out = put(work.out + work.out_size, b', "phrases": [', 14)
        for i in range(work.n_phrases):
            if i:
                out = put(out, b", ", 2)
            kind = &self.types[labels[work.phrases[i].first]]
            out += snprintf(out, 2 * NUMBER + 32, b'{"start": %lld, "end": %lld, "type": ',
                            <long long> work.phrases[i].first, <long long> (work.phrases[i].last + 1))
            out = put(out, kind.start, kind.size)
            out = crf_put_shortest(put(out, b', "confidence": ', 16), work.phrases[i].confidence)
            out = put(out, b"}", 1)
        work.out_size = put(out, b"]", 1) - work.out
        return True

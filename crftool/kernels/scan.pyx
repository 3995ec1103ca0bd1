"""Column text to fields: where each column of each token lies in a block of bytes.

Columns are runs of bytes other than space and tab; a line without columns ends a sequence; a carriage
return before the line feed belongs to the line end. All other bytes are data.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr

from crftool.kernels.strings cimport StringTable


cdef inline bint is_gap(char c) noexcept nogil:
    return c == 32 or c == 9


cdef inline int64_t line_end(const char* text, int64_t start, int64_t size) noexcept nogil:
    """Index of the line feed that ends the line at `start`, or `size`."""
    cdef const char* found = <const char*> memchr(text + start, 10, size - start)
    return size if found == NULL else <int64_t> (found - text)


cdef inline int64_t content_end(const char* text, int64_t start, int64_t end) noexcept nogil:
    """The end of a line's content: without its carriage return."""
    return end - 1 if end > start and text[end - 1] == 13 else end


def last_boundary(const unsigned char[::1] block, int64_t since):
    """The end of the last blank line that ends at or after `since`; 0 if there is none.

    Everything before it consists of whole sequences. Lines whose end lies before `since` have been
    searched by an earlier call.
    """
    cdef int64_t size = block.shape[0], end, start, stop, i
    cdef const char* text
    if size == 0:
        return 0
    text = <const char*> &block[0]
    with nogil:
        end = size
        while end > since and text[end - 1] != 10:
            end -= 1                             # an unfinished last line
        while end > since:
            start = end - 1                      # `end` lies behind a line feed
            while start > 0 and text[start - 1] != 10:
                start -= 1
            stop = content_end(text, start, end - 1)
            i = start
            while i < stop and is_gap(text[i]):
                i += 1
            if i == stop:
                break
            end = start
    return end if end > since else 0


def survey(const unsigned char[::1] block, int64_t columns):
    """(tokens, sequences, columns, lines, bad line, columns there) of a block of whole lines.

    `columns` is the number every token must have, 0 if the first token may decide. The bad line
    counts from 0 and is -1 if all is well; counting stops there.
    """
    cdef int64_t size = block.shape[0], start = 0, end, stop, i
    cdef int64_t tokens = 0, sequences = 0, lines = 0, n, bad = -1, there = 0
    cdef bint inside = False
    cdef const char* text
    if size == 0:
        return 0, 0, columns, 0, -1, 0
    text = <const char*> &block[0]
    with nogil:
        while start < size:
            end = line_end(text, start, size)
            stop = content_end(text, start, end)
            n, i = 0, start
            while i < stop:
                if is_gap(text[i]):
                    i += 1
                    continue
                n += 1
                while i < stop and not is_gap(text[i]):
                    i += 1
            if n == 0:
                inside = False
            else:
                sequences += not inside
                inside = True
                tokens += 1
                if columns == 0:
                    columns = n
                if n != columns:
                    bad, there = lines, n
                    break
            lines += 1
            start = end + 1
    return tokens, sequences, columns, lines, bad, there


def split(
    const unsigned char[::1] block,       # in   whole lines that passed `survey`
    int64_t[:, :, ::1] fields,   # out  [N][columns][2]  start and end of each field
    int64_t[::1] offsets,        # out  [S + 1]          first token of each sequence
    int64_t[::1] lines,          # out  [N]              line of each token, from 0
):
    """Where every field lies."""
    cdef int64_t size = block.shape[0], start = 0, end, stop, i
    cdef int64_t token = 0, sequence = 0, line = 0, n
    cdef bint inside = False
    cdef const char* text
    if size:
        text = <const char*> &block[0]
        with nogil:
            while start < size:
                end = line_end(text, start, size)
                stop = content_end(text, start, end)
                n, i = 0, start
                while i < stop:
                    if is_gap(text[i]):
                        i += 1
                        continue
                    fields[token, n, 0] = i
                    while i < stop and not is_gap(text[i]):
                        i += 1
                    fields[token, n, 1] = i
                    n += 1
                if n == 0:
                    inside = False
                else:
                    if not inside:
                        offsets[sequence] = token
                        sequence += 1
                    inside = True
                    lines[token] = line
                    token += 1
                line += 1
                start = end + 1
    offsets[sequence] = token


def intern_column(
    const unsigned char[::1] block,             # in
    const int64_t[:, :, ::1] fields,   # in  [N][columns][2]
    int64_t column,
    StringTable table,
    bint learn,                        # give unknown values a new id, or -1
    int32_t[::1] out,                  # out [N]
):
    """The id of one column's value at every token."""
    cdef int64_t t, index = 0, N = fields.shape[0]
    cdef const char* text
    if N == 0:
        return
    if column < 0 or column >= fields.shape[1] or out.shape[0] != N:
        raise ValueError("no such column")
    text = <const char*> &block[0]
    with nogil:
        for t in range(N):
            if learn:
                index = table.intern_bytes(text + fields[t, column, 0],
                                           fields[t, column, 1] - fields[t, column, 0])
                if index < 0:
                    break
            else:
                index = table.find_bytes(text + fields[t, column, 0],
                                         fields[t, column, 1] - fields[t, column, 0])
            out[t] = <int32_t> index
    if learn and index < 0:
        raise MemoryError("too many distinct values")

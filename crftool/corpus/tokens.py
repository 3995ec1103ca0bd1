"""Blocks of text whose fields are known, as arrays."""

import numpy as np

from crftool.corpus.reader import BLOCK_SIZE, no_token, read_blocks, uneven_columns
from crftool.kernels import scan


class Tokens:
    """A block whose fields are known."""

    def __init__(self, block, columns=0):
        """`columns`: how many each token must have; 0 leaves that to the first token."""
        N, S, self.columns, _, bad, there = scan.survey(block.data, columns)
        self.path, self.data, self.first_line = block.path, block.data, block.first_line
        if bad >= 0:
            raise uneven_columns(block.path, block.first_line + bad, there, self.columns)
        self.fields = np.empty((N, self.columns, 2), np.int64)      # [N][columns][2]  start, end
        self.offsets = np.empty(S + 1, np.int64)                    # [S + 1]
        self._lines = np.empty(N, np.int64)                         # [N]
        scan.split(block.data, self.fields, self.offsets, self._lines)

    def __len__(self):
        return len(self.fields)

    def line(self, token):
        """Line number of a token, from 1."""
        return self.first_line + int(self._lines[token])

    def lines(self):
        """[N]  line numbers of all tokens."""
        return self.first_line + self._lines

    def text(self, token, column):
        start, end = self.fields[token, column]
        return self.data[start:end]

    def intern(self, column, table, learn):
        """Ids [N] of a column's values."""
        ids = np.empty(len(self), np.int32)
        scan.intern_column(self.data, self.fields, column, table, learn, ids)
        return ids


def read_tokens(path, size=BLOCK_SIZE, watch=None):
    """The tokens of a file, block by block; an error names file and line. `watch` hears of bytes read."""
    columns = 0
    for block in read_blocks(path, size):
        if watch is not None:
            watch(len(block.data))
        tokens = Tokens(block, columns)
        columns = tokens.columns
        if len(tokens):
            yield tokens
    if columns == 0 and path != "-":
        raise no_token(path)

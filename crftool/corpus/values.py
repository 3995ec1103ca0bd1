"""Column values as ids, and the derived columns of %X, %t and %m.

All columns share one table of values, because CRF++ compares observations as text, whichever column a
value comes from. A macro runs once per distinct value, however often the value occurs.
"""

import numpy as np

from crftool.kernels.strings import StringTable

UNKNOWN = -1
FORGET_AFTER = 1_000_000         # unknown values kept while tagging before they are dropped


class ValueIndex:
    """Gives tokens the value ids of a template's sources."""

    def __init__(self, template, known=None):
        """`known`: the frozen values of a model; others get ids beyond them."""
        self.sources = template.sources
        self._macros = [source.macro() for source in template.sources]
        self._reach = template.reach
        self.known = known
        self._start()

    def _start(self):
        self.table = StringTable(self.known)
        self._derived = [np.empty(0, np.int32) for _ in self.sources]    # [values]  UNKNOWN = not yet run
        # [sources][reach]  ids of the padding at distance 1, 2, ... before and after a sequence
        shape = (len(self.sources), self._reach)
        self.before, self.after = np.empty(shape, np.int32), np.empty(shape, np.int32)
        for i, source in enumerate(self.sources):
            for d in range(self._reach):
                self.before[i, d] = self.table.intern(source.padding(-d - 1))
                self.after[i, d] = self.table.intern(source.padding(d + 1))

    def ids(self, tokens):
        """Value ids [N][sources] of a block of tokens."""
        if self.known is not None and len(self.table) - len(self.known) > FORGET_AFTER:
            self._start()
        ids = np.empty((len(tokens), len(self.sources)), np.int32)
        columns = {}
        for i, source in enumerate(self.sources):
            if source.column not in columns:
                columns[source.column] = tokens.intern(source.column, self.table, True)
            ids[:, i] = self._derive(i, columns[source.column])
        return ids

    def _derive(self, i, ids):
        if self._macros[i] is None:
            return ids
        derived = self._derived[i]
        if len(derived) < len(self.table):
            derived = np.full(2 * len(self.table), UNKNOWN, np.int32)
            derived[:len(self._derived[i])] = self._derived[i]
            self._derived[i] = derived
        self._macros[i].of(self.table, ids, derived)
        return derived[ids]

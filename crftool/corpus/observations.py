"""What the U templates, or the B templates, observe: integer ids for the texts that CRF++ would build.

Templates with the same literals share one table of value tuples; a tuple stands for its text. Different
tuples may still spell the same text (U:%x[0,0]/%x[0,1] with the values `a/b`, `c` and `a`, `b/c`), and
CRF++ makes them one feature. So tuples that could be ambiguous, and only those, are compared as text.
"""

import numpy as np

from crftool.corpus.template import Spelling, may_collide
from crftool.kernels.keys import KeyTable, expand

NONE = -1


class Observations:
    """The observations of one kind of template."""

    def __init__(self, lines, tables=None, rows=None, texts=None):
        """While learning only `lines` is given. From a model: key tables and their rows, and the
        ambiguous texts with theirs."""
        self.lines = lines
        self.spelling = Spelling(lines)
        self.literals, self.table_of = self.spelling.literals, self.spelling.table_of       # table_of [K]
        self.tables = tables or [KeyTable(len(literals) - 1) for literals in self.literals]
        self.rows = rows                             # per table [keys]  row of each key; None while learning
        self.texts = texts or {}                     # ambiguous text -> row
        self.size = 0 if rows is None else 1 + max((int(r.max()) for r in rows if len(r)), default=NONE)
        self.counts = None                           # [size]  occurrences in the training data

    def groups(self):
        """Columns of the id matrix, grouped so that no observation occurs in two groups."""
        group_of = list(range(len(self.literals)))
        for i, a in enumerate(self.literals):
            for j, b in enumerate(self.literals[:i]):
                if may_collide(a, b):
                    old, new = group_of[i], group_of[j]
                    group_of = [new if g == old else g for g in group_of]
        members = {}
        for k, table in enumerate(self.table_of):
            members.setdefault(group_of[table], []).append(k)
        return list(members.values())

    def keys(self, table):
        """The value tuples [keys][width] of a table."""
        width = self.tables[table].width
        return np.frombuffer(self.tables[table].arrays()[0], np.int32).reshape(len(self.tables[table]), width)

    # Learning -------------------------------------------------------------------------------------------

    def learn(self, values, ids, offsets, first_token):
        """Key indices [N][K] of a block of training tokens."""
        out = np.empty((len(ids), len(self.lines)), np.int32)
        for k in range(len(self.lines)):
            out[:, k] = self._expand(k, self.tables[self.table_of[k]], values, ids, offsets, first_token, True)
        return out

    def number(self, values, matrix, min_count):
        """Turn key indices into observation ids, in place; drop observations seen less than min_count times.

        Ids fall with frequency: the cut-off keeps a prefix, and the rows that are used most lie together.
        Equal frequencies go by first occurrence in the data, however it was cut into blocks.
        """
        bases = np.concatenate(([0], np.cumsum([len(table) for table in self.tables]))).astype(np.int64)
        first = np.arange(bases[-1], dtype=np.int64)          # the first key with the same text
        texts = {}
        for t, base in enumerate(bases[:-1]):
            for key, text in self._ambiguous_texts(values, t, self.keys(t)):
                first[base + key] = texts.setdefault(text, base + key)
        counts = np.zeros(bases[-1], np.int64)
        seen_at = np.full(bases[-1], np.iinfo(np.int64).max)  # token * K + template of the first occurrence
        for k, t in enumerate(self.table_of):
            tokens = np.flatnonzero(matrix[:, k] >= 0)[::-1]  # backwards: the first one is written last
            keys = first[bases[t] + matrix[tokens, k]]
            counts += np.bincount(keys, minlength=bases[-1])
            here = np.full(bases[-1], np.iinfo(np.int64).max)
            here[keys] = tokens * len(self.lines) + k
            np.minimum(seen_at, here, out=seen_at)
        order = np.lexsort((seen_at, -counts))
        self.size = int(np.count_nonzero(counts >= max(1, min_count)))
        self.counts = counts[order[:self.size]]
        final = np.full(bases[-1], NONE, np.int32)
        final[order[:self.size]] = np.arange(self.size, dtype=np.int32)
        final = final[first]
        self.rows = [final[bases[t]:bases[t + 1]] for t in range(len(self.tables))]
        for k, t in enumerate(self.table_of):
            column = matrix[:, k]
            matrix[:, k] = np.where(column >= 0, final[bases[t] + np.maximum(column, 0)], NONE) if bases[-1] else NONE
        self.texts = {text: int(final[key]) for text, key in texts.items() if final[key] >= 0}

    # Applying -------------------------------------------------------------------------------------------

    def find(self, values, ids, offsets, first_token):
        """Observation ids [N][K] of a block of tokens, NONE for what was not seen in training."""
        out = np.empty((len(ids), len(self.lines)), np.int32)
        for k, t in enumerate(self.table_of):
            found = self._expand(k, self.tables[t], values, ids, offsets, first_token, False)
            if len(self.tables[t]):
                found = np.where(found >= 0, self.rows[t][np.maximum(found, 0)], NONE)
            if self.texts and self._could_be_ambiguous(values, k, ids):
                self._find_by_text(k, found, values, ids, offsets, first_token)
            out[:, k] = found
        return out

    def _could_be_ambiguous(self, values, k, ids):
        """Whether any token of this block can have an ambiguous observation of line k."""
        if self.spelling.always_ambiguous[self.table_of[k]]:
            return True
        fields = self.lines[k].fields
        distinct = {int(v) for field in fields for v in np.unique(ids[:, field.source])}
        for field in fields:
            distinct.update(values.before[field.source].tolist(), values.after[field.source].tolist())
        return len(fields) > 1 and any(self._has_separator(values.table.text(v)) for v in distinct)

    def _find_by_text(self, k, found, values, ids, offsets, first_token):
        """Fill in observations that are known under another split of their text."""
        table = KeyTable(len(self.lines[k].fields))
        keys_at = self._expand(k, table, values, ids, offsets, first_token, True)
        keys = np.frombuffer(table.arrays()[0], np.int32).reshape(len(table), table.width)
        row_of = np.full(len(table), NONE, np.int32)
        for key, text in self._ambiguous_texts(values, self.table_of[k], keys):
            row_of[key] = self.texts.get(text, NONE)
        missing = (found < 0) & (keys_at >= 0)
        found[missing] = row_of[keys_at[missing]]

    # Both -----------------------------------------------------------------------------------------------

    def _expand(self, k, table, values, ids, offsets, first_token, learn):
        fields = self.lines[k].fields
        out = np.empty(len(ids), np.int32)
        expand(table, ids, offsets,
               np.array([field.row for field in fields], np.int32),
               np.array([field.absolute for field in fields], np.int32),
               np.array([field.source for field in fields], np.int32),
               values.before, values.after, first_token, learn, out)
        return out

    def _has_separator(self, text):
        return len(text.translate(None, self.spelling.separators)) != len(text)

    def _ambiguous_texts(self, values, t, keys):
        """(key index, text) of the tuples of table t whose text another tuple might spell too."""
        if self.spelling.always_ambiguous[t]:
            suspects = range(len(keys))
        elif len(self.literals[t]) > 2 and len(keys):
            distinct = np.unique(keys)
            risky = distinct[[self._has_separator(values.table.text(int(v))) for v in distinct]]
            suspects = np.flatnonzero(np.isin(keys, risky).any(axis=1))
        else:
            return
        line = self.lines[self.table_of.index(t)]
        for key in suspects:
            yield int(key), line.expand(values.table.text(int(v)) for v in keys[key])

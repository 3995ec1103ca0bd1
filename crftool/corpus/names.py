"""What a person calls a feature: the observation's text and its labels."""

import numpy as np


class Names:
    """Texts of the observations of an encoder, looked up by row."""

    def __init__(self, encoder):
        self._encoder = encoder
        self._keys = tuple(self._first_keys(kind) for kind in (encoder.unigrams, encoder.bigrams))

    @staticmethod
    def _first_keys(kind):
        """[size][2]  a table and a key that spell each observation."""
        where = np.zeros((kind.size, 2), np.int64)
        for t in reversed(range(len(kind.tables))):
            rows = kind.rows[t]
            known = np.flatnonzero(rows >= 0)[::-1]
            where[rows[known], 0], where[rows[known], 1] = t, known
        return where

    def observation(self, row, bigram=False):
        kind = self._encoder.bigrams if bigram else self._encoder.unigrams
        table, key = self._keys[bigram][row]
        line = kind.lines[kind.table_of.index(table)]
        values = self._encoder.values.table
        text = line.expand(values.text(int(v)) for v in kind.keys(int(table))[key])
        return text.decode("utf-8", "backslashreplace")

    def label(self, y):
        """Of a label, or of the begin label."""
        labels = self._encoder.labels
        return labels[y].decode("utf-8", "backslashreplace") if y < len(labels) else "^"

    def feature(self, number):
        """(observation, label before or None, label) of a feature number."""
        space = self._encoder.space
        number, cut = int(number), space.O * space.Y
        if number < cut:
            return self.observation(number // space.Y), None, self.label(number % space.Y)
        number -= cut
        return (self.observation(number // (space.R * space.Y), True), self.label(number // space.Y % space.R),
                self.label(number % space.Y))

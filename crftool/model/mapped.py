"""The sections of a model file as typed memory, each checked; without NumPy, so that `tag` starts quickly.

Nothing is copied or rebuilt: tables and weights are used where they lie in the mapped file.
"""

import json
from array import array
from dataclasses import dataclass

from crftool.corpus.rules import allowed_pairs
from crftool.corpus.template import Spelling, Template
from crftool.errors import DataError, ModelError
from crftool.kernels.keys import KeyTable
from crftool.kernels.scoring import check_rows, mark_rows
from crftool.kernels.strings import StringTable
from crftool.model import container


@dataclass(frozen=True)
class MappedKind:
    """The U or the B side: tables of observations, ambiguous texts, and the rows of weights."""

    lines: list
    spelling: Spelling
    width: int                       # weights in a row
    size: int                        # rows
    active: int                      # non-zero weights
    tables: list                     # KeyTable of each set of literals
    rows: list                       # [keys] int32  row of each key
    texts: StringTable               # ambiguous texts
    text_rows: memoryview            # [texts] int32
    dense: memoryview                # float32, see model.weights.RowStore
    bounds: memoryview
    columns: memoryview
    values: memoryview


class MappedModel:
    def __init__(self, sections, name="model"):
        """ModelError if the sections contradict themselves or each other."""
        self.sections, self.name = sections, name
        try:
            self._read()
        except (KeyError, ValueError, TypeError, IndexError, RecursionError, DataError) as error:
            raise ModelError(f"{name}: the model file contradicts itself ({error}); train anew") from None

    @classmethod
    def load(cls, path):
        return cls(container.unpack(container.map_file(path), path), path)

    def _typed(self, name, code):
        view = memoryview(self.sections[name])
        return view.cast("B").cast(code) if view.nbytes else memoryview(array(code))

    def _strings(self, name):
        return StringTable.frozen(self._typed(f"{name}.text", "B"), self._typed(f"{name}.bounds", "q"),
                                  self._typed(f"{name}.slots", "I"))

    def _read(self):
        meta = json.loads(bytes(self.sections["meta"]))
        self.version, self.options, self.begin_label = meta["crftool"], meta["options"], meta["begin_label"]
        if not (isinstance(meta, dict) and isinstance(self.version, str) and isinstance(self.options, dict)
                and isinstance(self.begin_label, bool)):
            raise ValueError("wrong kinds of values in its description")
        self.template = Template(bytes(self.sections["template"]), self.name)
        self.rules = bytes(self.sections["constraint"])
        self.label_table = self._strings("labels")
        self.labels = [self.label_table.text(i) for i in range(len(self.label_table))]
        Y = len(self.labels)
        if not Y or len(set(self.labels)) != Y or [Y, (Y + self.begin_label) * Y] != [meta["labels"], meta["pairs"]]:
            raise ValueError("wrong labels")
        self.values = self._strings("values")
        self.unigrams = self._kind("U", self.template.unigrams, Y)
        self.bigrams = self._kind("B", self.template.bigrams, (Y + self.begin_label) * Y)
        if {"U": self.unigrams.size, "B": self.bigrams.size} != meta["rows"] or (
                {"U": self.unigrams.active, "B": self.bigrams.active} != meta["weights"]):
            raise ValueError("another number of weights than it says")

    def _kind(self, letter, lines, width):
        store = [self._typed(f"{letter}.dense", "f"), self._typed(f"{letter}.bounds", "q"),
                 self._typed(f"{letter}.columns", "i"), self._typed(f"{letter}.values", "f")]
        size, active = check_rows(*store, width)
        owned = bytearray(size)
        spelling, tables, all_rows = Spelling(lines), [], []
        for t, literals in enumerate(spelling.literals):
            rows = self._typed(f"{letter}.{t}.rows", "i")
            tables.append(KeyTable.frozen(self._typed(f"{letter}.{t}.keys", "i"), self._typed(f"{letter}.{t}.slots", "I"),
                                          len(rows), len(literals) - 1, len(self.values)))
            mark_rows(rows, owned)
            all_rows.append(rows)
        if not all(owned):
            raise ValueError("weights without observation")
        texts, text_rows = self._strings(f"{letter}.t"), self._typed(f"{letter}.t.rows", "i")
        mark_rows(text_rows, owned)
        if len(text_rows) != len(texts):
            raise ValueError("texts without rows")
        return MappedKind(lines, spelling, width, size, active, tables, all_rows, texts, text_rows, *store)

    def allowed_pairs(self):
        """What the rules it was trained under allow: see corpus.rules; None without rules."""
        try:
            return allowed_pairs(self.rules, self.labels, self.name)
        except DataError as error:
            raise ModelError(f"{self.name}: the model file contradicts itself ({error}); train anew") from None

    def lookup(self):
        """A kernels.lookup.Lookup on this memory."""
        from crftool.kernels.lookup import Lookup
        reach = range(self.template.reach)
        order = sorted(range(len(self.template.sources)), key=lambda i: self.template.sources[i].column)
        place = {old: new for new, old in enumerate(order)}
        sources = [(source.column, source.macro(),
                    [source.padding(-d - 1) for d in reach], [source.padding(d + 1) for d in reach])
                   for source in (self.template.sources[i] for i in order)]
        separators = set(self.unigrams.spelling.separators) | set(self.bigrams.spelling.separators)
        return Lookup(self.values, sources, len(reach), self.template.columns, separators,
                      self._for_lookup(self.unigrams, place), self._for_lookup(self.bigrams, place))

    @staticmethod
    def _for_lookup(kind, place):
        lines = [(table, kind.spelling.always_ambiguous[table], line.literals,
                  [(place[field.source], field.row, field.absolute) for field in line.fields])
                 for line, table in zip(kind.lines, kind.spelling.table_of)]
        return {"lines": lines, **{name: getattr(kind, name) for name in (
            "width", "tables", "rows", "texts", "text_rows", "dense", "bounds", "columns", "values")}}

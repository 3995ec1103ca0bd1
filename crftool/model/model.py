"""A trained labeller: template, labels, the observations that own weights, and those weights.

In memory and in the file it is the same set of arrays. Only non-zero weights are kept, and of
observations and column values only those that own or spell one.
"""

import json

import numpy as np

import crftool
from crftool.corpus.constraints import make_constraint
from crftool.corpus.dataset import Encoder
from crftool.corpus.observations import Observations
from crftool.corpus.template import Template
from crftool.corpus.values import ValueIndex
from crftool.errors import DataError, ModelError
from crftool.files import write_atomically
from crftool.kernels.keys import KeyTable
from crftool.kernels.strings import StringTable
from crftool.model import container
from crftool.model.weights import RowStore, StoredWeights


class Model:
    def __init__(self, sections, name="model"):
        """From the sections of a model file; see `from_training` and `load`."""
        self._sections = sections
        self.name = name
        try:
            self._read()
        except (KeyError, ValueError, TypeError, IndexError, RecursionError, DataError) as error:
            raise ModelError(f"{name}: the model file contradicts itself ({error}); train anew") from None

    # Making ---------------------------------------------------------------------------------------------

    @classmethod
    def from_training(cls, encoder, theta, options, constraint=b""):
        """The model of weights `theta`; `options` and the rules it was trained under are recorded with it."""
        space = encoder.space
        mu, lam = space.split(theta)
        sections = {"meta": b"", "template": encoder.template.text, "constraint": constraint}
        _put_strings(sections, "labels", encoder.labels)
        kinds, used = [], []
        for letter, kind, matrix, width in (("U", encoder.unigrams, mu, space.Y),
                                            ("B", encoder.bigrams, lam, space.R * space.Y)):
            store, row_of = RowStore.of(matrix.reshape(kind.size, width))
            row_of = np.append(row_of, np.int32(-1))             # where -1, no observation, points
            tables = []
            for t, rows in enumerate(kind.rows):
                keep = row_of[rows] >= 0
                tables.append((kind.keys(t)[keep], row_of[rows[keep]]))
                used.append(np.unique(tables[-1][0]))
            texts = {text: int(row_of[row]) for text, row in sorted(kind.texts.items()) if row_of[row] >= 0}
            kinds.append((letter, store, tables, texts))
        # Values by their text and keys by their row: the file does not show in which order they were met.
        values = np.unique(np.concatenate(used)) if used else np.empty(0, np.int32)
        strings = sorted((encoder.values.table.text(int(v)), int(v)) for v in values)
        _put_strings(sections, "values", [text for text, _ in strings])
        id_of = np.zeros(len(encoder.values.table) + 1, np.int32)
        id_of[[v for _, v in strings]] = np.arange(len(strings))
        for letter, store, tables, texts in kinds:
            for t, (keys, rows) in enumerate(tables):
                keys = id_of[keys]
                order = np.lexsort((*keys.T[::-1], rows))
                keys, rows = np.ascontiguousarray(keys[order]), rows[order]
                sections[f"{letter}.{t}.keys"] = keys
                sections[f"{letter}.{t}.slots"] = KeyTable.of(keys).arrays()[1]
                sections[f"{letter}.{t}.rows"] = rows.astype(np.int32)
            _put_strings(sections, f"{letter}.t", list(texts))
            sections[f"{letter}.t.rows"] = np.array(list(texts.values()), np.int32)
            for part in ("dense", "bounds", "columns", "values"):
                sections[f"{letter}.{part}"] = getattr(store, part)
        sections["meta"] = json.dumps({
            "crftool": crftool.__version__, "begin_label": space.begin_label, "options": options,
            "labels": space.Y, "pairs": space.R * space.Y, "rows": {letter: store.size for letter, store, _, _ in kinds},
            "weights": {letter: store.active for letter, store, _, _ in kinds}}, sort_keys=True).encode()
        return cls({name: _as_bytes(data) for name, data in sections.items()})

    @classmethod
    def load(cls, path):
        return cls(container.unpack(container.map_file(path), path), path)

    @classmethod
    def from_bytes(cls, data):
        return cls(container.unpack(data, "model"))

    def to_bytes(self):
        return b"".join(container.pack(self._sections))

    def save(self, path):
        write_atomically(path, container.pack(self._sections))

    # Reading --------------------------------------------------------------------------------------------

    def _array(self, name, dtype, *shape):
        array = np.frombuffer(self._sections[name], dtype)
        return array.reshape(shape) if shape else array

    def _strings(self, name):
        return StringTable.frozen(self._array(f"{name}.text", np.uint8), self._array(f"{name}.bounds", np.int64),
                                  self._array(f"{name}.slots", np.uint32, -1, 2))

    def _read(self):
        meta = json.loads(bytes(self._sections["meta"]))
        self.version, self.options, begin_label = meta["crftool"], meta["options"], meta["begin_label"]
        if not (isinstance(meta, dict) and isinstance(self.version, str) and isinstance(self.options, dict)
                and isinstance(begin_label, bool)):
            raise ValueError("wrong kinds of values in its description")
        template = Template(bytes(self._sections["template"]), self.name)
        table = self._strings("labels")
        labels = [table.text(i) for i in range(len(table))]
        if not labels or [len(labels), (len(labels) + begin_label) * len(labels)] != [meta["labels"], meta["pairs"]] or len(set(labels)) != len(labels):
            raise ValueError("wrong labels")
        values = self._strings("values")
        Y, R = len(labels), len(labels) + begin_label
        unigram_rows, unigrams = self._kind("U", template.unigrams, Y, len(values))
        bigram_rows, bigrams = self._kind("B", template.bigrams, R * Y, len(values))
        if {"U": unigram_rows.size, "B": bigram_rows.size} != meta["rows"] or (
                {"U": unigram_rows.active, "B": bigram_rows.active} != meta["weights"]):
            raise ValueError("another number of weights than it says")
        self.labels = labels
        self.rules = bytes(self._sections["constraint"])
        self.constraint = make_constraint(self.rules, labels, self.name)
        self.encoder = Encoder(template, labels, begin_label, ValueIndex(template, values), unigrams, bigrams)
        self.weights = StoredWeights(self.encoder.space, unigram_rows, bigram_rows)

    def _kind(self, letter, lines, width, n_values):
        """(RowStore, Observations) of the U or the B templates, every index checked."""
        store = RowStore(self._array(f"{letter}.dense", np.float32, -1, width),
                         self._array(f"{letter}.bounds", np.int64), self._array(f"{letter}.columns", np.int32),
                         self._array(f"{letter}.values", np.float32))
        _check_store(store, width)
        tables, all_rows = [], []
        for t, literals in enumerate(dict.fromkeys(line.literals for line in lines)):
            rows = self._array(f"{letter}.{t}.rows", np.int32)
            keys = self._array(f"{letter}.{t}.keys", np.int32).reshape(len(rows), len(literals) - 1)
            tables.append(KeyTable.frozen(keys, self._array(f"{letter}.{t}.slots", np.uint32, -1, 2), n_values))
            all_rows.append(_checked_rows(rows, store))
        owned = np.zeros(store.size, bool)
        for rows in all_rows:
            owned[rows] = True
        if not owned.all():
            raise ValueError("weights without observation")
        strings = self._strings(f"{letter}.t")
        text_rows = _checked_rows(self._array(f"{letter}.t.rows", np.int32), store)
        if len(text_rows) != len(strings):
            raise ValueError("texts without rows")
        texts = {strings.text(i): int(text_rows[i]) for i in range(len(strings))}
        return store, Observations(lines, tables, all_rows, texts)

    # Using ----------------------------------------------------------------------------------------------

    @property
    def active(self):
        """Number of non-zero weights."""
        return self.weights.unigrams.active + self.weights.bigrams.active

    def initial_weights(self, encoder):
        """(theta, carried): this model's weights in another encoder's feature space, matched by the text of
        observations and the names of labels; `carried` counts the observations found in both."""
        space, own = encoder.space, self.encoder.space
        theta = np.zeros(space.F)
        mu, lam = space.split(theta)
        label_of = [encoder.labels.index(label) for label in self.labels]
        previous_of = label_of + ([space.Y] if own.begin_label and space.begin_label else [])
        carried = 0
        for kind, old_kind, store, target in (
                (encoder.unigrams, self.encoder.unigrams, self.weights.unigrams, mu),
                (encoder.bigrams, self.encoder.bigrams, self.weights.bigrams, lam)):
            new_rows, old_rows = _match(encoder, kind, self.encoder, old_kind)
            weights = store.to_dense()[old_rows]
            carried += len(new_rows)
            if target.ndim == 2:
                target[np.ix_(new_rows, label_of)] = weights
            else:
                weights = weights.reshape(-1, own.R, own.Y)[:, :len(previous_of)]
                target[np.ix_(new_rows, previous_of, label_of)] = weights
        return theta, carried


def _match(encoder, kind, old_encoder, old_kind):
    """(new rows, old rows) of the observations with the same text in two encoders."""
    row_of = np.full(old_kind.size + 1, -1, np.int64)              # new row of each old row
    for t, literals in enumerate(old_kind.literals):
        if literals not in kind.literals:
            continue
        table = kind.literals.index(literals)
        keys = old_kind.keys(t)
        known = np.unique(keys)
        value_of = np.full(known.max(initial=-1) + 1, -1, np.int32)
        value_of[known] = [encoder.values.table.find(old_encoder.values.table.text(int(v))) for v in known]
        found = np.empty(len(keys), np.int64)
        kind.tables[table].find_rows(np.ascontiguousarray(value_of[keys]), found)
        rows = np.append(kind.rows[table], np.int32(-1))[found]
        row_of[old_kind.rows[t][rows >= 0]] = rows[rows >= 0]
    missing = np.flatnonzero(row_of[:-1] < 0)
    if len(missing) and (old_kind.texts or kind.texts or set(old_kind.literals) != set(kind.literals)):
        # Another template, or another split into fields, may spell the same text.
        texts = {text: row for row, text in _texts(encoder, kind)}
        for row, text in _texts(old_encoder, old_kind):
            if row_of[row] < 0:
                row_of[row] = texts.get(text, -1)
    old_rows = np.flatnonzero(row_of >= 0)
    return row_of[old_rows], old_rows


def _texts(encoder, kind):
    """(row, text) of every observation."""
    for t, rows in enumerate(kind.rows):
        line = kind.lines[kind.table_of.index(t)]
        for row, key in zip(rows.tolist(), kind.keys(t).tolist()):
            if row >= 0:
                yield row, line.expand(encoder.values.table.text(v) for v in key)


def _as_bytes(data):
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _put_strings(sections, name, strings):
    table = StringTable()
    for string in strings:
        table.intern(string)
    for part, data in zip(("text", "bounds", "slots"), table.arrays()):
        sections[f"{name}.{part}"] = data


def _check_store(store, width):
    bounds = store.bounds
    if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != len(store.values) or (bounds[1:] < bounds[:-1]).any():
        raise ValueError("weights out of bounds")
    if len(store.columns) != len(store.values):
        raise ValueError("weights without columns")
    if len(store.columns) and not (0 <= store.columns.min() and store.columns.max() < width):
        raise ValueError("weight of an unknown label")
    if not (np.isfinite(store.values).all() and np.isfinite(store.dense).all()):
        raise ValueError("weight that is not a number")


def _checked_rows(rows, store):
    if len(rows) and not (0 <= rows.min() and rows.max() < store.size):
        raise ValueError("observation without weights")
    return rows

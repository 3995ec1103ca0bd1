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
from crftool.corpus.values import ValueIndex
from crftool.errors import DataError, ModelError
from crftool.files import write_atomically
from crftool.kernels.keys import KeyTable
from crftool.kernels.strings import StringTable
from crftool.model import container
from crftool.model.mapped import MappedModel
from crftool.model.weights import RowStore, SparseWeights, StoredWeights


class Model:
    def __init__(self, mapped):
        """From a MappedModel; see `from_training`, `load` and `from_bytes`."""
        self.name, self._sections = mapped.name, mapped.sections
        self.version, self.options, self.labels, self.rules = mapped.version, mapped.options, mapped.labels, mapped.rules
        try:
            self.constraint = make_constraint(self.rules, self.labels, self.name)
        except DataError as error:
            raise ModelError(f"{self.name}: the model file contradicts itself ({error}); train anew") from None
        template = mapped.template
        unigram_rows, unigrams = _observations(mapped.unigrams)
        bigram_rows, bigrams = _observations(mapped.bigrams)
        self.encoder = Encoder(template, self.labels, mapped.begin_label, ValueIndex(template, mapped.values),
                               unigrams, bigrams)
        self.weights = StoredWeights(self.encoder.space, unigram_rows, bigram_rows)

    # Making ---------------------------------------------------------------------------------------------

    @classmethod
    def from_training(cls, encoder, theta, options, constraint=b""):
        """The model of weights `theta`, a vector or SparseWeights; `options` and the rules it was trained under
        are recorded with it."""
        space = encoder.space
        sparse = isinstance(theta, SparseWeights)
        mu, lam = (theta.unigrams, theta.bigrams) if sparse else space.split(theta)
        sections = {"meta": b"", "template": encoder.template.text, "constraint": constraint}
        _put_strings(sections, "labels", encoder.labels)
        kinds, used = [], []
        for letter, kind, matrix, width in (("U", encoder.unigrams, mu, space.Y),
                                            ("B", encoder.bigrams, lam, space.R * space.Y)):
            store, row_of = RowStore.of_entries(*matrix, width) if sparse else \
                RowStore.of(matrix.reshape(kind.size, width))
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
        return cls(MappedModel({name: _as_bytes(data) for name, data in sections.items()}))

    @classmethod
    def load(cls, path):
        return cls(MappedModel.load(path))

    @classmethod
    def from_bytes(cls, data):
        return cls(MappedModel(container.unpack(data, "model")))

    def to_bytes(self):
        return b"".join(container.pack(self._sections))

    def save(self, path):
        write_atomically(path, container.pack(self._sections))

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


def _observations(kind):
    """(RowStore, Observations) of the U or the B side, as arrays on the same memory."""
    store = RowStore(np.asarray(kind.dense).reshape(-1, kind.width), np.asarray(kind.bounds), np.asarray(kind.columns),
                     np.asarray(kind.values))
    texts = {kind.texts.text(i): row for i, row in enumerate(kind.text_rows.tolist())}
    return store, Observations(kind.lines, kind.tables, [np.asarray(rows) for rows in kind.rows], texts)

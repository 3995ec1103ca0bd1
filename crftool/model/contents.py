"""What a model holds, in names and numbers."""

import numpy as np

from crftool.corpus.names import Names


def contents(model, top, label=None):
    """Options, sizes, labels, templates, the `top` strongest weights (of one label) and the table of
    transitions, as plain values."""
    encoder, names = model.encoder, Names(model.encoder)
    stores = (model.weights.unigrams, model.weights.bigrams)
    labels = [names.label(y) for y in range(len(model.labels))]
    return {
        "options": dict(sorted(model.options.items())),
        "sizes": {"labels": len(labels), "unigram observations": encoder.unigrams.size,
                  "bigram observations": encoder.bigrams.size, "unigram weights": stores[0].active,
                  "bigram weights": stores[1].active},
        "labels": labels,
        "templates": _templates(model, stores),
        "weights": _strongest(names, encoder.space, stores, top, label),
        "transitions": _transitions(model, names),
    }


def _templates(model, stores):
    """Observations and weights that each line owns; shared ones count for the first line."""
    out = []
    for kind, store in zip((model.encoder.unigrams, model.encoder.bigrams), stores):
        sizes = np.concatenate((np.count_nonzero(store.dense, axis=1), np.diff(store.bounds)))       # [size]
        counted = np.zeros(kind.size, bool)
        for k, line in enumerate(kind.lines):
            rows = np.unique(kind.rows[kind.table_of[k]])
            rows = rows[rows >= 0]
            fresh = rows[~counted[rows]]
            counted[fresh] = True
            out.append({"text": line.text.decode("utf-8", "backslashreplace"), "observations": len(fresh),
                        "weights": int(sizes[fresh].sum())})
    return out


def _strongest(names, space, stores, top, label):
    found = []
    for store, first, bigram in ((stores[0], 0, False), (stores[1], space.O * space.Y, True)):
        D = store.dense.shape[1]
        rows = len(store.dense) + np.repeat(np.arange(len(store.bounds) - 1), np.diff(store.bounds))
        feature = first + np.concatenate((np.arange(store.dense.size), rows * D + store.columns))
        value = np.concatenate((store.dense.reshape(-1), store.values)).astype(float)
        keep = value != 0.0 if label is None else (value != 0.0) & ((feature - first) % space.Y == label)
        feature, value = feature[keep], value[keep]
        best = np.lexsort((feature, -np.abs(value)))[:top]
        found += zip(value[best].tolist(), feature[best].tolist())
    found.sort(key=lambda entry: (-abs(entry[0]), entry[1]))
    out = []
    for value, feature in found[:top]:
        observation, previous, following = names.feature(feature)
        out.append({"weight": value, "observation": observation, "previous": previous, "label": following})
    return out


def _transitions(model, names):
    """{label before: {label: weight}} of B lines that look at no column, added up; non-zero ones."""
    kind, space = model.encoder.bigrams, model.encoder.space
    rows = {int(row) for k, line in enumerate(kind.lines) if not line.fields
            for row in kind.rows[kind.table_of[k]] if row >= 0}
    if not rows:
        return {}
    table = model.weights.bigrams.to_dense()[sorted(rows)].sum(axis=0).reshape(space.R, space.Y)
    return {names.label(previous): {names.label(y): float(table[previous, y]) for y in np.flatnonzero(table[previous])}
            for previous in range(space.R) if table[previous].any()}

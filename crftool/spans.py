"""Phrases as spans under several schemes of labels, and counts for each sequence.

    conll     conlleval's reading, which takes any mixture of B, I, E and O for what it may mean
    iob1      I- continues, or starts after another type; B- starts
    iob2      B- starts, I- continues; an I- that continues nothing is outside
    iobes     B- I-* E- or S-, whole or not at all (L- and U- are read as E- and S-)
    strict    conlleval's phrases, right only if every label in them is exactly right

`crftool.evaluate.score` gives conlleval's totals; here is what needs single phrases.
"""

import numpy as np

from crftool import evaluate
from crftool.evaluate import PhraseCounts, Scores

SCHEMES = ("conll", "iob1", "iob2", "iobes", "strict")
COUNTS = ("tokens", "correct_tokens", "gold", "found", "correct")


def find_spans(ids, offsets, labels, scheme):
    """[(first token, last token, type)] of every phrase, in order."""
    if scheme in ("conll", "strict"):
        spans, types = evaluate.phrases(ids, offsets, labels)
        return [(first, last, kind) for (first, last), kind in zip(spans.tolist(), types)]
    parsed = [_parse(label) for label in labels]
    reader = {"iob1": _iob1, "iob2": _iob2, "iobes": _iobes}[scheme]
    out = []
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist()):
        out += reader([parsed[i] for i in ids[start:end].tolist()], start)
    return out


def _parse(label):
    tag, _, kind = label.partition(b"-")
    return tag, kind


def _iob1(labels, t):
    return _begun_or_continued(labels, t, True)


def _iob2(labels, t):
    return _begun_or_continued(labels, t, False)


def _begun_or_continued(labels, t, inside_starts):
    out, start, kind = [], None, None
    for at, (tag, own) in enumerate([*labels, (b"O", b"")], t):
        if tag == b"I" and start is not None and own == kind:
            continue
        if start is not None:
            out.append((start, at - 1, kind))
        start, kind = (at, own) if tag == b"B" or tag == b"I" and inside_starts else (None, None)
    return out


def _iobes(labels, t):
    out, start, kind = [], None, None
    for at, (tag, own) in enumerate(labels, t):
        if tag in (b"S", b"U"):
            out.append((at, at, own))
        elif tag in (b"E", b"L") and start is not None and own == kind:
            out.append((start, at, kind))
        if tag == b"B":
            start, kind = at, own
        elif not (tag == b"I" and own == kind):
            start, kind = None, None
    return out


def correct_spans(gold_spans, predicted_spans, gold, predicted, scheme):
    """The phrases that are in both; under `strict`, with the same labels."""
    both = sorted(set(gold_spans) & set(predicted_spans))
    if scheme == "strict":
        both = [span for span in both if (gold[span[0]:span[1] + 1] == predicted[span[0]:span[1] + 1]).all()]
    return both


def scores_of_spans(gold, predicted, offsets, labels, scheme):
    """Scores as evaluate.score gives them, with the phrases of another scheme."""
    plain = evaluate.score(gold, predicted, offsets, labels)
    sides = [find_spans(ids, offsets, labels, scheme) for ids in (gold, predicted)]
    sides.append(correct_spans(*sides, gold, predicted, scheme))
    types = sorted({kind for side in sides[:2] for _, _, kind in side})
    by_type = {name: PhraseCounts(*(sum(kind == name for _, _, kind in side) for side in sides)) for name in types}
    return Scores(plain.tokens, plain.correct_tokens, plain.sequences, plain.correct_sequences,
                  PhraseCounts(*map(len, sides)), by_type)


def count_per_sequence(gold, predicted, offsets, labels, scheme="conll"):
    """[S][5]  COUNTS of each sequence."""
    spans = [find_spans(ids, offsets, labels, scheme) for ids in (gold, predicted)]
    spans.append(correct_spans(*spans, gold, predicted, scheme))
    out = np.zeros((len(offsets) - 1, len(COUNTS)), np.int64)
    out[:, 0] = np.diff(offsets)
    right = np.concatenate(([0], np.cumsum(gold == predicted)))
    out[:, 1] = np.diff(right[offsets])
    for i, side in enumerate(spans, 2):
        where = np.searchsorted(offsets, [first for first, _, _ in side], side="right") - 1
        out[:, i] = np.bincount(where, minlength=len(out)) if len(where) else 0
    return out


def rates(counts):
    """(token accuracy, F1) in percent, of counts [...][5]."""
    tokens, right, gold, found, correct = (counts[..., i].astype(float) for i in range(5))
    with np.errstate(invalid="ignore"):
        accuracy, f1 = 100.0 * right / tokens, 200.0 * correct / (gold + found)
    return np.where(tokens > 0, accuracy, 0.0), np.where(gold + found > 0, f1, 0.0)

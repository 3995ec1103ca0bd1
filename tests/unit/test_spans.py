"""Phrases under several schemes, counts per sequence, and what they can be trusted to say."""

import itertools

import numpy as np
import pytest

from crftool import evaluate, significance, spans

LABELS = [b"O", b"B-X", b"I-X", b"E-X", b"S-X", b"B-Y", b"I-Y", b"E-Y"]


def read(text, scheme):
    ids = np.array([LABELS.index(label.encode()) for label in text.split()], np.int32)
    found = spans.find_spans(ids, np.array([0, len(ids)]), LABELS, scheme)
    return " ".join(f"{first}-{last}{kind.decode()}" for first, last, kind in found)


@pytest.mark.parametrize("labels,conll,iob1,iob2,iobes", [
    ("B-X I-X O", "0-1X", "0-1X", "0-1X", ""),
    ("I-X I-X O", "0-1X", "0-1X", "", ""),
    ("I-X B-X I-X", "0-0X 1-2X", "0-0X 1-2X", "1-2X", ""),
    ("B-X I-Y I-Y", "0-0X 1-2Y", "0-0X 1-2Y", "0-0X", ""),
    ("B-X I-X E-X S-X", "0-2X", "0-1X", "0-1X", "0-2X 3-3X"),
    ("B-X E-X B-Y E-Y", "0-1X 2-3Y", "0-0X 2-2Y", "0-0X 2-2Y", "0-1X 2-3Y"),
    ("B-X E-Y O E-X", "0-0X 1-1Y 3-3X", "0-0X", "0-0X", ""),
    ("B-X O I-X E-X", "0-0X 2-3X", "0-0X 2-2X", "0-0X", ""),
    ("S-X S-X B-X", "", "2-2X", "2-2X", "0-0X 1-1X"),
    ("O", "", "", "", "")])
def test_schemes(labels, conll, iob1, iob2, iobes):
    if "S-" not in labels:                                     # conlleval does not know S: its reading is odd
        assert read(labels, "conll") == read(labels, "strict") == conll
    assert [read(labels, scheme) for scheme in ("iob1", "iob2", "iobes")] == [iob1, iob2, iobes]


def test_bilou_is_read_as_iobes():
    labels = [b"B-X", b"I-X", b"L-X", b"U-X", b"O"]
    assert spans.find_spans(np.arange(5), np.array([0, 5]), labels, "iobes") == [(0, 2, b"X"), (3, 3, b"X")]


def test_phrases_end_with_their_sequence():
    ids = np.array([1, 2, 2, 2])
    for scheme, expected in (("conll", 2), ("iob1", 2), ("iob2", 1), ("iobes", 0)):
        assert len(spans.find_spans(ids, np.array([0, 2, 4]), LABELS, scheme)) == expected


def random_labels(seed, labels=LABELS[:3] + LABELS[5:7]):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(rng.integers(0, 6, 30))))
    gold = rng.integers(0, len(labels), offsets[-1])
    predicted = np.where(rng.random(len(gold)) < 0.7, gold, rng.integers(0, len(labels), len(gold)))
    return gold, predicted, offsets, labels


@pytest.mark.parametrize("seed", range(5))
def test_counts_add_up_to_the_scores(seed):
    gold, predicted, offsets, labels = random_labels(seed)
    scores = evaluate.score(gold, predicted, offsets, labels)
    counts = spans.count_per_sequence(gold, predicted, offsets, labels)
    assert counts.sum(axis=0).tolist() == [scores.tokens, scores.correct_tokens, scores.phrases.gold,
                                           scores.phrases.found, scores.phrases.correct]
    accuracy, f1 = spans.rates(counts.sum(axis=0))
    assert accuracy == pytest.approx(scores.token_accuracy) and f1 == pytest.approx(scores.f1)
    assert spans.scores_of_spans(gold, predicted, offsets, labels, "conll") == scores
    for s in range(len(offsets) - 1):
        part = slice(offsets[s], offsets[s + 1])
        alone = spans.count_per_sequence(gold[part], predicted[part], np.array([0, part.stop - part.start]), labels)
        np.testing.assert_array_equal(counts[s], alone[0])


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "strict"])
def test_stricter_schemes_find_no_more(scheme):
    gold, predicted, offsets, labels = random_labels(9)
    strict = spans.scores_of_spans(gold, predicted, offsets, labels, scheme)
    assert strict.phrases.correct <= evaluate.score(gold, predicted, offsets, labels).phrases.correct
    assert sum((counts for counts in strict.by_type.values()), evaluate.PhraseCounts()) == strict.phrases


def test_strict_wants_every_label():
    gold, predicted = np.array([1, 2, 0]), np.array([2, 2, 0])             # B-X I-X against I-X I-X
    offsets = np.array([0, 3])
    assert evaluate.score(gold, predicted, offsets, LABELS).phrases.correct == 1
    assert spans.scores_of_spans(gold, predicted, offsets, LABELS, "strict").phrases.correct == 0


def test_bootstrap_against_the_normal_interval():
    """400 sequences of one token: the interval of a share is about 1.96 standard errors to each side."""
    rng = np.random.default_rng(1)
    right = rng.random(400) < 0.8
    counts = np.stack((np.ones(400), right, np.ones(400), np.ones(400), right), axis=1).astype(np.int64)
    (low, high), f1 = significance.confidence_intervals(counts, 4000, 1)
    p = right.mean()
    half = 196 * np.sqrt(p * (1 - p) / 400)
    assert low == pytest.approx(100 * p - half, abs=0.5) and high == pytest.approx(100 * p + half, abs=0.5)
    assert f1 == (low, high)
    assert significance.confidence_intervals(counts, 4000, 1) == ((low, high), f1)


def test_paired_test_against_all_exchanges():
    """Few sequences: the share over all 2^S exchanges is known exactly."""
    rng = np.random.default_rng(3)
    a, b = (np.column_stack((np.full(8, 5), rng.integers(2, 6, 8), np.full(8, 3), np.full(8, 3), rng.integers(0, 4, 8)))
            for _ in range(2))
    differences = []
    for swap in itertools.product((False, True), repeat=8):
        swap = np.array(swap)[:, None]
        differences.append(np.abs(np.subtract(spans.rates(np.where(swap, b, a).sum(axis=0)),
                                              spans.rates(np.where(swap, a, b).sum(axis=0)))))
    exact = (np.array(differences) >= differences[0] - 1e-9).mean(axis=0)
    np.testing.assert_allclose(significance.paired_test(a, b, 20_000, 1), exact, atol=0.02)
    assert significance.paired_test(a, a, 500, 1) == (1.0, 1.0)

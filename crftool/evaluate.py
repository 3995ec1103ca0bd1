"""Token, sequence and phrase scores of predicted labels against gold labels.

Phrases are counted by the rules of conlleval, the scorer of the CoNLL shared
tasks, including its treatment of odd input, so that the numbers and the text
of `Scores.report` can be compared with published results.

Where conlleval walks over the tokens with a state, `score` works on whole
arrays: it runs after every training iteration and has to be cheap.

Conventions of the comments: N tokens, S sequences, K labels, T phrase types,
M = N + S + 1 positions once an outside token is put before every sequence and
after the last one.  A "step" i, of which there are M - 1, goes from position i
to position i + 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from crftool.phrases import END_PAIRS, OUTSIDE_TAGS, SINGLE_TOKEN_TAGS, START_PAIRS, parse_label

Key = TypeVar("Key", bound=Hashable)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


@dataclass(frozen=True)
class PhraseCounts:
    """Phrases in the gold labels, in the predicted labels, and in both."""

    gold: int = 0
    found: int = 0
    correct: int = 0

    @property
    def precision(self) -> float:
        return _percent(self.correct, self.found)

    @property
    def recall(self) -> float:
        return _percent(self.correct, self.gold)

    @property
    def f1(self) -> float:
        # Computed from the two percentages, in this order, because conlleval
        # does so: another order could round differently in the last digit.
        precision, recall = self.precision, self.recall
        if precision + recall == 0.0:
            return 0.0
        return 2 * precision * recall / (precision + recall)

    def __add__(self, other: PhraseCounts) -> PhraseCounts:
        if not isinstance(other, PhraseCounts):
            return NotImplemented
        return PhraseCounts(
            self.gold + other.gold,
            self.found + other.found,
            self.correct + other.correct,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "gold": self.gold,
            "found": self.found,
            "correct": self.correct,
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
        }


def _pooled(pairs: Iterable[tuple[Key, PhraseCounts]]) -> dict[Key, PhraseCounts]:
    """Sum the counts of equal keys; keys come out sorted."""
    totals: dict[Key, PhraseCounts] = {}
    for key, counts in pairs:
        totals[key] = totals.get(key, PhraseCounts()) + counts
    return dict(sorted(totals.items()))


@dataclass(frozen=True)
class Scores:
    """Counts of a scored set of sequences and the rates that follow from them.

    Rates are percentages; a rate whose denominator is zero is 0.0.
    Sequences without tokens are not counted as sequences.
    """

    tokens: int
    correct_tokens: int
    sequences: int
    correct_sequences: int
    phrases: PhraseCounts
    by_type: dict[bytes, PhraseCounts]  # the types of gold or predicted phrases

    @classmethod
    def empty(cls) -> Scores:
        """The scores of no data: the neutral element of addition."""
        return cls(0, 0, 0, 0, PhraseCounts(), {})

    @property
    def token_accuracy(self) -> float:
        return _percent(self.correct_tokens, self.tokens)

    @property
    def token_error(self) -> float:
        return _percent(self.tokens - self.correct_tokens, self.tokens)

    @property
    def sequence_accuracy(self) -> float:
        return _percent(self.correct_sequences, self.sequences)

    @property
    def precision(self) -> float:
        return self.phrases.precision

    @property
    def recall(self) -> float:
        return self.phrases.recall

    @property
    def f1(self) -> float:
        return self.phrases.f1

    def __add__(self, other: Scores) -> Scores:
        """Pool the counts of two disjoint sets of sequences.

        This equals scoring the two sets as one, except that conlleval lets a
        phrase run on over a sequence boundary if its last tag is one that an
        outside token does not close (`.`, or an unknown tag without type).
        """
        if not isinstance(other, Scores):
            return NotImplemented
        return Scores(
            self.tokens + other.tokens,
            self.correct_tokens + other.correct_tokens,
            self.sequences + other.sequences,
            self.correct_sequences + other.correct_sequences,
            self.phrases + other.phrases,
            _pooled([*self.by_type.items(), *other.by_type.items()]),
        )

    def report(self) -> bytes:
        """The text conlleval prints for the same data, byte for byte."""
        lines = [
            b"processed %d tokens with %d phrases; found: %d phrases; correct: %d.\n"
            % (self.tokens, self.phrases.gold, self.phrases.found, self.phrases.correct)
        ]
        if self.tokens > 0:
            rates = (self.token_accuracy, self.precision, self.recall, self.f1)
            lines.append(
                b"accuracy: %6.2f%%; precision: %6.2f%%; recall: %6.2f%%; FB1: %6.2f\n"
                % rates
            )
        for name, counts in sorted(self.by_type.items()):
            line = _type_line(name, counts)
            lines.append(line)
            # conlleval merges the gold and the predicted types with a test for
            # repetition that fails on the empty name: it prints that line twice.
            if name == b"" and counts.gold and counts.found:
                lines.append(line)
        return b"".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Counts and rates as plain values for JSON.

        Bytes of a type name that are not UTF-8 are written as `\\xNN`.
        """
        named = (
            (name.decode("utf-8", "backslashreplace"), counts)
            for name, counts in self.by_type.items()
        )
        return {
            "tokens": self.tokens,
            "correct_tokens": self.correct_tokens,
            "token_accuracy": self.token_accuracy,
            "token_error": self.token_error,
            "sequences": self.sequences,
            "correct_sequences": self.correct_sequences,
            "sequence_accuracy": self.sequence_accuracy,
            "phrases": self.phrases.to_dict(),
            "by_type": {name: c.to_dict() for name, c in _pooled(named).items()},
        }


def _type_line(name: bytes, counts: PhraseCounts) -> bytes:
    return (
        b"%17s: precision: %6.2f%%; recall: %6.2f%%; FB1: %6.2f  %d\n"
        % (name, counts.precision, counts.recall, counts.f1, counts.found)
    )


# --- labels -----------------------------------------------------------------

_KNOWN_TAGS = b"BIEO.[]"
_OTHER_TAG = len(_KNOWN_TAGS)
_TAG_CODES = len(_KNOWN_TAGS) + 1


def _pair_table(pairs: Iterable[bytes]) -> np.ndarray:
    table = np.zeros((_TAG_CODES, _TAG_CODES), dtype=bool)
    for previous, current in pairs:
        table[_KNOWN_TAGS.index(previous), _KNOWN_TAGS.index(current)] = True
    return table


def _tag_set(tags: bytes) -> np.ndarray:
    members = np.zeros(_TAG_CODES, dtype=bool)
    members[[_KNOWN_TAGS.index(tag) for tag in tags]] = True
    return members


_SINGLE_TOKEN = _tag_set(SINGLE_TOKEN_TAGS)  # [_TAG_CODES]
_INSIDE = ~_tag_set(OUTSIDE_TAGS)  # [_TAG_CODES], true for unknown tags too

# Indexed by [previous tag, current tag].  The *_ON_CHANGE tables hold when the
# types of the two tokens differ, the plain ones when they are equal.
_STARTS = _pair_table(START_PAIRS) | _SINGLE_TOKEN[None, :]
_STARTS_ON_CHANGE = _STARTS | _INSIDE[None, :]
_ENDS = _pair_table(END_PAIRS) | _SINGLE_TOKEN[:, None]
_ENDS_ON_CHANGE = _ENDS | _INSIDE[:, None]


def _flat_by_change(equal: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """One flat table indexed by (type changed, previous tag, current tag)."""
    return np.stack([equal, changed]).ravel()


_START_TABLE = _flat_by_change(_STARTS, _STARTS_ON_CHANGE)
_END_TABLE = _flat_by_change(_ENDS, _ENDS_ON_CHANGE)


class _LabelTable(NamedTuple):
    """What scoring needs to know of each label; row K is the outside token."""

    text: np.ndarray  # [K + 1] equal numbers for equal tag and type
    tag: np.ndarray  # [K + 1] tag codes
    type: np.ndarray  # [K + 1] type numbers, 0 is the empty type
    type_names: list[bytes]  # [T]


def _label_table(labels: Sequence[bytes]) -> _LabelTable:
    parsed = [parse_label(label) for label in labels]
    parsed.append((b"O", b""))
    text_numbers: dict[tuple[bytes, bytes], int] = {}
    type_numbers: dict[bytes, int] = {b"": 0}
    tag_codes = {_KNOWN_TAGS[i : i + 1]: i for i in range(len(_KNOWN_TAGS))}
    text = [text_numbers.setdefault(pair, len(text_numbers)) for pair in parsed]
    types = [type_numbers.setdefault(name, len(type_numbers)) for _, name in parsed]
    tags = [tag_codes.get(tag, _OTHER_TAG) for tag, _ in parsed]
    return _LabelTable(
        np.array(text, dtype=np.intp),
        np.array(tags, dtype=np.intp),
        np.array(types, dtype=np.intp),
        list(type_numbers),
    )


# --- phrases ----------------------------------------------------------------


class _Phrases(NamedTuple):
    """The phrase boundaries of one side, gold or predicted."""

    types: np.ndarray  # [M] type number at each position
    starts: np.ndarray  # [M - 1] a phrase starts at the position stepped to
    ends: np.ndarray  # [M - 1] a phrase ends at the position stepped from


def _find_phrases(ids: np.ndarray, offsets: np.ndarray, table: _LabelTable) -> _Phrases:
    outside = len(table.tag) - 1
    padded = np.insert(ids, offsets, outside)  # [M]
    tags = table.tag[padded]  # [M]
    types = table.type[padded]  # [M]
    changed = types[:-1] != types[1:]  # [M - 1]
    cell = (changed * _TAG_CODES + tags[:-1]) * _TAG_CODES + tags[1:]  # [M - 1]
    return _Phrases(types, _START_TABLE[cell], _END_TABLE[cell])


def phrases(ids: np.ndarray, offsets: np.ndarray, labels: Sequence[bytes]) -> tuple[np.ndarray, list[bytes]]:
    """(spans [P][2], types [P]): first and last token, and type, of every phrase, in order."""
    table = _label_table(labels)
    found = _find_phrases(np.asarray(ids), np.asarray(offsets), table)
    first = np.flatnonzero(found.starts) + 1         # padded positions: sequence s is shifted by s + 1
    ends = np.flatnonzero(found.ends)
    last = ends[np.minimum(np.searchsorted(ends, first), max(0, len(ends) - 1))] if len(ends) else first
    sequence = np.searchsorted(offsets + np.arange(len(offsets)), first, side="right") - 1
    spans = np.stack((first, last), axis=1) - (sequence + 1)[:, None]
    return spans.astype(np.int64), [table.type_names[t] for t in found.types[first]]


def _correct_phrase_types(gold: _Phrases, predicted: _Phrases) -> np.ndarray:
    """Type numbers of the correct phrases, one entry for each phrase.

    conlleval keeps a flag "the current phrase is right so far".  In one step
    the flag is first lowered if either side ends a phrase or the types at the
    new position differ; the phrase counts as correct if both sides end one.
    (conlleval also asks for equal types at the old position, but these are
    equal wherever the flag is up.)  Then the flag is raised if both sides start
    a phrase of the same type.  A flag still up at the very end counts too.

    So only the steps that lower or raise the flag matter, and the flag between
    two of them is known from the first alone: it is up if that one raised it.
    """
    same_type = gold.types[1:] == predicted.types[1:]  # [M - 1]
    raises = gold.starts & predicted.starts & same_type  # [M - 1]
    lowers = gold.ends | predicted.ends | ~same_type  # [M - 1]
    both_end = gold.ends & predicted.ends  # [M - 1]

    events = np.flatnonzero(raises | lowers)  # [E] steps
    flag_after = raises[events]  # [E]
    closed = events[1:][flag_after[:-1] & both_end[events[1:]]]  # steps
    # Step i ends the phrase at position i; the end of the data, position M - 1.
    last_positions = closed
    if flag_after.size and flag_after[-1]:
        last_positions = np.append(closed, len(gold.types) - 1)
    return gold.types[last_positions]


def _count_phrases(
    gold: _Phrases, predicted: _Phrases, type_names: Sequence[bytes]
) -> tuple[PhraseCounts, dict[bytes, PhraseCounts]]:
    def per_type(type_numbers: np.ndarray) -> list[int]:
        return np.bincount(type_numbers, minlength=len(type_names)).tolist()  # [T]

    in_gold = per_type(gold.types[1:][gold.starts])
    in_predicted = per_type(predicted.types[1:][predicted.starts])
    in_both = per_type(_correct_phrase_types(gold, predicted))
    # A phrase that ran over `.` tokens may be closed under a type that no phrase
    # started with; like conlleval, count it in the sum but do not list the type.
    by_type = _pooled(
        (name, PhraseCounts(*counts))
        for name, *counts in zip(type_names, in_gold, in_predicted, in_both)
        if counts[0] or counts[1]
    )
    return PhraseCounts(sum(in_gold), sum(in_predicted), sum(in_both)), by_type


# --- scoring ----------------------------------------------------------------


def _as_integers(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, not {array.ndim}")
    # An empty list becomes an array of floats, which is no fault of the caller.
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, not {array.dtype}")
    return array.astype(np.intp, copy=False)


def _check_ids(name: str, ids: np.ndarray, labels: Sequence[bytes]) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= len(labels)):
        raise ValueError(f"{name} holds an index outside the {len(labels)} labels")


def _check_offsets(offsets: np.ndarray, N: int) -> None:
    if not offsets.size or offsets[0] != 0 or offsets[-1] != N:
        raise ValueError(f"offsets must begin with 0 and end with {N}")
    if (offsets[1:] < offsets[:-1]).any():
        raise ValueError("offsets must not decrease")


def _count_sequences(right: np.ndarray, offsets: np.ndarray) -> tuple[int, int]:
    """Number of sequences with tokens, and of those with all tokens right."""
    right_before = np.concatenate(([0], np.cumsum(right)))  # [N + 1]
    lengths = np.diff(offsets)  # [S]
    all_right = np.diff(right_before[offsets]) == lengths  # [S]
    has_tokens = lengths > 0  # [S]
    return int(has_tokens.sum()), int((has_tokens & all_right).sum())


def score(
    gold: Any, predicted: Any, offsets: Any, labels: Sequence[bytes]
) -> Scores:
    """Score predicted labels against gold labels.

    gold, predicted: [N] integers, indices into `labels`
    offsets: [S + 1] integers, first token of each sequence, then N
    labels: [K] label texts; indices of equal texts are equal labels
    """
    gold = _as_integers("gold", gold)
    predicted = _as_integers("predicted", predicted)
    offsets = _as_integers("offsets", offsets)
    if gold.size != predicted.size:
        raise ValueError(f"{gold.size} gold but {predicted.size} predicted labels")
    _check_ids("gold", gold, labels)
    _check_ids("predicted", predicted, labels)
    _check_offsets(offsets, gold.size)

    table = _label_table(labels)
    right = table.text[gold] == table.text[predicted]  # [N]
    sequences, correct_sequences = _count_sequences(right, offsets)
    phrases, by_type = _count_phrases(
        _find_phrases(gold, offsets, table),
        _find_phrases(predicted, offsets, table),
        table.type_names,
    )
    return Scores(
        tokens=gold.size,
        correct_tokens=int(right.sum()),
        sequences=sequences,
        correct_sequences=correct_sequences,
        phrases=phrases,
        by_type=by_type,
    )

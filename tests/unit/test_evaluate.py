"""Tests of crftool.evaluate: hand-worked cases and a token-by-token twin."""

import json
import random

import numpy as np
import pytest

from crftool.evaluate import PhraseCounts, Scores, score

# --- the twin: conlleval's rules, one token at a time -------------------------


def parse(label):
    tag, dash, rest = label.partition(b"-")
    kind = rest if dash else b""
    return (tag, b"") if kind == b"0" else (tag, kind)


def starts_phrase(before, here):
    (tag_before, kind_before), (tag, kind) = before, here
    if tag in (b"[", b"]"):
        return True
    if tag not in (b"O", b".") and kind_before != kind:
        return True
    if tag == b"B":
        return tag_before in (b"B", b"I", b"O")
    if tag in (b"I", b"E"):
        return tag_before in (b"E", b"O")
    return False


def ends_phrase(before, here):
    (tag_before, kind_before), (tag, kind) = before, here
    if tag_before in (b"[", b"]"):
        return True
    if tag_before not in (b"O", b".") and kind_before != kind:
        return True
    if tag_before in (b"B", b"I"):
        return tag in (b"B", b"O")
    if tag_before == b"E":
        return tag in (b"E", b"I", b"O")
    return False


class Twin:
    """Running state over one token after the other."""

    def __init__(self):
        self.gold_before = self.found_before = (b"O", b"")
        self.right_so_far = False
        self.gold, self.found, self.correct = {}, {}, {}

    @staticmethod
    def count(table, kind):
        table[kind] = table.get(kind, 0) + 1

    def step(self, gold, found):
        gold_ends = ends_phrase(self.gold_before, gold)
        found_ends = ends_phrase(self.found_before, found)
        if self.right_so_far:
            same_before = self.gold_before[1] == self.found_before[1]
            if gold_ends and found_ends and same_before:
                self.right_so_far = False
                self.count(self.correct, self.gold_before[1])
            elif gold_ends != found_ends or gold[1] != found[1]:
                self.right_so_far = False
        gold_starts = starts_phrase(self.gold_before, gold)
        found_starts = starts_phrase(self.found_before, found)
        if gold_starts and found_starts and gold[1] == found[1]:
            self.right_so_far = True
        if gold_starts:
            self.count(self.gold, gold[1])
        if found_starts:
            self.count(self.found, found[1])
        self.gold_before, self.found_before = gold, found

    def finish(self):
        if self.right_so_far:
            self.count(self.correct, self.gold_before[1])


def twin_score(gold_sequences, found_sequences):
    twin = Twin()
    tokens = correct_tokens = sequences = correct_sequences = 0
    for gold_labels, found_labels in zip(gold_sequences, found_sequences):
        right = 0
        for gold, found in zip(map(parse, gold_labels), map(parse, found_labels)):
            twin.step(gold, found)
            right += gold == found
        twin.step((b"O", b""), (b"O", b""))
        tokens += len(gold_labels)
        correct_tokens += right
        sequences += len(gold_labels) > 0
        correct_sequences += 0 < len(gold_labels) == right
    twin.finish()
    tables = (twin.gold, twin.found, twin.correct)
    by_type = {
        kind: PhraseCounts(*(table.get(kind, 0) for table in tables))
        for kind in twin.gold.keys() | twin.found.keys()
    }
    phrases = PhraseCounts(*(sum(table.values()) for table in tables))
    return Scores(
        tokens, correct_tokens, sequences, correct_sequences, phrases, by_type
    )


# --- helpers ------------------------------------------------------------------


def encode(gold_sequences, found_sequences, labels):
    """Arguments of `score` for sequences of label texts."""
    index = {label: i for i, label in enumerate(labels)}

    def ids(sequences):
        return np.array([index[x] for seq in sequences for x in seq], dtype=np.int32)

    offsets = np.cumsum([0] + [len(seq) for seq in gold_sequences])
    return ids(gold_sequences), ids(found_sequences), offsets, labels


def score_texts(gold_sequences, found_sequences):
    everything = [x for seq in gold_sequences + found_sequences for x in seq]
    labels = sorted(set(everything))
    return score(*encode(gold_sequences, found_sequences, labels))


def score_line(gold, found):
    """Score one sequence given as two lines of blank-separated labels."""
    return score_texts([gold.encode().split()], [found.encode().split()])


def phrase_counts(gold, found):
    phrases = score_line(gold, found).phrases
    return phrases.gold, phrases.found, phrases.correct


TAGS = [b"B", b"I", b"E", b"O", b".", b"[", b"]"]
TYPES = [b"NP", b"VP", b""]
ALL_LABELS = [tag + b"-" + kind for tag in TAGS for kind in TYPES]
ALL_LABELS += TAGS + [b"NN", b"NN-NP", b"-NP", b"", b"B-0", b"I-A-B"]
IOB_LABELS = [b"O", b"B-NP", b"I-NP", b"B-VP", b"I-VP"]
# An outside token ends every phrase of these, so sequences do not interact.
CLOSED_LABELS = [x for x in ALL_LABELS if parse(x)[0] in (b"B", b"I", b"E", b"[", b"]")]
CLOSED_LABELS += [b"O"]


def random_sequences(rng, labels, noise, longest=12, most=6):
    """Gold sequences and copies of them with a share `noise` of labels redrawn."""

    def noisy(label):
        return rng.choice(labels) if rng.random() < noise else label

    S = rng.randint(0, most)
    lengths = [rng.choice([0, 1, rng.randint(1, longest)]) for _ in range(S)]
    gold = [[rng.choice(labels) for _ in range(n)] for n in lengths]
    return gold, [[noisy(label) for label in sequence] for sequence in gold]


# --- against the twin -----------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    "alphabet", ["all", "iob", "untyped", "one_type", "running_on"]
)
def test_score_equals_twin_on_random_sequences(alphabet, noise):
    labels = {
        "all": ALL_LABELS,
        "iob": IOB_LABELS,
        "untyped": TAGS + [b"NN"],
        "one_type": [tag + b"-NP" for tag in TAGS] + [b"O", b"NN-NP"],
        # Few labels, rich in those that let a phrase run over a boundary.
        "running_on": [b"B-NP", b".-NP", b".-VP", b"O", b"NN-VP", b"NN", b"B"],
    }[alphabet]
    rng = random.Random(f"{alphabet} {noise}")
    for _ in range(1000):
        gold, found = random_sequences(rng, labels, noise)
        assert score(*encode(gold, found, labels)) == twin_score(gold, found)


def test_score_equals_twin_on_all_short_pairs():
    labels = [b"B-NP", b"I-VP", b"O", b".-NP"]
    sequences = [[a, b, c] for a in labels for b in labels for c in labels]
    for gold in sequences:
        for found in sequences:
            fast = score(*encode([gold], [found], labels))
            assert fast == twin_score([gold], [found])


# --- hand-worked cases ----------------------------------------------------------


@pytest.mark.parametrize(
    "gold, found, expected",
    [
        # IOB1 and IOB2 spellings of one phrase are the same phrase.
        ("I-NP I-NP O", "B-NP I-NP O", (1, 1, 1)),
        # In IOB1 only B separates two phrases of a type: I I is one phrase.
        ("I-NP B-NP O", "I-NP I-NP O", (2, 1, 0)),
        ("I-NP I-VP O", "B-NP B-VP O", (2, 2, 2)),
        # I after O starts a phrase.
        ("O I-NP O", "O B-NP O", (1, 1, 1)),
        # A change of type starts a phrase although the tag says inside.
        ("B-NP I-VP", "B-NP I-VP", (2, 2, 2)),
        ("B-NP I-VP", "B-NP I-NP", (2, 1, 0)),
        # The predicted phrase is too long, too short, of another type.
        ("B-NP O O", "B-NP I-NP O", (1, 1, 0)),
        ("B-NP I-NP O", "B-NP O O", (1, 1, 0)),
        ("B-NP I-NP", "B-VP I-VP", (1, 1, 0)),
        # Types differ only in the second token: both end, then differ.
        ("B-NP I-VP O", "B-NP I-PP O", (2, 2, 1)),
        # Same end and type, different start.
        ("O B-NP I-NP", "B-NP I-NP I-NP", (1, 1, 0)),
        # Nothing but the end of the data closes the phrase.
        ("O B-NP", "O B-NP", (1, 1, 1)),
        # E closes: E E and E I separate phrases, but E B does not.
        ("I-NP E-NP E-NP", "I-NP E-NP I-NP", (2, 2, 2)),
        ("E-NP B-NP", "E-NP B-NP", (1, 1, 1)),
        # Each bracket is a phrase of one token.
        ("[-NP ]-NP O", "[-NP [-NP O", (2, 2, 2)),
        ("[-NP I-NP", "[-NP I-NP", (1, 1, 1)),
        # `.` neither starts nor ends a phrase, so a phrase runs on over it.
        (".-NP O", ".-NP O", (0, 0, 0)),
        ("B-NP .-NP I-NP O", "B-NP I-NP I-NP O", (1, 1, 1)),
        # An unknown tag with a type starts a phrase where the type changes.
        ("O X-NP X-NP X-VP", "O B-NP I-NP B-VP", (2, 2, 2)),
    ],
)
def test_phrases_by_hand(gold, found, expected):
    assert phrase_counts(gold, found) == expected


def test_phrase_open_at_boundary_runs_on_as_in_conlleval():
    # `.` keeps the first phrase open over the boundary; the start in the second
    # sequence takes its place, and only one of the two is counted as correct.
    sequences = [[b"B-NP", b".-NP"], [b"B-NP"]]
    result = score_texts(sequences, sequences)
    assert result.phrases == PhraseCounts(2, 2, 1)


def test_boundary_ends_phrases():
    gold = [[b"B-NP"], [b"I-NP"]]
    assert score_texts(gold, gold).phrases == PhraseCounts(2, 2, 2)
    joined = [[b"B-NP", b"I-NP"]]
    assert score_texts(joined, joined).phrases == PhraseCounts(1, 1, 1)


def test_type_is_everything_after_the_first_dash():
    result = score_line("B-A-B I-A-B O", "B-A-B I-A-B O")
    assert result.by_type == {b"A-B": PhraseCounts(1, 1, 1)}


def test_type_zero_is_the_empty_type_as_in_conlleval():
    result = score_line("B-0 O", "B O")
    assert result.by_type == {b"": PhraseCounts(1, 1, 1)}
    assert result.correct_tokens == 2


def test_labels_without_phrases_have_accuracy_only():
    result = score_line("NN VB NN DT", "NN NN NN DT")
    assert result.phrases == PhraseCounts(0, 0, 0)
    assert result.by_type == {}
    assert (result.precision, result.recall, result.f1) == (0.0, 0.0, 0.0)
    assert result.token_accuracy == 75.0
    assert result.token_error == 25.0


def test_counts_of_types():
    result = score_line("B-NP I-NP B-VP O B-PP", "B-NP I-NP B-NP O B-PP")
    assert result.by_type == {
        b"NP": PhraseCounts(1, 2, 1),
        b"PP": PhraseCounts(1, 1, 1),
        b"VP": PhraseCounts(1, 0, 0),
    }
    assert list(result.by_type) == [b"NP", b"PP", b"VP"]


def test_tokens_and_sequences():
    gold = [[b"B-NP", b"O"], [], [b"O"], [b"B-VP"]]
    found = [[b"B-NP", b"O"], [], [b"B-NP"], [b"I-VP"]]
    result = score_texts(gold, found)
    assert (result.tokens, result.correct_tokens) == (4, 2)
    assert (result.sequences, result.correct_sequences) == (3, 1)
    assert result.sequence_accuracy == pytest.approx(100 / 3)
    assert result.phrases == PhraseCounts(2, 3, 2)


def test_equal_texts_under_different_ids_are_equal_labels():
    labels = [b"B-NP", b"O", b"B-NP", b"O", b"I-NP"]
    result = score([0, 4, 1], [2, 4, 3], [0, 3], labels)
    assert result.correct_tokens == 3
    assert result.by_type == {b"NP": PhraseCounts(1, 1, 1)}


# --- empty data and wrong arguments -----------------------------------------------


@pytest.mark.parametrize("offsets", [[0], [0, 0], [0, 0, 0]])
def test_no_tokens_gives_zeros(offsets):
    result = score([], [], offsets, [b"O"])
    assert result == Scores.empty()
    assert result.token_accuracy == result.token_error == 0.0
    assert result.sequence_accuracy == result.f1 == 0.0
    assert result.report() == (
        b"processed 0 tokens with 0 phrases; found: 0 phrases; correct: 0.\n"
    )


@pytest.mark.parametrize(
    "gold, predicted, offsets",
    [
        ([0, 1], [0], [0, 2]),
        ([0, 2], [0, 1], [0, 2]),
        ([0, 1], [0, -1], [0, 2]),
        ([0, 1], [0, 1], [0, 1]),
        ([0, 1], [0, 1], [1, 2]),
        ([0, 1], [0, 1], [0, 2, 1, 2]),
        ([0, 1], [0, 1], []),
        ([0.0, 1.0], [0, 1], [0, 2]),
        ([[0, 1]], [[0, 1]], [0, 2]),
    ],
)
def test_wrong_arguments_are_refused(gold, predicted, offsets):
    with pytest.raises(ValueError):
        score(gold, predicted, offsets, [b"O", b"B-NP"])


# --- report ---------------------------------------------------------------------


def test_report_text():
    gold = [[b"B-NP", b"I-NP", b"O", b"B-VP"], [b"B-NP", b"B-PP", b"O"]]
    found = [[b"B-NP", b"I-NP", b"O", b"B-NP"], [b"B-NP", b"I-NP", b"B-ADJP"]]
    assert score_texts(gold, found).report() == (
        b"processed 7 tokens with 4 phrases; found: 4 phrases; correct: 1.\n"
        b"accuracy:  57.14%; precision:  25.00%; recall:  25.00%; FB1:  25.00\n"
        b"             ADJP: precision:   0.00%; recall:   0.00%; FB1:   0.00  1\n"
        b"               NP: precision:  33.33%; recall:  50.00%; FB1:  40.00  3\n"
        b"               PP: precision:   0.00%; recall:   0.00%; FB1:   0.00  0\n"
        b"               VP: precision:   0.00%; recall:   0.00%; FB1:   0.00  0\n"
    )


def test_report_of_perfect_labels_and_bytewise_order():
    sequences = [[b"B-b", b"B-B", b"B-\xc3\xa9", b"B-a-very-long-type-name"]]
    assert score_texts(sequences, sequences).report() == (
        b"processed 4 tokens with 4 phrases; found: 4 phrases; correct: 4.\n"
        b"accuracy: 100.00%; precision: 100.00%; recall: 100.00%; FB1: 100.00\n"
        b"                B: precision: 100.00%; recall: 100.00%; FB1: 100.00  1\n"
        b"a-very-long-type-name: precision: 100.00%; recall: 100.00%; FB1: 100.00  1\n"
        b"                b: precision: 100.00%; recall: 100.00%; FB1: 100.00  1\n"
        b"               \xc3\xa9: precision: 100.00%; recall: 100.00%; "
        b"FB1: 100.00  1\n"
    )


def test_report_without_phrases_shows_zeros():
    assert score_line("NN VB", "NN NN").report() == (
        b"processed 2 tokens with 0 phrases; found: 0 phrases; correct: 0.\n"
        b"accuracy:  50.00%; precision:   0.00%; recall:   0.00%; FB1:   0.00\n"
    )


def test_report_repeats_the_empty_type_as_conlleval_does():
    line = b"                 : precision: 100.00%; recall: 100.00%; FB1: 100.00  1\n"
    assert score_line("B O", "B O").report().endswith(b"100.00\n" + line + line)
    only_gold = score_line("B O", "O O").report()
    assert only_gold.count(b" : precision") == 1


# --- addition and JSON ----------------------------------------------------------


def test_addition_equals_scoring_the_joined_data():
    rng = random.Random(5)
    for _ in range(200):
        gold_a, found_a = random_sequences(rng, CLOSED_LABELS, 0.3)
        gold_b, found_b = random_sequences(rng, CLOSED_LABELS, 0.3)
        a = score(*encode(gold_a, found_a, CLOSED_LABELS))
        b = score(*encode(gold_b, found_b, CLOSED_LABELS))
        joined = encode(gold_a + gold_b, found_a + found_b, CLOSED_LABELS)
        assert a + b == score(*joined)
        assert (a + b).report() == score(*joined).report()


def test_empty_is_neutral_and_other_types_are_refused():
    result = score_line("B-NP I-NP O B-VP", "B-NP O O B-VP")
    assert result + Scores.empty() == result
    assert Scores.empty() + result == result
    with pytest.raises(TypeError):
        result + 1
    with pytest.raises(TypeError):
        result.phrases + 1


def test_to_dict_goes_through_json():
    result = score_texts([[b"B-NP", b"B-\xff", b"O"]], [[b"B-NP", b"O", b"O"]])
    as_dict = result.to_dict()
    assert json.loads(json.dumps(as_dict)) == as_dict
    np_counts = {"gold": 1, "found": 1, "correct": 1}
    full = {"precision": 100.0, "recall": 100.0, "f1": 100.0}
    zero = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert as_dict == {
        "tokens": 3,
        "correct_tokens": 2,
        "token_accuracy": 100 * 2 / 3,
        "token_error": 100 / 3,
        "sequences": 1,
        "correct_sequences": 0,
        "sequence_accuracy": 0.0,
        "phrases": {
            "gold": 2,
            "found": 1,
            "correct": 1,
            "precision": 100.0,
            "recall": 50.0,
            "f1": result.f1,
        },
        "by_type": {
            "NP": np_counts | full,
            "\\xff": {"gold": 1, "found": 0, "correct": 0} | zero,
        },
    }
    assert result.f1 == pytest.approx(200 / 3)

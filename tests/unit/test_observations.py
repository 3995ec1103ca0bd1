"""Tests of crftool.corpus.observations, values and dataset.

The twin does what CRF++ does: it writes the text of every observation and counts texts in a dict.
"""

import functools
import random
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from crftool.corpus import dataset as dataset_module
from crftool.corpus import values as values_module
from crftool.corpus.dataset import UNKNOWN_LABEL, FeatureSpace, read_labelled_data, read_training_data
from crftool.corpus.observations import NONE
from crftool.corpus.tokens import read_tokens
from crftool.corpus.template import Template
from crftool.errors import DataError

# --- the twin: texts and dicts ---------------------------------------------------------


class Macro(NamedTuple):
    command: str
    row: int
    column: int
    absolute: bool = False
    pattern: str | None = None

    def render(self):
        pattern = f',"{self.pattern}"' if self.pattern else ""
        return f"%{self.command}[{'@' * self.absolute}{self.row},{self.column}{pattern}]".encode()


# What the patterns of %t and %m find, said in Python.
PATTERNS = {
    "^.?.?": lambda text: text[:2],
    "\\d*$": lambda text: re.search("[0-9]*\\Z", text)[0],
    "/": lambda text: "/" if "/" in text else None,
}


def twin_derive(macro, value):
    if macro.command == "x":
        return value
    text = value.decode("utf-8", "surrogateescape")
    if macro.command == "X":
        text = text.lower()
    else:
        found = PATTERNS[macro.pattern](text)
        text = ("false" if found is None else "true") if macro.command in "tT" else found or ""
        if macro.command == "M":
            text = text.lower()
    return text.encode("utf-8", "surrogateescape")


def twin_value(macro, sequence, t):
    """What a macro stands for at token t; a token is a list of columns."""
    T = len(sequence)
    if not macro.absolute:
        position = t + macro.row
    else:
        position = T + macro.row if macro.row < 0 else macro.row - 1
    if 0 <= position < T:
        return twin_derive(macro, sequence[position][macro.column])
    distance = position if position < 0 else position - T + 1
    if macro.command in "xX":
        return b"_B%+d" % distance
    near = abs(distance) <= 4
    return twin_derive(macro, b"_x%+d" % distance if near else b"_x-#" if distance < 0 else b"_x+#")


def twin_text(line, sequence, t):
    """A line is a list of bytes and macros that starts with its type letter."""
    return b"".join(part if isinstance(part, bytes) else twin_value(part, sequence, t) for part in line)


def twin_texts(lines, kind, sequences, first_token):
    """[N][K] texts of the templates of one kind; None where a bigram has no previous label."""
    chosen = [line for line in lines if line[0][:1] in (kind, b"*")]
    return [
        [twin_text(line, sequence, t) if t or first_token else None for line in chosen]
        for sequence in sequences
        for t in range(len(sequence))
    ]


def twin_counts(texts, min_count=1):
    """{text: occurrences} of what occurs often enough."""
    counts = Counter(text for row in texts for text in row if text is not None)
    return {text: n for text, n in counts.items() if n >= min_count}


# --- helpers --------------------------------------------------------------------------


def render_template(lines):
    return b"\n".join(
        b"".join(part if isinstance(part, bytes) else part.render() for part in line) for line in lines
    ) + b"\n"


def render_corpus(sequences):
    return b"\n".join(b"".join(b"\t".join(token) + b"\n" for token in sequence) for sequence in sequences)


def write(folder, data, name="train.txt"):
    path = folder / name
    path.write_bytes(data)
    return str(path)


def learn(folder, lines, sequences, **options):
    """(encoder, dataset) of sequences whose last column is the label."""
    template = Template(lines if isinstance(lines, bytes) else render_template(lines))
    return read_training_data(write(folder, render_corpus(sequences)), template, **options)


def bigram_ids(data, begin_label):
    """[N][Kb] bigram observations of every token; NONE at first tokens without a begin label."""
    ids = data.bigrams[data.transition].copy()
    if not begin_label:
        ids[data.offsets[:-1]] = NONE
    return ids


def encode(encoder, folder, sequences, size=1 << 20):
    """(unigram ids [N][K], bigram ids [N][Kb]) of new sequences."""
    path = write(folder, render_corpus(sequences), "new.txt")
    blocks = [encoder.encode(tokens) for tokens in read_tokens(path, size)]
    return (np.concatenate([block.unigrams for block in blocks]),
            np.concatenate([bigram_ids(block, encoder.begin_label) for block in blocks]))


def id_of_text(ids, texts, kept):
    """{text: id} as a matrix of ids says; ids and texts must be one to one."""
    assert ids.shape == (len(texts), len(texts[0]) if texts else ids.shape[1])
    found = {}
    for id_row, text_row in zip(ids.tolist(), texts):
        for index, text in zip(id_row, text_row):
            if text in kept:
                assert found.setdefault(text, index) == index, text
            else:
                assert index == NONE, text
    assert sorted(found.values()) == list(range(len(kept))), "each text has an id of its own"
    return found


def check_against_twin(encoder, data, lines, sequences, begin_label=False, min_count=1):
    """Everything that training data says about observations; ({text: id} of U, of B)."""
    labels = sorted({token[-1] for sequence in sequences for token in sequence})
    Y, R = len(labels), len(labels) + begin_label
    assert encoder.labels == labels
    assert data.labels.tolist() == [labels.index(token[-1]) for sequence in sequences for token in sequence]
    assert data.offsets.tolist() == np.cumsum([0] + [len(sequence) for sequence in sequences]).tolist()
    assert data.S == len(sequences) and data.N == sum(map(len, sequences))
    maps, weights = [], 0
    for kind, observations, ids, width in (
        (b"U", encoder.unigrams, data.unigrams, Y),
        (b"B", encoder.bigrams, bigram_ids(data, begin_label), R * Y),
    ):
        texts = twin_texts(lines, kind, sequences, kind == b"U" or begin_label)
        kept = twin_counts(texts, min_count)
        maps.append(id_of_text(ids, texts, kept))
        assert {text: observations.counts[index] for text, index in maps[-1].items()} == kept
        assert (np.diff(observations.counts) <= 0).all(), "ids fall with frequency"
        assert observations.size == len(kept)
        weights += len(kept) * width
    assert encoder.space == FeatureSpace(Y, len(maps[0]), len(maps[1]), begin_label)
    assert encoder.space.F == weights
    return maps


def check_new_data(encoder, folder, maps, lines, sequences, begin_label=False):
    """Exactly the texts of the training data are found in other data."""
    for kind, ids, known in zip((b"U", b"B"), encode(encoder, folder, sequences), maps):
        texts = twin_texts(lines, kind, sequences, kind == b"U" or begin_label)
        expected = [[known.get(text, NONE) for text in row] for row in texts]
        assert ids.tolist() == expected


# --- random templates and corpora --------------------------------------------------------

# Values that hold separators, spell padding, differ in case, or are no UTF-8.
VALUES = [b"a", b"b", b"ab", b"/", b"a/", b"/a", b"a/b", b"//", b":", b"_B-1", b"_B+1", b"1", b"0:", b"A",
          b"aB2", b"\xc3\x89", b"\xc3\xa9", b"\xff", b"|", b"\x00"]
STARTS = [b"", b"1", b"10:", b"0:", b"00:", b"a", b"01:/"]
INNER = [b"", b"/", b"//", b":", b"/:/", b"a", b"ab", b"|"]
ENDS = [b"", b"", b"", b"/", b"b"]
FAMILIES = {
    "identifiers": dict(starts=[b"%02d:" % i for i in range(20)], inner=[b"/"], ends=[b""]),
    "no identifiers": dict(starts=[b""], inner=[b"/"], ends=[b""]),
    "empty separators": dict(starts=[b"", b":"], inner=[b""], ends=[b""]),
    "long separators": dict(starts=[b":"], inner=[b"//", b"/:/", b"a/a"], ends=[b"", b"/"]),
    "anything": dict(starts=STARTS, inner=INNER, ends=ENDS),
}


def random_macro(rng, columns):
    if rng.random() < 0.75:
        return Macro("x", rng.randint(-2, 2), rng.randrange(columns))
    absolute = rng.random() < 0.3
    row = rng.choice([-5, -1, 1, 2, 6]) if absolute else rng.randint(-6, 6)
    command = rng.choice("xXtTmM")
    pattern = rng.choice(list(PATTERNS)) if command in "tTmM" else None
    return Macro(command, row, rng.randrange(columns), absolute, pattern)


def random_line(rng, columns, starts, inner, ends):
    line = [rng.choice(b"UUUBB*".decode()).encode() + rng.choice(starts)]
    for f in range(rng.choice([0, 1, 1, 2, 2, 3])):
        line += [rng.choice(inner)] * (f > 0) + [random_macro(rng, columns)]
    return line + [rng.choice(ends)]


def random_lines(rng, family, columns=2):
    return [random_line(rng, columns, **FAMILIES[family]) for _ in range(rng.randint(1, 6))]


def random_sequences(rng, values=VALUES, most=6, longest=5, columns=2):
    few = rng.sample(values, min(len(values), rng.choice([3, 6, len(values)])))
    return [
        [[rng.choice(few) for _ in range(columns)] + [rng.choice([b"X", b"Y", b"\xff-Z"])]
         for _ in range(rng.randint(1, longest))]
        for _ in range(rng.randint(1, most))
    ]


@pytest.mark.parametrize("begin_label", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_random_data_equal_the_twin(tmp_path, family, begin_label):
    rng = random.Random(f"{family} {begin_label}")
    for _ in range(40):
        lines, sequences = random_lines(rng, family), random_sequences(rng)
        min_count = rng.choice([1, 1, 2, 3])
        encoder, data = learn(tmp_path, lines, sequences, begin_label=begin_label, min_count=min_count)
        maps = check_against_twin(encoder, data, lines, sequences, begin_label, min_count)
        check_new_data(encoder, tmp_path, maps, lines, sequences, begin_label)
        for _ in range(3):
            check_new_data(encoder, tmp_path, maps, lines, random_sequences(rng), begin_label)


def test_templates_with_many_shared_prefixes(tmp_path):
    """Literals that are prefixes of each other, with and without fields."""
    x, y = Macro("x", 0, 0), Macro("x", 0, 1)
    lines = [[b"U", x], [b"U", y], [b"Ua"], [b"Ua", x], [b"Uab"], [b"Ua", x, b"b", y], [b"U", x, y], [b"U"],
             [b"B"], [b"Ba"], [b"B", x], [b"*", x], [b"*a"]]
    rng = random.Random(1)
    for _ in range(60):
        sequences = random_sequences(rng, [b"a", b"b", b"ab", b"aa", b"ba", b"bab"])
        encoder, data = learn(tmp_path, lines, sequences)
        maps = check_against_twin(encoder, data, lines, sequences)
        check_new_data(encoder, tmp_path, maps, lines, random_sequences(rng, [b"a", b"b", b"ab", b"abb"]))


@pytest.mark.parametrize("family", FAMILIES)
def test_groups_share_no_observation(tmp_path, family):
    rng = random.Random(family)
    for _ in range(40):
        encoder, data = learn(tmp_path, random_lines(rng, family), random_sequences(rng))
        for observations, ids in ((encoder.unigrams, data.unigrams), (encoder.bigrams, bigram_ids(data, False))):
            groups = observations.groups()
            assert sorted(k for group in groups for k in group) == list(range(ids.shape[1]))
            members = [set(ids[:, group].flat) - {NONE} for group in groups]
            assert sum(map(len, members)) == len(set().union(*members)), "an observation is in two groups"


def test_templates_with_identifiers_are_groups_of_their_own(tmp_path):
    """Else nothing could be done group by group."""
    encoder, _ = learn(tmp_path, b"U00:%x[0,0]\nU01:%x[0,0]\nU02\nB\nB01:%x[0,0]\n", [[[b"a", b"b", b"X"]]])
    assert encoder.unigrams.groups() == [[0], [1], [2]]


@pytest.mark.parametrize("begin_label", [False, True])
def test_weights_per_line_sum_to_all_weights(tmp_path, begin_label):
    rng = random.Random(begin_label)
    for _ in range(60):
        lines, sequences = random_lines(rng, rng.choice(list(FAMILIES))), random_sequences(rng)
        encoder, _ = learn(tmp_path, lines, sequences, begin_label=begin_label, min_count=rng.choice([1, 2]))
        census, space = encoder.weights_per_line(), encoder.space
        assert sum(weights for _, _, weights in census) == space.F
        unigrams = len(encoder.unigrams.lines)
        assert [line for line, _, _ in census] == encoder.unigrams.lines + encoder.bigrams.lines
        assert sum(n for _, n, _ in census[:unigrams]) == space.O
        assert sum(n for _, n, _ in census[unigrams:]) == space.Ob


# --- the blocks in which data arrive ------------------------------------------------------


def use_block_size(monkeypatch, size):
    monkeypatch.setattr(dataset_module, "read_tokens", functools.partial(read_tokens, size=size))


@pytest.mark.parametrize("size", [1, 7, 64])
def test_training_data_in_blocks_equal_the_twin(tmp_path, monkeypatch, size):
    use_block_size(monkeypatch, size)
    rng = random.Random(size)
    for _ in range(40):
        lines, sequences = random_lines(rng, rng.choice(list(FAMILIES))), random_sequences(rng, most=12)
        begin_label, min_count = rng.random() < 0.5, rng.choice([1, 2])
        encoder, data = learn(tmp_path, lines, sequences, begin_label=begin_label, min_count=min_count)
        check_against_twin(encoder, data, lines, sequences, begin_label, min_count)


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_do_not_depend_on_the_blocks(tmp_path, monkeypatch, family):
    """A pipe hands over its bytes in pieces of chance size; the same data must give the same model."""
    rng = random.Random(family)
    for _ in range(20):
        lines, sequences = random_lines(rng, family), random_sequences(rng, most=12)
        results = []
        for size in (1 << 20, 64, 7, 1):
            use_block_size(monkeypatch, size)
            _, data = learn(tmp_path, lines, sequences)
            results.append((data.unigrams.tolist(), bigram_ids(data, False).tolist()))
        assert all(result == results[0] for result in results)


def test_new_data_in_blocks_equal_the_twin(tmp_path):
    rng = random.Random(5)
    for _ in range(20):
        lines = random_lines(rng, rng.choice(list(FAMILIES)))
        encoder, _ = learn(tmp_path, lines, random_sequences(rng))
        new = random_sequences(rng, most=12)
        whole = [ids.tolist() for ids in encode(encoder, tmp_path, new)]
        for size in (1, 7, 64):
            assert [ids.tolist() for ids in encode(encoder, tmp_path, new, size)] == whole


# --- the example of CRF++ -----------------------------------------------------------------

EXAMPLE = b"""He PRP B-NP
reckons VBZ B-VP
the DT B-NP
current JJ I-NP
account NN I-NP

It PRP B-NP
is VBZ B-VP
a DT B-NP
test NN I-NP
. . O
"""
EXAMPLE_TEMPLATE = b"""# comment
U00:%x[-2,0]
U01:%x[0,0]
U02:%x[0,0]/%x[0,1]
UABC%x[1,1]123
U

B
B01:%x[0,1]
"""
EXAMPLE_UNIGRAMS = """
U00:_B-2 U00:_B-1 U00:He U00:reckons U00:the U00:It U00:is U00:a
U01:He U01:reckons U01:the U01:current U01:account U01:It U01:is U01:a U01:test U01:.
U02:He/PRP U02:reckons/VBZ U02:the/DT U02:current/JJ U02:account/NN U02:It/PRP U02:is/VBZ U02:a/DT U02:test/NN U02:./.
UABCVBZ123 UABCDT123 UABCJJ123 UABCNN123 UABC_B+1123 UABC.123
U
"""
EXAMPLE_BIGRAMS = "B B01:VBZ B01:DT B01:JJ B01:NN B01:."


def stored_texts(observations, values):
    """{id: text} as the tables of an encoder spell it."""
    texts = {}
    for t, literals in enumerate(observations.literals):
        for key, row in zip(observations.keys(t).tolist(), observations.rows[t].tolist()):
            parts = [literals[0]]
            for value, literal in zip(key, literals[1:]):
                parts += [values.table.text(value), literal]
            if row != NONE:
                assert texts.setdefault(row, b"".join(parts)) == b"".join(parts)
    return texts


def test_example_of_crfpp(tmp_path):
    encoder, data = read_training_data(write(tmp_path, EXAMPLE), Template(EXAMPLE_TEMPLATE))
    assert encoder.space == FeatureSpace(4, 35, 6, False) and encoder.space.F == 236
    assert encoder.labels == [b"B-NP", b"B-VP", b"I-NP", b"O"]
    assert data.labels.tolist() == [0, 1, 0, 2, 2, 0, 1, 0, 2, 3]
    unigrams = stored_texts(encoder.unigrams, encoder.values)
    assert sorted(unigrams.values()) == sorted(EXAMPLE_UNIGRAMS.encode().split())
    assert sorted(stored_texts(encoder.bigrams, encoder.values).values()) == sorted(EXAMPLE_BIGRAMS.encode().split())
    assert [unigrams[i] for i in data.unigrams[0]] == [b"U00:_B-2", b"U01:He", b"U02:He/PRP", b"UABCVBZ123", b"U"]
    assert [unigrams[i] for i in data.unigrams[9]] == [b"U00:a", b"U01:.", b"U02:./.", b"UABC_B+1123", b"U"]
    assert encoder.unigrams.counts[0] == 10, "the constant occurs at every token"


def test_example_of_crfpp_with_cut_off(tmp_path):
    """The bigrams are those that CRF++ keeps; the unigrams are counted by hand."""
    encoder, _ = read_training_data(write(tmp_path, EXAMPLE), Template(EXAMPLE_TEMPLATE), min_count=2)
    assert sorted(stored_texts(encoder.bigrams, encoder.values).values()) == [b"B", b"B01:DT", b"B01:NN", b"B01:VBZ"]
    assert sorted(stored_texts(encoder.unigrams, encoder.values).values()) == [
        b"U", b"U00:_B-1", b"U00:_B-2", b"UABCDT123", b"UABCNN123", b"UABCVBZ123", b"UABC_B+1123"]


# --- hand-worked cases --------------------------------------------------------------------


def test_bag_of_words_shares_its_observations(tmp_path):
    """Without identifiers a word is one observation, wherever it stands; it may count twice at a token."""
    encoder, data = learn(tmp_path, b"U%x[-1,0]\nU%x[0,0]\nU%x[1,0]\n",
                          [[[b"a", b"X"], [b"a", b"Y"], [b"b", b"X"]]])
    assert encoder.space.O == 4                      # _B-1, a, b, _B+1
    texts = stored_texts(encoder.unigrams, encoder.values)
    spelt = [[texts[i] for i in row] for row in data.unigrams]
    assert spelt == [[b"U_B-1", b"Ua", b"Ua"], [b"Ua", b"Ua", b"Ub"], [b"Ua", b"Ub", b"U_B+1"]]


def test_values_with_the_separator_spell_one_text(tmp_path):
    encoder, data = learn(tmp_path, b"U:%x[0,0]/%x[0,1]\n", [[[b"a/b", b"c", b"X"], [b"a", b"b/c", b"X"]]])
    assert encoder.space.O == 1 and encoder.unigrams.counts.tolist() == [2]
    assert data.unigrams.tolist() == [[0], [0]]


@pytest.mark.parametrize(
    "template, known, new",
    [
        (b"U:%x[0,0]/%x[0,1]", [b"a/b", b"c"], [b"a", b"b/c"]),
        (b"U:%x[0,0]/%x[0,1]", [b"a", b"b/c"], [b"a/b", b"c"]),
        (b"U%x[0,0]%x[0,1]", [b"ab", b"c"], [b"a", b"bc"]),
        (b"U%x[0,0]//%x[0,1]", [b"a/", b"b"], [b"a", b"/b"]),
        (b"U%x[0,0]aba%x[0,1]", [b"x", b"bay"], [b"xab", b"y"]),
    ],
)
def test_unknown_words_that_spell_a_known_text(tmp_path, template, known, new):
    encoder, _ = learn(tmp_path, template, [[[*known, b"X"]]])
    unigrams, _ = encode(encoder, tmp_path, [[new], [[b"quite", b"other"]], [known]])
    assert unigrams.tolist() == [[0], [NONE], [0]]


def test_a_text_known_from_another_template(tmp_path):
    encoder, data = learn(tmp_path, b"U%x[0,0]\nU%x[0,0]%x[0,1]\nUab\n", [[[b"c", b"d", b"X"]]])
    known = {text: row for row, text in stored_texts(encoder.unigrams, encoder.values).items()}
    assert sorted(known) == [b"Uab", b"Uc", b"Ucd"]
    unigrams, _ = encode(encoder, tmp_path, [[[b"cd", b"q"]], [[b"a", b"b"]]])
    assert unigrams.tolist() == [[known[b"Ucd"], NONE, known[b"Uab"]], [NONE, known[b"Uab"], known[b"Uab"]]]


def test_padding_is_text_like_any_other(tmp_path):
    """CRF++ cannot tell the padding from a word of that spelling."""
    encoder, _ = learn(tmp_path, b"U%x[-1,0]\n", [[[b"a", b"X"]]])
    unigrams, _ = encode(encoder, tmp_path, [[[b"_B-1"], [b"b"]]])
    assert unigrams.tolist() == [[0], [0]]


def test_bigrams_start_at_the_second_token(tmp_path):
    sequences = [[[b"a", b"X"], [b"b", b"Y"]], [[b"c", b"X"]]]
    encoder, _ = learn(tmp_path, b"B\nB01:%x[0,0]\n", sequences)
    assert sorted(stored_texts(encoder.bigrams, encoder.values).values()) == [b"B", b"B01:b"]
    encoder, data = learn(tmp_path, b"B\nB01:%x[0,0]\n", sequences, begin_label=True)
    assert sorted(stored_texts(encoder.bigrams, encoder.values).values()) == [b"B", b"B01:a", b"B01:b", b"B01:c"]
    assert encoder.space == FeatureSpace(2, 0, 4, True) and encoder.space.F == 4 * 3 * 2
    assert len(data.bigrams) == 3


def test_one_token_sequences_have_no_bigrams(tmp_path):
    """Two one-token sentences, U1:%x[0,0] and B: CRF++ makes 4 weights."""
    encoder, data = learn(tmp_path, b"U1:%x[0,0]\nB\n", [[[b"a", b"X"]], [[b"b", b"Y"]]])
    assert encoder.space.F == 4 and encoder.space.Ob == 0
    assert data.transition.tolist() == [0, 0] and data.bigrams.shape == (1, 1)
    _, bigrams = encode(encoder, tmp_path, [[[b"a"], [b"a"]]])
    assert bigrams.tolist() == [[NONE], [NONE]]


def test_templates_of_one_kind_only(tmp_path):
    sequences = [[[b"a", b"X"], [b"b", b"Y"]]]
    encoder, data = learn(tmp_path, b"U%x[0,0]\n", sequences)
    assert encoder.space == FeatureSpace(2, 2, 0, False) and data.bigrams.shape[1] == 0
    encoder, data = learn(tmp_path, b"B\n", sequences)
    assert encoder.space == FeatureSpace(2, 0, 1, False) and data.unigrams.shape == (2, 0)
    encoder, data = learn(tmp_path, b"*1:%x[0,0]\n", sequences)
    assert encoder.space == FeatureSpace(2, 2, 1, False) and encoder.space.F == 2 * 2 + 4


def test_transitions_are_shared(tmp_path):
    """Positions with the same bigram observations have one transition."""
    sequences = [[[b"a", b"X"], [b"b", b"Y"], [b"b", b"X"], [b"c", b"X"], [b"b", b"Y"]]]
    _, data = learn(tmp_path, b"B\nB01:%x[0,0]\n", sequences)
    assert len(data.bigrams) == 2
    assert data.transition[1] == data.transition[2] == data.transition[4] != data.transition[3]


def test_many_bigram_templates(tmp_path):
    """More templates than a key may have fields."""
    lines = [[b"B%02d:" % i, Macro("x", 0, 0)] for i in range(70)] + [[b"U%02d:" % i] for i in range(70)]
    sequences = [[[b"a", b"b", b"X"], [b"b", b"b", b"Y"], [b"c", b"b", b"X"]]]
    encoder, data = learn(tmp_path, lines, sequences)
    check_against_twin(encoder, data, lines, sequences)


def test_cut_off_counts_a_text_over_all_its_spellings(tmp_path):
    sequences = [[[b"a/b", b"c", b"X"], [b"a", b"b/c", b"X"], [b"d", b"e", b"X"]]]
    encoder, data = learn(tmp_path, b"U:%x[0,0]/%x[0,1]\n", sequences, min_count=2)
    assert data.unigrams.tolist() == [[0], [0], [NONE]] and encoder.space.O == 1
    unigrams, _ = encode(encoder, tmp_path, [[[b"a/b", b"c"], [b"d", b"e"]]])
    assert unigrams.tolist() == [[0], [NONE]]


def test_cut_off_above_every_count(tmp_path):
    encoder, data = learn(tmp_path, b"U%x[0,0]\nB\n", [[[b"a", b"X"], [b"b", b"Y"]]], min_count=99)
    assert encoder.space.F == 0 and (data.unigrams == NONE).all() and (data.bigrams == NONE).all()
    assert encoder.weights_per_line()[0][1:] == (0, 0)


def test_values_are_compared_across_columns(tmp_path):
    encoder, data = learn(tmp_path, b"U%x[0,0]\nU%x[0,1]\n", [[[b"a", b"b", b"X"], [b"b", b"a", b"X"]]])
    assert encoder.space.O == 2
    assert data.unigrams[0].tolist() == data.unigrams[1][::-1].tolist()


def test_macros_share_texts_with_columns(tmp_path):
    """%X of `A` and %x of `a` are the same text."""
    encoder, data = learn(tmp_path, b"U%x[0,0]\nU%X[0,0]\n", [[[b"a", b"X"], [b"A", b"X"]]])
    assert encoder.space.O == 2
    assert data.unigrams[0, 0] == data.unigrams[0, 1] == data.unigrams[1, 1] != data.unigrams[1, 0]


def test_lower_case_of_other_scripts_and_of_broken_text(tmp_path):
    words = ["Été".encode(), "ΩΜΈΓΑ".encode(), b"\xffA\xc3", "ПРИВЕТ".encode(), "東京".encode()]
    encoder, _ = learn(tmp_path, b"U%X[0,0]\n", [[[word, b"X"] for word in words]])
    assert set(stored_texts(encoder.unigrams, encoder.values).values()) == {
        "Uété".encode(), "Uωμέγα".encode(), b"U\xffa\xc3", "Uпривет".encode(), "U東京".encode()}


def test_forgetting_unknown_values_changes_nothing(tmp_path, monkeypatch):
    """A tagger that runs for weeks drops unknown words now and then."""
    from crftool.model import Model

    lines = [[b"U", Macro("X", 0, 0), b"/", Macro("x", -1, 1)], [b"U", Macro("m", 0, 0, False, "^.?.?")], [b"B"]]
    rng = random.Random(3)
    encoder, _ = learn(tmp_path, lines, random_sequences(rng))
    model = Model.from_training(encoder, np.ones(encoder.space.F), {})
    news = [random_sequences(rng, [b"%d" % i for i in range(50)] + VALUES) for _ in range(10)]
    remembering = [[ids.tolist() for ids in encode(model.encoder, tmp_path, new)] for new in news]
    monkeypatch.setattr(values_module, "FORGET_AFTER", 5)
    assert [[ids.tolist() for ids in encode(model.encoder, tmp_path, new)] for new in news] == remembering
    assert len(model.encoder.values.table) < 200


# --- labels and columns -------------------------------------------------------------------


def test_labels_are_sorted_as_bytes_and_may_be_added(tmp_path):
    sequences = [[[b"w", "é".encode()], [b"w", b"a"], [b"w", b"Z"], [b"w", b"B"]]]
    encoder, data = learn(tmp_path, b"U%x[0,0]\n", sequences)
    assert encoder.labels == [b"B", b"Z", b"a", "é".encode()] and data.labels.tolist() == [3, 2, 1, 0]
    encoder, data = learn(tmp_path, b"U%x[0,0]\n", sequences, more_labels=[b"C", b"a"])
    assert encoder.labels == [b"B", b"C", b"Z", b"a", "é".encode()] and data.labels.tolist() == [4, 3, 2, 0]
    assert encoder.space.Y == 5


def test_encoding_labels(tmp_path):
    encoder, _ = learn(tmp_path, b"U%x[0,0]\n", [[[b"a", b"X"], [b"b", b"Y"]]])
    (tokens,) = read_tokens(write(tmp_path, b"a Y\nb Q\nc X\n"))
    assert encoder.encode(tokens, 1).labels.tolist() == [1, UNKNOWN_LABEL, 0]
    assert encoder.encode(tokens).labels is None


@pytest.mark.parametrize("size", [1 << 20, 1, 7])
def test_labelled_data(tmp_path, monkeypatch, size):
    use_block_size(monkeypatch, size)
    lines = [[b"U", Macro("x", 0, 0)], [b"B", Macro("x", -1, 0)]]
    encoder, _ = learn(tmp_path, lines, [[[b"a", b"X"], [b"b", b"Y"], [b"a", b"X"]]])
    new = [[[b"a", b"Y"], [b"b", b"N"]], [[b"b", b"M"]], [[b"c", b"X"], [b"a", b"N"], [b"b", b"M"]]]
    data, names = read_labelled_data(write(tmp_path, render_corpus(new), "gold.txt"), encoder)
    assert names == [b"X", b"Y", b"N", b"M"] and encoder.labels == [b"X", b"Y"]
    assert [names[i] for i in data.labels] == [token[-1] for sequence in new for token in sequence]
    assert data.offsets.tolist() == [0, 2, 3, 6]
    unigrams, bigrams = encode(encoder, tmp_path, new)
    assert data.unigrams.tolist() == unigrams.tolist()
    assert bigram_ids(data, False).tolist() == bigrams.tolist()


def error_of(call, *arguments, **options):
    with pytest.raises(DataError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_training_data_must_have_their_columns(tmp_path):
    template = Template(b"U0:%x[0,0]\nU1:%x[0,0]/%x[0,2]\n", "t.txt")
    path = write(tmp_path, b"\na b X\n")
    assert error_of(read_training_data, path, template) == (
        f"t.txt:2: column 2 is the label in {path}; use columns 0 to 1")
    path = write(tmp_path, b"a X\n")
    assert error_of(read_training_data, path, template) == f"t.txt:2: column 2 is absent in {path}; use columns 0 to 0"
    path = write(tmp_path, b"\n\na\n")
    assert error_of(read_training_data, path, template).startswith(f"{path}:3: only one column; ")


def test_new_data_must_have_the_columns_of_the_template(tmp_path):
    encoder, _ = learn(tmp_path, b"U0:%x[0,0]\nU1:%x[0,1]\n", [[[b"a", b"b", b"X"]]])
    (tokens,) = read_tokens(write(tmp_path, b"\na\n", "new.txt"))
    assert re.fullmatch(r".*new\.txt:2: 1 columns?, but the template needs 2; .*line 2: U1:%x\[0,1\]\)",
                        error_of(encoder.encode, tokens))
    path = write(tmp_path, b"a b\n", "gold.txt")
    assert re.fullmatch(r".*gold\.txt:1: 2 columns, but 2 and a label are needed; .+",
                        error_of(read_labelled_data, path, encoder))


def test_more_columns_than_needed_are_welcome(tmp_path):
    encoder, _ = learn(tmp_path, b"U%x[0,0]\n", [[[b"a", b"b", b"X"]]])
    unigrams, _ = encode(encoder, tmp_path, [[[b"a", b"z", b"z", b"z"]]])
    assert unigrams.tolist() == [[0]]


def test_too_many_labels(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_module, "MAX_LABELS", 2)
    message = error_of(learn, tmp_path, b"U\n", [[[b"a", b"%d" % i] for i in range(3)]])
    assert "3 different labels in the last column" in message


def test_feature_space_splits_a_weight_vector():
    space = FeatureSpace(2, 3, 2, True)
    theta = np.arange(float(space.F))
    mu, lam = space.split(theta)
    assert (space.R, space.F) == (3, 18) and mu.shape == (3, 2) and lam.shape == (2, 3, 2)
    assert mu[1, 1] == 3 and lam[1, 2, 0] == 6 + 6 + 4
    mu[0, 0] = 99
    assert theta[0] == 99, "they are views"

"""The compiled tagger prints what the general path prints, however the input is cut and by how many threads."""

import gzip
import random

import numpy as np
import pytest
from slow_tagging import slow_output

from crftool import stream
from crftool.corpus.dataset import read_training_data
from crftool.corpus.template import Template
from crftool.corpus.rules import allowed_pairs
from crftool.errors import DataError, NumericError
from crftool.evaluate import score
from crftool.kernels.pool import Pool
from crftool.model.mapped import MappedModel
from crftool.model.model import Model
from crftool.stream import Request

TEMPLATES = {
    "usual": b"U0:%x[0,0]\nU1:%x[-1,0]/%x[0,0]\nU2:%x[-1,1]/%x[0,1]/%x[1,1]\nB\n",
    "bags": b"U:%x[-1,0]\nU:%x[0,0]\nU:%x[1,1]\nU:%x[0,0]/%x[0,1]\nB\n",
    "empty separators": b"U%x[0,0]%x[0,1]\nU%x[0,0]\nUa\nB%x[0,0]%x[-1,0]\n",
    "macros": b'U0:%X[0,0]\nU1:%m[0,0,".?.?$"]/%x[0,1]\nU2:%t[-1,0,"\\d"]\nB:%m[0,0,"^."]\n*3:%T[1,1,"a"]\n',
    "absolute and far": b"U0:%x[@1,0]|%x[@-1,1]\nU1:%x[-5,0]/%x[6,0]\nU2:%x[@9,0]\nB0:%x[@-2,0]\n",
    "bigrams": b"B\nB1:%x[0,0]\nB2:%x[0,0]/%x[0,1]\nB3:%x[-1,0]-%x[0,0]\n",
    "no bigrams": b"U0:%x[0,0]/%x[1,0]\n",
}


def corpus(rng, sequences, letters, lengths=(1, 2, 3, 9)):
    """Words that hold separators, digits and bytes that are no UTF-8; labels in a third column."""
    def word():
        return bytes(rng.choice(letters) for _ in range(rng.choice([1, 1, 2, 3])))
    return b"\n".join(b"".join(b"%s %s %s\n" % (word(), rng.choice([b"a", b"b/", b"A1"]), rng.choice([b"X", b"Y", b"Z-/"]))
                               for _ in range(rng.choice(lengths))) for _ in range(sequences))


def make_model(tmp_path, name, begin_label, density, seed, sequences=80, lengths=(1, 2, 3, 9)):
    rng = random.Random(seed)
    (tmp_path / "train").write_bytes(corpus(rng, 60, b"ab/1A\xe9"))
    encoder, _ = read_training_data(str(tmp_path / "train"), Template(TEMPLATES[name]), begin_label)
    numbers = np.random.default_rng(seed)
    theta = numbers.normal(0, 1, encoder.space.F) * (numbers.random(encoder.space.F) < density)
    Model.from_training(encoder, theta, {}).save(str(tmp_path / "m"))
    (tmp_path / "test").write_bytes(corpus(rng, sequences, b"ab/1A\xe9-c", lengths))
    return MappedModel.load(str(tmp_path / "m"))


def in_full(mapped, path, **wishes):
    return slow_output(mapped, [path], Request(**wishes), Pool())


def streamed(mapped, paths, threads=1, block_size=stream.BLOCK_SIZE, **wishes):
    return b"".join(stream.tag_stream(mapped, paths, Request(**wishes), threads, block_size))


@pytest.mark.parametrize("density", [1.0, 0.3, 0.02])
@pytest.mark.parametrize("begin_label", [False, True], ids=["plain", "begin"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_same_bytes_as_the_general_path(tmp_path, name, begin_label, density):
    for seed in range(3):
        mapped = make_model(tmp_path, name, begin_label, density, seed)
        test = str(tmp_path / "test")
        assert streamed(mapped, [test]) == in_full(mapped, test)
        assert streamed(mapped, [test], layout="labels") == in_full(mapped, test, layout="labels")
        for level in (1, 2):
            assert streamed(mapped, [test], level=level) == in_full(mapped, test, level=level)


RULES = b"forbid X Y\nforbid ^ Z*\nforbid Y $\n"
WISHES = {
    "json": dict(layout="json"),
    "json and probabilities": dict(layout="json", level=1),
    "json and all probabilities": dict(layout="json", level=2),
    "json and phrases": dict(layout="json", phrase_confidence=True),
    "n-best": dict(best=4),
    "n-best and probabilities": dict(best=3, level=2, layout="labels"),
    "n-best json": dict(best=2, level=1, layout="json"),
    "all labellings": dict(best=10 ** 30),
    "posterior": dict(posterior=True),
    "posterior and probabilities": dict(posterior=True, level=1),
    "forced": dict(force_column=-1),
    "forced and probabilities": dict(force_column=2, level=2),
    "abstention": dict(min_confidence=0.6, abstain=b'"?\xff'),
    "abstention in json": dict(min_confidence=0.6, abstain=b'"?\xff', layout="json", level=1),
    "phrases": dict(phrase_confidence=True),
    "phrases and all probabilities": dict(phrase_confidence=True, level=2, posterior=True, layout="labels"),
}


@pytest.mark.parametrize("mode", ["auto", "scaled", "sparse", "log"])
@pytest.mark.parametrize("wish, rules", [(wish, rules) for wish in WISHES for rules in (b"", RULES)
                                         if not (rules and wish.startswith("forced"))])  # that may be a dead end
def test_every_wish_gives_the_bytes_of_the_general_path(tmp_path, wish, rules, mode):
    for seed, (name, begin_label, density) in enumerate([("usual", True, 1.0), ("bigrams", False, 0.2),
                                                        ("bigrams", True, 0.04), ("macros", False, 0.5)]):
        mapped = make_model(tmp_path, name, begin_label, density, seed,
                            *((4, [1, 2, 3]) if wish == "all labellings" else (30,)))
        wishes = dict(WISHES[wish], inference=mode, allowed=allowed_pairs(rules, mapped.labels, "rules"))
        assert streamed(mapped, [str(tmp_path / "test")], **wishes) == in_full(mapped, str(tmp_path / "test"), **wishes)


@pytest.mark.parametrize("mode", ["auto", "sparse", "scaled", "log"])
@pytest.mark.parametrize("wish", ["json and all probabilities", "n-best json", "phrases", "plain", "forced"])
def test_hundreds_of_labels(tmp_path, wish, mode):
    """Sparse and dense transitions in one sequence, more labels than a byte can number."""
    rng, Y = random.Random(5), 300
    names = [b"%s-%d" % (rng.choice([b"B", b"I"]), y) for y in range(Y)]
    (tmp_path / "train").write_bytes(b"\n".join(b"w%d %s\n" % (y % 7, name) for y, name in enumerate(names)))
    (tmp_path / "test").write_bytes(b"\n".join(
        b"".join(b"w%d %s\n" % (rng.randrange(9), rng.choice(names)) for _ in range(rng.choice([1, 2, 9])))
        for _ in range(6)))
    encoder, _ = read_training_data(str(tmp_path / "train"), Template(b"U0:%x[0,0]\nB0:%x[0,0]\nB1:%x[-1,0]\n"), True)
    numbers = np.random.default_rng(2)
    theta = numbers.normal(0, 1, encoder.space.F)
    density = np.repeat([0.002, 0.02, 0.9, 0.3], encoder.space.F // 4 + 1)[:encoder.space.F]
    Model.from_training(encoder, theta * (numbers.random(encoder.space.F) < density), {}).save(str(tmp_path / "m"))
    mapped = MappedModel.load(str(tmp_path / "m"))
    wishes = dict(WISHES.get(wish, {}), inference=mode)
    assert streamed(mapped, [str(tmp_path / "test")], **wishes) == in_full(mapped, str(tmp_path / "test"), **wishes)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_dead_end_names_line_and_labels(small, tmp_path, threads):
    allowed = allowed_pairs(b"forbid X Y\n", small.labels, "rules")
    (tmp_path / "bad").write_bytes(b"a a ?\n\na a ?\na a X\na a Y\na a ?\n\n")
    with pytest.raises(DataError, match=r"bad:5: no labelling is allowed: X then Y is forbidden here; "):
        streamed(small, [str(tmp_path / "bad")], threads, force_column=2, allowed=allowed)
    nothing = allowed_pairs(b"forbid * *\n", small.labels, "rules")
    for wishes in ({}, {"posterior": True}, {"best": 2}, {"inference": "log", "level": 1}):
        with pytest.raises(DataError, match=r"bad:4: no labelling is allowed: any label then any label is "):
            streamed(small, [str(tmp_path / "bad")], threads, allowed=nothing, **wishes)
    never = allowed_pairs(b"forbid ^ *\n", small.labels, "rules")
    with pytest.raises(DataError, match=r"bad:1: no labelling is allowed: any label is forbidden here; "):
        streamed(small, [str(tmp_path / "bad")], threads, allowed=never)


def test_a_forced_column_that_is_not_there(small, tmp_path):
    for column in (3, -4):
        with pytest.raises(DataError, match=f"test:1: no column {column} among 3; "):
            streamed(small, [str(tmp_path / "test")], force_column=column)


@pytest.fixture
def small(tmp_path):
    return make_model(tmp_path, "macros", False, 0.5, 1)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 1 << 20])
def test_any_block_size_and_any_number_of_threads(small, tmp_path, monkeypatch, threads, size):
    monkeypatch.setattr(stream, "WORTH_A_THREAD", 1)
    expected = in_full(small, str(tmp_path / "test"))
    assert streamed(small, [str(tmp_path / "test")], threads, block_size=size) == expected


def test_line_ends_compression_and_order_of_files(small, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "WORTH_A_THREAD", 1)
    text = (tmp_path / "test").read_bytes()
    (tmp_path / "crlf").write_bytes(text.replace(b"\n", b"\r\n"))
    (tmp_path / "test.gz").write_bytes(gzip.compress(text))
    (tmp_path / "wide").write_bytes(b"a b c d e\n")
    plain = streamed(small, [str(tmp_path / "test")])
    paths = [str(tmp_path / name) for name in ("crlf", "test.gz", "wide", "test")]
    for threads in (1, 2):
        out = streamed(small, paths, threads)
        assert out.startswith(plain + plain + b"a\tb\tc\td\te\t") and out.endswith(b"\n\n" + plain)


def test_a_file_with_more_columns_after_one_with_fewer(small, tmp_path):
    """The room of a workspace follows the number of columns."""
    (tmp_path / "wide").write_bytes(b"".join(b"w%d a%s\n" % (i, b" c" * 40) for i in range(60)))
    alone = streamed(small, [str(tmp_path / "wide")])
    assert streamed(small, [str(tmp_path / "test"), str(tmp_path / "wide")]).endswith(alone)
    assert alone.count(b"\tc") == 60 * 40


@pytest.mark.parametrize("threads", [1, 3])
def test_what_came_before_an_error_is_printed_first(small, tmp_path, monkeypatch, threads):
    monkeypatch.setattr(stream, "WORTH_A_THREAD", 1)
    good = (tmp_path / "test").read_bytes()
    (tmp_path / "bad").write_bytes(good + b"\nlonely\n\n" + good)
    pieces = []
    with pytest.raises(DataError) as caught:
        for piece in stream.tag_stream(small, [str(tmp_path / "bad")], Request(), threads, block_size=64):
            pieces.append(piece)
    assert str(caught.value).startswith(f"{tmp_path / 'bad'}:{good.count(b'%c' % 10) + 2}: 1 column where ")
    assert b"".join(pieces) == streamed(small, [str(tmp_path / "test")])


def test_extreme_scores_go_through_the_log_domain(tmp_path):
    make_model(tmp_path, "bigrams", True, 0.5, 4)
    encoder, _ = read_training_data(str(tmp_path / "train"), Template(TEMPLATES["bigrams"]), True)
    theta = np.random.default_rng(4).normal(0, 300, encoder.space.F)
    Model.from_training(encoder, theta, {}).save(str(tmp_path / "m"))
    mapped = MappedModel.load(str(tmp_path / "m"))
    for wishes in ({}, {"level": 1}, {"level": 2}, {"best": 3}, {"layout": "json", "level": 1}, {"posterior": True}):
        assert streamed(mapped, [str(tmp_path / "test")], **wishes) == in_full(mapped, str(tmp_path / "test"), **wishes)
    for mode in ("scaled", "sparse"):
        with pytest.raises(NumericError, match=r"test:1: the scores of this sequence are out of range; "):
            streamed(mapped, [str(tmp_path / "test")], level=1, inference=mode)
        assert streamed(mapped, [str(tmp_path / "test")], inference=mode) == in_full(mapped, str(tmp_path / "test"))


def test_one_enormous_sequence(small, tmp_path):
    (tmp_path / "long").write_bytes((tmp_path / "test").read_bytes().replace(b"\n\n", b"\n") * 200)
    assert streamed(small, [str(tmp_path / "long")], block_size=4096) == in_full(small, str(tmp_path / "long"))


def test_unknown_words_are_forgotten_in_time(small, tmp_path):
    """More distinct words than a workspace keeps: memory is bounded and the labels stay right."""
    tagger = stream.make_tagger(small, Request())
    tagger.forget_after = 10
    workspace, out = tagger.workspace(), b""
    for block in (tmp_path / "test").read_bytes().split(b"\n\n"):
        out += tagger.tag(block, workspace, 3)[3]
        assert len(workspace.overlay) - len(small.values) < 10 + 200
    assert out == in_full(small, str(tmp_path / "test"))


@pytest.mark.parametrize("mode", ["auto", "sparse", "log"])
def test_transitions_are_dropped_in_time(tmp_path, mode):
    """With room for next to none they are made anew for every sequence; the output stays the same."""
    mapped = make_model(tmp_path, "bigrams", False, 0.5, 2)
    tagger = stream.make_tagger(mapped, Request(level=2, inference=mode))
    tagger.cache = 1
    out = tagger.tag((tmp_path / "test").read_bytes(), tagger.workspace(), 3)[3]
    assert out == in_full(mapped, str(tmp_path / "test"), level=2, inference=mode)


def test_boundaries_are_those_of_evaluation():
    """A phrase of one label starts and ends where the scorer, which walks over tokens, finds it."""
    rng = random.Random(3)
    labels = [b"B-NP", b"I-NP", b"E-NP", b"B-VP", b"I-VP", b"O", b"O-X", b".", b"[", b"]-NP", b"B", b"I", b"E", b"N", b"S-NP",
              b"BI-NP", b"", b"I-0", b"-NP", b".-NP"]
    starts, ends, types = stream.boundary_tables(labels)
    Y = len(labels)
    for _ in range(300):
        path = [rng.randrange(Y) for _ in range(rng.randrange(1, 6))]
        counts = score(np.array(path), np.array(path), np.array([0, len(path)]), labels)
        around = [Y, *path, Y]
        found = [types[b] for a, b in zip(around, around[1:-1]) if starts[a * (Y + 1) + b]]
        assert len(found) == counts.phrases.found
    for table in (starts, ends):
        assert set(table) <= {0, 1} and len(table) == (Y + 1) ** 2


def test_phrases_that_nothing_ends_stop_with_their_sequence():
    """A label without type and with an unknown tag neither starts nor ends a phrase."""
    starts, ends, types = stream.boundary_tables([b"B", b"N"])
    assert types == [b"", b""]
    assert [starts[k * 3:k * 3 + 3] for k in range(3)] == [b"\1\0\0", b"\0\0\0", b"\1\0\0"]
    assert [ends[k * 3:k * 3 + 3] for k in range(3)] == [b"\1\0\1", b"\0\0\0", b"\0\0\0"]

"""The compiled tagger prints what the general path prints, however the input is cut and by how many threads."""

import gzip
import random

import numpy as np
import pytest

from crftool import stream
from crftool.corpus.dataset import read_training_data
from crftool.corpus.template import Template
from crftool.errors import DataError
from crftool.formats import WRITERS
from crftool.kernels.pool import Pool
from crftool.model.mapped import MappedModel
from crftool.model.model import Model
from crftool.tagging import tag_files

TEMPLATES = {
    "usual": b"U0:%x[0,0]\nU1:%x[-1,0]/%x[0,0]\nU2:%x[-1,1]/%x[0,1]/%x[1,1]\nB\n",
    "bags": b"U:%x[-1,0]\nU:%x[0,0]\nU:%x[1,1]\nU:%x[0,0]/%x[0,1]\nB\n",
    "empty separators": b"U%x[0,0]%x[0,1]\nU%x[0,0]\nUa\nB%x[0,0]%x[-1,0]\n",
    "macros": b'U0:%X[0,0]\nU1:%m[0,0,".?.?$"]/%x[0,1]\nU2:%t[-1,0,"\\d"]\nB:%m[0,0,"^."]\n*3:%T[1,1,"a"]\n',
    "absolute and far": b"U0:%x[@1,0]|%x[@-1,1]\nU1:%x[-5,0]/%x[6,0]\nU2:%x[@9,0]\nB0:%x[@-2,0]\n",
    "bigrams": b"B\nB1:%x[0,0]\nB2:%x[0,0]/%x[0,1]\nB3:%x[-1,0]-%x[0,0]\n",
    "no bigrams": b"U0:%x[0,0]/%x[1,0]\n",
}


def corpus(rng, sequences, letters):
    """Words that hold separators, digits and bytes that are no UTF-8; labels in a third column."""
    def word():
        return bytes(rng.choice(letters) for _ in range(rng.choice([1, 1, 2, 3])))
    return b"\n".join(b"".join(b"%s %s %s\n" % (word(), rng.choice([b"a", b"b/", b"A1"]), rng.choice([b"X", b"Y", b"Z-/"]))
                               for _ in range(rng.choice([1, 2, 3, 9]))) for _ in range(sequences))


def make_model(tmp_path, name, begin_label, density, seed):
    rng = random.Random(seed)
    (tmp_path / "train").write_bytes(corpus(rng, 60, b"ab/1A\xe9"))
    encoder, _ = read_training_data(str(tmp_path / "train"), Template(TEMPLATES[name]), begin_label)
    numbers = np.random.default_rng(seed)
    theta = numbers.normal(0, 1, encoder.space.F) * (numbers.random(encoder.space.F) < density)
    Model.from_training(encoder, theta, {}).save(str(tmp_path / "m"))
    (tmp_path / "test").write_bytes(corpus(rng, 80, b"ab/1A\xe9-c"))
    return MappedModel.load(str(tmp_path / "m"))


def in_full(mapped, path, layout="conll", level=0):
    model = Model(mapped)
    return b"".join(tag_files(model, [path], WRITERS[layout](model.labels, level), Pool()))


def streamed(mapped, paths, threads=1, labels_only=False, **options):
    return b"".join(stream.tag_stream(mapped, paths, labels_only, threads, **options))


@pytest.mark.parametrize("density", [1.0, 0.3, 0.02])
@pytest.mark.parametrize("begin_label", [False, True], ids=["plain", "begin"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_same_bytes_as_the_general_path(tmp_path, name, begin_label, density):
    for seed in range(3):
        mapped = make_model(tmp_path, name, begin_label, density, seed)
        test = str(tmp_path / "test")
        assert streamed(mapped, [test]) == in_full(mapped, test)
        assert streamed(mapped, [test], labels_only=True) == in_full(mapped, test, "labels")
        for level in (1, 2):
            assert streamed(mapped, [test], level=level) == in_full(mapped, test, level=level)


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
        for piece in stream.tag_stream(small, [str(tmp_path / "bad")], False, threads, block_size=64):
            pieces.append(piece)
    assert str(caught.value).startswith(f"{tmp_path / 'bad'}:{good.count(b'%c' % 10) + 2}: 1 column where ")
    assert b"".join(pieces) == streamed(small, [str(tmp_path / "test")])


def test_extreme_scores_go_through_the_log_domain(tmp_path):
    make_model(tmp_path, "bigrams", True, 0.5, 4)
    encoder, _ = read_training_data(str(tmp_path / "train"), Template(TEMPLATES["bigrams"]), True)
    theta = np.random.default_rng(4).normal(0, 300, encoder.space.F)
    Model.from_training(encoder, theta, {}).save(str(tmp_path / "m"))
    mapped = MappedModel.load(str(tmp_path / "m"))
    for level in (0, 1, 2):
        assert streamed(mapped, [str(tmp_path / "test")], level=level) == in_full(mapped, str(tmp_path / "test"), level=level)


def test_one_enormous_sequence(small, tmp_path):
    (tmp_path / "long").write_bytes((tmp_path / "test").read_bytes().replace(b"\n\n", b"\n") * 200)
    assert streamed(small, [str(tmp_path / "long")], block_size=4096) == in_full(small, str(tmp_path / "long"))


def test_unknown_words_are_forgotten_in_time(small, tmp_path):
    """More distinct words than a workspace keeps: memory is bounded and the labels stay right."""
    tagger = small.tagger()
    tagger.forget_after = 10
    workspace, out = tagger.workspace(), b""
    for block in (tmp_path / "test").read_bytes().split(b"\n\n"):
        out += tagger.tag(block, workspace, 3, False)[3]
        assert len(workspace.overlay) - len(small.values) < 10 + 200
    assert out == in_full(small, str(tmp_path / "test"))


def test_transition_blocks_are_dropped_in_time(tmp_path):
    mapped = make_model(tmp_path, "bigrams", False, 0.5, 2)
    tagger = mapped.tagger()
    assert not tagger.too_many_transitions(tagger.workspace())

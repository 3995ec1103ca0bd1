"""Parts of a Dataset equal what reading that part alone would give."""

import numpy as np
import pytest

from crftool.corpus.dataset import read_labelled_data, read_training_data
from crftool.corpus.template import Template
from crftool.decode import Lattices, decode
from crftool.kernels.pool import Pool
from crftool.model import Model
from crftool.model.weights import TrainedWeights
from crftool.objectives import LogLoss
from crftool.selection.lab import frequent_weights
from crftool.corpus.names import Names
from crftool.corpus.subset import (Columns, Subproblem, encoder_of_lines, fold_of_sequences, take_sequences,
                                      template_of_lines)

# Lines 2 and 3 share observations; so do 6 and 7.
TEMPLATE = b"# words\nU:%x[0,0]\nU:%x[-1,0]\n*2:%x[0,1]\nU3:%x[0,0]/%x[0,1]\nB:%x[0,0]\nB:%x[-1,0]\nB\n"


def sequences(seed, S=14):
    rng = np.random.default_rng(seed)
    return [b"".join(b"%c %c %c\n" % (97 + rng.integers(4), 112 + rng.integers(3), 65 + rng.integers(3))
                     for _ in range(length)) for length in rng.integers(1, 7, S)]


def read(tmp_path, parts, template=TEMPLATE, begin_label=False, labels=(b"A", b"B", b"C"), **options):
    path = tmp_path / "train.txt"
    path.write_bytes(b"\n".join(parts))
    return read_training_data(str(path), Template(template), begin_label, more_labels=labels, **options)


def loss_and_gradient(dataset, space, groups, theta, allowed=None):
    """Loss and {(observation text, labels): gradient} would be too slow to compare; the gradient's values do."""
    grad = np.empty(space.F)
    value = LogLoss(dataset, space, groups, Pool(), allowed=allowed).value_and_gradient(theta, grad)
    return value, grad


def named(encoder, weights):
    """{feature: value} of the non-zero ones."""
    names = Names(encoder)
    return {names.feature(f): weights[f] for f in np.flatnonzero(weights)}


@pytest.mark.parametrize("begin_label", [False, True])
@pytest.mark.parametrize("lines", [(2,), (3,), (2, 4), (4, 5, 7), (8,), (6,), (2, 3, 4, 5, 6, 7, 8)])
def test_a_part_is_what_reading_it_gives(tmp_path, lines, begin_label):
    """Some sequences and some templates: the same loss, and the same gradient of every feature."""
    texts, chosen = sequences(1), np.array([0, 3, 4, 9, 12])
    encoder, dataset = read(tmp_path, texts, begin_label=begin_label)
    part = take_sequences(dataset, chosen)
    columns = Columns.of_lines(encoder.template, lines)
    sub = Subproblem(part, encoder.space, encoder.unigrams.groups(), columns)
    lone_encoder, lone = read(tmp_path, [texts[s] for s in chosen], template_of_lines(encoder.template, lines), begin_label)
    assert sub.space == lone_encoder.space
    assert len(sub.dataset.bigrams) <= len(lone.bigrams) + 1
    rng = np.random.default_rng(0)
    values = {feature: rng.normal() for feature in named(lone_encoder, np.ones(lone_encoder.space.F))}
    theta = np.array([values[Names(lone_encoder).feature(f)] for f in range(lone_encoder.space.F)])
    full = np.array([values.get(Names(encoder).feature(f), 0.0) for f in range(encoder.space.F)])
    value, grad = loss_and_gradient(sub.dataset, sub.space, sub.groups, sub.shrink(full))
    lone_value, lone_grad = loss_and_gradient(lone, lone_encoder.space, lone_encoder.unigrams.groups(), theta)
    assert value == pytest.approx(lone_value, rel=1e-12)
    expected, found = named(lone_encoder, lone_grad), named(encoder, sub.expand(grad))
    assert expected.keys() == found.keys()
    assert all(found[feature] == pytest.approx(expected[feature], abs=1e-12) for feature in expected)
    np.testing.assert_array_equal(sub.expand(sub.shrink(full)), full)


def test_allowed_weights_keep_their_gradient(tmp_path):
    encoder, dataset = read(tmp_path, sequences(2))
    rng = np.random.default_rng(5)
    allowed = rng.random(encoder.space.F) < 0.05
    theta = np.where(allowed, rng.normal(size=encoder.space.F), 0.0)
    groups = encoder.unigrams.groups()
    sub = Subproblem(dataset, encoder.space, groups, Columns.all(encoder.template), allowed)
    assert sub.space.F < encoder.space.F / 2
    value, grad = loss_and_gradient(sub.dataset, sub.space, sub.groups, sub.shrink(theta), sub.allowed)
    whole_value, whole = loss_and_gradient(dataset, encoder.space, groups, theta)
    assert value == pytest.approx(whole_value, rel=1e-12)
    np.testing.assert_allclose(sub.expand(grad), np.where(allowed, whole, 0.0), atol=1e-12)


def test_nothing_allowed(tmp_path):
    encoder, dataset = read(tmp_path, sequences(2))
    nothing = np.zeros(encoder.space.F, bool)
    sub = Subproblem(dataset, encoder.space, encoder.unigrams.groups(), Columns.all(encoder.template), nothing)
    value, _ = loss_and_gradient(sub.dataset, sub.space, sub.groups, np.zeros(0), sub.allowed)
    assert sub.space.F == 0 and value == pytest.approx(dataset.N * np.log(3))


@pytest.mark.parametrize("lines", [(2, 4), (3, 8), (2, 3, 6)])
def test_test_data_follow(tmp_path, lines):
    """Decoding in the part's numbering equals decoding with a model of the shorter template."""
    encoder, dataset = read(tmp_path, sequences(3))
    (tmp_path / "test.txt").write_bytes(b"\n".join(sequences(4)))
    test, _ = read_labelled_data(str(tmp_path / "test.txt"), encoder)
    sub = Subproblem(dataset, encoder.space, encoder.unigrams.groups(), Columns.of_lines(encoder.template, lines))
    theta = np.random.default_rng(1).normal(size=sub.space.F)
    labels = decode(Lattices(sub.encode(test), TrainedWeights(sub.space, theta), Pool())).labels
    model = Model.from_training(encoder_of_lines(encoder, set(lines)), sub.expand(theta), {})
    model = Model.from_bytes(model.to_bytes())
    again, _ = read_labelled_data(str(tmp_path / "test.txt"), model.encoder)
    np.testing.assert_array_equal(decode(Lattices(again, model.weights, Pool())).labels, labels)
    assert len(model.encoder.template.unigrams) == sum(line in lines for line in (2, 3, 4, 5))


def test_folds():
    folds = fold_of_sequences(11, 3, 1)
    assert sorted(np.bincount(folds)) == [3, 4, 4]
    np.testing.assert_array_equal(folds, fold_of_sequences(11, 3, 1))
    assert (folds != fold_of_sequences(11, 3, 2)).any()


@pytest.mark.parametrize("begin_label", [False, True])
def test_cut_off_is_that_of_the_reader(tmp_path, begin_label):
    encoder, dataset = read(tmp_path, sequences(6), begin_label=begin_label)
    short, _ = read(tmp_path, sequences(6), begin_label=begin_label, min_count=4)
    allowed = frequent_weights(dataset, encoder.space, 4)
    assert named(encoder, allowed).keys() == named(short, np.ones(short.space.F)).keys()


def test_template_text_keeps_comments():
    template = Template(TEMPLATE)
    assert template_of_lines(template, {2, 8}) == b"# words\nU:%x[0,0]\nB\n"

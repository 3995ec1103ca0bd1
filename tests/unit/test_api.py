"""The Python interface, and the README's examples of it."""

import doctest
import os
import pathlib
import pickle
import re
import threading

import pytest

import crftool

README = pathlib.Path(__file__).parents[2] / "README.md"
HE = [("He", "PRP"), ("reckons", "VBZ"), ("the", "DT")]


@pytest.fixture
def model(two_sentences):
    return crftool.Model.load(two_sentences.path / "chunk.model")


def test_the_examples_of_the_readme(two_sentences, monkeypatch):
    monkeypatch.chdir(two_sentences.path)
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]
    test = doctest.DocTestParser().get_doctest(example, {}, "README", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_same_labels_as_the_command(two_sentences, model):
    text = "".join(f"{word} {tag}\n" for word, tag in HE).encode()
    out, _ = two_sentences.run("tag", "-m", "chunk.model", "--format", "labels", stdin=text)
    assert model.tag([HE, HE]) == [out.decode().split()] * 2


def test_marginals_and_nbest_agree(model):
    (p,), (best,) = model.marginals([HE]), model.nbest([HE], 1000)
    assert p.shape == (3, 4) and p.sum(axis=1) == pytest.approx([1.0] * 3)
    assert sum(probability for probability, _ in best) == pytest.approx(1.0) and len(best) == 64
    share = sum(probability for probability, labels in best if labels[1] == "B-VP")
    assert share == pytest.approx(p[1, model.labels.index("B-VP")])
    assert best[0][1] == model.tag([HE])[0]


def test_pair_marginals_agree_with_marginals(model):
    (p,), (pairs,) = model.marginals([HE]), model.pair_marginals([HE])
    assert pairs.shape == (3, 4, 4) and not pairs[0].any()
    assert pairs[1:].sum(axis=1) == pytest.approx(p[1:])         # over the label before
    assert pairs[1:].sum(axis=2) == pytest.approx(p[:-1])
    assert model.pair_marginals([]) == []


def test_nothing_and_bytes(model):
    assert model.tag([]) == model.marginals([]) == model.nbest([], 2) == []
    assert len(model.tag([[(b"\xff", b"\xfe")]])[0]) == 1


@pytest.mark.parametrize("sequences", [[[("a b", "c")]], [[("", "c")]], [[]], [[("a", "b"), ("c",)]]])
def test_what_a_file_could_not_say_is_an_error(model, sequences):
    with pytest.raises(ValueError):
        model.tag(sequences)


def test_too_few_columns(model):
    with pytest.raises(crftool.errors.DataError):
        model.tag([["He"]])


def test_pickle_and_bytes(two_sentences, model):
    assert pickle.loads(pickle.dumps(model)).tag([HE]) == model.tag([HE])
    data = (two_sentences.path / "chunk.model").read_bytes()
    assert model.to_bytes() == data and crftool.Model.from_bytes(data).tag([HE]) == model.tag([HE])


def test_threads_may_share_a_model(model):
    sequences = [[(f"w{i * j % 50}", "NN"), *HE] for i in range(20) for j in range(20)]
    expected, failures = model.tag(sequences), []

    def work():
        for k in range(0, len(sequences), 7):
            if model.tag(sequences[k:k + 7]) != expected[k:k + 7]:
                failures.append(k)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_package_itself_is_light():
    import subprocess
    import sys
    code = "import sys, crftool; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(README.parent)}).returncode == 0

"""`crftool inspect`, and what `crftool eval` tells beyond conlleval's report."""

import json

import pytest

GOLD = b"""\
He B-NP B-NP
runs B-VP B-VP

a B-NP I-NP
long I-NP I-NP
walk I-NP B-NP
"""


@pytest.fixture
def tagged(workdir):
    workdir.write("a", GOLD)
    workdir.write("b", GOLD.replace(b"I-NP B-NP", b"I-NP I-NP").replace(b"a B-NP I-NP", b"a B-NP B-NP"))
    workdir.write("train", b"He x\na x\n")
    return workdir


def lines(output, kind):
    return [line.split("\t")[1:] for line in output.decode().splitlines() if line.split("\t")[0] == kind]


def test_inspect(two_sentences):
    output, _ = two_sentences.run("inspect", "--top", "1000", "chunk.model")
    summary = json.loads(two_sentences.run("inspect", "--json", "--top", "1000", "chunk.model")[0])
    assert [name for name, in lines(output, "label")] == summary["labels"] == ["B-NP", "B-VP", "I-NP", "O"]
    sizes = dict(lines(output, "size"))
    assert int(sizes["unigram weights"]) + int(sizes["bigram weights"]) == len(lines(output, "weight"))
    templates = lines(output, "template")
    assert [text for text, _, _ in templates] == [
        "U00:%x[-2,0]", "U01:%x[0,0]", "U02:%x[0,0]/%x[0,1]", "UABC%x[1,1]123", "U", "B", "B01:%x[0,1]"]
    assert sum(int(weights) for _, _, weights in templates) == len(summary["weights"])
    values = [abs(float(value)) for value, *_ in lines(output, "weight")]
    assert values == sorted(values, reverse=True)
    transitions = {(a, b): float(weight) for a, b, weight in lines(output, "transition")}
    assert len(transitions) <= 16 and transitions["B-NP", "B-VP"] > 0
    plain = {(entry["previous"], entry["label"]): entry["weight"] for entry in summary["weights"]
             if entry["observation"] == "B"}
    assert plain == {(a, b): pytest.approx(weight, rel=1e-5) for (a, b), weight in transitions.items()}
    assert dict(lines(output, "option"))["rho2"] == "1.0"


def test_inspect_one_label(two_sentences):
    output, _ = two_sentences.run("inspect", "--label", "I-NP", "--top", "3", "chunk.model")
    assert [label for *_, label in lines(output, "weight")] == ["I-NP"] * 3
    _, messages = two_sentences.run("inspect", "--label", "Z", "chunk.model", code=1)
    assert "chunk.model: no label 'Z'" in messages
    assert lines(two_sentences.run("inspect", "--top", "0", "chunk.model")[0], "weight") == []


def test_inspect_refuses_other_files(two_sentences):
    _, messages = two_sentences.run("inspect", "train.txt", code=1)
    assert messages.startswith("train.txt: ")


def test_confusion(tagged):
    output, _ = tagged.run("eval", "--confusion", "a")
    assert output.decode().splitlines()[-5:] == ["B-NP\tB-NP\t1", "B-NP\tI-NP\t1", "B-VP\tB-VP\t1", "I-NP\tB-NP\t1",
                                                 "I-NP\tI-NP\t1"]
    assert json.loads(tagged.run("eval", "--confusion", "--json", "a")[0])["confusion"][1] == ["B-NP", "I-NP", 1]


def test_schemes(tagged):
    found = {scheme: json.loads(tagged.run("eval", "--json", "--scheme", scheme, "a")[0])["phrases"]
             for scheme in ("conll", "iob1", "iob2", "iobes", "strict")}
    assert found["conll"] == found["iob1"] == found["strict"]
    assert (found["conll"]["gold"], found["conll"]["found"], found["conll"]["correct"]) == (3, 4, 2)
    assert found["iob2"]["found"] == 3                         # the I-NP that starts a sequence is outside
    assert found["iobes"]["gold"] == 0


def test_seen_and_unseen_words(tagged):
    output, _ = tagged.run("eval", "--train", "train", "a")
    assert b"seen words: 2 tokens; accuracy:  50.00%\nunseen words: 3 tokens; accuracy:  66.67%\n" in output
    summary = json.loads(tagged.run("eval", "--json", "--train", "train", "--word-column", "1", "a")[0])
    assert summary["seen"]["tokens"] == 0 and summary["unseen"]["correct_tokens"] == 3
    _, messages = tagged.run("eval", "--train", "train", "--word-column", "7", "a", code=1)
    assert messages.startswith("train:1: no column 7")


def test_seen_words_of_a_model(two_sentences):
    summary = json.loads(two_sentences.run("eval", "--json", "-m", "chunk.model", "--train", "train.txt", "train.txt")[0])
    assert summary["seen"]["tokens"] == summary["tokens"] == 10 and summary["unseen"]["tokens"] == 0


def test_bootstrap(tagged):
    output, _ = tagged.run("eval", "--bootstrap", "200", "a")
    assert output.decode().splitlines()[-1].startswith("95% confidence: accuracy: ")
    confidence = json.loads(tagged.run("eval", "--json", "--bootstrap", "200", "a")[0])["confidence"]
    assert confidence["token_accuracy"] == [pytest.approx(100 / 3), 100.0]
    assert tagged.run("eval", "--bootstrap", "200", "a")[0] == output


def test_compare(tagged):
    output, _ = tagged.run("eval", "--compare", "a", "b")
    assert "accuracy: 100.00 against 60.00 (a): difference +40.00, p = " in output.decode()
    comparison = json.loads(tagged.run("eval", "--json", "--compare", "a", "b")[0])["comparison"]
    assert comparison["f1"]["difference"] == pytest.approx(100 - comparison["f1"]["other"])
    assert comparison["token_accuracy"]["p"] == pytest.approx(1.0, abs=0.05)       # one sequence differs
    assert json.loads(tagged.run("eval", "--json", "--compare", "a", "a")[0])["comparison"]["f1"]["p"] == 1.0


def test_compare_wants_the_same_gold_labels(tagged):
    tagged.write("c", GOLD.replace(b"walk I-NP", b"walk B-NP"))
    _, messages = tagged.run("eval", "--compare", "c", "a", code=1)
    assert messages.startswith("c:6: the gold label differs from that of a")
    tagged.write("c", GOLD + b"more O O\n")
    assert tagged.run("eval", "--compare", "c", "a", code=1)[1].startswith("c:7: ")
    tagged.write("c", GOLD.replace(b"\n\n", b"\n"))
    assert "c: other sequences than a" in tagged.run("eval", "--compare", "c", "a", code=1)[1]
    _, messages = tagged.run("eval", "--compare", "a", "-m", "x", "b", code=2)
    assert "leave out -m" in messages

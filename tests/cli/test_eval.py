"""`crftool eval` as a user runs it."""

import json

REPORT = b"""\
processed 5 tokens with 3 phrases; found: 3 phrases; correct: 2.
accuracy:  80.00%; precision:  66.67%; recall:  66.67%; FB1:  66.67
               NP: precision: 100.00%; recall:  50.00%; FB1:  66.67  1
               PP: precision:   0.00%; recall:   0.00%; FB1:   0.00  1
               VP: precision: 100.00%; recall: 100.00%; FB1: 100.00  1
"""
TAGGED = b"a x B-NP B-NP\nb x I-NP I-NP\nc x B-VP B-VP\n\nd x B-NP B-PP\ne x O O\n"


def test_the_report_of_conlleval(workdir):
    workdir.write("tagged.txt", TAGGED)
    assert workdir.run("eval", "tagged.txt") == (REPORT, "")
    assert workdir.run("eval", stdin=TAGGED) == (REPORT, "")
    assert workdir.run("eval", stdin=TAGGED.replace(b" ", b"\t").replace(b"\n", b"\r\n"))[0] == REPORT


def test_whole_sequences(workdir):
    out, _ = workdir.run("eval", "-v", stdin=TAGGED)
    assert out == REPORT + b"sequences: 2; correct: 1; accuracy:  50.00%\n"


def test_json(workdir):
    scores = json.loads(workdir.run("eval", "--json", stdin=TAGGED)[0])
    assert scores["tokens"] == 5 and scores["sequence_accuracy"] == 50.0
    assert scores["token_accuracy"] == 80.0


def test_tagging_and_scoring_in_one_go(two_sentences):
    two_sentences.write("test.txt", b"It PRP B-NP\nreckons VBZ B-VP\n. . X-NEW\n\naccount NN I-NP\n")
    tagged, _ = two_sentences.run("tag", "-m", "chunk.model", "test.txt")
    assert two_sentences.run("eval", stdin=tagged)[0] == two_sentences.run("eval", "-m", "chunk.model", "test.txt")[0]


def test_blocks_add_up(workdir):
    many = TAGGED * 1 + (b"\n" + TAGGED) * 60_000                 # several blocks of input
    out, _ = workdir.run("eval", stdin=many)
    assert out.startswith(b"processed 300005 tokens with 180003 phrases; found: 180003 phrases; correct: 120002.\n")


def test_one_column_is_not_enough(workdir):
    assert workdir.run("eval", stdin=b"B-NP\n", code=1)[1].startswith("<stdin>:1: only one column; ")


def test_nothing_to_score(workdir):
    workdir.write("empty.txt", b"")
    assert workdir.run("eval", stdin=b"", code=1)[1].startswith("<stdin>:1: no token to score; ")
    assert workdir.run("eval", "empty.txt", code=1)[1].startswith("empty.txt:1: no token in this file; ")


def test_gold_labels_are_needed_to_score_a_model(two_sentences):
    _, messages = two_sentences.run("eval", "-m", "chunk.model", stdin=b"It PRP\n", code=1)
    assert messages.startswith("<stdin>:1: 2 columns, but 2 and a label are needed; ")

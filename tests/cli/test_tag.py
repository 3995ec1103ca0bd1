"""`crftool tag` as a user runs it."""

import gzip
import json
import subprocess
import sys

import pytest

SENTENCE = b"He PRP\nreckons VBZ\nthe DT\ncurrent JJ\naccount NN\n"


def tag(workdir, *options, stdin=SENTENCE, code=0):
    return workdir.run("tag", "-m", "chunk.model", *options, stdin=stdin, code=code)


def test_columns_then_the_label(two_sentences):
    out, messages = tag(two_sentences)
    assert out == (b"He\tPRP\tB-NP\nreckons\tVBZ\tB-VP\nthe\tDT\tB-NP\ncurrent\tJJ\tI-NP\naccount\tNN\tI-NP\n\n")
    assert messages == ""


# The probabilities are those of the optimum: hybrid, l-bfgs and cg agree on the digits. CRF++ itself prints
# 0.365440 and 0.822656 here, because it stops a little earlier, at the same objective to four decimals;
# tests/numeric checks the optimum.

def test_probabilities_in_the_layout_of_crfpp(two_sentences):
    out, _ = tag(two_sentences, "-v", "1")
    lines = out.split(b"\n")
    assert lines[0].startswith(b"# 0.3653") and len(lines[0]) == len(b"# 0.365440")
    assert lines[1] == b"He\tPRP\tB-NP/0.822646"
    assert lines[6:] == [b"", b""]


def test_probabilities_of_all_labels(two_sentences):
    out, _ = tag(two_sentences, "-v2", stdin=b"He PRP\n")
    header, line = out.split(b"\n")[:2]
    fields = line.split(b"\t")
    assert fields[:2] == [b"He", b"PRP"]
    assert [field.split(b"/")[0] for field in fields[3:]] == [b"B-NP", b"B-VP", b"I-NP", b"O"]
    values = [float(field.split(b"/")[1]) for field in fields[3:]]
    assert sum(values) == pytest.approx(1.0, abs=4e-6)
    assert fields[2] == b"B-NP/%f" % values[0] and header == b"# %f" % values[0]


def test_n_best_lists(two_sentences):
    out, _ = tag(two_sentences, "-n", "3")
    blocks = out.split(b"\n\n")[:-1]
    headers = [block.split(b"\n")[0].split() for block in blocks]
    assert [header[:2] for header in headers] == [[b"#", b"0"], [b"#", b"1"], [b"#", b"2"]]
    assert [float(header[2]) for header in headers] == pytest.approx([0.365440, 0.059467, 0.046452], abs=2e-4)
    assert blocks[0].split(b"\n")[1:] == tag(two_sentences)[0].split(b"\n")[:5]


def test_n_best_ends_when_there_are_no_more_labellings(two_sentences):
    out, _ = tag(two_sentences, "-n", "20", stdin=b"He PRP\n")
    probabilities = [float(line.split()[2]) for line in out.split(b"\n") if line.startswith(b"#")]
    assert len(probabilities) == 4
    assert sum(probabilities) == pytest.approx(1.0, abs=4e-6)


def test_n_best_with_probabilities_of_labels(two_sentences):
    out, _ = tag(two_sentences, "-n", "2", "-v", "1")
    assert out.split(b"\n")[1] == b"He\tPRP\tB-NP/0.822646"


def test_labels_only(two_sentences):
    assert tag(two_sentences, "--format", "labels")[0] == b"B-NP\nB-VP\nB-NP\nI-NP\nI-NP\n\n"


def test_json_lines(two_sentences):
    out, _ = tag(two_sentences, "--format", "json", "-v", "2", stdin=SENTENCE + b"\nIt PRP\n")
    first, second = map(json.loads, out.splitlines())
    assert first["labels"] == ["B-NP", "B-VP", "B-NP", "I-NP", "I-NP"]
    assert first["tokens"][1] == ["reckons", "VBZ"]
    assert first["probability"] == pytest.approx(0.36536, abs=1e-5)
    assert second["marginals"][0]["B-NP"] == second["label_probability"][0]


def test_posterior_decoding_takes_the_best_label_of_each_token(two_sentences):
    out, _ = tag(two_sentences, "--posterior", "-v", "2", stdin=b"is VBZ\na DT\nHe PRP\n. .\n")
    for line in out.split(b"\n")[1:5]:
        fields = line.split(b"\t")
        best = max(fields[3:], key=lambda field: float(field.rsplit(b"/", 1)[1]))
        assert fields[2] == best


def test_more_columns_pass_through(two_sentences):
    out, _ = tag(two_sentences, stdin=b"He  PRP\t gold more\n")
    assert out == b"He\tPRP\tgold\tmore\tB-NP\n\n"


def test_bytes_that_are_no_utf8_pass_through(two_sentences):
    out, _ = tag(two_sentences, stdin=b"\xff\xfe\x00 \xe9\x85 \xc2\xa0\n")
    assert out.startswith(b"\xff\xfe\x00\t\xe9\x85\t\xc2\xa0\t")


def test_line_ends_and_byte_order_mark_do_not_matter(two_sentences):
    text = SENTENCE + b"\n" + SENTENCE
    plain = tag(two_sentences, stdin=text)[0]
    assert tag(two_sentences, stdin=text.replace(b"\n", b"\r\n"))[0] == plain
    assert tag(two_sentences, stdin=b"\xef\xbb\xbf" + text)[0] == plain
    assert tag(two_sentences, stdin=text.rstrip(b"\n"))[0] == plain
    assert tag(two_sentences, stdin=text.replace(b"\n\n", b"\n \t\n\n\n"))[0] == plain


def test_several_files_and_standard_input(two_sentences):
    two_sentences.write("a.txt", SENTENCE)
    two_sentences.write("b.txt.gz", gzip.compress(b"It PRP\n"))
    out, _ = tag(two_sentences, "a.txt", "-", "b.txt.gz", stdin=b"a DT\n")
    assert [line.split(b"\t")[0] for line in out.split(b"\n") if line] == [
        b"He", b"reckons", b"the", b"current", b"account", b"a", b"It"]


def test_any_number_of_threads_prints_the_same(two_sentences):
    text = (SENTENCE + b"\n") * 200
    outputs = [tag(two_sentences, "-v", "2", "-p", p, stdin=text)[0] for p in (1, 2, 3)]
    assert outputs[0] == outputs[1] == outputs[2]


def test_nothing_on_standard_input_gives_nothing(two_sentences):
    assert tag(two_sentences, stdin=b"") == (b"", "")
    assert tag(two_sentences, stdin=b"\n\n") == (b"", "")


def test_a_named_file_without_tokens_is_an_error(two_sentences):
    two_sentences.write("empty.txt", b"")
    assert tag(two_sentences, "empty.txt", code=1)[1].startswith("empty.txt:1: no token in this file; ")


def test_too_few_columns(two_sentences):
    _, messages = tag(two_sentences, stdin=b"He\n", code=1)
    assert messages.startswith("<stdin>:1: 1 column, but the template needs 2; ")


def test_uneven_columns_name_the_line(two_sentences):
    out, messages = tag(two_sentences, stdin=b"He PRP\nreckons\n", code=1)
    assert messages.startswith("<stdin>:2: 1 column where the lines before have 2; ")
    assert out == b""


def test_an_output_file_appears_whole_or_not_at_all(two_sentences):
    tag(two_sentences, "-o", "out.txt")
    good = two_sentences.read("out.txt")
    assert good == tag(two_sentences)[0]
    tag(two_sentences, "-o", "out.txt", stdin=SENTENCE + b"\nbad\n", code=1)
    assert two_sentences.read("out.txt") == good
    assert sorted(path.name for path in two_sentences.path.iterdir()) == [
        "chunk.model", "chunk.template", "out.txt", "train.txt"]


@pytest.mark.parametrize("options, code", [(("-n", "0"), 2), (("--format", "xml"), 2), (("-x",), 2),
                                           (("-n", "2", "--posterior"), 2)])
def test_usage_errors(two_sentences, options, code):
    tag(two_sentences, *options, code=code)


def test_a_file_that_is_no_model(two_sentences):
    two_sentences.write("chunk.model", b"version: 100\ncost-factor: 1\n")
    assert tag(two_sentences, code=1)[1].startswith("chunk.model: not a model of crftool; ")


def test_a_sequence_is_answered_before_the_next_one_comes(two_sentences):
    process = two_sentences.popen("tag", "-m", "chunk.model", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(3):
        process.stdin.write(b"He PRP\n\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"He\tPRP\tB-NP\n"
        assert process.stdout.readline() == b"\n"
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait(60) == 0


def test_a_closed_pipe_ends_quietly(two_sentences):
    two_sentences.write("long.txt", (SENTENCE + b"\n") * 50_000)
    process = two_sentences.popen("tag", "-m", "chunk.model", "long.txt", stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


def test_a_full_disk_is_an_error(two_sentences):
    with open("/dev/full", "wb") as full:
        process = two_sentences.popen("tag", "-m", "chunk.model", "train.txt", stdout=full, stderr=subprocess.PIPE)
        messages = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert b"No space left on device" in messages and b"Traceback" not in messages


# Constraints, forced labels, confidence -----------------------------------------------------------------------

def labels_of(output):
    return [line.split(b"\t")[-1].decode() for line in output.split(b"\n") if line]


def test_a_scheme_is_kept_to(two_sentences):
    text = b"current JJ\naccount NN\nis VBZ\n"
    assert labels_of(tag(two_sentences, stdin=text)[0])[0] == "I-NP"
    assert labels_of(tag(two_sentences, "--constrain", "iob2", stdin=text)[0])[0] != "I-NP"


def test_rules_from_a_file(two_sentences):
    two_sentences.write("rules", b"forbid * B-VP\n")
    out, _ = tag(two_sentences, "--constrain", "rules", "-v", "2")
    assert "B-VP" not in [label.split("/")[0] for label in labels_of(tag(two_sentences, "--constrain", "rules")[0])]
    assert b"B-VP/0.000000" in out.split(b"\n")[3]


def test_known_labels_are_imposed(two_sentences):
    text = b"He PRP ?\nreckons VBZ O\nthe DT nothing\n"
    out, _ = tag(two_sentences, "--force-column", "2", stdin=text)
    assert labels_of(out)[1] == "O"
    assert tag(two_sentences, "--force-column", "-1", stdin=text)[0] == out
    free, _ = tag(two_sentences, stdin=text)
    assert labels_of(free)[1] == "B-VP"
    probable, _ = tag(two_sentences, "--force-column", "2", "-v", "2", stdin=text)
    assert b"\tO/1.000000\tB-NP/0.000000" in probable


def test_forced_labels_that_the_rules_forbid_name_line_and_labels(two_sentences):
    _, messages = tag(two_sentences, "--force-column", "2", "--constrain", "iob2",
                      stdin=b"He PRP ?\n\nHe PRP O\nreckons VBZ I-NP\n", code=1)
    assert messages.startswith("<stdin>:4: no labelling is allowed: O then I-NP is forbidden here; ")


def test_a_forced_column_that_is_not_there(two_sentences):
    assert tag(two_sentences, "--force-column", "7", code=1)[1].startswith("<stdin>:1: no column 7 among 2; ")


def test_abstention(two_sentences):
    sure, _ = tag(two_sentences, "--min-confidence", "0.75", "-v", "1")
    for line in sure.split(b"\n")[1:6]:
        label, p = line.split(b"\t")[-1].split(b"/")
        assert (label == b"?") == (float(p) < 0.75)
    assert labels_of(tag(two_sentences, "--min-confidence", "1", "--abstain", "DUNNO")[0]) == ["DUNNO"] * 5


def test_phrase_confidence(two_sentences):
    out, _ = tag(two_sentences, "--phrase-confidence")
    columns = [line.split(b"\t") for line in out.split(b"\n")[:5]]
    shares = [float(column[-1]) for column in columns]
    assert shares[2] == shares[3] == shares[4] < shares[0]        # the phrase `the current account`
    record = json.loads(tag(two_sentences, "--format", "json", "-v", "1")[0])
    assert [(p["start"], p["end"], p["type"]) for p in record["phrases"]] == [(0, 1, "NP"), (1, 2, "VP"), (2, 5, "NP")]
    assert record["phrases"][2]["confidence"] == pytest.approx(shares[2], abs=1e-6)
    assert 0.0 < record["entropy"] < 5 * 1.4


@pytest.mark.parametrize("mode", ["scaled", "sparse", "log"])
def test_every_form_of_inference_prints_the_same(two_sentences, mode):
    for options in (("-v", "2"), ("-n", "4"), ("--posterior",), ("--phrase-confidence",)):
        assert tag(two_sentences, "--inference", mode, *options) == tag(two_sentences, *options)
    assert tag(two_sentences, "--log-domain", "-v", "1") == tag(two_sentences, "-v", "1")


def test_contradicting_inference(two_sentences):
    tag(two_sentences, "--log-domain", "--inference", "sparse", code=2)


@pytest.mark.parametrize("closed, message", [("<&-", "<stdin>: standard input is closed; "),
                                             (">&-", "<stdout>: standard output is closed; ")])
def test_closed_streams(two_sentences, closed, message):
    command = f"{sys.executable} -m crftool tag -m chunk.model {'train.txt' if closed[0] == '>' else ''} {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=two_sentences.path, env=two_sentences.environment(),
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and done.stderr.startswith(message)


@pytest.mark.parametrize("options", [(), ("-v", "2"), ("-n", "3"), ("--format", "json", "-v", "2"), ("--posterior",),
                                     ("--constrain", "iob2"), ("--force-column", "1"), ("--min-confidence", "0.5"),
                                     ("--phrase-confidence",), ("--inference", "sparse"), ("--inference", "log", "-v", "1")])
def test_tagging_does_not_need_numpy(two_sentences, options):
    """Its import alone would take longer than a whole run."""
    program = "import sys; sys.modules['numpy'] = None; from crftool.cli import run; run()"
    done = subprocess.run([sys.executable, "-c", program, "tag", "-m", "chunk.model", *options], cwd=two_sentences.path,
                          env=two_sentences.environment(), input=SENTENCE, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == tag(two_sentences, *options)[0]

"""What was probed with the peers and is not in test_trust.py: each case names what they did."""

import json
import re
import subprocess

import pytest
from test_trust import DATA, TEMPLATE, folder, model, one_line, trained  # noqa: F401  (fixtures)

from crftool.model import Model

PLAIN = b"U0:%x[0,0]\nB\n"


def learn(folder, data, template=PLAIN, *options, name="m"):
    folder.write("train", data)
    folder.write("t", template)
    return folder.run("learn", "-c", "1000", "-m", "200", *options, "t", "train", name)[1]


def labels(folder, text, *options):
    return folder.run("tag", "-m", "m", "--format", "labels", *options, stdin=text)[0].split(b"\n")[:-1]


# Training data ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("columns", [pytest.param(1024, id="1024 columns"), pytest.param(1500, id="1500 columns")])
def test_the_label_is_the_last_of_many_columns(folder, columns):
    """CRF++ sees 1024 columns and takes the last of them for the label."""
    data = b"".join(b" ".join([b"w%d" % i] * (columns - 1) + [b"L%d" % (i % 2)]) + b"\n" for i in range(4))
    learn(folder, data)
    assert labels(folder, data) == [b"L0", b"L1", b"L0", b"L1", b""]


def test_labels_are_in_the_order_of_their_bytes(folder):
    """As in CRF++; Wapiti and CRFsuite number them as they come."""
    learn(folder, "x é\ny a\nz Z\nv B\n".encode())
    assert Model.load(str(folder.path / "m")).labels == ["B".encode(), b"Z", b"a", "é".encode()]


@pytest.mark.parametrize("data", [
    pytest.param(DATA, id="no blank line at the end"), pytest.param(DATA + b"\n\n\n", id="blank lines at the end"),
    pytest.param(b"\n\n" + DATA, id="blank lines first"), pytest.param(DATA.replace(b"\n\n", b"\n \n\t\n"), id="blanks between"),
])
def test_sequences_are_counted_right(folder, data):
    """CRFsuite counts a blank line at the end as one more instance."""
    assert learn(folder, data, TEMPLATE).startswith("2 sequences, 8 tokens, 4 labels\n")


@pytest.mark.parametrize("label", [b":", b"\\", b"a:1", b"_x", b"|", b"\xc2\xa0", b"#"], ids=repr)
def test_odd_labels_come_back(folder, label):
    """CRFsuite prints the label `:` as nothing."""
    learn(folder, b"a %s\nb O\n" % label)
    assert labels(folder, b"a\nb\n") == [label, b"O", b""]


@pytest.mark.parametrize("value", [b"f:abc", b"f:1", b"f:-2", b"\\:", b"f:"], ids=repr)
def test_a_colon_is_no_weight(folder, value):
    """CRFsuite reads `f:abc` as the attribute f with the weight 0."""
    learn(folder, b"%s A\nf B\n%s A\nf B\n" % (value, value))
    assert labels(folder, b"%s\nf\n" % value) == [b"A", b"B", b""]


def test_one_sequence_is_enough(folder):
    """CRF++ fails on some files of one sentence."""
    learn(folder, b"a A\nb B\n")
    assert labels(folder, b"a\nb\n") == [b"A", b"B", b""]


# Templates --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("template", [
    pytest.param(b"\xef\xbb\xbf" + TEMPLATE, id="byte-order mark (CRF++ ignores the first line)"),
    pytest.param(TEMPLATE.replace(b"\n", b"\r\n"), id="CRLF (CRF++ puts the CR into each feature)"),
    pytest.param(b"\r\n\n# x\r\n" + TEMPLATE.rstrip(b"\n"), id="a lone CR, a comment, no final newline"),
])
def test_templates_that_mean_the_same(folder, template):
    learn(folder, DATA, TEMPLATE, name="plain")
    learn(folder, DATA, template, name="m")
    plain, other = (Model.load(str(folder.path / name)) for name in ("plain", "m"))
    assert [line.text for line in plain.encoder.unigrams.lines] == [line.text for line in other.encoder.unigrams.lines]
    assert (plain.weights.unigrams.to_dense() == other.weights.unigrams.to_dense()).all()
    assert (plain.weights.bigrams.to_dense() == other.weights.bigrams.to_dense()).all()


def test_a_column_that_the_template_does_not_name_may_be_missing(folder):
    learn(folder, DATA)
    assert labels(folder, b"He\nruns\n") == [b"B-NP", b"B-VP", b""]


def test_a_character_is_not_cut(folder):
    """Wapiti's %m takes the first byte of an é."""
    learn(folder, "été A\nzut B\n".encode(), b'U0:%m[0,0,"^.?"]\n')
    weights = json.loads(folder.run("inspect", "--json", "m")[0])["weights"]
    assert {entry["observation"] for entry in weights} == {"U0:é", "U0:z"}


# Arguments --------------------------------------------------------------------------------------------------------

def test_two_dashes_end_the_options_only(trained):
    """CRF++ drops the files after them and reads standard input."""
    assert trained.run("tag", "-m", "m", "--", "train") == trained.run("tag", "-m", "m", "train")


def test_no_iteration_at_all(folder):
    """Wapiti dies of a division by zero with --objwin 0."""
    assert "warning: iteration limit 0 reached" in learn(folder, DATA, TEMPLATE, "-m", "0")
    assert len(labels(folder, DATA)) == 10


@pytest.mark.parametrize("options", [("-c", "1e300"), ("-c", "1e-300"), ("--rho1", "1e300"), ("--rho2", "1e-300"), ("-e", "1e300"),
                                     ("-e", "5e-324")], ids=" ".join)
def test_extreme_numbers_train_or_say_why_not(folder, options):
    """CRF++ ends in NaN."""
    folder.run("learn", "-m", "200", *options, "t", "train", "m")
    weights = [float(line.split(b"\t")[1]) for line in folder.run("inspect", "m")[0].splitlines() if line.startswith(b"weight")]
    assert all(abs(weight) < 1e300 for weight in weights) and len(labels(folder, DATA)) == 10


# Files and pipes --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("target, reason", [("/dev/full", "No space left on device"), ("missing/m", "No such file or directory"),
                                            (".", "directory"), ("t/m", "Not a directory")])
def test_a_model_that_cannot_be_written(folder, target, reason):
    """CRF++ crashes after the training, CRFsuite ends with 0."""
    out, messages = folder.run("learn", "-q", "t", "train", target, code=1)
    assert out == b"" and one_line(messages).startswith(f"{target}: ") and reason in messages


@pytest.mark.parametrize("command", [("inspect", "m"), ("inspect", "--json", "m"), ("select", "-q", "--folds", "2", "t", "train"),
                                     ("learn", "-q", "--rho1", "0.1", "--path", "3", "t", "train", "n")], ids=" ".join)
def test_a_full_device_as_output(trained, command):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(trained.command(*command), cwd=trained.path, env=trained.environment(), stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and one_line(done.stderr).startswith("<stdout>: No space left on device; ")
    assert not (trained.path / "n").exists()


@pytest.mark.parametrize("command", [("inspect", "--top", "100000", "m"), ("select", "-q", "--folds", "2", "t", "train")], ids=" ".join)
def test_a_closed_pipe_ends_quietly(trained, command):
    process = trained.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(120) == 0


@pytest.mark.parametrize("content", [b"", b"x", b"\x7fELF" + bytes(100), b"#mdl#2#1\n", b"lCRF" + bytes(44), b"d\0\0\0" + bytes(60)],
                         ids=["empty", "one byte", "program", "Wapiti's", "CRFsuite's", "CRF++'s"])
@pytest.mark.parametrize("command", ["tag", "eval", "inspect"])
def test_a_file_that_is_no_model(folder, content, command):
    """CRFsuite crashes."""
    folder.write("foreign", content)
    arguments = ("inspect", "foreign") if command == "inspect" else (command, "-m", "foreign", "train")
    out, messages = folder.run(*arguments, code=1)
    assert out == b"" and one_line(messages).startswith("foreign: ")


# Labelling and scoring --------------------------------------------------------------------------------------------

def test_a_sequence_is_as_probable_as_its_labelling(trained):
    """Wapiti gives the product of the labels' probabilities; more labellings than there are repeat one at -1.8e308."""
    out = trained.run("tag", "-m", "m", "-n", "1000", stdin=b"He PRP\nis VBZ\n")[0].decode()
    probabilities = [float(number) for number in re.findall(r"^# \d+ (\S+)$", out, re.MULTILINE)]
    assert len(probabilities) == 16 and sum(probabilities) == pytest.approx(1.0, abs=1e-5)
    assert probabilities == sorted(probabilities, reverse=True)


@pytest.mark.parametrize("text", [b"a O O\n", b"a B-X O\n", b"a O B-X\n"], ids=["no phrase", "none found", "none there"])
def test_a_score_that_is_not_defined_is_zero(workdir, text):
    """Wapiti prints -nan."""
    assert b"nan" not in workdir.run("eval", stdin=text)[0].lower()
    scores = json.loads(workdir.run("eval", "--json", stdin=text)[0])
    assert scores["phrases"]["f1"] == 0.0


def test_new_labels_and_words_after_a_warm_start(trained):
    """Wapiti crashes on a label that its model does not know."""
    trained.write("more", DATA + b"\nYes UH B-INTJ\n")
    trained.run("learn", "-q", "-c", "1000", "--init", "m", "t", "more", "n")
    assert trained.run("tag", "-m", "n", "--format", "labels", stdin=b"Yes UH\n")[0] == b"B-INTJ\n\n"


@pytest.mark.parametrize("options", [(), ("--keep", "last")], ids=["best", "last"])
def test_labels_of_the_dev_file_that_training_has_not(trained, options):
    """Wapiti takes them for nothing; here they are errors of the model."""
    trained.write("dev", b"He PRP B-NEW\nruns VBZ B-VP\n")
    messages = trained.run("learn", "-m", "50", "--dev", "dev", *options, "t", "train", "n")[1]
    assert re.findall(r"dev-err=(\S+)% dev-F1", messages)[-1] == "50.00"

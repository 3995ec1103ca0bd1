"""Where other tools lose data, crash or stay silent: the right answer, or one clear line and the right exit code.

Each case names what CRF++, CRFsuite or Wapiti do with it.
"""

import os
import re
import resource
import subprocess
import sys

import pytest
from conftest import ADDRESS_SPACE_CAN_BE_LIMITED, Workdir

DATA = b"He PRP B-NP\nruns VBZ B-VP\n. . O\n\nIt PRP B-NP\nis VBZ B-VP\na DT B-NP\ntest NN I-NP\n. . O\n"
TEMPLATE = b"U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nB\n"
QUIET = ("learn", "-q", "-m", "200")


@pytest.fixture
def folder(workdir):
    workdir.write("t", TEMPLATE)
    workdir.write("train", DATA)
    return workdir


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The bytes of a model of the two sentences."""
    folder = Workdir(tmp_path_factory.mktemp("model"))
    folder.write("t", TEMPLATE)
    folder.write("train", DATA)
    folder.run(*QUIET, "t", "train", "m")
    return folder.read("m")


@pytest.fixture
def trained(folder, model):
    folder.write("m", model)
    return folder


def limit_address_space(size):
    """A function for the new process."""
    if ADDRESS_SPACE_CAN_BE_LIMITED:
        return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))


def one_line(messages):
    """The message, which must be one line that says where, what, and what to do."""
    assert messages.count("\n") == 1 and ": " in messages and "; " in messages, messages
    return messages


# Training data ----------------------------------------------------------------------------------------------------

GOOD_DATA = {
    "CRLF (CRF++ fails, CRFsuite learns the label `O\\r`)": DATA.replace(b"\n", b"\r\n"),
    "no final newline": DATA.rstrip(b"\n"),
    "byte-order mark": b"\xef\xbb\xbf" + DATA,
    "tabs for blanks": DATA.replace(b" ", b"\t"),
    "several blanks, also in front (CRF++ drops such lines)": DATA.replace(b" ", b" \t ").replace(b"\nIt", b"\n  It"),
    "blanks at the end of lines": DATA.replace(b"\n", b" \t\n"),
    "empty lines before, between and after": b"\n \n" + DATA.replace(b"\n\n", b"\n\t\n\n") + b"\n\n",
}


@pytest.mark.parametrize("name", GOOD_DATA)
def test_data_that_mean_the_same_train_the_same_model(folder, model, name):
    folder.write("train", GOOD_DATA[name])
    folder.run(*QUIET, "t", "train", "m")
    assert folder.read("m") == model


LONG = b"x" * 100_000


@pytest.mark.parametrize("data", [
    pytest.param(DATA.replace(b"runs", LONG), id="a line beyond 8191 bytes (CRF++ ignores all that follows)"),
    pytest.param(DATA.replace(b"runs", b"ru\0ns"), id="NUL bytes"),
    pytest.param(DATA.replace(b"runs", "ru\u00a0ns".encode()), id="a non-breaking space is no blank"),
    pytest.param(DATA.replace(b"runs", b"ru\x0bns\x0c"), id="nor is any other control character"),
    pytest.param(DATA.replace(b"runs", b"\xff\xfe"), id="bytes that are no UTF-8"),
    pytest.param(DATA.replace(b"He", b"#He"), id="a # begins a token as any other"),
    pytest.param(DATA.replace(b"VBZ", b"a:b\\c"), id="colons and backslashes (CRFsuite's attributes)"),
    pytest.param(b"a x\n\nb y\n", id="sequences of one token"),
    pytest.param(DATA.replace(b"B-NP", "Ä-ü".encode()), id="labels beyond ASCII"),
    pytest.param(DATA.replace(b"B-NP", b"O\xff"), id="labels that are no UTF-8"),
])
def test_unusual_data_are_learnt_and_come_back(folder, data):
    """Every token comes back, with the label it was trained with."""
    template = b"U0:%x[0,0]\nU1:%x[-1,0]/%x[0,0]/%x[1,0]\nB\n"
    folder.write("train", data)
    folder.write("t", template)
    folder.run(*QUIET, "-c", "1000", "t", "train", "m")
    out, messages = folder.run("tag", "-m", "m", "train")
    assert messages == ""
    tokens = [line.split() for line in data.split(b"\n") if line]
    fields = [line.split(b"\t") for line in out.split(b"\n") if line]
    assert [b"".join(token) for token in map(lambda line: line[:-1], fields)] == [
        b"".join(data_line.replace(b"\t", b" ").split(b" ")) for data_line in data.split(b"\n") if data_line]
    assert [line[-1] for line in fields] == [line[-2] for line in fields]
    assert len(tokens) >= 1 and out.count(b"\n\n") == data.strip().count(b"\n\n") + 1


BAD_DATA = {
    "a column less": (DATA.replace(b"runs VBZ ", b"runs "), "train:2: 2 columns where the lines before have 3; "),
    "a column more": (DATA.replace(b"runs VBZ ", b"runs VBZ x "), "train:2: 4 columns where the lines before have 3; "),
    "nothing": (b"", "train:1: no token in this file; "),
    "no sequence": (b"\n\n \t\n", "train:1: no token in this file; "),
    "only a byte-order mark": (b"\xef\xbb\xbf", "train:1: no token in this file; "),
    "one column": (b"a\nb\n", "train:1: only one column; "),
    "one label only": (b"a a x\nb a x\n", "train: only one label, 'x'; "),
    "too few for the template": (b"a X\n", "t:2: column 1 is the label in train; "),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused_by_line(folder, name):
    data, message = BAD_DATA[name]
    folder.write("train", data)
    out, messages = folder.run(*QUIET, "t", "train", "m", code=1)
    assert out == b"" and one_line(messages).startswith(message)
    assert not (folder.path / "m").exists()


# Templates --------------------------------------------------------------------------------------------------------

BAD_TEMPLATES = {
    "a typo in the type (CRF++ ignores the line)": (b"X0:%x[0,0]\n", "t:1: a template cannot start with 'X'; "),
    "a lower-case type": (b"u0:%x[0,0]\n", "t:1: a template cannot start with 'u'; "),
    "a line that begins with a blank": (b" U0:%x[0,0]\n", "t:1: a template cannot start with ' '; "),
    "an unknown macro": (b"U0:%y[0,0]\n", "t:1: '%y[0,0]' is not a macro; "),
    "a bracket that is missing": (b"B\nU0:%x[0,0\n", "t:2: '%x[0,0' is not a macro; "),
    "a stray percent sign (CRF++ fails without reason)": (b"U0:100%\n", "t:1: '%' is not a macro; "),
    "a pattern that does not end": (b'U0:%t[0,0,"ab]\n', "t:1: '%t[0,0,\"ab]' is not a macro; "),
    "a pattern that repeats nothing": (b'U0:%m[0,0,"*"]\n', "t:1: pattern \"*\": nothing for the '*' to repeat; "),
    "a column that is not there": (b"U0:%x[0,7]\n", "t:1: column 7 is absent in train; "),
    "a column of the label": (b"U0:%x[0,2]\n", "t:1: column 2 is the label in train; "),
    "nothing": (b"", "t: no template in this file; "),
    "only comments": (b"# U0:%x[0,0]\n\n", "t: no template in this file; "),
    "rows out of range": (b"U0:%x[123456789,0]\n", "t:1: %x[123456789,0] is out of range; "),
    "too many fields": (b"U0:" + b"%x[0,0]" * 65 + b"\n", "t:1: 65 fields; "),
}


@pytest.mark.parametrize("name", BAD_TEMPLATES)
def test_bad_templates_are_refused_by_line(folder, name):
    template, message = BAD_TEMPLATES[name]
    folder.write("t", template)
    assert one_line(folder.run(*QUIET, "t", "train", "m", code=1)[1]).startswith(message)


def test_a_hash_inside_a_pattern_belongs_to_it(folder):
    """Wapiti cuts the line there, CRF++ takes a trailing comment for part of the feature."""
    folder.write("train", b"#1 a X\nab a Y\n\n" * 3)
    folder.write("t", b'U0:%t[0,0,"^#\\d"]\n')
    folder.run(*QUIET, "-c", "1000", "t", "train", "m")
    out, _ = folder.run("tag", "-m", "m", "--format", "labels", stdin=b"#7 a\nx a\n")
    assert out == b"X\nY\n\n"


# Arguments --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments", [
    ("learn", "--nonsense", "t", "train", "m"), ("learn", "t", "train"), ("learn", "t", "train", "m", "more"), ("learn",),
    ("learn", "-c", "0", "t", "train", "m"), ("learn", "-c", "-1", "t", "train", "m"), ("learn", "-c", "x", "t", "train", "m"),
    ("learn", "-f", "-1", "t", "train", "m"), ("learn", "-m", "-3", "t", "train", "m"), ("learn", "-p", "0", "t", "train", "m"),
    ("learn", "--rho1", "-1", "t", "train", "m"), ("learn", "--rho2", "nan", "t", "train", "m"),
    ("learn", "--rho2", "inf", "t", "train", "m"), ("learn", "-e", "nan", "t", "train", "m"), ("learn", "-a", "sgdx", "t", "train", "m"),
    ("tag", "train"), ("tag", "-m"), ("tag", "-m", "m", "-n", "0"), ("tag", "-m", "m", "-n", "x"), ("tag", "-m", "m", "--nonsense"),
    ("tag", "-m", "m", "--min-confidence", "2"), ("tag", "-m", "m", "--min-confidence", "nan"), ("eval", "a", "b"),
    ("eval", "--nonsense"), ("nonsense",),
], ids=" ".join)
def test_usage_errors_exit_with_2_and_write_nothing(folder, arguments):
    """CRF++ prints its help and exits with 0."""
    out, messages = folder.run(*arguments, code=2)
    assert out == b"" and "Error: " in messages and not (folder.path / "m").exists()


@pytest.mark.parametrize("arguments", [("--help",), ("learn", "--help"), ("tag", "-h"), ("eval", "--help"), ("--version",)], ids=" ".join)
def test_help_exits_with_0(folder, arguments):
    """crf_test exits with 255, wapiti with 1."""
    out, messages = folder.run(*arguments)
    assert out and messages == ""


# Files and pipes --------------------------------------------------------------------------------------------------

def test_a_model_path_that_cannot_be_written_is_found_before_training(folder):
    """CRF++ crashes after training, CRFsuite exits with 0."""
    for target in ("nowhere/m", ".", "train/m"):
        messages = one_line(folder.run("learn", "t", "train", target, code=1)[1])
        assert messages.startswith(f"{target}: ") and "sequences" not in messages


def test_a_model_that_does_not_fit_on_the_disk(folder):
    """A limit on the size of files stands for the full disk; the old model stays."""
    folder.write("m", b"old")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    done = subprocess.run(folder.command(*QUIET, "t", "train", "m"), cwd=folder.path, env=folder.environment(),
                          capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert one_line(done.stderr).startswith("m: ") or "File too large" in done.stderr
    assert folder.read("m") == b"old" and len(os.listdir(folder.path)) == 3


@pytest.mark.parametrize("command", [("tag", "-m", "m", "train"), ("tag", "-m", "m", "-n", "2", "train"), ("eval", "train"),
                                     ("eval", "--json", "train"), ("--help",), ("learn", "--help")], ids=" ".join)
def test_a_full_device_as_output(trained, command):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(trained.command(*command), cwd=trained.path, env=trained.environment(), stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("command", [("tag", "-m", "m"), ("tag", "-m", "m", "--format", "json", "-v", "2"), ("eval",)], ids=" ".join)
def test_a_pipe_that_nobody_reads_ends_quietly(trained, command):
    trained.write("long", (DATA + b"\n") * 30_000)
    process = trained.popen(*command, "long", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(120) == 0


def test_output_to_a_full_device_by_name(trained):
    _, messages = trained.run("tag", "-m", "m", "-o", "/dev/full", "train", code=1)
    assert one_line(messages).startswith("/dev/full: ") and "No space left on device" in messages


@pytest.mark.parametrize("arguments, message", [
    (("tag", "-m", ".", "train"), ".: "), (("tag", "-m", "absent", "train"), "absent: "), (("tag", "-m", "train", "train"), "train: not a model"),
    (("tag", "-m", "/dev/null", "train"), "/dev/null: not a model"), (("tag", "-m", "m", "."), ".: "), (("tag", "-m", "m", "absent"), "absent: "),
    (("eval", "absent"), "absent: "), (("eval", "."), ".: "), (("learn", "absent", "train", "n"), "absent: "),
    (("learn", ".", "train", "n"), ".: "), (("learn", "t", ".", "n"), ".: "), (("learn", "--init", "train", "t", "train", "n"), "train: not a model"),
    (("learn", "--dev", "absent", "t", "train", "n"), "absent: "), (("learn", "--constrain", "absent", "t", "train", "n"), "absent: "),
    (("learn", "--config", "absent", "t", "train", "n"), "absent: "), (("tag", "-m", "m", "--constrain", "t", "train"), "t:1: not a rule"),
    (("learn", "--log-json", "nowhere/log", "t", "train", "n"), "nowhere/log: "),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_files_that_are_not_there_or_not_what_they_should_be(trained, arguments, message):
    out, messages = trained.run(*arguments, code=1)
    assert out == b"" and one_line(messages).startswith(message)
    assert not (trained.path / "n").exists()


def test_standard_input_at_its_end(trained):
    assert trained.run("tag", "-m", "m") == (b"", "")
    assert one_line(trained.run("eval", code=1)[1]).startswith("<stdin>:1: no token to score; ")
    assert one_line(trained.run("learn", "t", "-", "n", code=1)[1]).startswith("<stdin>:1: no token to learn from; ")


# Tagging ----------------------------------------------------------------------------------------------------------

def test_labels_unseen_in_training_pass_through_and_count_as_errors(trained):
    """Wapiti dies on a new label, CRFsuite leaves it out of the accuracy."""
    text = b"He PRP B-NEW\nruns VBZ B-VP\n"
    assert trained.run("tag", "-m", "m", stdin=text)[0] == b"He\tPRP\tB-NEW\tB-NP\nruns\tVBZ\tB-VP\tB-VP\n\n"
    trained.write("new", text)
    assert trained.run("eval", "-m", "m", "new")[0].startswith(b"processed 2 tokens with 2 phrases; found: 2 phrases; correct: 1.\n"
                                                              b"accuracy:  50.00%")
    trained.write("more", DATA + b"\n" + text)
    trained.run(*QUIET, "--init", "m", "t", "more", "m2")
    assert b"B-NEW" in trained.run("tag", "-m", "m2", "-v", "2", stdin=text)[0]


def test_a_short_line_is_never_dropped(trained):
    """CRF++ loses the line and what came before it in the sentence, exit 0."""
    out, messages = trained.run("tag", "-m", "m", stdin=b"He PRP\n\nHe PRP\nruns\n. .\n\nIt PRP\n", code=1)
    assert one_line(messages).startswith("<stdin>:4: 1 column where the lines before have 2; ")
    assert out in (b"", b"He\tPRP\tB-NP\n\n")


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\n\n\n", b""])
@pytest.mark.parametrize("options", [(), ("-v", "2"), ("-n", "2"), ("--format", "json")], ids=" ".join)
def test_line_ends_do_not_matter(trained, options, ending):
    plain = trained.run("tag", "-m", "m", *options, stdin=DATA)[0]
    text = DATA.rstrip(b"\n").replace(b"\n", b"\r\n") if ending == b"\r\n" else DATA.rstrip(b"\n")
    assert trained.run("tag", "-m", "m", *options, stdin=text + ending)[0] == plain


def test_a_sequence_of_many_tokens_and_a_line_of_many_bytes(trained):
    trained.write("long", b"He PRP\n" * 200_000 + b"x" * 3_000_000 + b" NN\n")
    out, _ = trained.run("tag", "-m", "m", "long")
    assert out.count(b"\n") == 200_002 and out.count(b"He\tPRP\tB-") == 200_000 and len(out) > 3_000_000


def test_a_sequence_of_a_million_tokens(folder):
    """Through learn and tag, in little memory."""
    folder.write("train", b"He PRP B-NP\nruns VBZ B-VP\nwell RB O\nit PRP B-NP\n" * 250_000)
    folder.write("t", b"U0:%x[0,1]\nB\n")
    folder.run("learn", "-q", "-m", "2", "--max-memory", "400M", "t", "train", "m")
    out, messages = folder.run("tag", "-m", "m", "--format", "labels", "train")
    assert messages.startswith("warning: iteration limit") or messages == ""
    assert out == b"B-NP\nB-VP\nO\nB-NP\n" * 250_000 + b"\n"


def test_very_many_labels_are_refused_politely(folder):
    """Before memory for their pairs, 80 GB, is asked for."""
    folder.write("train", b"\n".join(b"w%d L%d" % (i % 9, i) for i in range(100_000)))
    folder.write("t", b"U0:%x[0,0]\nB\n")
    done = subprocess.run(folder.command("learn", "t", "train", "m"), cwd=folder.path, env=folder.environment(), text=True,
                          capture_output=True,
                          preexec_fn=limit_address_space(1 << 30))
    assert done.returncode == 1
    assert one_line(done.stderr).startswith("train: 100000 different labels in the last column; ")


def test_more_labels_than_memory_are_refused_politely(folder):
    """What can be counted but not held: the census says what it would take."""
    folder.write("train", b"\n".join(b"w%d L%d" % (i % 9, i) for i in range(20_000)))
    folder.write("t", b"U0:%x[0,0]\nB\n")
    messages = one_line(folder.run("learn", "--max-memory", "2G", "t", "train", "m", code=1)[1])
    assert messages.startswith("training needs about ") and "`B` " in messages


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="the system does not tell")
def test_many_processes_share_one_model(trained):
    """All outputs are equal, and none holds a page of the model for itself."""
    text = (DATA + b"\n") * 200
    expected = trained.run("tag", "-m", "m", stdin=text)[0]
    processes = [trained.popen("tag", "-m", "m", stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) for _ in range(8)]
    for process in processes:
        process.stdin.write(DATA + b"\n")
    first = [process.stdout.readline() for process in processes]     # by now the model is mapped
    for process in processes:
        with open(f"/proc/{process.pid}/smaps") as maps:
            entries = maps.read().split("VmFlags:")
        mapped = [entry for entry in entries if f"{trained.path}/m\n" in entry]
        assert mapped and not any(int(number) for entry in mapped for number in re.findall(r"Private_Dirty: +(\d+) kB", entry))
    rest = [process.communicate(text[len(DATA) + 1:], timeout=300)[0] for process in processes]
    assert [line + more for line, more in zip(first, rest)] == [expected] * 8
    assert all(process.returncode == 0 for process in processes)


def test_uneven_compressed_and_damaged_input(trained):
    trained.write("cut.gz", __import__("gzip").compress(DATA * 1000)[:-100])
    out, messages = trained.run("tag", "-m", "m", "cut.gz", code=1)
    assert one_line(messages).startswith("cut.gz: damaged compressed data")
    trained.run("tag", "-m", "m", "-o", "out", "cut.gz", code=1)
    assert not (trained.path / "out").exists()


# Evaluation -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text, message", [(b"a\n", "<stdin>:1: only one column; "), (b"a O O\n\nb O\n", "<stdin>:3: 2 columns where "),
                                           (b"\n", "<stdin>:1: no token to score; ")])
def test_evaluation_refuses_what_it_cannot_score(workdir, text, message):
    assert one_line(workdir.run("eval", stdin=text, code=1)[1]).startswith(message)


@pytest.mark.skipif(not ADDRESS_SPACE_CAN_BE_LIMITED, reason="see conftest.py")
def test_python_is_not_told_of_errors(trained):
    """No traceback even where memory is short."""
    trained.write("long", b"He PRP\n" * 2_000_000)
    done = subprocess.run([sys.executable, "-m", "crftool", "tag", "-p", "1", "-m", "m", "-v", "2", "-o", "out", "long"],
                          cwd=trained.path, env=trained.environment(), capture_output=True, text=True,
                          preexec_fn=limit_address_space(400 << 20))
    assert done.returncode == 1 and "Traceback" not in done.stderr and "out of memory" in done.stderr
    assert not (trained.path / "out").exists()

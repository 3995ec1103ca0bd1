"""`crftool select`, as a user runs it."""

import html.parser
import json
import shlex
import signal
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner

from crftool.cli import main
from crftool.corpus.template import Template
from crftool.model import Model

TEMPLATE = b"# the planted one is line 3\nU0:%x[0,0]\nU1:%x[0,1]/%x[-1,2]\nU2:%x[0,3]\nU3:%x[0,1]\nB\n"


def planted_text(seed, S):
    """Columns 1 and, one token before, 2 decide the label."""
    rng = np.random.default_rng(seed)
    sequences = []
    for _ in range(S):
        before, lines = 0, []
        for _ in range(int(rng.integers(3, 8))):
            noise, decides, shifts, more = (int(rng.integers(n)) for n in (6, 3, 2, 4))
            lines.append(b"n%d d%d s%d m%d %s\n" % (noise, decides, shifts, more,
                                                    (b"O", b"B-X", b"I-X")[(decides + before) % 3]))
            before = shifts
        sequences.append(b"".join(lines))
    return b"\n".join(sequences)


@pytest.fixture
def planted(workdir):
    workdir.write("train.txt", planted_text(1, 40))
    workdir.write("dev.txt", planted_text(2, 20))
    workdir.write("t", TEMPLATE)
    return workdir


def table(output):
    """[{column: cell}]"""
    header, *rows = [line.split("\t") for line in output.decode().splitlines()]
    assert header == ["method", "setting", "active_u", "active_b", "error", "f1", "seconds", "command"]
    return [dict(zip(header, row, strict=True)) for row in rows]


def select(workdir, *options, code=0):
    output, messages = workdir.run("select", *options, "t", "train.txt", code=code)
    return table(output), messages


def usage_error(*arguments):
    """What is said about a command line that contradicts itself."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    return result.output


# What select finds --------------------------------------------------------------------------------------


def test_l1(planted):
    rows, messages = select(planted, "--dev", "dev.txt", "--path", "6", "-o", "m")
    assert len(rows) == 6 and rows[0]["active_u"] == rows[0]["active_b"] == "0"
    best = min(rows, key=lambda row: (float(row["error"]), float(row["active_u"]) + float(row["active_b"])))
    assert f"chosen: l1 {best['setting']}" in messages
    model = Model.load(str(planted.path / "m"))
    assert abs(model.active - int(best["active_u"]) - int(best["active_b"])) <= 1
    assert "[6/6]" in messages and "left~" in messages
    assert not (planted.path / "m.state").exists()


@pytest.mark.parametrize("method", ["forward", "backward", "beam", "anneal"])
def test_templates(planted, method):
    rows, messages = select(planted, "--method", method, "--dev", "dev.txt", "--rho2", "0.1", "--write-template", "short",
                            "-o", "m")
    short = Template(planted.read("short"))
    assert [line.text for line in short.unigrams] == [b"U1:%x[0,1]/%x[-1,2]"] and not short.bigrams
    assert b"# error 0.00% F1 100.00 lines 3" in planted.read("short")
    again = next(line for line in messages.splitlines() if line.startswith("again: "))
    assert "crftool learn " in again and " short train.txt MODEL" in again
    planted.run(*shlex.split(again.removeprefix("again: crftool "))[:-1], "m2")
    output, _ = planted.run("eval", "--json", "-m", "m2", "dev.txt")
    assert json.loads(output)["token_error"] == 0.0
    assert planted.run("eval", "-m", "m", "dev.txt")[0] == planted.run("eval", "-m", "m2", "dev.txt")[0]


def test_template_of_chosen_features(planted):
    """Lines whose weights are all zero are left out, and are not missed."""
    select(planted, "--method", "grid", "--rho1", "12", "--rho2", "0.1", "--dev", "dev.txt", "-e", "1e-6",
           "--write-template", "short", "-o", "m")
    short = Template(planted.read("short"))
    texts = [line.text for line in short.unigrams]
    assert b"U1:%x[0,1]/%x[-1,2]" in texts and b"U2:%x[0,3]" not in texts
    planted.run("learn", "-q", "-e", "1e-6", "--rho1", "12", "--rho2", "0.1", "short", "train.txt", "m2")
    assert Model.load(str(planted.path / "m2")).active == Model.load(str(planted.path / "m")).active
    _, messages = planted.run("select", "--method", "grid", "--rho1", "1e9", "--dev", "dev.txt", "--write-template", "s",
                              "t", "train.txt", code=1)
    assert "s: the chosen model is empty" in messages


def test_a_warning_when_the_optimum_was_not_reached(planted):
    _, messages = select(planted, "--method", "grid", "--dev", "dev.txt", "-m", "1")
    assert "warning: 1 trainings did not reach their optimum (iteration limit 1 reached)" in messages


def without_seconds(row):
    """A search for templates is repeated as a grid of one set."""
    return {name: cell for name, cell in row.items() if name not in ("seconds", "method")}


@pytest.mark.parametrize("options", [
    ("--method", "l1", "--path", "4", "--rho2", "0,0.1"), ("--method", "grid", "--rho1", "0,1", "-f", "1,3"),
    ("--method", "mi", "--number", "5,20%"), ("--method", "threshold", "--delta", "0.3"),
    ("--method", "threshold", "--number", "10,20", "--retrain"), ("--method", "induce", "--number", "30", "--batch", "10"),
    ("--method", "forward"), ("--method", "count", "--number", "15", "--lines", "3,5,6", "--begin-label", "--by", "f1")])
@pytest.mark.parametrize("scored", [("--dev", "dev.txt"), ("--folds", "3", "--seed", "4")])
def test_every_row_reproduces_from_its_command(planted, options, scored):
    rows, _ = select(planted, "-q", *options, *scored)
    for row in {rows[0]["command"]: rows[0], rows[-1]["command"]: rows[-1]}.values():
        words = shlex.split(row["command"])
        assert words[:2] == ["crftool", "select"]
        repeated = table(planted.run("select", "-q", *words[2:])[0])
        assert without_seconds(row) in map(without_seconds, repeated)


@pytest.mark.parametrize("scored", [("--dev", "dev.txt"), ("--folds", "3")])
def test_a_resumed_path_ends_like_one_without_a_break(planted, scored):
    """Its rows depend on those before, whose weights a state does not keep."""
    options = ("--path", "6", *scored, "--state", "state")
    whole, _ = select(planted, *options)
    state = json.loads(planted.read("state"))
    state["outcomes"] = dict(list(state["outcomes"].items())[:3])
    planted.write("state", json.dumps(state).encode())
    rows, _ = select(planted, *options, "--resume")
    assert list(map(without_seconds, rows)) == list(map(without_seconds, whole))


def test_what_is_chosen_is_told_of_the_model_itself(planted):
    """A row ends a path; the model is trained alone, as `learn` does it."""
    output, messages = planted.run("select", "--json", "--path", "6", "--rho1", "0.1", "--dev", "dev.txt", "-o", "m", "t",
                                   "train.txt")
    summary, model = json.loads(output), Model.load(str(planted.path / "m"))
    assert summary["final"]["active_u"] + summary["final"]["active_b"] == model.active
    scores = json.loads(planted.run("eval", "--json", "-m", "m", "dev.txt")[0])
    assert summary["final"]["error"] == pytest.approx(scores["token_error"])
    assert f"trained on all of TRAIN: error {scores['token_error']:.2f}%" in messages
    planted.run(*shlex.split(summary["again"])[1:-1], "m2")
    assert Model.load(str(planted.path / "m2")).active == model.active


@pytest.mark.parametrize("options", [("--rho1", "1e6"), ("--method", "grid", "--rho1", "1e6"),
                                     ("--method", "grid", "--rho1", "1e6", "-a", "owl-qn")])
def test_a_penalty_that_leaves_nothing(planted, options):
    planted.write("t", b"U:%x[0,1]\n")
    rows, _ = select(planted, *options, "--dev", "dev.txt")
    assert (rows[-1]["active_u"], rows[-1]["active_b"]) == ("0", "0")
    planted.run("learn", "--path", "3", "--rho1", "1e6", "t", "train.txt", "m")
    assert Model.load(str(planted.path / "m")).active == 0


@pytest.mark.parametrize("penalty", [("--rho1", "0.3", "--rho2", "0.1"), ("--rho1", "0", "--rho2", "0.1")])
def test_observed_features_with_every_trainer(planted, penalty):
    counts = set()
    for algorithm in ("auto", "bcd", "cd"):
        row, = select(planted, "--method", "grid", *penalty, "--features", "observed", "-a", algorithm, "-e", "1e-7",
                      "--dev", "dev.txt")[0]
        counts.add((row["active_u"], row["active_b"]))
    assert len(counts) == 1


def test_copies_of_a_column_are_kept_unless_an_l1_penalty_drops_them(planted):
    planted.write("t", b"U0:%x[0,1]\nU1:%x[0,1]\nB\n")
    row, = select(planted, "--method", "count", "--number", "18", "--lines", "1,2", "--rho2", "0", "-m", "30",
                  "--dev", "dev.txt")[0]
    assert row["active_u"] == "18"
    for algorithm in ("owl-qn", "auto"):
        row, = select(planted, "--method", "grid", "--rho1", "0.7", "--rho2", "0", "-a", algorithm, "--dev", "dev.txt")[0]
        planted.run("learn", "--rho1", "0.7", "-e", "1e-4", "-a", algorithm, "t", "train.txt", "m")
        assert float(row["active_u"]) + float(row["active_b"]) == Model.load(str(planted.path / "m")).active


# Trust --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, message", [
    (("-o", "train.txt"), "train.txt: is read as TRAIN, and would be overwritten by -o"),
    (("-o", "./dev.txt"), "./dev.txt: is read as --dev"), (("--write-template", "t"), "t: is read as TEMPLATE"),
    (("-o", "m", "--report", "m"), "m: is -o already, and would be overwritten by --report"),
    (("-o", "m", "--state", "m"), "m: is -o already, and would be overwritten by --state")])
def test_no_output_overwrites_an_input_or_another(planted, options, message):
    before = {name: planted.read(name) for name in ("t", "train.txt", "dev.txt")}
    _, messages = planted.run("select", "--dev", "dev.txt", *options, "t", "train.txt", code=1)
    assert message in messages and all(planted.read(name) == text for name, text in before.items())


def test_what_an_earlier_search_has_left_is_not_overwritten(planted):
    select(planted, "--method", "grid", "--dev", "dev.txt", "--state", "state")
    before = planted.read("state")
    _, messages = planted.run("select", "--method", "grid", "--dev", "dev.txt", "--state", "state", "t", "train.txt", code=1)
    assert "state: exists; an earlier search may have left it; go on with --resume" in messages
    assert planted.read("state") == before
    _, messages = select(planted, "--method", "grid", "--dev", "dev.txt", "--state", "other", "--resume")
    assert "other: no search has left anything here; beginning anew" in messages


def test_all_is_told_before_the_error_about_an_empty_choice(planted):
    output, messages = planted.run("select", "--json", "--method", "t", "--number", "1", "--stability", "12", "--share", "1",
                                   "--seed", "3", "--lines", "2", "--dev", "dev.txt", "t", "train.txt", "-o", "m", code=1)
    assert "--share 1: no feature was chosen that often" in messages and not (planted.path / "m").exists()
    assert len(json.loads(output)["stability"]["sizes"]) == 12
    _, messages = select(planted, "--method", "threshold", "--delta", "100", "--dev", "dev.txt", "-o", "m", "--write-template",
                         "s", "--report", "page.html", code=1)
    assert "s: the chosen model is empty, so is its template; lower --delta" in messages
    assert Model.load(str(planted.path / "m")).active == 0 and (planted.path / "page.html").exists()


def test_candidates_are_those_of_the_lines(planted):
    """9 features of line 5: the default numbers, the correction for chance, and the cut-offs know it."""
    rows, _ = select(planted, "--method", "count", "--lines", "5", "--dev", "dev.txt")
    assert [row["setting"].split()[2] for row in rows] == ["number=4"]
    _, messages = planted.run("select", "--method", "grid", "-f", "1,1000", "--lines", "5", "--dev", "dev.txt", "t",
                              "train.txt", code=1)
    assert "no feature is left to choose from with --min-count 1000" in messages
    _, messages = select(planted, "--method", "t", "--number", "3", "--lines", "4", "--stability", "5", "--dev", "dev.txt",
                         "--state", "state")
    chosen, = json.loads(planted.read("state"))["sets"].values()
    pairs = [(a, b) for i, a in enumerate(chosen.values()) for b in list(chosen.values())[:i]]
    mean = np.mean([(len({*a} & {*b}) * 12 - 9) / (3 * (12 - 3)) for a, b in pairs])       # r n - k^2 / (k (n - k)), n = 12
    assert f"Kuncheva {mean:.3f}" in messages


def test_again_has_all_that_decides_the_model(planted):
    _, messages = select(planted, "--method", "grid", "-m", "7", "--log-domain", "--dev", "dev.txt")
    again = next(line for line in messages.splitlines() if line.startswith("again: "))
    assert "--max-iterations 7 --inference log" in again


def test_one_sequence_has_no_halves(planted):
    planted.write("train.txt", b"n1 d0 s0 m0 O\nn1 d1 s1 m1 B-X\n")
    _, messages = planted.run("select", "--stability", "3", "--dev", "dev.txt", "t", "train.txt", code=1)
    assert "--stability draws halves of the sequences, but there is only one" in messages


@pytest.mark.parametrize("method", ["chi2", "induce", "threshold"])
def test_features_again_by_learn(planted, method):
    more = ("--retrain",) if method == "threshold" else ()
    _, messages = select(planted, "--method", method, "--number", "25", "--dev", "dev.txt", "-o", "m", *more)
    again = next(line for line in messages.splitlines() if line.startswith("again: "))
    planted.run(*shlex.split(again.removeprefix("again: crftool "))[:-1], "m2")
    m, m2 = (Model.load(str(planted.path / name)) for name in ("m", "m2"))
    assert 20 <= m.active == m2.active <= 25
    assert planted.run("eval", "-m", "m", "dev.txt") == planted.run("eval", "-m", "m2", "dev.txt")


def xor_text(seed, S):
    """The label is the exclusive or of columns 0 and 1; each alone says nothing, and column 2 never does."""
    rng = np.random.default_rng(seed)
    rows = [[rng.integers(0, (2, 2, 5)) for _ in range(rng.integers(3, 8))] for _ in range(S)]
    return b"\n".join(b"".join(b"a%d b%d n%d L%d\n" % (a, b, n, a ^ b) for a, b, n in row) for row in rows)


def test_induction_finds_the_conjunction(workdir):
    workdir.write("train.txt", xor_text(1, 120))
    workdir.write("dev.txt", xor_text(2, 60))
    workdir.write("t", b"U0:%x[0,0]\nU1:%x[0,1]\n# noise\nU2:%x[0,2]\nU3:%x[-1,0]\nB")
    options = ("--method", "induce", "--number", "20", "--batch", "8", "--dev", "dev.txt")
    alone, _ = select(workdir, *options)
    assert min(float(row["error"]) for row in alone) > 35
    rows, messages = select(workdir, *options, "--conjunctions", "3", "-o", "m", "--write-template", "longer")
    assert rows[-1]["error"] == "0.0000" and "0.00% with it: taken" in messages
    texts = [line.text for line in Template(workdir.read("longer")).unigrams]
    assert texts[-1] in (b"U&0:%x[0,0]/1:%x[0,1]", b"U&1:%x[0,1]/0:%x[0,0]")
    assert not any(b"&" in text for text in texts[:-1])
    again = next(line for line in messages.splitlines() if line.startswith("again: "))
    assert " longer train.txt MODEL" in again
    workdir.run(*shlex.split(again.removeprefix("again: crftool "))[:-1], "m2")
    assert Model.load(str(workdir.path / "m2")).active == Model.load(str(workdir.path / "m")).active
    output, _ = workdir.run("eval", "--json", "-m", "m2", "dev.txt")
    assert json.loads(output)["token_error"] == 0.0
    for row in rows:                                           # the line is found again
        repeated, = table(workdir.run("select", "-q", *shlex.split(row["command"])[2:])[0])[-1:]
        assert {**repeated, "seconds": ""} == {**row, "seconds": ""}


def test_no_conjunction_where_none_helps(planted):
    """The template says it all already: the first line that is tried is not taken, and nothing changes."""
    options = ("--method", "induce", "--number", "27", "--batch", "27", "--rho2", "0.1", "--dev", "dev.txt")
    rows, messages = select(planted, *options, "--conjunctions", "2", "-o", "m")
    assert messages.count("not taken") == 1 and "with it: taken" not in messages
    plain, _ = select(planted, *options)
    assert [row["error"] for row in rows] == [row["error"] for row in plain]
    assert "crftool learn --only m " in messages and " t train.txt MODEL" in messages


def test_threads_and_json(planted):
    found = []
    for threads in (1, 3):
        output, _ = planted.run("select", "--json", "-q", "-p", threads, "--folds", "3", "--method", "t", "--number",
                                "5,20", "--stability", "4", "--share", "0.5", "-o", "m", "t", "train.txt")
        summary = json.loads(output)
        for row in (*summary["rows"], summary["chosen"]):
            assert row.pop("seconds") > 0
        found.append((summary, planted.read("m")))
    assert found[0] == found[1]
    summary = found[0][0]
    assert len(summary["rows"]) == 2 and summary["chosen"]["options"]["method"] == "t"
    assert summary["again"].startswith("crftool learn --only m")
    stability = summary["stability"]
    assert stability["sizes"] == [20] * 4 and 0 < stability["jaccard"] <= 1 and 0 < stability["kuncheva"] <= 1
    often = [frequency for *_, frequency in stability["frequencies"] if frequency >= 0.5]
    assert Model.load(str(planted.path / "m")).active == len(often) > 0
    assert any(name.startswith("U1:") and label == "O" and previous is None
               for name, previous, label, _ in stability["frequencies"])


def test_one_standard_error_takes_fewer(planted):
    (_, plain), (_, careful) = (select(planted, "--folds", "4", "--path", "8", *more) for more in ((), ("--one-se",)))
    weights = [float(messages.split("chosen: ")[1].split(" + ")[0].split(", ")[-1]) for messages in (plain, careful)]
    assert weights[1] <= weights[0]


def test_an_unknown_label_counts_as_an_error(planted):
    """Of the model, in the table; it does not disappear."""
    planted.write("dev.txt", planted_text(2, 20) + b"\nn0 d0 s0 m0 NEW\nn1 d0 s0 m0 O\n")
    rows, _ = select(planted, "--method", "grid", "--rho2", "0.1", "--lines", "3", "--dev", "dev.txt")
    tokens = planted_text(2, 20).count(b"d") + 2
    assert float(rows[0]["error"]) == pytest.approx(100 / tokens, abs=1e-4)


def test_report_is_one_sound_page(planted):
    planted.write("t", TEMPLATE + b'U9:%x[0,0]<b>"&\n')
    select(planted, "--dev", "dev.txt", "--path", "5", "--rho2", "0,1", "--stability", "3", "--report", "page.html")
    text = planted.read("page.html").decode()
    Balance().check(text)
    assert text.count("<svg") >= 6 and "<script" not in text and "http" not in text
    assert '<b>"' not in text and "prefers-color-scheme: dark" in text
    for heading in ("Error against the number of features", "The path", "Stability", "Strongest features", "|μ(y, x)|"):
        assert heading in text


def test_report_of_a_search(planted):
    select(planted, "--method", "backward", "--rho2", "0.1", "--folds", "2", "--report", "page.html", "--by", "f1")
    text = planted.read("page.html").decode()
    Balance().check(text)
    assert "The search, set by set" in text


class Balance(html.parser.HTMLParser):
    """Every element that is opened is closed, in order."""

    def check(self, text):
        self.open = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


# Stopping and going on ----------------------------------------------------------------------------------


def test_interrupt_and_resume(planted):
    planted.write("big.txt", b"\n".join(planted_text(seed, 60) for seed in range(30)))
    arguments = ("select", "--dev", "dev.txt", "--path", "40", "-e", "1e-9", "-o", "m", "t", "big.txt")
    process = planted.popen(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    head = [process.stdout.readline() for _ in range(5)]
    process.send_signal(signal.SIGINT)
    rest, messages = process.communicate(timeout=120)
    assert process.returncode == 130, messages
    found = table(b"".join(head) + rest)
    assert 4 <= len(found) < 40 and b"interrupted" in messages and b"chosen: " in messages
    assert not (planted.path / "m").exists() and (planted.path / "m.state").exists()
    output, _ = planted.run(*arguments, "--resume")
    rows = table(output)
    assert len(rows) == 40 and rows[:len(found)] == found      # with their seconds: not trained again
    assert (planted.path / "m").exists() and not (planted.path / "m.state").exists()


def test_resume_costs_nothing_when_all_is_known(planted):
    options = ("--method", "beam", "--dev", "dev.txt", "--state", "s")
    rows, _ = select(planted, *options)
    assert select(planted, *options, "--resume")[0] == rows
    state = json.loads(planted.read("s"))
    assert len(state["outcomes"]) == len(rows)


def test_resume_with_stability(planted):
    options = ("--method", "mi", "--number", "9", "--dev", "dev.txt", "--stability", "3", "--state", "s", "--json", "-q")
    first, _ = planted.run("select", *options, "t", "train.txt")
    state = json.loads(planted.read("s"))
    (runs,) = state["sets"].values()
    assert sorted(runs) == ["0", "1", "2"] and all(len(chosen) == 9 for chosen in runs.values())
    assert planted.run("select", *options, "--resume", "t", "train.txt")[0] == first


def test_a_state_belongs_to_its_data(planted):
    options = ("--method", "grid", "--dev", "dev.txt", "--state", "s")
    select(planted, *options)
    planted.write("dev.txt", planted_text(7, 20))
    _, messages = planted.run("select", *options, "--resume", "t", "train.txt", code=1)
    assert "s: left by a search on other data" in messages


# Bad input: before any training -------------------------------------------------------------------------


@pytest.mark.parametrize("options,message", [
    (("--method", "mi", "--number", "100000"), "--number 100000: t gives only "),
    (("--method", "mi", "--number", "200", "--features", "observed"), "--number 200: t gives only "),
    (("--folds", "41"), "train.txt: 40 sequences cannot make 41 folds"),
    (("--method", "grid", "-f", "100000"), "t: no feature is left to choose from"),
    (("--lines", "1"), "t:1: no template on this line"),
    (("--method", "forward", "--lines", "3"), "a search needs at least two"),
    (("--dev", "narrow.txt"), "narrow.txt:1: "),
    (("--dev", "wide.txt"), "wide.txt:1: 6 columns, but the training data have 5"),
    (("--dev", "absent.txt"), "absent.txt: cannot be read"),
    (("-o", "no/such/folder"), "no/such/folder: cannot be written"),
    (("--report", "."), ".: is a directory"),
    (("--max-memory", "1M"), "training needs about")])
def test_bad_input(planted, options, message):
    planted.write("narrow.txt", b"n0 O\n")
    planted.write("wide.txt", b"n0 d0 s0 m0 O O\n")
    output, messages = planted.run("select", *options, "t", "train.txt", code=1)
    assert output == b"" and message in messages.splitlines()[-1]


@pytest.mark.parametrize("options,message", [
    (("--dev", "dev.txt", "--folds", "3"), "give one of them"),
    (("--number", "5"), "--number does not apply to --method l1, but to count, mi, "),
    (("--method", "mi", "--number", "5,x"), "'x' is not a whole number"),
    (("--method", "mi", "--number", "0"), "'0' is not a whole number of at least 1"),
    (("--method", "mi", "--number", "150%"), "'150%' is not"),
    (("--method", "mi", "--delta", "1"), "--delta does not apply to --method mi, but to threshold"),
    (("--method", "mi", "--retrain"), "--retrain does not apply to --method mi"),
    (("--method", "threshold", "--delta", "1", "--number", "2"), "two ways to cut"),
    (("--method", "mi", "--path", "5"), "--path does not apply to --method mi, but to l1"),
    (("--steps", "5"), "--steps does not apply to --method l1, but to anneal"),
    (("--method", "mi", "-a", "bcd"), "-a bcd trains all weights of an observation"),
    (("--method", "mi", "-f", "2"), "leave out --min-count"),
    (("--method", "mi", "--rho2", "1,2"), "mi takes one --rho2"),
    (("--rho1", "0"), "a single value above 0"), (("--rho1", "-1"), "'-1' is not a number of at least 0"),
    (("--rho2", "nan"), "'nan' is not a number"),
    (("--method", "forward", "--stability", "3"), "forward chooses templates"),
    (("--share", "0.5"), "--share needs --stability"),
    (("--one-se", "--by", "f1", "--dev", "dev.txt"), "needs --folds"),
    (("-a", "l-bfgs",), "l-bfgs cannot have an l1 penalty"),
    (("--conjunctions", "2", "--dev", "dev.txt"), "--conjunctions does not apply to --method l1, but to induce"),
    (("--method", "induce", "--conjunctions", "2"), "--conjunctions needs --dev"),
    (("--method", "induce", "--conjunctions", "2", "--dev", "dev.txt", "--lines", "3"), "leave out --lines"),
    (("--resume",), "--resume needs --state")])
def test_usage(options, message):
    assert message in usage_error("select", *options, "t", "train.txt")

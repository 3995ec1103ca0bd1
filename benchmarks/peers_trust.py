"""What the tools do with bad input: a table of crftool, Wapiti and CRFsuite on the same files.

    python benchmarks/peers_trust.py

The peers come from the package index (pip install libwapiti python-crfsuite) and are used through their Python
interfaces, each run in a process of its own, with 4 GB of memory and a minute of time. That of CRFsuite takes lists
of attributes, so what concerns reading and templates does not apply to it. A run either ends by a signal, or with an
error, whose last line is shown, or well; then the table says how many of the tokens have got a label, and how many
of these labels are those that the tool was trained with.
"""

import importlib.metadata
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

DATA = b"He PRP B-NP\nruns VBZ B-VP\n. . O\n\nIt PRP B-NP\nis VBZ B-VP\na DT B-NP\ntest NN I-NP\n. . O\n"
TEMPLATE = b"U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nB\n"
TOOLS = {"crftool": "crftool", "Wapiti": "libwapiti", "CRFsuite": "python-crfsuite"}
SEED, DAMAGES = 1, 200
TRAINED = "training has ended well"

# name: (training data, template, text to label, kind); kind "attributes" means something to CRFsuite too
INPUTS = {
    "good input": (DATA, TEMPLATE, DATA, "attributes"),
    "NUL byte in a token": (DATA.replace(b"runs", b"ru\0ns"), TEMPLATE, DATA.replace(b"runs", b"ru\0ns"), "attributes"),
    "NUL byte in a label": (DATA.replace(b"B-VP", b"B\0VP"), TEMPLATE, DATA.replace(b"B-VP", b"B\0VP"), "attributes"),
    "lines that end in CR LF": (DATA.replace(b"\n", b"\r\n"), TEMPLATE, DATA, "text"),
    "byte-order mark": (b"\xef\xbb\xbf" + DATA, TEMPLATE, DATA, "text"),
    "a line with a column less, in training": (DATA.replace(b"runs VBZ ", b"runs "), TEMPLATE, DATA, "text"),
    "a line with a column less, to label": (DATA, TEMPLATE, DATA.replace(b"runs VBZ B-VP", b"runs"), "text"),
    "a line of 100,000 bytes": (DATA.replace(b"runs", b"x" * 100_000), TEMPLATE, DATA.replace(b"runs", b"x" * 100_000), "attributes"),
    "bytes that are no UTF-8": (DATA.replace(b"runs", b"\xff\xfe"), TEMPLATE, DATA.replace(b"runs", b"\xff\xfe"), "attributes"),
    "no sequence at all": (b"\n\n", TEMPLATE, DATA, "attributes"),
    "one label only": (b"a a x\nb a x\n", TEMPLATE, b"a a x\nb a x\n", "attributes"),
    "the label `:`": (DATA.replace(b"B-VP", b":"), TEMPLATE, DATA.replace(b"B-VP", b":"), "attributes"),
    "`#` in a pattern": (DATA, b'U0:%t[0,0,"^#"]\nU1:%x[0,0]\nB\n', DATA, "text"),
    "a template line of unknown type": (DATA, b"X0:%x[0,0]\nU1:%x[0,1]\nB\n", DATA, "text"),
    "a macro that does not end": (DATA, b"U0:%x[0,0\nB\n", DATA, "text"),
    "a column that is not there": (DATA, b"U0:%x[0,9]\nB\n", DATA, "text"),
    "100,000 labels": (b"\n".join(b"w%d p L%d" % (i % 9, i) for i in range(100_000)) + b"\n", TEMPLATE, b"", "attributes"),
}
TARGETS = {"model path in a folder that is not there": "missing/m", "model path that is a folder": "folder",
           "model path /dev/full": "/dev/full"}


# The tools, each in a process of its own: `label TEMPLATE TRAIN MODEL TEXT` trains if TRAIN is not "-", and labels -----

def _sequences(data):
    return [part for part in data.replace(b"\r\n", b"\n").split(b"\n\n") if part.strip()]


def run_wapiti(template, train, model, text, dev, initial):
    import logging

    import wapiti

    logging.getLogger("wapiti").addHandler(logging.StreamHandler())
    options = {"nthread": 1, "rho1": 0.01, "rho2": 0.01, "maxiter": 50, "encoding": "latin-1"}
    if train:
        loaded = wapiti.Model(model=initial, **options) if initial else \
            wapiti.Model(patterns=Path(template).read_bytes().decode("latin-1"), **options)
        # as a file is: CR stays
        for sequence in Path(train).read_bytes().split(b"\r\n\r\n" if b"\r\n\r\n" in Path(train).read_bytes() else b"\n\n"):
            if sequence.strip():
                loaded.add_training_sequence(sequence)
        loaded.train()
        loaded.save(model)
        print(TRAINED, file=sys.stderr, flush=True)
    else:
        loaded = wapiti.Model(model=model, **options)
    for sequence in _sequences(Path(text).read_bytes()):
        sys.stdout.buffer.write(loaded.label_sequence(b"\n".join(line.rsplit(b" ", 1)[0] for line in sequence.split(b"\n")).strip())
                                .rstrip(b"\n") + b"\n")


def run_crfsuite(template, train, model, text, dev, initial):
    import pycrfsuite

    def attributes(sequence):
        tokens = [line.split(b" ") for line in sequence.split(b"\n") if line.split(b" ")[0]]
        return [[b"w=" + token[0], b"p=" + token[1]] for token in tokens], [token[-1] for token in tokens]

    if train:
        trainer = pycrfsuite.Trainer(verbose=False)
        trainer.set_params({"max_iterations": 50})
        for group, path in enumerate([train] + [dev] * bool(dev)):
            for sequence in _sequences(Path(path).read_bytes()):
                trainer.append(*attributes(sequence), group)
        trainer.train(model, holdout=1 if dev else -1)
        print(TRAINED, file=sys.stderr, flush=True)
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    for sequence in _sequences(Path(text).read_bytes()):
        for label in tagger.tag(attributes(sequence)[0]):
            sys.stdout.buffer.write(label.encode("utf-8", "surrogateescape") + b"\n")


def run_crftool(template, train, model, text, dev, initial):
    program = [sys.executable, "-m", "crftool"]
    if train:
        more = (["--dev", dev] if dev else []) + (["--init", initial] if initial else [])
        done = subprocess.run([*program, "learn", "-q", "-c", "100", "-m", "50", *more, template, train, model])
        if done.returncode:
            sys.exit(done.returncode)
    sys.exit(subprocess.run([*program, "tag", "-m", model, "--format", "labels", text]).returncode)


# Running them -----------------------------------------------------------------------------------------------------

def _limits():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def outcome(tool, folder, model, train="train", dev="", initial=""):
    """(what happened, in words; the labels printed)"""
    try:
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "--run", tool, "t", train, model, "text", dev, initial],
                              cwd=folder, capture_output=True, timeout=60, preexec_fn=_limits)
    except subprocess.TimeoutExpired:
        return "no answer within a minute", b""
    before = "training ends well; then " if TRAINED.encode() in done.stderr and done.returncode else ""
    if done.returncode < 0:
        return f"{before}crash ({signal.Signals(-done.returncode).name})", b""
    if done.returncode:
        last = ([line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()] or ["no message"])[-1]
        return f"{before}error, exit {done.returncode}: {last.strip()[:110]}", b""
    return "", done.stdout


def labels_of(text):
    return [line.split(b" ")[-1] for line in text.replace(b"\r", b"").split(b"\n") if line.strip()]


def in_words(words, printed, text):
    if words:
        return words
    gold, found = labels_of(text), [line for line in printed.split(b"\n") if line]
    right = sum(a == b for a, b in zip(gold, found))
    return f"exit 0; {len(found)} labels for {len(gold)} tokens, {right} right"


def prepared(folder, train, template, text):
    for name, content in (("train", train), ("t", template), ("text", text)):
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir(exist_ok=True)


def damage(tool, folder):
    """One byte of a good model changed, many times: how it ends."""
    chance, good = random.Random(SEED), (folder / "m").read_bytes()
    _, expected = outcome(tool, folder, "m", "")
    counts = {}
    for _ in range(DAMAGES):
        data = bytearray(good)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (folder / "damaged").write_bytes(data)
        words, printed = outcome(tool, folder, "damaged", "")
        kind = words.split(" (")[0].split(",")[0] if words else "same labels" if printed == expected else "other labels"
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items(), key=lambda entry: -entry[1]))


def rows(tool, folder):
    for name, (train, template, text, kind) in INPUTS.items():
        if tool == "CRFsuite" and kind == "text":
            yield name, "does not apply"
            continue
        prepared(folder, train, template, text)
        yield name, in_words(*outcome(tool, folder, "m"), text)
    prepared(folder, DATA, TEMPLATE, DATA)
    for name, target in TARGETS.items():
        yield name, in_words(*outcome(tool, folder, target), DATA)
    outcome(tool, folder, "m")
    good = (folder / "m").read_bytes()
    for name, content in (("model cut to half", good[:len(good) // 2]), ("empty file as model", b""), ("text file as model", DATA)):
        (folder / "bad").write_bytes(content)
        yield name, in_words(*outcome(tool, folder, "bad", ""), DATA)
    yield f"one bit of the model changed, {DAMAGES} times", damage(tool, folder)
    (folder / "dev").write_bytes(DATA.replace(b"I-NP", b"I-NEW"))
    yield "a new label in held-out data", "does not apply" if tool == "Wapiti" else \
        in_words(*outcome(tool, folder, "n", dev="dev"), DATA)       # its interface ignores the option devel
    (folder / "text").write_bytes(DATA.replace(b"I-NP", b"I-NEW"))
    (folder / "more").write_bytes(DATA.replace(b"I-NP", b"I-NEW"))
    yield "training goes on with a new label", "does not apply" if tool == "CRFsuite" else \
        in_words(*outcome(tool, folder, "n", train="more", initial="m"), DATA.replace(b"I-NP", b"I-NEW"))


def main():
    if sys.argv[1:2] == ["--run"]:
        tool, template, train, model, text, dev, initial = sys.argv[2:]
        return {"crftool": run_crftool, "Wapiti": run_wapiti, "CRFsuite": run_crfsuite}[tool](
            template, train, model, text, dev, initial)
    print("| input | " + " | ".join(
        f"{tool} ({package} {importlib.metadata.version(package)})" for tool, package in TOOLS.items()) + " |")
    print("|---" * (len(TOOLS) + 1) + "|")
    tables = {}
    for tool in TOOLS:
        with tempfile.TemporaryDirectory() as name:
            tables[tool] = dict(rows(tool, Path(name)))
    for name in tables["crftool"]:
        print(f"| {name} | " + " | ".join(tables[tool][name].replace("|", "\\|") for tool in TOOLS) + " |")


if __name__ == "__main__":
    main()

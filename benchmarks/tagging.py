"""Tagging: tokens per second, time to first output and memory, beside the peers.

    python benchmarks/tagging.py [--repeats 3] [--copies 20] [--iterations 60]

Trains CoNLL-2000 chunking (CRFTOOL_DATA) with an l2 and an l1 penalty, and tags the test file, so many times
over, with `crftool tag` on one and two threads, start-up and loading included. Beside it, if installed
(pip install libwapiti python-crfsuite), the peers with as many weights; their time is that of tagging alone,
from text (Wapiti) or from ready-made attribute lists (CRFsuite), loading and expansion left out.
"""

import argparse
import gzip
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "templates" / "chunking.template"
OUTPUTS = [(), ("-v", "1"), ("-v", "2"), ("-n", "1"), ("-n", "5"), ("--format", "json"), ("--format", "json", "-v", "1"),
           ("--format", "json", "-v", "2"), ("--posterior",), ("--constrain", "iob2"), ("--force-column", "2"),
           ("--min-confidence", "0.9"), ("--phrase-confidence",), ("--inference", "log", "-v", "1")]
PEER_SEQUENCES = 4_000               # of the many copies: a peer needs no more to show its speed


def crftool(*arguments):
    return [sys.executable, "-m", "crftool", *map(str, arguments)]


def train(folder, corpus, iterations):
    models = {"l2": ("-c", "1"), "l1": ("--rho1", "1", "--rho2", "0.001")}
    for name, penalty in models.items():
        subprocess.run(crftool("learn", "-q", *penalty, "-m", iterations, TEMPLATE, corpus, folder / name),
                       check=True, stderr=subprocess.DEVNULL)
    return list(models)


def timed(command, stdin=None):
    """(seconds, peak resident bytes) of a command whose output goes nowhere."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, command
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def seconds_to_first_output(model):
    """From the start of the program to the answer to one sequence, its input staying open."""
    start = time.perf_counter()
    process = subprocess.Popen(crftool("tag", "-m", model), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b"He PRP\n\n")
    process.stdin.flush()
    process.stdout.readline()
    seconds = time.perf_counter() - start
    process.stdin.close()
    process.wait()
    return seconds


def wapiti_seconds(corpus, sequences):
    """Of labelling text by a Wapiti model with all weights."""
    import wapiti
    model = wapiti.Model(patterns=TEMPLATE.read_text(), rho1=0.0, rho2=1.0, nthread=2, maxiter=3, stopeps=0.0)
    with gzip.open(corpus, "rt", encoding="utf-8") as file:
        for sequence in file.read().strip().split("\n\n"):
            model.add_training_sequence(sequence)
    model.train()
    texts = ["\n".join(line.rsplit(" ", 1)[0] for line in sequence) for sequence in sequences]
    start = time.perf_counter()
    for text in texts:
        model.label_sequence(text)
    return time.perf_counter() - start


def crfsuite_seconds(corpus, sequences):
    """Of tagging attribute lists by a CRFsuite model."""
    import pycrfsuite
    from crftool.corpus.template import Template

    lines = Template(TEMPLATE.read_bytes()).unigrams

    def attributes(rows):
        def value(t, field):
            position = t + field.row
            if position < 0 or position >= len(rows):
                return b"_B%+d" % (position if position < 0 else position - len(rows) + 1)
            return rows[position][field.source].encode()
        return [[line.expand(value(t, field) for field in line.fields).decode() for line in lines]
                for t in range(len(rows))]

    trainer = pycrfsuite.Trainer(verbose=False)
    with gzip.open(corpus, "rt", encoding="utf-8") as file:
        for sequence in file.read().strip().split("\n\n"):
            rows = [line.split() for line in sequence.split("\n")]
            trainer.append(attributes(rows), [row[-1] for row in rows])
    trainer.set_params({"c2": 0.5, "max_iterations": 3, "feature.possible_states": True})
    with tempfile.NamedTemporaryFile() as file:
        trainer.train(file.name)
        tagger = pycrfsuite.Tagger()
        tagger.open(file.name)
    ready = [attributes([line.split() for line in sequence]) for sequence in sequences]
    start = time.perf_counter()
    for items in ready:
        tagger.tag(items)
    return time.perf_counter() - start


def outputs(model, file, tokens, repeats):
    """Tokens per second of every kind of output, one and two threads."""
    print(f"{'output':28} {'1 thread':>12} {'2 threads':>12}")
    for options in OUTPUTS:
        best = [min(timed(crftool("tag", "-p", threads, "-m", model, *options, file))[0] for _ in range(repeats))
                for threads in (1, 2)]
        print(f"{' '.join(options) or '(plain)':28} {tokens / best[0]:12,.0f} {tokens / best[1]:12,.0f}", flush=True)


def peers(corpus, sequences):
    tokens = sum(map(len, sequences))
    for name, module, package, seconds in (("Wapiti", "wapiti", "libwapiti", wapiti_seconds),
                                           ("CRFsuite", "pycrfsuite", "python-crfsuite", crfsuite_seconds)):
        if importlib.util.find_spec(module) is None:
            print(f"{name}: pip install {package}")
            continue
        print(f"{name + ', tagging alone':28} {tokens / seconds(corpus, sequences):12,.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=60)
    options = parser.parse_args()
    if not os.environ.get("CRFTOOL_DATA"):
        print("CRFTOOL_DATA does not name the folder of corpora")
        return
    folder = Path(os.environ["CRFTOOL_DATA"]) / "conll2000"
    corpus = str(folder / "train.txt.gz")
    text = gzip.open(folder / "test.txt.gz", "rt", encoding="utf-8").read().strip() + "\n\n"
    sequences = [sequence.split("\n") for sequence in text.strip().split("\n\n")]
    tokens = options.copies * sum(map(len, sequences))
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        (scratch / "test.txt").write_text(text * options.copies, encoding="utf-8")
        names = train(scratch, corpus, options.iterations)
        print(f"{tokens:,} tokens; median (lowest to highest) of {options.repeats}")
        print(f"{'':28} {'tokens/s':>12} {'seconds':>24} {'MB':>6} {'of them model':>14} {'first output':>13}")
        runs = {(name, threads): [] for name in names for threads in (1, 2)}
        for _ in range(options.repeats):                             # interleaved, so that noise hits all alike
            for name, threads in runs:
                runs[name, threads].append(timed(crftool("tag", "-p", threads, "-m", scratch / name, scratch / "test.txt")))
        for (name, threads), found in runs.items():
            seconds, memory = [s for s, _ in found], max(m for _, m in found)
            spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
            size = (scratch / name).stat().st_size
            print(f"{f'crftool, {name}, {threads} threads':28} {tokens / statistics.median(seconds):12,.0f} {spread:>24} "
                  f"{memory / 1e6:6.0f} {size / 1e6:14.1f} {seconds_to_first_output(scratch / name):12.3f}s")
        outputs(scratch / "l2", scratch / "test.txt", tokens, options.repeats)
    start = min(timed([sys.executable, "-c", "import click"])[0] for _ in range(5))
    print(f"for comparison: python -c 'import click' {start:.3f} s")
    peers(corpus, (sequences * options.copies)[:PEER_SEQUENCES])


if __name__ == "__main__":
    main()

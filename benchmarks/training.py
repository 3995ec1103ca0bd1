"""Training: seconds until the objective is as low as wanted, beside the peers; and how the cost grows.

    CRFTOOL_DATA=folder python benchmarks/training.py [--repeats 3] [--factor 25] [--only WORD] [--markdown]

Every tool has the same features, penalty and target. crftool's seconds are those of `crftool learn`, start of
Python, reading and counting included; a peer's count from when it has the data (it has no template of its own,
or its reader is not at fault), on 2 threads where it has threads. A peer that has not reached the last target
after FACTOR times crftool's seconds is ended. --markdown ends with the rows of the README's table.
Peers: pip install libwapiti python-crfsuite.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import peers

ROOT = Path(__file__).resolve().parent.parent
THREADS = 2


@dataclass(frozen=True)
class Contest:
    name: str
    train: str                       # below CRFTOOL_DATA
    template: str                    # a file, or the text of one
    rho1: float
    rho2: float
    targets: tuple                   # objectives
    peers: tuple = ("Wapiti", "CRFsuite")


CHUNKING = str(ROOT / "templates" / "chunking.template")
LETTERS = "U:%x[0,0]\nB:%x[0,0]\n"
# The optima, from trainings with -e 1e-6
NETTALK_L2, NETTALK_ELASTIC = 55746.30, 57287.41
CONTESTS = [
    Contest("CoNLL-2000, l2 (C = 1)", "conll2000/train.txt.gz", CHUNKING, 0.0, 1.0, (7713.0, 7705.5)),
    Contest("CoNLL-2000, l1 (rho1 = 1)", "conll2000/train.txt.gz", CHUNKING, 1.0, 0.0, (16650.0, 16605.0)),
    # CRFsuite cannot let label pairs depend on an observation
    Contest("Nettalk, l2 (rho2 = 0.02)", "nettalk/train.txt.gz", LETTERS, 0.0, 0.02, (1.001 * NETTALK_L2,), ("Wapiti",)),
    Contest("Nettalk, elastic net (0.2, 0.001)", "nettalk/train.txt.gz", LETTERS, 0.2, 0.001, (1.001 * NETTALK_ELASTIC,), ("Wapiti",)),
]


def log_of(folder, contest, template, *options):
    """The records of `crftool learn`, and its last line."""
    log = folder / "log.json"
    done = subprocess.run(
        [sys.executable, "-m", "crftool", "learn", "-p", str(THREADS), "--rho1", str(contest.rho1), "--rho2",
         str(contest.rho2), "--log-json", log, *options, template, contest.train, folder / "model"],
        check=True, stderr=subprocess.PIPE, text=True)
    return [json.loads(line) for line in log.read_text().splitlines()], done.stderr.strip().splitlines()[-1]


def seconds_to(records, target):
    return next((r["seconds"] for r in records if not r["estimated"] and r["objective"] <= target), None)


def spread(seconds):
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}-{max(seconds):.1f})"


def compete(contest, folder, repeats, factor):
    """The rows of the README's table: [contest and target, crftool, Wapiti, CRFsuite]."""
    template = contest.template
    if "\n" in template:
        template = folder / "template"
        template.write_text(contest.template)
    runs = [log_of(folder, contest, template) for _ in range(repeats)]
    lowest = min(records[-1]["objective"] for records, _ in runs)
    print(f"\n{contest.name}: {runs[0][0][-1]['iteration']} iterations, {runs[0][0][-1]['evaluations']} gradients to the "
          f"end at {lowest:.3f}\n  {runs[0][1].split('; ')[-1]}; active weights: {runs[0][0][-1]['active']}")
    ours, rows = {}, {}
    for target in contest.targets:
        times = [seconds_to(records, target) for records, _ in runs]
        if None in times:
            print(f"  to {target:.1f}: not reached")
            continue
        ours[target] = statistics.median(times)
        rows[target] = {"crftool": spread(times)}
        print(f"  to {target:.1f}: crftool {spread(times)}")
    for name in contest.peers:
        peer = next(peer for peer in peers.PEERS if peer.name == name)
        if not ours or not peer.installed:
            print(f"  {name} is left out: pip install {peer.package}")
            continue
        limit = factor * max(ours.values())
        reached, (seconds, objective) = peers.until(
            name, contest.train, template, THREADS if peer.threaded else 1, contest.rho1, contest.rho2, list(ours), limit)
        for target, mine in ours.items():
            if reached[target] is not None:
                rows[target][name] = f"{reached[target]:.0f} s ({reached[target] / mine:.0f}×)"
            else:
                rows[target][name] = f"more than {seconds:.0f} s ({seconds / mine:.0f}×), then at {objective:,.1f}"
            print(f"  to {target:.1f}: {name} {rows[target][name]}")
    return [[f"{contest.name}, to {target:,.1f}", *(row.get(name, "–") for name in ("crftool", "Wapiti", "CRFsuite"))]
            for target, row in rows.items()]


def print_table(rows):
    print("\n| | crftool | Wapiti | CRFsuite |\n|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def others(data, folder):
    """Problems without a peer: time and objective."""
    pos = folder / "pos.txt"
    with gzip.open(data / "conll2000" / "train.txt.gz", "rt") as source, open(pos, "w") as target:
        for line in source:
            target.write(" ".join(line.split()[:2]) + "\n")
    for name, train, template in (
            ("Spanish named entities, 9 labels, ner.template", data / "conll2002" / "esp.train.gz", "ner"),
            ("CoNLL-2000's parts of speech, 44 labels, pos.template", pos, "pos")):
        for rho1, rho2 in ((0.0, 1.0), (1.0, 0.0)):
            contest = Contest(name, train, template, rho1, rho2, ())
            records, last = log_of(folder, contest, template)
            print(f"\n{name}, rho1 = {rho1:g}, rho2 = {rho2:g}: {records[-1]['seconds']:.1f} s, {records[-1]['evaluations']} "
                  f"gradients, objective {records[-1]['objective']:.3f}\n  {last}")


def growth(data):
    """Seconds of one value and gradient against tokens, labels, features and threads."""
    from crftool.corpus.dataset import Dataset, FeatureSpace, read_training_data
    from crftool.corpus.reader import read_bytes
    from crftool.corpus.template import Template
    from crftool.kernels.pool import Pool
    from crftool.objectives import LogLoss

    def measure(dataset, space, groups, threads=THREADS):
        loss = LogLoss(dataset, space, groups, Pool(threads))
        theta, grad = np.random.default_rng(1).normal(0, 0.1, loss.F), np.empty(loss.F)
        seconds = []
        for _ in range(6):
            begun = time.perf_counter()
            loss.value_and_gradient(theta, grad)
            seconds.append(time.perf_counter() - begun)
        print(f"  {dataset.N:8d} tokens {space.Y:4d} labels {space.F:9d} weights {threads} threads "
              f"{1e3 * min(seconds):8.1f} ms {1e9 * min(seconds) / dataset.N:8.0f} ns a token")

    print("\nOne value and gradient, fastest of 6")
    for cut in (1, 3):
        encoder, data_set = read_training_data(
            str(data / "conll2000" / "train.txt.gz"), Template(read_bytes(CHUNKING), CHUNKING), min_count=cut)
        groups, space = encoder.unigrams.groups(), encoder.space
        for share in (8, 4, 2, 1) if cut == 1 else (1,):
            S = data_set.S // share
            N = int(data_set.offsets[S])
            measure(Dataset(data_set.offsets[:S + 1], data_set.unigrams[:N], data_set.transition[:N],
                            data_set.bigrams, data_set.labels[:N]), space, groups)
        measure(data_set, space, groups, 1)
    for Y in (5, 10, 22, 50, 100, 200):
        labels = np.random.default_rng(2).integers(0, Y, data_set.N).astype(np.int32)
        few = Dataset(data_set.offsets, np.minimum(data_set.unigrams, 20_000), data_set.transition, data_set.bigrams, labels)
        measure(few, FeatureSpace(Y, 20_001, space.Ob, False), [list(range(data_set.unigrams.shape[1]))])


def main():
    parser = argparse.ArgumentParser(description="Time training to a target, beside the peers.")
    parser.add_argument("--repeats", type=int, default=3, help="runs of crftool [%(default)s]")
    parser.add_argument("--factor", type=float, default=25.0, help="patience with peers [%(default)s]")
    parser.add_argument("--only", default="", metavar="WORD", help="contests whose name has it; `others`, `growth`")
    parser.add_argument("--markdown", action="store_true", help="print the rows of the README's table at the end")
    arguments = parser.parse_args()
    if not os.environ.get("CRFTOOL_DATA"):
        print("nothing measured: CRFTOOL_DATA does not name the folder of corpora")
        return
    data = Path(os.environ["CRFTOOL_DATA"])
    os.environ["PYTHONPATH"], rows = str(ROOT), []
    with tempfile.TemporaryDirectory() as name:
        for contest in CONTESTS:
            if arguments.only in contest.name:
                contest = Contest(**{**vars(contest), "train": data / contest.train})
                rows += compete(contest, Path(name), arguments.repeats, arguments.factor)
        if arguments.only in "others":
            others(data, Path(name))
    if arguments.only in "growth":
        growth(data)
    if arguments.markdown:
        print_table(rows)


if __name__ == "__main__":
    main()

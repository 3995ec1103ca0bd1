"""Blockwise descent on Nettalk: against Wapiti's bcd, sweep by sweep, and against our owl-qn, to the optimum.

    CRFTOOL_DATA=... python blocks.py [--threads N] [--skip-wapiti]

Letters and bigrams of phonemes (U:%x[0,0], B:%x[0,0]), rho1 = 0.2, rho2 = 0.001. Every run is a process of
its own. Seconds on the clock depend on what else the machine does; processor seconds (all threads added
up) much less, so both are given.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TEMPLATE = "U:%x[0,0]\nB:%x[0,0]\n"
RHO1, RHO2 = 0.2, 0.001
SWEEPS = 3                           # of ours, for the time of one
CLOSE = 1.001                        # times the optimum


def timed(command, **options):
    """(seconds, processor seconds) of a command."""
    before, start = os.times(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    after = os.times()
    return (time.monotonic() - start,
            after.children_user + after.children_system - before.children_user - before.children_system)


def wapiti_sweeps(train, threads, sweeps):
    """What this process runs for `--wapiti`."""
    import wapiti

    model = wapiti.Model(patterns=TEMPLATE, algo="bcd", rho1=RHO1, rho2=RHO2, nthread=threads, maxiter=sweeps)
    with gzip.open(train, "rt", encoding="utf-8") as file:
        for sequence in file.read().strip("\n").split("\n\n"):
            model.add_training_sequence(sequence)
    model.train()


def wapiti_sweep(train, threads):
    """Times of one sweep: a run of two without a run of one."""
    runs = [timed([sys.executable, __file__, "--wapiti", train, str(threads), str(n)]) for n in (1, 2)]
    return tuple(two - one for one, two in zip(*runs))


def learn(folder, train, algorithm, threads, iterations):
    """(times, records of the iterations) of our own training."""
    log = folder / f"{algorithm}.json"
    times = timed([sys.executable, "-m", "crftool", "learn", "-q", "-a", algorithm, "--rho1", str(RHO1), "--rho2",
                   str(RHO2), "-p", str(threads), "-m", str(iterations), "--log-json", str(log),
                   str(folder / "template"), str(train), str(folder / "model")])
    return times, [json.loads(line) for line in log.read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sweeps", type=int, default=60, help="of bcd, towards the optimum")
    parser.add_argument("--iterations", type=int, default=500, help="of owl-qn")
    parser.add_argument("--skip-wapiti", action="store_true")
    arguments = parser.parse_args()
    train = Path(os.environ["CRFTOOL_DATA"]) / "nettalk" / "train.txt.gz"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "template").write_text(TEMPLATE)
        none, _ = learn(folder, train, "bcd", arguments.threads, 0)
        some, _ = learn(folder, train, "bcd", arguments.threads, SWEEPS)
        ours = tuple((b - a) / SWEEPS for a, b in zip(none, some))
        print(f"one sweep, crftool: {ours[0]:.2f} s, {ours[1]:.2f} processor seconds", flush=True)
        if not arguments.skip_wapiti:
            theirs = wapiti_sweep(str(train), arguments.threads)
            print(f"one sweep, Wapiti:  {theirs[0]:.2f} s, {theirs[1]:.2f} processor seconds; "
                  f"{theirs[0] / ours[0]:.0f} and {theirs[1] / ours[1]:.0f} times ours", flush=True)
        runs = {"bcd": learn(folder, train, "bcd", arguments.threads, arguments.sweeps),
                "owl-qn": learn(folder, train, "owl-qn", arguments.threads, arguments.iterations)}
        best = min(record["objective"] for _, log in runs.values() for record in log)
        print(f"lowest objective seen: {best:.2f}")
        for name, ((seconds, processor), log) in runs.items():
            near = next((record for record in log if record["objective"] <= CLOSE * best), None)
            reached = "not reached" if near is None else \
                f"{near['seconds']:.1f} s, {near['iteration']} iterations, {near['active']} weights"
            print(f"{name}: within {CLOSE - 1:.1%} of it after {reached}; {processor / seconds:.2f} processors busy")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--wapiti":
        wapiti_sweeps(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()

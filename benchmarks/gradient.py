"""Time of one value + gradient and of one L-BFGS iteration, against Wapiti and CRFsuite.

    CRFTOOL_DATA=folder python benchmarks/gradient.py

The folder must hold conll2000/train.txt.gz: the CoNLL-2000 chunking data as columns word, part of speech,
chunk label. Features: templates/chunking.template, all of them. The tools take turns, each in a process of
its own; ratios are taken within a round, so that other work on the machine matters less.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import peers

TEMPLATE = Path(__file__).resolve().parent.parent / "templates" / "chunking.template"
# The tools keep 5 or 6 steps. Until then iterations do less work, and touch new memory.
FIRST_TYPICAL_ITERATION = 8


@dataclass(frozen=True)
class Contestant:
    tool: str
    threads: int

    def __str__(self):
        return f"{self.tool}, {self.threads} thread{'s' * (self.threads > 1)}"


def parse_arguments():
    parser = argparse.ArgumentParser(description="Time crftool's gradient and L-BFGS iteration against its peers.")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds [%(default)s]")
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="of each training [%(default)s]")
    parser.add_argument("--threads", type=int, default=2, metavar="N",
                        help="of the tools that have threads [%(default)s]")
    arguments = parser.parse_args()
    if min(arguments.repeats, arguments.threads) < 1:
        parser.error("--repeats and --threads must be at least 1")
    if arguments.iterations < FIRST_TYPICAL_ITERATION:
        parser.error(f"--iterations must be at least {FIRST_TYPICAL_ITERATION}")
    return arguments


def find_corpus():
    folder = os.environ.get("CRFTOOL_DATA")
    if not folder:
        print("nothing measured: CRFTOOL_DATA does not name the folder with conll2000/train.txt.gz")
        sys.exit(0)
    path = Path(folder, "conll2000", "train.txt.gz")
    if not path.exists():
        sys.exit(f"{path}: not found; CRFTOOL_DATA must name the folder with conll2000/train.txt.gz")
    return path


def choose_contestants(threads):
    """crftool with all threads comes first, then with one, then the peers that are installed."""
    contestants = [Contestant("crftool", n) for n in sorted({threads, 1}, reverse=True)]
    for peer in peers.PEERS:
        if peer.installed:
            contestants.append(Contestant(peer.name, threads if peer.threaded else 1))
        else:
            print(f"{peer.name} is not installed: pip install {peer.package}")
    return contestants


def run_rounds(contestants, corpus, arguments, disturbance):
    """{contestant: [Run of each round]}; without peers that fail."""
    runs = {contestant: [] for contestant in contestants}
    for number in range(1, arguments.repeats + 1):
        for contestant in list(runs):
            print(f"round {number}: {contestant}", file=sys.stderr)
            try:
                with disturbance:
                    runs[contestant].append(peers.run(
                        contestant.tool, corpus, TEMPLATE, contestant.threads, arguments.iterations))
            except peers.RunFailed as failure:
                if contestant.tool == "crftool":
                    raise
                print(f"{failure}: left out")
                del runs[contestant]
    return runs


class Disturbance:
    """How many cores others have used during each of the runs; only Linux tells."""

    STATISTICS = Path("/proc/stat")

    def __init__(self):
        self.cores = []

    def __enter__(self):
        self._begun, self._others = time.monotonic(), self._seconds_of_others()

    def __exit__(self, *exception):
        if self._others is not None:
            passed = time.monotonic() - self._begun
            self.cores.append(max(0.0, self._seconds_of_others() - self._others) / passed)

    def _seconds_of_others(self):
        """Processor seconds so far that were neither idle nor our own, those stolen by other machines included."""
        if not self.STATISTICS.exists():
            return None
        user, nice, system, _idle, _wait, *interrupts_and_stolen = map(
            int, self.STATISTICS.read_text().splitlines()[0].split()[1:9])
        busy = user + nice + system + sum(interrupts_and_stolen)
        return busy / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])

    def __str__(self):
        if not self.cores:
            return "Other work on the machine: unknown."
        return (f"Other work on the machine during the runs: {statistics.median(self.cores):.1f} cores "
                f"({min(self.cores):.1f}-{max(self.cores):.1f}). Times mean little unless this is near 0.")


def typical_iterations(run):
    """Numbers of the iterations to be timed."""
    return [number for number in run.ends if number >= FIRST_TYPICAL_ITERATION]


def seconds_of_iterations(run):
    return [run.ends[number] - run.ends[number - 1] for number in typical_iterations(run)]


def seconds_of_evaluations(run):
    """Iterations divided by their evaluations: a bound where the gradient cannot be timed by itself."""
    return [(run.ends[number] - run.ends[number - 1]) / (run.evaluations[number] - run.evaluations[number - 1])
            for number in typical_iterations(run)]


def seconds_without_error_rates(of_rounds):
    """Of Wapiti's iterations, in each round."""
    error_rates = fastest([run.parts["error rates"] for run in of_rounds])
    return [[seconds - error_rates for seconds in seconds_of_iterations(run)] for run in of_rounds]


def gradient_rows(runs):
    """[(name, [seconds of each call] of each round)]"""
    rows = []
    for contestant, of_rounds in runs.items():
        if contestant.tool == "CRFsuite":
            rows.append((f"{contestant} (1)", [seconds_of_evaluations(run) for run in of_rounds]))
        else:
            rows.append((str(contestant), [run.parts["value and gradient"] for run in of_rounds]))
        if contestant.tool == "crftool":
            rows.append(("  without the penalty (2)", [run.parts["without penalty"] for run in of_rounds]))
    return rows


def iteration_rows(runs):
    rows = []
    for contestant, of_rounds in runs.items():
        rows.append((str(contestant), [seconds_of_iterations(run) for run in of_rounds]))
        if contestant.tool == "Wapiti":
            rows.append(("  without error rates (3)", seconds_without_error_rates(of_rounds)))
    return rows


def print_times(title, rows, bases):
    """A table of seconds; `bases`: names of the rows that the others are divided by."""
    rounds = dict(rows)
    print(f"\n{title}")
    print(f"{'':28}{'median':>8}{'lowest':>8}{'highest':>8}{'fastest':>9}"
          + "".join(f"{'/ ' + base:>26}{'fastest':>9}" for base in bases))
    for name, calls in rows:
        medians = [statistics.median(seconds) for seconds in calls]
        line = f"{name:28}{statistics.median(medians):8.3f}{min(medians):8.3f}{max(medians):8.3f}{fastest(calls):9.3f}"
        print(line + "".join(ratios_text(calls, rounds[base]) for base in bases))


def ratios_text(calls, base):
    ratios = [statistics.median(ours) / statistics.median(theirs) for ours, theirs in zip(calls, base)]
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    return f"{spread:>26}{fastest(calls) / fastest(base):9.2f}"


def fastest(calls):
    return min(min(seconds) for seconds in calls)


def print_objectives(runs, iterations):
    """From the last round; all rounds have the same, up to rounding."""
    shown = sorted({0, 1, iterations // 4, iterations // 2, iterations})
    print("\nObjective after so many iterations, and evaluations that they took")
    print(f"{'':28}" + "".join(f"{number:>13}" for number in shown) + f"{'evaluations':>13}")
    for contestant, of_rounds in runs.items():
        run = of_rounds[-1]
        values = [f"{run.objectives[number]:13.2f}" if number in run.objectives else f"{'-':>13}" for number in shown]
        print(f"{contestant!s:28}" + "".join(values) + f"{run.evaluations.get(iterations, '-'):>13}")


def describe(runs, arguments):
    versions = [f"{peer.package} {metadata.version(peer.package)}" for peer in peers.PEERS if peer.installed]
    weights = {run.weights for of_rounds in runs.values() for run in of_rounds}
    print(f"CoNLL-2000 training data, {TEMPLATE.name}, L2 penalty (rho2 = {peers.RHO2:g})")
    print(f"{' or '.join(map(str, sorted(weights)))} weights; rounds: {arguments.repeats}, "
          f"iterations: {arguments.iterations}")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores; {', '.join(versions) or 'no peers'}")


NOTES = """
Each round gives the median of its calls or iterations; median, lowest and highest are those of the rounds.
Ratios are taken within each round: their median (lowest-highest). Fastest: the fastest single call or
iteration of all rounds, which other work disturbs least, and the ratio of these.
Iterations: those from the {first}th on, when L-BFGS's memory is full.
(1) CRFsuite's gradient cannot be called by itself: its iterations divided by their evaluations, so the
    vector work of L-BFGS is in it. It has no threads.
(2) The log loss alone. The other rows include the penalty, as Wapiti's and CRFsuite's gradients do.
(3) Wapiti decodes the training set after each iteration to print error rates: timed by itself, and its
    fastest time subtracted.
The tools search the line differently, so that objectives differ on the way; the optimum is the same.
'-': the tool does not tell."""


def main():
    arguments = parse_arguments()
    corpus = find_corpus()
    disturbance = Disturbance()
    runs = run_rounds(choose_contestants(arguments.threads), corpus, arguments, disturbance)
    bases = [str(contestant) for contestant in runs if contestant.tool == "crftool"]
    describe(runs, arguments)
    print(disturbance)
    print_times("One value + gradient, seconds", gradient_rows(runs), bases)
    print_times("One L-BFGS iteration, seconds", iteration_rows(runs), bases)
    print_objectives(runs, arguments.iterations)
    print(NOTES.format(first=FIRST_TYPICAL_ITERATION))


if __name__ == "__main__":
    main()

"""Load and time: much text, many processes, a long training that is killed again and again.

    python benchmarks/load.py text --gigabytes 10        # generated text through `crftool tag`
    python benchmarks/load.py processes --number 50      # `crftool tag` on one model, all at once
    python benchmarks/load.py killed --minutes 60        # SIGKILL and --resume, beside a run without a break

All of them use CoNLL-2000 (CRFTOOL_DATA) and end with an error if what they promise does not hold. `text` checks
that what comes out is what went in, line for line, and a label on each; it shows the memory of the tagger as it
goes. `processes` compares all outputs and shows how much memory is shared. `killed` runs one training
twice, side by side on one thread each: once without a break, and once killed at random moments and resumed.
After the given time the first is asked to stop, which it does at the end of an iteration; the second goes on to
that very iteration and is asked too. The two model files must be equal.
"""

import argparse
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "templates" / "chunking.template"
TOKENS_AT_ONCE = 1 << 16
BYTES_AT_ONCE = 1 << 22
SENTENCE = 24                        # tokens, at most
SEED = 1


def crftool(*arguments):
    return [sys.executable, "-m", "crftool", *map(str, arguments)]


def train_model(folder, corpus, *options):
    subprocess.run(crftool("learn", "-q", "-p", "1", *options, TEMPLATE, corpus, folder / "model"), check=True,
                   stderr=subprocess.DEVNULL)
    return folder / "model"


def memory(pid, *names):
    """Kilobytes that the system tells of a process: VmRSS, VmHWM, …"""
    found = {}
    for file in ("status", "smaps_rollup"):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines()[1 if file == "smaps_rollup" else 0:]:
            name, value = line.split(":", 1)
            found[name] = value.split()[0] if value.split() else ""
    return [int(found[name]) for name in names]


# Much text --------------------------------------------------------------------------------------------------------

def generated(corpus, size):
    """At least so many bytes of sentences, in blocks: words of the corpus and, one in 16, words never seen."""
    vocabulary = np.array(sorted({b"\t".join(line.split()[:2]) for line in gzip.open(corpus) if line.split()}), object)
    chance, written, unseen = np.random.default_rng(SEED), 0, 0
    while written < size:
        tokens = vocabulary[chance.integers(len(vocabulary), size=TOKENS_AT_ONCE)]
        for i in np.flatnonzero(chance.random(TOKENS_AT_ONCE) < 1 / 16):
            unseen += 1
            tokens[i] = b"w%d\tNN" % unseen
        ends = np.unique(np.cumsum(chance.integers(1, SENTENCE, size=TOKENS_AT_ONCE)).clip(max=TOKENS_AT_ONCE))
        tokens = tokens.tolist()
        for end in ends.tolist():
            tokens[end - 1] += b"\n"
        block = b"\n".join(tokens) + b"\n"
        written += len(block)
        yield block


def without_labels(block):
    """The lines of a block without their last column, and how many have one."""
    data = np.frombuffer(block, np.uint8)
    tabs, line_ends = np.flatnonzero(data == ord("\t")), np.flatnonzero(data == ord("\n"))
    last = np.searchsorted(tabs, line_ends) - 1                      # the tab before each line end
    begins = np.concatenate([[0], line_ends[:-1] + 1])
    labelled = (last >= 0) & (tabs[last] >= begins) & (tabs[last] < line_ends - 1)
    step = np.zeros(len(data) + 1, np.int8)
    step[tabs[last[labelled]]] += 1
    step[line_ends[labelled]] -= 1
    return data[np.cumsum(step[:-1], dtype=np.int8) == 0].tobytes(), int(labelled.sum())


def text(folder, corpus, gigabytes):
    model = train_model(folder, corpus, "--rho1", "1", "-m", "30")
    start, size, tokens, next_sample, pending = time.monotonic(), 0, 0, 0, b""
    maker = subprocess.Popen([sys.executable, __file__, "generate", "--gigabytes", str(gigabytes)], stdout=subprocess.PIPE)
    tagger = subprocess.Popen(crftool("tag", "-p", "1", "-m", model), stdin=maker.stdout, stdout=subprocess.PIPE)
    maker.stdout.close()
    output = tagger.stdout
    for block in generated(corpus, gigabytes * 1e9):
        lines = block.count(b"\n")
        parts = [pending]                                            # as many lines as went in
        while lines > (there := parts[-1].count(b"\n")):
            lines -= there
            parts.append(output.read(BYTES_AT_ONCE))
            assert parts[-1], "the output ends early"
        cut = line_end(parts[-1], lines)
        pending = parts[-1][cut:]
        plain, labelled = without_labels(b"".join(parts[:-1]) + parts[-1][:cut])
        assert plain == block and labelled == TOKENS_AT_ONCE, f"lines were lost or changed after byte {size}"
        size, tokens = size + len(block), tokens + labelled
        if next_sample <= size < gigabytes * 1e9:               # at the end the tagger may be gone
            resident, peak = memory(tagger.pid, "VmRSS", "VmHWM")
            print(f"{size / 1e9:6.2f} GB and {tokens} tokens unchanged, in order, each with a label; "
                  f"{time.monotonic() - start:.0f} s: resident {resident / 1024:.1f} MB, peak {peak / 1024:.1f} MB", flush=True)
            next_sample += 0.25e9
    assert not pending and not output.read(), "there is more output than input"
    _, status, usage = os.wait4(tagger.pid, 0)
    assert status == 0 and maker.wait() == 0
    print(f"{size} bytes, {tokens} tokens in {time.monotonic() - start:.0f} s; the tagger took "
          f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time, peak {usage.ru_maxrss / 1024:.1f} MB")


def line_end(data, lines):
    """Where the first so many lines end."""
    return int(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))[lines - 1]) + 1


# Many processes ---------------------------------------------------------------------------------------------------

def processes(folder, corpus, number):
    model = train_model(folder, corpus, "-m", "10")                  # an l2 penalty: a large model
    lines = gzip.open(corpus).read()
    start = time.monotonic()
    outputs = [folder / f"out{i}" for i in range(number)]
    taggers = [subprocess.Popen(crftool("tag", "-p", "1", "-m", model), stdin=subprocess.PIPE, stdout=open(path, "wb"))
               for path in outputs]

    def feed(tagger):
        tagger.stdin.write(lines)
        tagger.stdin.flush()

    threads = [threading.Thread(target=feed, args=(tagger,)) for tagger in taggers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sizes = [memory(tagger.pid, "Rss", "Pss", "Private_Dirty") for tagger in taggers]        # all are alive
    for tagger in taggers:
        tagger.stdin.close()
    assert [tagger.wait() for tagger in taggers] == [0] * number
    digests = {hashlib.blake2b(path.read_bytes()).hexdigest() for path in outputs}
    resident, proportional, own = (sum(column) / 1024 for column in zip(*sizes))
    print(f"{number} processes on a model of {model.stat().st_size / 1e6:.1f} MB, {len(lines)} bytes of text each, in "
          f"{time.monotonic() - start:.0f} s: {len(digests)} distinct output, all exit codes 0")
    print(f"resident, summed {resident:.0f} MB; with shared pages counted once {proportional:.0f} MB "
          f"({proportional / number:.1f} MB each), of which written by themselves {own:.0f} MB")
    assert len(digests) == 1 and outputs[0].read_bytes().count(b"\n") >= lines.count(b"\n")


# A long training that is killed -----------------------------------------------------------------------------------

class Training:
    """`crftool learn` in a folder of its own, to be stopped and gone on with."""

    def __init__(self, folder, corpus, every):
        folder.mkdir()
        self.model, self.state, self.log = folder / "model", folder / "state", folder / "log"
        self._options = ("learn", "-q", "-p", "1", "-a", "cg", "--rho2", "0.0001", "-e", "1e-300", "-m", "100000000",
                         "--log-json", self.log, "--checkpoint", self.state, "--checkpoint-every", every)
        self._files = (TEMPLATE, corpus, self.model)
        self.process = None

    def start(self):
        resume = ("--resume", self.state) if self.state.exists() else ()
        self.process = subprocess.Popen(crftool(*self._options, *resume, *self._files), stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL, "it had ended before"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait() == 130
        return self.iteration()

    def iteration(self):
        """The last one in the log, 0 if there is none; a line may be half-written."""
        if not self.log.exists():
            return 0
        with open(self.log, "rb") as log:
            log.seek(max(0, self.log.stat().st_size - 4096))
            lines = [line for line in log.read().split(b"\n")[:-1] if line.startswith(b"{") and line.endswith(b"}")]
        return json.loads(lines[-1])["iteration"] if lines else 0


def run_to(training, iteration):
    """Stop at the end of this very iteration."""
    copy = training.state.with_suffix(".copy")
    shutil.copy(training.state, copy)
    while True:
        training.log.write_bytes(b"")
        training.start()
        while training.iteration() < iteration - 1:
            assert training.process.poll() is None
            time.sleep(0.005)
        if training.stop() == iteration:
            return
        shutil.copy(copy, training.state)                            # the signal came too late


def killed(folder, corpus, minutes):
    chance, start, kills = random.Random(SEED), time.monotonic(), []
    whole, broken = Training(folder / "whole", corpus, 60), Training(folder / "broken", corpus, 20)
    whole.start()
    broken.start()
    while time.monotonic() - start < 60 * minutes:
        time.sleep(chance.choice([chance.uniform(5, 60), chance.uniform(60, 360)]))
        before = broken.iteration()
        broken.kill()
        kills.append(before)
        print(f"{(time.monotonic() - start) / 60:5.1f} min: killed after iteration {before}; the other is at "
              f"{whole.iteration()}", flush=True)
        while broken.iteration() > whole.iteration() - 20:
            time.sleep(5)
        broken.start()
    broken.kill()
    last = whole.stop()
    minutes_whole = (time.monotonic() - start) / 60
    run_to(broken, last)
    digests = [hashlib.blake2b(training.model.read_bytes()).hexdigest() for training in (whole, broken)]
    print(f"without a break: {last} iterations in {minutes_whole:.1f} min; the other, killed {len(kills) + 1} times, "
          f"{(time.monotonic() - start) / 60:.1f} min; models of {whole.model.stat().st_size} bytes, "
          f"{'equal' if digests[0] == digests[1] else 'DIFFERENT'}: {digests[0][:16]} {digests[1][:16]}")
    assert digests[0] == digests[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["text", "processes", "killed", "generate"])
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--number", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    corpus = Path(os.environ["CRFTOOL_DATA"]) / "conll2000" / "train.txt.gz"
    if options.what == "generate":
        for block in generated(corpus, options.gigabytes * 1e9):
            sys.stdout.buffer.write(block)
        return sys.stdout.buffer.flush()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.what == "text":
            text(folder, corpus, options.gigabytes)
        elif options.what == "processes":
            processes(folder, corpus, options.number)
        else:
            killed(folder, corpus, options.minutes)


if __name__ == "__main__":
    main()

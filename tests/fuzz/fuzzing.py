"""Random input for reader, templates, tagger, models, checkpoints and states of `select`: made by small grammars, and
by damaging what is good.

    python tests/fuzz/fuzzing.py [--seconds 60] [--seed 1]

runs for as long as it is told and stops at the first failure, which the same seed repeats. The suite runs a few
hundred cases of each kind (test_fuzz.py). A case fails if it ends in anything but the right answer or a
CrftoolError; under `make test-asan` also if memory is touched that is not ours.
"""

import argparse
import json
import random
import struct
import sys
import time
import zlib
from pathlib import Path

from crftool.corpus.dataset import read_training_data
from crftool.corpus.occurrences import paired_bigrams
from crftool.corpus.rules import allowed_pairs
from crftool.corpus.template import Template
from crftool.corpus.tokens import read_tokens
from crftool.errors import CrftoolError
from crftool.kernels.pool import Pool
from crftool.model import SparseWeights, container
from crftool.model.mapped import MappedModel
from crftool.model.model import Model
from crftool.objectives import BlockLoss, ElasticNet, LogLoss
from crftool.selection.lab import Outcome
from crftool.selection.state import FORMAT, State
from crftool.stream import Request, tag_stream
from crftool.trainers import TRAINERS, checkpoint
from crftool.trainers.base import Problem, Stop, count_scale

TRAIN = b"a x A\nb y B\na y A\n\nc x B\nb x B\n\nd y C\na x A\nc y C\n"
JOB = {"training data": "these"}

WORDS = [b"a", b"b", b"/", b"A1", b"\xc3\xa9", b"\xff", b"\0", b"#x", b"-", b"\xc2\xa0", b"B-NP", b"I-NP", b"O", b"x" * 300, b"%x[0,0]"]
GAPS = [b" ", b"\t", b"  ", b" \t "]
ENDS = [b"\n"] * 40 + [b"\r\n"] * 8 + [b"\n\n", b"\n \n", b"\r\n\r\n"] * 5 + [b"\r", b""]
PATTERNS = [b".", b"a", b"\\d", b"\\u", b"\\P", b"\\\\", b"[", b"$", b"^", b"\xc3\xa9", b"\xff"]


def text(rng, columns=3):
    """Column text, mostly in order."""
    lines = []
    for _ in range(rng.randrange(12)):
        n = columns if rng.random() < 0.99 else rng.randrange(6)
        line = rng.choice(GAPS).join(rng.choice(WORDS) for _ in range(n))
        lines.append(rng.choice([b"", b"", b" "]) + line + rng.choice([b"", b"", b"\t"]) + rng.choice(ENDS))
    return rng.choice([b"", b"", b"\xef\xbb\xbf"]) + b"".join(lines)


def _pattern(rng):
    return b"".join(rng.choice(PATTERNS) + rng.choice([b"", b"", b"*", b"?"]) for _ in range(rng.randrange(5)))


def _macro(rng):
    row = rng.choice([b"0", b"-1", b"1", b"2", b"@1", b"@-1", b"-7", b"+1", b"99999"] if rng.random() < 0.2 else [b"0", b"-1", b"1"])
    column = rng.choice([b"0", b"1"]) if rng.random() < 0.95 else rng.choice([b"2", b"9", b"-1", b"999999999"])
    if rng.random() < 0.6:
        return b"%%%s[%s,%s]" % (rng.choice([b"x", b"x", b"X"]), row, column)
    return b'%%%s[%s,%s,"%s"]' % (rng.choice([b"t", b"m", b"T", b"M"]), row, column, _pattern(rng))


def template(rng):
    """A template, mostly in order."""
    lines = []
    for i in range(rng.randrange(1, 5)):
        kind = rng.choice([b"U", b"U", b"B", b"*"]) if rng.random() < 0.98 else rng.choice([b"#", b"", b"X", b" U"])
        parts = [rng.choice([b"", b"/", b"|a", b"a", b"0:"]) + _macro(rng) for _ in range(rng.randrange(3))]
        lines.append(kind + rng.choice([b"", b"%d:" % i if rng.random() < 0.5 else b":"]) .replace(b"%", b"") + b"".join(parts)
                     + rng.choice([b"", b"", b"\r"]))
    return b"\n".join(lines)


def damaged(rng, data):
    """The same bytes with some mutation."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        kind, at = rng.randrange(5), rng.randrange(len(data) + 1)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:at + rng.choice([1, 4, 8, 64])]
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.choice([1, 4, 8]))
        elif kind == 3:
            data[at:at + 8] = struct.pack("<q", rng.choice([0, -1, 1, 1 << 31, 1 << 62, -(1 << 63), rng.getrandbits(40)]))
        elif at:
            del data[at:]
    return bytes(data)


def forged(rng, model):
    """A model file with a damaged section or description, and checksums that are right."""
    sections = {name: bytes(data) for name, data in container.unpack(model, "model").items()}
    for _ in range(rng.choice([1, 1, 3])):
        name = rng.choice(list(sections))
        if name == "meta" and rng.random() < 0.7:
            meta = json.loads(sections["meta"])
            meta[rng.choice(list(meta))] = rng.choice([None, 0, -1, 1 << 70, True, "x", [], {}, {"U": 0, "B": 0}])
            sections["meta"] = json.dumps(meta).encode()
        elif name == "template" and rng.random() < 0.7:
            sections["template"] = template(rng)
        elif rng.random() < 0.1:
            del sections[name]
        else:
            sections[name] = damaged(rng, sections[name])
    if rng.random() < 0.1:
        names = list(sections)
        a, b = rng.choice(names), rng.choice(names)
        sections[a], sections[b] = sections[b], sections[a]
    return b"".join(container.pack({name: memoryview(data) for name, data in sections.items()}))


ODD_VALUES = [None, 0, -1, 1 << 70, True, "x", [], {}, 1e308, -0.5, float("nan"), float("inf"), [1e308], [[]], {"shape": [1 << 40]}]


def with_odd_leaf(rng, value):
    """A JSON value in which something is replaced or missing."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.9:
        copy, key = value.copy(), rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if rng.random() < 0.1:
            del copy[key]
        else:
            copy[key] = with_odd_leaf(rng, value[key])
        return copy
    if type(value) in (int, float) and rng.random() < 0.5:
        return rng.choice([-value, value + 1, value - 1, value * 1000])
    return rng.choice(ODD_VALUES)


def forged_checkpoint(rng, state):
    """A checkpoint with a damaged section or description, and checksums that are right."""
    sections = {name: bytes(data) for name, data in container.unpack(state, "state", checkpoint.KIND).items()}
    for _ in range(rng.choice([1, 1, 3])):
        name = rng.choice(list(sections))
        if name == checkpoint.META:
            meta = json.loads(sections[name])
            part = rng.choice(["values", "values", "arrays", "phase"])
            sections[name] = json.dumps({**meta, part: with_odd_leaf(rng, meta[part])}).encode()
        elif rng.random() < 0.2:
            sections[name] = rng.choice(list(sections.values()))
        else:
            data = bytearray(sections[name])
            for _ in range(rng.choice([1, 5])):
                if len(data) >= 8:
                    at = 8 * rng.randrange(len(data) // 8)
                    struct.pack_into("<d", data, at, rng.choice([0.0, 1e308, -1e308, float("nan"), float("inf"), 5e-324, 1.0])) \
                        if rng.random() < 0.5 else struct.pack_into("<q", data, at, rng.choice([0, -1, 1 << 31, 1 << 62, 3]))
            sections[name] = bytes(data)
    return b"".join(container.pack({name: memoryview(data) for name, data in sections.items()}, checkpoint.KIND))


def hostile_header(rng, model):
    """A file whose section table lies, with a right checksum."""
    data = bytearray(model)
    _, version, count, size, _, _ = container.HEADER.unpack_from(data)
    for _ in range(rng.choice([1, 2])):
        entry = container.HEADER.size + container.ENTRY.size * rng.randrange(count)
        struct.pack_into("<Q", data, entry + rng.choice([16, 24]), rng.choice(
            [0, 1, 64, size, size - 1, size + 64, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, rng.randrange(size)]))
    if rng.random() < 0.3:
        struct.pack_into("<I", data, 12, rng.choice([0, 1, count - 1, count + 1, 1 << 31, (1 << 32) - 1]))
    count = struct.unpack_from("<I", data, 12)[0]
    struct.pack_into("<I", data, 24, 0)
    table = bytes(data[:min(len(data), container.HEADER.size + container.ENTRY.size * count)])
    struct.pack_into("<I", data, 24, zlib.crc32(table))
    return bytes(data)


def request(rng, mapped):
    rules = rng.choice([b"", b"", b"", b"forbid * O\n", b"scheme iob2\n"])
    try:
        allowed = allowed_pairs(rules, mapped.labels, "rules")
    except CrftoolError:
        allowed = None
    best = rng.choice([0, 0, 0, 1, 5])
    return Request(layout=rng.choice(["conll", "labels", "json"]), level=rng.randrange(3), best=best,
                   posterior=not best and rng.random() < 0.2, inference=rng.choice(["auto", "auto", "scaled", "sparse", "log"]),
                   allowed=allowed, force_column=rng.choice([None, None, 0, -1]),
                   min_confidence=0.0 if best else rng.choice([0.0, 0.5]), phrase_confidence=not best and rng.random() < 0.2)


class Fuzzer:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.model, self.states = None, {}

    def _write(self, name, data):
        (self.folder / name).write_bytes(data)
        return str(self.folder / name)

    def reader(self, rng):
        """Lines are neither lost nor merged, however the file is cut."""
        data = text(rng)
        path, found = self._write("text", data), []
        try:
            for size in (1 << 20, rng.randrange(1, 40)):
                found.append([[tokens.text(t, c) for c in range(tokens.columns)]
                              for tokens in read_tokens(path, size) for t in range(len(tokens))])
        except CrftoolError:
            return
        lines = [line.removesuffix(b"\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
        expected = [[field for field in line.replace(b"\t", b" ").split(b" ") if field] for line in lines]
        assert found == [[line for line in expected if line]] * 2

    def train(self, rng, train, lines):
        """A model with random weights."""
        import numpy as np
        encoder, _ = read_training_data(self._write("train", train), Template(lines), rng.random() < 0.5)
        numbers = np.random.default_rng(rng.getrandbits(32))
        theta = numbers.normal(0, rng.choice([1, 1, 1, 400]), encoder.space.F)
        theta *= numbers.random(encoder.space.F) < rng.choice([1.0, 0.3, 0.02])
        return Model.from_training(encoder, theta, {}).to_bytes()

    def pipeline(self, rng):
        """Template, training data and tagging: a label for every token, on any number of threads."""
        try:
            self.model = self.train(rng, text(rng), template(rng))
        except CrftoolError:
            return
        self.tag(rng, self.model)

    def tag(self, rng, model):
        path = self._write("model", model)
        try:
            mapped = MappedModel.load(path)
            data = text(rng)
            test = self._write("test", data)
            wish = request(rng, mapped)
            out = b"".join(tag_stream(mapped, [test], wish, 1, rng.choice([1, 7, 1 << 20])))
        except CrftoolError:
            return
        if not wish.best and not wish.level and wish.layout == "labels":
            tokens = sum(bool(line.removesuffix(b"\r").strip(b" \t")) for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
            assert sum(map(bool, out.split(b"\n"))) == tokens
        assert wish.layout != "json" or all(map(json.loads, out.splitlines()))

    def loader(self, rng):
        """Damaged, forged and hostile model files are refused, or work."""
        if self.model is None or rng.random() < 0.02:
            self.pipeline(rng)
        if self.model is None:
            return
        kind = rng.choice([damaged, forged, forged, forged, hostile_header])
        broken = kind(rng, self.model)
        self.tag(rng, broken)
        try:
            model = Model.from_bytes(broken)
        except CrftoolError:
            return
        for tokens in read_tokens(self._write("test", b"a b O\nb a O\n\nA1 \xff O\n")):
            try:
                model.weights.unigram_scores(model.encoder.encode(tokens), Pool())
            except CrftoolError:
                pass

    def resuming(self, rng):
        """A training that goes on from a damaged or forged checkpoint is refused, or trains something."""
        name = rng.choice(list(TRAINERS))
        state = self._write("state", b"")
        if name not in self.states:
            self._train_on(name, checkpoint.Checkpoints(state, 0.0, JOB), 4)
            self.states[name] = Path(state).read_bytes()
        broken = rng.choice([damaged, forged_checkpoint, forged_checkpoint, forged_checkpoint, hostile_header])(rng, self.states[name])
        self._write("state", broken)
        try:
            saved = checkpoint.Saved(state)
            saved.check_job(JOB)
            self._train_on(name, checkpoint.Checkpoints(None, 0.0, JOB, saved), 6)
        except CrftoolError:
            pass

    def _train_on(self, name, checkpoints, iterations):
        import numpy as np
        encoder, dataset = read_training_data(self._write("train", TRAIN), Template(b"*0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nB\n"))
        pool, space, trainer = Pool(), encoder.space, TRAINERS[name]
        if trainer.by_blocks:
            loss, theta = BlockLoss(dataset, space, pool, paired_bigrams(encoder)), SparseWeights(space)
        else:
            loss, theta = LogLoss(dataset, space, encoder.unigrams.groups(), pool), np.zeros(space.F)
        penalty = ElasticNet(0.1 if trainer.allows_l1 else 0.0, 0.1)
        with np.errstate(all="ignore"):
            trainer.train(Problem(loss, penalty, pool, 7, checkpoints), theta, Stop(1e-7, count_scale(dataset, space), iterations),
                          lambda iteration: None)

    def search_state(self, rng):
        """A damaged state of a search is refused, or holds only what it may."""
        good = {"format": FORMAT, "job": "job", "outcomes": {"a": vars(Outcome(5.5, 90.25, 0.125, 12.0, 3.0, 1.5))},
                "sets": {"a": {"0": [2, 3, 99], "1": []}}}
        text = json.dumps(with_odd_leaf(rng, good)).encode() if rng.random() < 0.7 else damaged(rng, json.dumps(good).encode())
        state = State(self._write("search", text), "job")
        try:
            state.load(100)
        except CrftoolError:
            return
        for key in ("a", "b"):
            assert all(0 <= f < 100 for features in state.sets(key).values() for f in features.tolist())

    KINDS = ("reader", "pipeline", "loader", "resuming", "search_state")

    def run(self, kind, seed):
        getattr(self, kind)(random.Random(f"{kind} {seed}"))


def main():
    import tempfile
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end, seed, counts = time.monotonic() + options.seconds, options.seed, dict.fromkeys(Fuzzer.KINDS, 0)
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(folder)
        while time.monotonic() < end:
            for kind in Fuzzer.KINDS:
                try:
                    fuzzer.run(kind, seed)
                except BaseException:
                    print(f"{kind}, seed {seed}, failed", file=sys.stderr)
                    raise
                counts[kind] += 1
            seed += 1
    print(counts, f"seeds {options.seed} to {seed - 1}")


if __name__ == "__main__":
    main()

"""Tests of crftool.model and crftool.files: what a model keeps, and what its file must survive."""

import errno
import json
import os
import random
import stat
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from test_observations import (
    FAMILIES,
    Macro,
    bigram_ids,
    check_against_twin,
    learn,
    random_lines,
    random_sequences,
    render_corpus,
    twin_texts,
    use_block_size,
    write,
)

import crftool
from crftool.corpus.tokens import read_tokens
from crftool.errors import CrftoolError, ModelError
from crftool.files import check_writable, write_atomically
from crftool.kernels.pool import Pool
from crftool.model import Model, TrainedWeights, container

POOL = Pool(1)

# --- helpers --------------------------------------------------------------------------


def random_theta(rng, F, density):
    """Weights of which about this share is not zero."""
    theta = np.array([rng.uniform(-3, 3) for _ in range(F)])
    theta[[rng.random() >= density for _ in range(F)]] = 0
    return theta


def model_scores(model, folder, sequences):
    """(mu [N][Y], lam [N][R][Y]) of new data, lam 0 where there is no transition."""
    blocks = []
    for tokens in read_tokens(write(folder, render_corpus(sequences), "new.txt")):
        data = model.encoder.encode(tokens)
        lam = np.array(model.weights.chain(data, "log", POOL).lam)[data.transition]
        if not model.encoder.begin_label:
            lam[data.offsets[:-1]] = 0
        blocks.append((model.weights.unigram_scores(data, POOL), lam))
    return [np.concatenate(parts) for parts in zip(*blocks)]


def twin_scores(space, theta, maps, lines, sequences):
    """The same by adding up, text by text, weights rounded to single precision."""
    mu, lam = space.split(theta.astype(np.float32).astype(float))
    sums = []
    for kind, weights, ids, first_token in ((b"U", mu, maps[0], True), (b"B", lam, maps[1], space.begin_label)):
        texts = twin_texts(lines, kind, sequences, first_token)
        total = np.zeros((len(texts), *weights.shape[1:]))
        for t, row in enumerate(texts):
            for text in row:
                if text in ids:
                    total[t] += weights[ids[text]]
        sums.append(total)
    return sums


def check_scores(model, folder, space, theta, maps, lines, sequences):
    found, expected = model_scores(model, folder, sequences), twin_scores(space, theta, maps, lines, sequences)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


SEQUENCES = [
    [[b"a/b", b"c", b"X"], [b"a", b"b/c", b"Y"], [b"\xff", b"d", b"\xfeZ"]],
    [[b"e", b"d", b"W"], [b"a", b"c", b"X"]],
]
LINES = [[b"U:", Macro("x", 0, 0), b"/", Macro("x", 0, 1)], [b"U1:", Macro("X", -1, 0)], [b"U2"],
         [b"B"], [b"B1:", Macro("x", 0, 1)]]


def mixed_theta(rng, space):
    """Of every three rows the first is dense, the second has one weight, the third none."""
    theta = random_theta(rng, space.F, 1.0)
    for matrix in (part.reshape(len(part), -1) for part in space.split(theta)):
        matrix[1::3, 1:] = 0
        matrix[2::3] = 0
    return theta


def small_model(folder, begin_label=False, seed=1, weights=mixed_theta):
    """A model with dense, sparse and absent rows, ambiguous texts and a label that is no UTF-8."""
    encoder, _ = learn(folder, LINES, SEQUENCES, begin_label=begin_label)
    return Model.from_training(encoder, weights(random.Random(seed), encoder.space), {"rho2": 1.0, "name": "é"})


def no_weights(rng, space):
    return np.zeros(space.F)


def all_weights(rng, space):
    return random_theta(rng, space.F, 1.0)


@pytest.fixture
def model(tmp_path):
    return small_model(tmp_path)


def sections_of(model):
    """{name: bytearray} of a model's sections, to be altered."""
    return {name: bytearray(data) for name, data in container.unpack(model.to_bytes(), "model").items()}


def packed(sections):
    return b"".join(container.pack(sections))


def array_in(sections, name, dtype):
    return np.frombuffer(sections[name], dtype)          # writable, as the section is a bytearray


def check_refused(data):
    with pytest.raises(ModelError) as caught:
        Model.from_bytes(bytes(data))
    return str(caught.value)


# --- what a model keeps -----------------------------------------------------------------


@pytest.mark.parametrize("density", [1.0, 0.6, 0.2, 0.02, 0.0])
@pytest.mark.parametrize("begin_label", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_model_scores_as_the_trained_weights(tmp_path, family, begin_label, density):
    rng = random.Random(f"{family} {begin_label} {density}")
    for _ in range(4):
        lines, sequences = random_lines(rng, family), random_sequences(rng)
        encoder, data = learn(tmp_path, lines, sequences, begin_label=begin_label)
        space, maps = encoder.space, check_against_twin(encoder, data, lines, sequences, begin_label)
        theta = random_theta(rng, space.F, density)
        model = Model.from_training(encoder, theta, {})
        path = str(tmp_path / "m.model")
        model.save(path)
        news = [sequences, random_sequences(rng), random_sequences(rng)]
        for copy in (model, Model.from_bytes(model.to_bytes()), Model.load(path)):
            assert copy.labels == encoder.labels
            assert copy.active == np.count_nonzero(theta.astype(np.float32))
            for new in news:
                check_scores(copy, tmp_path, space, theta, maps, lines, new)


def test_stored_and_trained_weights_have_one_face(tmp_path):
    """Weights that single precision holds exactly give the same bits in both forms."""
    encoder, data = learn(tmp_path, LINES, SEQUENCES)
    theta = random_theta(random.Random(2), encoder.space.F, 0.5).astype(np.float32).astype(float)
    trained, model = TrainedWeights(encoder.space, theta), Model.from_training(encoder, theta, {})
    found = model_scores(model, tmp_path, SEQUENCES)
    assert np.array_equal(found[0], trained.unigram_scores(data, POOL))
    lam = np.array(trained.chain(data, "log", POOL).lam)[data.transition]
    lam[data.offsets[:-1]] = 0
    assert np.array_equal(found[1], lam)


def test_what_else_a_model_remembers(tmp_path, model):
    model.save(str(tmp_path / "m"))
    for copy in (model, Model.load(str(tmp_path / "m"))):
        assert copy.options == {"rho2": 1.0, "name": "é"} and copy.version == crftool.__version__
        assert copy.labels == [b"W", b"X", b"Y", b"\xfeZ"]
        assert [line.text for line in copy.encoder.template.bigrams] == [b"B", b"B1:%x[0,1]"]
        assert copy.encoder.begin_label is False


def test_bytes_of_a_model(tmp_path, model):
    model.save(str(tmp_path / "m"))
    data = (tmp_path / "m").read_bytes()
    assert data == model.to_bytes() == Model.load(str(tmp_path / "m")).to_bytes() == small_model(tmp_path).to_bytes()
    assert Model.from_bytes(bytearray(data)).to_bytes() == data


def test_bytes_do_not_depend_on_how_the_data_arrive(tmp_path, monkeypatch):
    """The same command gives the same bytes, also when a pipe hands over the data in other pieces."""
    files = set()
    for size in (1 << 20, 64, 7, 1):
        use_block_size(monkeypatch, size)
        encoder, _ = learn(tmp_path, LINES, SEQUENCES + SEQUENCES[::-1])
        files.add(Model.from_training(encoder, np.arange(1.0, encoder.space.F + 1), {}).to_bytes())
    assert len(files) == 1


def test_no_weight_at_all(tmp_path):
    encoder, _ = learn(tmp_path, LINES, SEQUENCES)
    model = Model.from_bytes(Model.from_training(encoder, np.zeros(encoder.space.F), {}).to_bytes())
    assert model.active == 0 and model.encoder.space.F == 0
    mu, lam = model_scores(model, tmp_path, SEQUENCES)
    assert mu.shape == (5, 4) and lam.shape == (5, 4, 4) and not mu.any() and not lam.any()
    sections = sections_of(model)
    assert not any(len(sections[name]) for name in sections if name.endswith((".rows", ".dense", ".columns", ".text"))
                   and not name.startswith("labels"))


def test_only_observations_with_weights_are_stored(tmp_path):
    words = [b"word-%d" % i for i in range(50)]
    lines = [[b"U:", Macro("x", 0, 0)], [b"U1:", Macro("x", 0, 0), b"-", Macro("x", 0, 1)], [b"B1:", Macro("x", 0, 0)]]
    sequences = [[[word, b"same", b"X" if i % 2 else b"Y"] for i, word in enumerate(words)]]
    encoder, data = learn(tmp_path, lines, sequences)
    unigrams, bigrams = check_against_twin(encoder, data, lines, sequences)
    theta = np.zeros(encoder.space.F)
    mu, lam = encoder.space.split(theta)
    mu[unigrams[b"U:word-3"], 1] = 0.5
    mu[unigrams[b"U1:word-7-same"]] = 1.5, -2.5
    lam[bigrams[b"B1:word-9"], 1, 0] = 4.5
    theta[np.flatnonzero(theta == 0)[:5]] = 1e-60            # nothing, in single precision
    model = Model.from_training(encoder, theta, {})
    file = model.to_bytes()
    assert model.active == 4
    assert {word for word in words if word in file} == {b"word-3", b"word-7", b"word-9"}
    sections = sections_of(model)
    sizes = {name: len(data) for name, data in sections.items()}
    assert sizes["values.text"] == len(b"word-3word-7sameword-9")
    assert (sizes["U.0.rows"], sizes["U.1.rows"], sizes["B.0.rows"]) == (4, 4, 4)
    assert (sizes["U.0.keys"], sizes["U.1.keys"], sizes["B.0.keys"]) == (4, 8, 4)
    assert (model.encoder.space.O, model.encoder.space.Ob) == (2, 1)
    assert sizes["U.dense"] == 4 * 2 * 2 and sizes["U.values"] == 0, "half of a row counts as dense"
    assert sizes["B.dense"] == 0 and (sizes["B.columns"], sizes["B.values"], sizes["B.bounds"]) == (4, 4, 16)


def test_dense_and_sparse_rows(tmp_path):
    labels = [b"L%d" % i for i in range(9)]
    encoder, data = learn(tmp_path, b"U%x[0,0]\n", [[[b"w%d" % i, label] for i, label in enumerate(labels)]])
    theta = np.zeros((9, 9))
    for i in range(9):
        theta[i, :i] = i + 1                         # i weights in row i
    model = Model.from_training(encoder, theta.ravel(), {})
    assert len(model.weights.unigrams.dense) == 4    # rows 5 to 8
    assert model.weights.unigrams.size == 8 and model.active == 36
    mu, _ = model_scores(model, tmp_path, [[[b"w%d" % i] for i in range(9)]])
    assert np.array_equal(mu, theta[data.unigrams[:, 0]])


def test_weights_beyond_single_precision(tmp_path):
    encoder, _ = learn(tmp_path, LINES, SEQUENCES)
    with np.errstate(over="ignore"), pytest.raises(CrftoolError):
        Model.from_training(encoder, np.full(encoder.space.F, 1e300), {})


def test_a_model_of_the_first_format_is_laid_out_as_documented(model):
    data = model.to_bytes()
    magic, version, count, size, crc, zero = struct.unpack_from("<8sIIQII", data)
    assert (magic, version, size, zero) == (b"crftool\x1a", 1, len(data), 0)
    table = data[32:32 + 40 * count]
    assert crc == zlib.crc32(data[:24] + bytes(8) + table)
    for i in range(count):
        _, offset, length, crc, zero = struct.unpack_from("<16sQQII", table, 40 * i)
        assert offset % 64 == 0 and zero == 0 and crc == zlib.crc32(data[offset:offset + length])


# --- damage -----------------------------------------------------------------------------


def regions(data):
    """Boolean array: which bytes of a model file belong to header, section table or a section."""
    covered = np.zeros(len(data), bool)
    count = struct.unpack_from("<I", data, 12)[0]
    covered[:32 + 40 * count] = True
    for i in range(count):
        offset, length = struct.unpack_from("<QQ", data, 32 + 40 * i + 16)
        covered[offset:offset + length] = True
    return covered


def flip(data, position, bit):
    damaged = bytearray(data)
    damaged[position] ^= 1 << bit
    return damaged


@pytest.mark.parametrize("covered", [True, False], ids=["content", "padding"])
def test_a_flipped_bit_is_noticed(model, covered):
    data, rng = model.to_bytes(), random.Random(4)
    positions = np.flatnonzero(regions(data) == covered)
    assert len(positions) > 100
    unnoticed = []
    for position in positions.tolist():
        try:
            Model.from_bytes(bytes(flip(data, position, rng.randrange(8))))
            unnoticed.append(position)
        except ModelError:
            pass
    assert unnoticed == []


def test_truncation_at_every_length_is_noticed(model):
    data = model.to_bytes()
    for length in range(len(data)):
        check_refused(data[:length])
    check_refused(data + b"\0")
    check_refused(data + data)


def test_messages_about_files_that_are_no_model(tmp_path, model):
    data = model.to_bytes()
    cases = {
        b"": "not a model of crftool",
        b"#mdl#2#123\n" * 10: "not a model of crftool",
        data[:20]: "not a model of crftool",
        data[:8] + struct.pack("<I", 2) + data[12:]: "model format 2, but this crftool reads format 1",
        data[:-1]: "damaged or cut short",
    }
    for content, problem in cases.items():
        path = write(tmp_path, content, "m.model")
        with pytest.raises(ModelError) as caught:
            Model.load(path)
        assert str(caught.value).startswith(f"{path}: ") and problem in str(caught.value)
        assert "; " in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    for path in (str(tmp_path / "absent"), str(tmp_path)):
        with pytest.raises(ModelError, match=rf"^{path}: cannot be read \(.+\); "):
            Model.load(path)


# --- hostile containers -----------------------------------------------------------------


def forged(entries, payload, size=None, count=None, zero=0):
    """A container with whatever table is asked for, its checksums correct; entries are (name, offset, length)."""
    start = 32 + 40 * len(entries)
    body = bytes(-start % 64) + payload
    whole = bytes(start) + body
    table = b"".join(
        struct.pack("<16sQQII", name, offset, length, zlib.crc32(whole[offset:offset + length]), 0)
        for name, offset, length in entries)
    size = len(whole) if size is None else size
    count = len(entries) if count is None else count
    blank = struct.pack("<8sIIQII", b"crftool\x1a", 1, count, size, 0, 0)
    crc = zlib.crc32(blank + (table + body)[:40 * count])
    return struct.pack("<8sIIQII", b"crftool\x1a", 1, count, size, crc, zero) + table + body


def test_a_forged_container_may_be_in_order():
    data = forged([(b"one", 128, 70), (b"two", 256, 10)], b"x" * 70 + bytes(58) + b"y" * 10)
    assert {name: bytes(part) for name, part in container.unpack(data, "m").items()} == {
        "one": b"x" * 70, "two": b"y" * 10}


FORGED_TABLES = {
    "huge offset": [(b"one", 1 << 63, 64)],
    "huge length": [(b"one", 128, 1 << 63)],
    "largest length": [(b"one", 128, 2**64 - 1)],
    "largest offset": [(b"one", 2**64 - 64, 64)],
    "end beyond 64 bits": [(b"one", 2**64 - 64, 128)],
    "one byte beyond the end": [(b"one", 128, 65)],
    "over the section table": [(b"one", 64, 128)],
    "over the header": [(b"one", 0, 64)],
    "not aligned": [(b"one", 136, 56)],
    "a byte at the end that is nobody's": [(b"one", 128, 63)],
    "same place": [(b"one", 128, 64), (b"two", 128, 64)],
    "overlap": [(b"one", 128, 128), (b"two", 192, 64)],
    "wrong order": [(b"one", 192, 64), (b"two", 128, 64)],
    "same name": [(b"one", 128, 64), (b"one", 192, 64)],
    "empty section before unused bytes": [(b"one", 128, 0)],
    "no section": [],
}


@pytest.mark.parametrize("kind", FORGED_TABLES)
def test_forged_tables_are_refused(kind):
    entries = FORGED_TABLES[kind]
    with pytest.raises(ModelError):
        container.unpack(forged(entries, b"x" * 64 * max(1, len(entries))), "m")


def test_forged_headers_are_refused():
    good, payload = [(b"one", 128, 64)], b"x" * 64
    container.unpack(forged(good, payload), "m")
    for change in (dict(size=1 << 40), dict(size=0), dict(size=191), dict(count=2**32 - 1), dict(count=0),
                   dict(count=2), dict(zero=1)):
        with pytest.raises(ModelError):
            container.unpack(forged(good, payload, **change), "m")


def test_a_container_without_sections():
    check_refused(packed({}))


# --- hostile sections ---------------------------------------------------------------------

NO_ARRAYS = ("meta", "template")


def test_sections_that_are_unchanged_are_welcome(model):
    assert Model.from_bytes(packed(sections_of(model))).to_bytes() == model.to_bytes()


def test_every_section_is_needed(model):
    for name in sections_of(model):
        sections = sections_of(model)
        del sections[name]
        check_refused(packed(sections))


@pytest.mark.parametrize("change", ["one byte less", "one byte more", "none", "one number more"])
def test_every_section_has_its_size(model, change):
    accepted = []
    for name, data in sections_of(model).items():
        if name in NO_ARRAYS or (not data and change in ("one byte less", "none")):
            continue
        sections = sections_of(model)
        more = 8 if name.endswith("bounds") else 4
        sections[name] = {"one byte less": data[:-1], "one byte more": data + b"\0", "none": b"",
                          "one number more": data + bytes(more)}[change]
        try:
            Model.from_bytes(packed(sections))
            accepted.append(name)
        except ModelError:
            pass
    assert accepted == []


@pytest.mark.parametrize(
    "name, dtype, value",
    [
        ("U.0.rows", np.int32, -1),
        ("U.0.rows", np.int32, 10_000),
        ("U.0.rows", np.int32, 2**31 - 1),
        ("B.1.rows", np.int32, -(2**31)),
        ("U.t.rows", np.int32, -1),
        ("U.t.rows", np.int32, 10_000),
        ("U.0.keys", np.int32, -1),
        ("U.0.keys", np.int32, 10_000),
        ("B.1.keys", np.int32, -1),
        ("U.columns", np.int32, -1),
        ("U.columns", np.int32, 4),
        ("B.columns", np.int32, 16),
        ("B.columns", np.int32, 2**31 - 1),
        ("U.dense", np.float32, np.nan),
        ("U.dense", np.float32, np.inf),
        ("U.values", np.float32, np.nan),
        ("B.values", np.float32, -np.inf),
        ("U.bounds", np.int64, 1),
        ("U.bounds", np.int64, -1),
        ("labels.bounds", np.int64, 1),
        ("values.bounds", np.int64, -1),
    ],
)
def test_numbers_out_of_range(model, name, dtype, value):
    sections = sections_of(model)
    array_in(sections, name, dtype)[0] = value
    check_refused(packed(sections))


@pytest.mark.parametrize("name", ["U.bounds", "labels.bounds", "values.bounds", "U.t.bounds"])
@pytest.mark.parametrize("position, value", [(1, 1 << 62), (1, -(1 << 62)), (-1, 0), (-1, 1 << 40), (-2, 1 << 40)])
def test_bounds_out_of_range(model, name, position, value):
    sections = sections_of(model)
    bounds = array_in(sections, name, np.int64)
    assert len(bounds) > 1
    bounds[position] = value
    check_refused(packed(sections))


@pytest.mark.parametrize("name", ["labels.slots", "values.slots", "U.t.slots", "U.0.slots", "U.2.slots", "B.0.slots"])
@pytest.mark.parametrize("fill", ["full", "empty", "outside"])
def test_tables_over_full_empty_or_pointing_outside(model, name, fill):
    sections = sections_of(model)
    slots = array_in(sections, name, np.uint32).reshape(-1, 2)
    assert (slots[:, 1] > 0).any()
    if fill == "outside":
        slots[np.flatnonzero(slots[:, 1])[0], 1] = 2**32 - 1
    else:
        slots[:, 1] = 1 if fill == "full" else 0
    check_refused(packed(sections))


TAG_A_MODEL = """
import sys
from crftool.corpus.tokens import read_tokens
from crftool.errors import ModelError
from crftool.kernels.pool import Pool
from crftool.model import Model
try:
    model = Model.load(sys.argv[1])
except ModelError:
    raise SystemExit("refused")
for tokens in read_tokens(sys.argv[2]):
    data = model.encoder.encode(tokens)
    model.weights.unigram_scores(data, Pool(1)).sum(), np.array(model.weights.chain(data, "log", Pool(1)).lam).sum()
"""


def test_bounds_whose_differences_overflow(tmp_path):
    """Such differences wrap around and look positive. In a process of its own, which may crash."""
    sections = sections_of(small_model(tmp_path))
    bounds = array_in(sections, "U.bounds", np.int64)
    assert len(bounds) >= 4
    far = (1 << 62) + 10
    bounds[1], bounds[2:-1] = far, -far
    path = write(tmp_path, packed(sections), "m.model")
    data = write(tmp_path, render_corpus(SEQUENCES))
    run = subprocess.run([sys.executable, "-c", TAG_A_MODEL, path, data], capture_output=True, text=True)
    assert (run.returncode, run.stderr.strip()) == (1, "refused")


def test_more_texts_than_rows(model):
    sections = sections_of(model)
    sections["U.t.rows"] = sections["U.t.rows"][:-4]
    check_refused(packed(sections))


def replace_strings(sections, name, strings):
    from crftool.kernels.strings import StringTable

    table = StringTable()
    for string in strings:
        table.intern(string)
    for part, data in zip(("text", "bounds", "slots"), table.arrays()):
        sections[f"{name}.{part}"] = data


def test_no_labels_or_another_number_of_them(model):
    for labels in ([], [b"X"], [b"V", b"W", b"X", b"Y", b"Z"]):
        sections = sections_of(model)
        replace_strings(sections, "labels", labels)
        check_refused(packed(sections))


def test_two_labels_of_one_name(tmp_path):
    encoder, _ = learn(tmp_path, b"U%x[0,0]\n", [[[b"a", b"X"], [b"b", b"Y"]]])
    sections = sections_of(Model.from_training(encoder, np.ones(4), {}))
    assert bytes(sections["labels.text"]) == b"XY"
    sections["labels.text"] = b"XX"
    check_refused(packed(sections))


def test_fewer_values_than_the_keys_name(model):
    sections = sections_of(model)
    replace_strings(sections, "values", [b"a"])
    check_refused(packed(sections))




@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"\x00",
        b"null",
        b"[]",
        b"3",
        b'"text"',
        b"{}",
        b'{"crftool": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=lambda meta: meta[:12].decode("latin-1"),
)
def test_meta_that_is_no_json_object(model, meta):
    sections = sections_of(model)
    sections["meta"] = meta
    check_refused(packed(sections))


@pytest.mark.parametrize("weights", [mixed_theta, no_weights])
@pytest.mark.parametrize(
    "key, value",
    [
        ("begin_label", "false"),
        ("begin_label", 1),
        ("begin_label", None),
        ("begin_label", [0]),
        ("options", None),
        ("options", 5),
        ("options", "ab"),
        ("options", ""),
        ("options", []),
        ("options", [["a", 1]]),
        ("crftool", None),
        ("crftool", {}),
    ],
)
def test_meta_with_wrong_types(tmp_path, key, value, weights):
    """Where there are no weights, no size contradicts a wrong begin label."""
    sections = sections_of(small_model(tmp_path, weights=weights))
    meta = json.loads(bytes(sections["meta"]))
    Model.from_bytes(packed(sections))
    sections["meta"] = json.dumps(meta | {key: value}).encode()
    check_refused(packed(sections))


@pytest.mark.parametrize("key", ["crftool", "begin_label", "options"])
def test_meta_that_lacks_something(model, key):
    sections = sections_of(model)
    meta = json.loads(bytes(sections["meta"]))
    sections["meta"] = json.dumps({name: value for name, value in meta.items() if name != key}).encode()
    check_refused(packed(sections))


@pytest.mark.parametrize("begin_label", [False, True])
def test_begin_label_that_contradicts_the_weights(tmp_path, begin_label):
    """Four blocks of 5 by 4 weights could be five of 4 by 4, but the fifth would belong to no observation."""
    sections = sections_of(small_model(tmp_path, begin_label, weights=all_weights))
    sections["meta"] = json.dumps(json.loads(bytes(sections["meta"])) | {"begin_label": not begin_label}).encode()
    check_refused(packed(sections))


@pytest.mark.parametrize("name, width", [("U.dense", 4), ("B.dense", 16)])
def test_weights_of_no_observation(model, name, width):
    """A dense row too many also gives every sparse row another number."""
    sections = sections_of(model)
    sections[name] += np.ones(width, np.float32).tobytes()
    check_refused(packed(sections))


@pytest.mark.parametrize(
    "template",
    [
        b"",
        b"# nothing\n",
        b"\xff\n",
        b"U%y\n",
        b"U%x[0,0\n",
        b"U%x[9999999,0]\n",
        b"U%t[0,0,\"*\"]\n",
        # Compiled, these do not fit the tables.
        b"U:%x[0,0]\nU1:%X[-1,0]\nU2\nB\nB1:%x[0,1]\n",
        b"U:%x[0,0]/%x[0,1]\nU1:%X[-1,0]\nU2\nU3\nB\nB1:%x[0,1]\n",
        b"U:%x[0,0]/%x[0,1]\nU1:%X[-1,0]\nU2%x[0,0]\nB\nB1:%x[0,1]\n",
    ],
)
def test_template_that_does_not_compile_or_fit(model, template):
    sections = sections_of(model)
    sections["template"] = template
    check_refused(packed(sections))


def test_random_changes_with_correct_checksums_never_crash(tmp_path):
    """Whatever a byte of a table or array becomes, the model is refused or loads."""
    rng = random.Random(9)
    plain = sections_of(small_model(tmp_path))
    names = [name for name in plain if name.endswith((".keys", ".slots", ".rows", ".bounds")) and plain[name]]
    for _ in range(400):
        sections = {name: bytearray(data) for name, data in plain.items()}
        name = rng.choice(names)
        sections[name][rng.randrange(len(sections[name]))] ^= 1 << rng.randrange(8)
        try:
            model_scores(Model.from_bytes(packed(sections)), tmp_path, SEQUENCES)
        except ModelError:
            pass


# --- carrying weights to another feature space ----------------------------------------------


def expected_initial(old, old_maps, theta, new, new_maps):
    """Weights of the old space, rounded, where text and labels are those of the new; and how many texts."""
    rounded = theta.astype(np.float32).astype(float)
    expected, carried = np.zeros(new.space.F), 0
    label_of = [new.labels.index(label) for label in old.labels]
    both_begin = old.begin_label and new.begin_label
    for k, (source, target) in enumerate(zip(old.space.split(rounded), new.space.split(expected))):
        for text in old_maps[k].keys() & new_maps[k].keys():
            weights = source[old_maps[k][text]]
            carried += bool(weights.any())
            if k == 0:
                target[new_maps[k][text], label_of] = weights
            else:
                rows = label_of + [new.space.Y] * both_begin
                target[new_maps[k][text]][np.ix_(rows, label_of)] = weights[:len(rows)]
    return expected, carried


def check_initial(folder, rng, old_lines, new_lines, old_begin=False, new_begin=False, more=(b"New", b"Aa")):
    old_sequences, new_sequences = random_sequences(rng), random_sequences(rng)
    new_sequences[0][0][-1] = rng.choice(more)
    old, data = learn(folder, old_lines, old_sequences, begin_label=old_begin)
    old_maps = check_against_twin(old, data, old_lines, old_sequences, old_begin)
    theta = random_theta(rng, old.space.F, rng.choice([0.1, 0.5, 1.0]))
    model = Model.from_bytes(Model.from_training(old, theta, {}).to_bytes())
    new, data = learn(folder, new_lines, new_sequences, begin_label=new_begin, more_labels=model.labels)
    new_maps = text_maps(new, data, new_lines, new_sequences, new_begin)
    expected, carried = expected_initial(old, old_maps, theta, new, new_maps)
    found, n = model.initial_weights(new)
    np.testing.assert_array_equal(found, expected)
    assert n == carried


def text_maps(encoder, data, lines, sequences, begin_label):
    """({text: id} of U, of B), for an encoder that may know more labels than its data."""
    maps = []
    for kind, ids in ((b"U", data.unigrams), (b"B", bigram_ids(data, begin_label))):
        texts = twin_texts(lines, kind, sequences, kind == b"U" or begin_label)
        maps.append({text: i for row, line in zip(ids.tolist(), texts) for i, text in zip(row, line) if i >= 0})
    return maps


@pytest.mark.parametrize("family", FAMILIES)
def test_initial_weights_by_text_and_label(tmp_path, family):
    """New labels, new and vanished words; the same template."""
    rng = random.Random(family)
    for _ in range(25):
        lines = random_lines(rng, family)
        check_initial(tmp_path, rng, lines, lines)


@pytest.mark.parametrize("family", FAMILIES)
def test_initial_weights_of_another_template(tmp_path, family):
    rng = random.Random(family)
    for _ in range(25):
        lines = random_lines(rng, family) + random_lines(rng, family)
        check_initial(tmp_path, rng, rng.sample(lines, len(lines) // 2), rng.sample(lines, len(lines) // 2))


@pytest.mark.parametrize("old_begin", [False, True])
@pytest.mark.parametrize("new_begin", [False, True])
def test_initial_weights_with_begin_labels(tmp_path, old_begin, new_begin):
    rng = random.Random(f"{old_begin} {new_begin}")
    lines = [[b"U:", Macro("x", 0, 0)], [b"B"], [b"B1:", Macro("x", 0, 1)]]
    for _ in range(10):
        check_initial(tmp_path, rng, lines, lines, old_begin, new_begin)


def test_initial_weights_by_hand(tmp_path):
    old, data = learn(tmp_path, b"U:%x[0,0]\nB\n", [[[b"a", b"X"], [b"b", b"Z"]]])
    theta = np.array([1, 2, 3, 4, 10, 20, 30, 40.0])
    model = Model.from_training(old, theta, {})
    a, b = data.unigrams[:, 0]
    new, data = learn(tmp_path, b"B\nU:%x[0,0]\n", [[[b"c", b"Y"], [b"b", b"Y"]]], more_labels=model.labels)
    assert new.labels == [b"X", b"Y", b"Z"]
    found, carried = model.initial_weights(new)
    mu, lam = new.space.split(found)
    c, b_now = data.unigrams[:, 0]
    assert carried == 2 and not mu[c].any()
    assert mu[b_now].tolist() == [theta[2 * b], 0, theta[2 * b + 1]]
    assert lam[0].tolist() == [[10, 0, 20], [0, 0, 0], [30, 0, 40]]


def test_initial_weights_for_another_split_of_the_text(tmp_path):
    old, _ = learn(tmp_path, b"U:%x[0,0]/%x[0,1]\n", [[[b"a/b", b"c", b"X"]]])
    model = Model.from_training(old, np.array([2.0]), {})
    new, _ = learn(tmp_path, b"U:%x[0,0]/%x[0,1]\n", [[[b"a", b"b/c", b"X"]]])
    theta, carried = model.initial_weights(new)
    assert (theta.tolist(), carried) == ([2.0], 1)


def test_initial_weights_for_another_template_with_the_same_text(tmp_path):
    old, _ = learn(tmp_path, b"U%x[0,0]\n", [[[b"ab", b"c", b"X"]]])
    model = Model.from_training(old, np.array([2.0]), {})
    new, _ = learn(tmp_path, b"U%x[0,0]%x[0,1]\n", [[[b"a", b"b", b"X"]]])
    theta, carried = model.initial_weights(new)
    assert (theta.tolist(), carried) == ([2.0], 1)


# --- writing files ------------------------------------------------------------------------


def failing(error, before=b"half of "):
    yield before
    raise error


def no_temporary_file(folder):
    return not [name for name in os.listdir(folder) if name.endswith(".tmp")]


@pytest.mark.parametrize(
    "error, raised",
    [(OSError(errno.ENOSPC, "No space left on device"), CrftoolError), (KeyboardInterrupt(), KeyboardInterrupt),
     (MemoryError(), MemoryError)],
)
@pytest.mark.parametrize("exists", [False, True])
def test_a_failing_write_leaves_what_was_there(tmp_path, error, raised, exists):
    path = tmp_path / "m.model"
    if exists:
        path.write_bytes(b"old")
    with pytest.raises(raised):
        write_atomically(str(path), failing(error))
    assert os.listdir(tmp_path) == ["m.model"] * exists
    assert not exists or path.read_bytes() == b"old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_save_leaves_the_old_model(tmp_path, monkeypatch, model, step):
    path = tmp_path / "m.model"
    model.save(str(path))
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(CrftoolError, match=r"m\.model: cannot be written \(Input/output error\); "):
        small_model(tmp_path, seed=99).save(str(path))
    monkeypatch.undo()
    assert path.read_bytes() == before and no_temporary_file(tmp_path)


def test_a_save_replaces_the_model_that_is_in_use(tmp_path, model):
    """A mapped model must not change under who reads it."""
    path = str(tmp_path / "m.model")
    model.save(path)
    loaded = Model.load(path)
    before = model_scores(loaded, tmp_path, SEQUENCES)
    small_model(tmp_path, seed=99).save(path)
    loaded.save(path)
    for one, other in zip(before, model_scores(Model.load(path), tmp_path, SEQUENCES)):
        assert np.array_equal(one, other)
    assert no_temporary_file(tmp_path)


def test_write_makes_and_replaces_a_file(tmp_path):
    path = tmp_path / "out"
    for content in ([b"one", b"two"], [], [b"three"]):
        write_atomically(str(path), iter(content))
        assert path.read_bytes() == b"".join(content)
    assert os.listdir(tmp_path) == ["out"]


def test_a_save_through_a_link_keeps_the_link(tmp_path, model):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "m.model", tmp_path / "link.model"
    target.write_bytes(b"old")
    link.symlink_to(target)
    check_writable(str(link))
    model.save(str(link))
    assert link.is_symlink() and target.read_bytes() == model.to_bytes()
    assert sorted(os.listdir(tmp_path / "real")) == ["m.model"] and no_temporary_file(tmp_path)


def test_a_link_to_a_file_that_is_not_there_yet(tmp_path, model):
    link = tmp_path / "link.model"
    link.symlink_to(tmp_path / "m.model")
    check_writable(str(link))
    assert not (tmp_path / "m.model").exists()
    model.save(str(link))
    assert link.is_symlink() and (tmp_path / "m.model").read_bytes() == model.to_bytes()


@pytest.mark.parametrize("name", ["m" * 255, "語" * 84, "m\n.model", " ", ".m", "\udcff"],
                         ids=["longest", "longest in bytes", "line feed", "space", "hidden", "no UTF-8"])
def test_unusual_file_names(tmp_path, name):
    path = str(tmp_path / name)
    check_writable(path)
    write_atomically(path, [b"x"])
    assert os.listdir(tmp_path) == [name]


def test_what_a_killed_process_of_the_same_number_left_behind(tmp_path):
    """In a container every run has the same process number."""
    path, before = str(tmp_path / "m.model"), set(os.listdir(tmp_path))
    names = []

    def pieces():
        names.extend(set(os.listdir(tmp_path)) - before)
        yield b"x"

    write_atomically(path, pieces())
    os.unlink(path)
    (tmp_path / names[0]).write_bytes(b"half of a mod")
    check_writable(path)
    write_atomically(path, [b"new"])
    assert (tmp_path / "m.model").read_bytes() == b"new"


def test_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_writable("m.model")
    write_atomically("m.model", [b"x"])
    assert os.listdir(tmp_path) == ["m.model"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_writing_to_a_pipe(tmp_path):
    """A device or pipe takes the bytes; it is not replaced by a file."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    check_writable(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(path, [b"one", b"two"])
    assert os.read(reading, 100) == b"onetwo"
    os.close(reading)
    assert stat.S_ISFIFO(os.stat(path).st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_writing_to_a_full_device(model):
    with pytest.raises(CrftoolError, match="^/dev/full: cannot be written "):
        model.save("/dev/full")


def test_check_writable_leaves_no_trace(tmp_path):
    check_writable(str(tmp_path / "new"))
    assert os.listdir(tmp_path) == []
    old = tmp_path / "old"
    old.write_bytes(b"content")
    check_writable(str(old))
    assert os.listdir(tmp_path) == ["old"] and old.read_bytes() == b"content"


def test_check_writable_refuses_a_directory_and_a_missing_folder(tmp_path):
    with pytest.raises(CrftoolError, match=rf"^{tmp_path}: is a directory; "):
        check_writable(str(tmp_path))
    path = str(tmp_path / "absent" / "m.model")
    with pytest.raises(CrftoolError, match=rf"^{path}: cannot be written \(.+\); "):
        check_writable(path)
    with pytest.raises(CrftoolError, match=rf"^{path}: cannot be written \(.+\); "):
        write_atomically(path, [b"x"])


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="root may write to any file")
def test_check_writable_refuses_what_is_read_only(tmp_path):
    file = tmp_path / "m.model"
    file.write_bytes(b"x")
    file.chmod(0o444)
    with pytest.raises(CrftoolError, match="is not writable; "):
        check_writable(str(file))
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o555)
    with pytest.raises(CrftoolError, match="cannot be written"):
        check_writable(str(folder / "m.model"))

"""Numbers and text as the compiled writer prints them: as Python does."""

import json
import math
import random
import struct

import pytest

from crftool.kernels.writing import json_text, probability_text, shortest

HARD = [0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e-4, 9.999e-5, 1e15,
        1e16, 1e22, 1e23, 9007199254740993.0, 123456789012345678.0, math.nextafter(1.0, 0.0), math.nextafter(1.0, 2.0)]


def test_numbers_that_are_hard_to_write():
    for x in HARD + [2.0 ** k for k in range(-1074, 1024)] + [10.0 ** k for k in range(-323, 309)]:
        assert shortest(x) == repr(x).encode()


@pytest.mark.parametrize("seed", range(10))
def test_random_numbers(seed):
    rng = random.Random(seed)
    for _ in range(3000):
        for x in (rng.random(), math.exp(-40 * rng.random()), struct.unpack("<d", rng.randbytes(8))[0]):
            if math.isfinite(x):
                assert shortest(x) == repr(x).encode()


@pytest.mark.parametrize("seed", range(5))
def test_six_decimals(seed):
    rng = random.Random(seed)
    for _ in range(3000):
        n = rng.randrange(10 ** 6)
        for p in (rng.random(), math.exp(-20 * rng.random()), (n + 0.5) / 1e6, n / 1e6,
                  math.nextafter((n + 0.5) / 1e6, rng.random())):
            assert probability_text(p) == b"%f" % p
    assert [probability_text(p) for p in (0.0, 1.0, 0.9999995, 1.0000004, -1e-9)] == [
        b"%f" % p for p in (0.0, 1.0, 0.9999995, 1.0000004, -1e-9)]


def test_text_of_all_characters():
    for c in [*range(0xD800), *range(0xE000, 0x11000), *range(0x10FF00, 0x110000)]:
        assert json_text(chr(c).encode()) == json.dumps(chr(c)).encode()[1:-1]


@pytest.mark.parametrize("seed", range(5))
def test_text_of_any_bytes(seed):
    rng = random.Random(seed)
    for _ in range(2000):
        text = bytes(rng.choice([rng.randrange(256), rng.randrange(128, 256), 0xE2, 0x82, 0xF0, 0x9F, 0xED, 0xA0, 34, 92, 10])
                     for _ in range(rng.randrange(9)))
        assert json_text(text) == json.dumps(text.decode("utf-8", "surrogateescape")).encode()[1:-1]

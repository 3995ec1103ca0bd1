"""A few hundred random cases of each kind; fuzzing.py runs longer."""

import pytest
from fuzzing import Fuzzer


@pytest.mark.parametrize("start", range(0, 150, 50))
@pytest.mark.parametrize("kind", Fuzzer.KINDS)
def test_random_input(tmp_path, kind, start):
    fuzzer = Fuzzer(tmp_path)
    for seed in range(start, start + 50):
        fuzzer.run(kind, seed)

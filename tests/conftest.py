"""Fixtures that several folders of tests share."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# What a fault writes to standard error, whatever the exit code: of Python, or of the sanitizers (make test-asan).
FAULTS = (b"Traceback", b"Exception ignored", b"Sanitizer: ", b"runtime error: ")
# AddressSanitizer reserves terabytes of address space: a limit on it would be one on nothing else.
ADDRESS_SPACE_CAN_BE_LIMITED = "libasan" not in os.environ.get("LD_PRELOAD", "")

# The two sentences and the template that CRF++'s behaviour is documented on (see tests/golden).
TWO_SENTENCES = b"""\
He PRP B-NP
reckons VBZ B-VP
the DT B-NP
current JJ I-NP
account NN I-NP

It PRP B-NP
is VBZ B-VP
a DT B-NP
test NN I-NP
. . O
"""
TWO_SENTENCES_TEMPLATE = b"""\
# comment
U00:%x[-2,0]
U01:%x[0,0]
U02:%x[0,0]/%x[0,1]
UABC%x[1,1]123
U

B
B01:%x[0,1]
"""


def corpora():
    """The folder of real corpora; the test is skipped without it."""
    folder = os.environ.get("CRFTOOL_DATA")
    if not folder:
        pytest.skip("CRFTOOL_DATA does not name the folder of corpora")
    return pathlib.Path(folder)


@pytest.fixture
def data():
    return corpora()


class Workdir:
    """A folder to run the real program in, as a user does."""

    def __init__(self, path):
        self.path = path

    def write(self, name, content):
        (self.path / name).write_bytes(content)
        return name

    def read(self, name):
        return (self.path / name).read_bytes()

    def command(self, *arguments):
        return [sys.executable, "-m", "crftool", *map(str, arguments)]

    def run(self, *arguments, stdin=b"", code=0, environment=None):
        """Standard output and error of `crftool ARGUMENTS`, which must end with exit code `code`."""
        done = subprocess.run(self.command(*arguments), cwd=self.path, input=stdin, capture_output=True,
                              env=self.environment(environment), timeout=300)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert not any(sign in done.stderr for sign in FAULTS), done.stderr
        return done.stdout, done.stderr.decode()

    def environment(self, more=None):
        return {**os.environ, "PYTHONPATH": str(ROOT), **(more or {})}

    def popen(self, *arguments, **options):
        return subprocess.Popen(self.command(*arguments), cwd=self.path, env=self.environment(), **options)


@pytest.fixture
def workdir(tmp_path):
    return Workdir(tmp_path)


@pytest.fixture
def two_sentences(workdir):
    """A working directory with a model of the two sentences, trained until six digits of probabilities stand."""
    workdir.write("train.txt", TWO_SENTENCES)
    workdir.write("chunk.template", TWO_SENTENCES_TEMPLATE)
    workdir.run("learn", "-q", "-e", "1e-8", "chunk.template", "train.txt", "chunk.model")
    return workdir


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk():
    """Whether files survive a loss of power is not tested here, and the wait for it is most of the time of tests that
    write a checkpoint at every step. (Processes that tests start do wait.)"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield

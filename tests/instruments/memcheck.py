"""Commands under valgrind's memcheck: no access outside memory, and no decision on memory that nobody has written.

    python tests/instruments/memcheck.py            # make test-valgrind

Python itself is not clean under valgrind, so an error counts only if the compiled code of crftool is among the
callers. To show that such errors would be seen, a table of strings is first given a text of unwritten memory. All
commands run in one process, on a small corpus.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = f"{os.sep}crftool{os.sep}kernels{os.sep}"
CORPUS = b"\n".join(b"He%d PRP B-NP\nruns%d VBZ B-VP\nthe DT B-NP\nold JJ I-NP\nw%d NN I-NP\n. . O\n" % (i % 5, i % 3, i % 7)
                    for i in range(20))
TEMPLATE = b"U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nU2:%X[1,0]\n*3:%m[0,0,\"^..?\"]\nU4:%t[0,0,\"\\d$\"]\nB\n"
L1 = ("--rho1", "0.1", "--rho2", "0.01")
TRAININGS = [(), ("-p", "2"), L1, ("-a", "l-bfgs"), ("-a", "owl-qn", *L1), ("-a", "sgd"), ("-a", "sgd-l1", *L1), ("-a", "cg"),
             ("-a", "bcd", *L1), ("-a", "bcd", *L1, "--group", "0.1", "--separate-blocks"), ("-a", "cd", *L1), ("--inference", "sparse"),
             ("--inference", "log", "--begin-label"), ("--features", "observed", "-f", "2"), ("--constrain", "iob2"),
             ("--dev", "train", "--checkpoint", "state"), ("--rho1", "0.5", "--path", "3")]
TAGGINGS = [(), ("-p", "2"), ("-v", "2"), ("-n", "5"), ("--format", "json", "-v", "2"), ("--posterior",), ("--constrain", "iob2"),
            ("--force-column", "2"), ("--phrase-confidence",), ("--min-confidence", "0.9"), ("--inference", "log", "-v", "1"),
            ("--inference", "sparse", "-v", "1")]


def commands():
    for i, options in enumerate(TRAININGS):
        yield ("learn", "-q", "-p", "1", "-m", "3", *options, "t", "train", f"m{i}")
    for model in ("m0", "m2", "m12"):
        for options in TAGGINGS:
            yield ("tag", "-p", "1", "-m", model, *options, "text")
    yield ("eval", "-m", "m0", "train")
    yield ("inspect", "m0")
    yield ("select", "-q", "--folds", "2", "-m", "3", "t", "train")


def run_all():
    """In the process under valgrind: every command, then a sign that all have ended well."""
    from crftool.cli import main

    for arguments in commands():
        main.main(list(arguments), standalone_mode=False)
    Path("all-done").touch()


def use_unwritten_memory():
    import numpy as np

    from crftool.kernels.strings import StringTable

    table = StringTable()
    for _ in range(3):
        table.intern(np.empty(100, np.uint8).tobytes())


def errors_of(folder, function):
    """Descriptions of the errors in our code when `function` of this file runs in the folder."""
    report = folder / "report.xml"
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import memcheck; memcheck.{function}()"
    done = subprocess.run(
        ["valgrind", "--quiet", "--xml=yes", f"--xml-file={report}", "--num-callers=50", sys.executable, "-c", program],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONMALLOC": "malloc", "PYTHONPATH": str(ROOT)})
    if done.returncode:
        sys.exit(f"{function} ended with {done.returncode}:\n{done.stderr}")
    found = []
    for error in xml.parse(report).getroot().iter("error"):
        frames = [(frame.findtext("fn", "?"), frame.findtext("obj", "?")) for frame in error.iter("frame")]
        leak = error.findtext("kind").startswith("Leak_")            # with --xml they are always told of
        if not leak and any(OURS in where for _, where in frames):
            found.append(f"{error.findtext('kind')}: " + " < ".join(f"{name} ({Path(where).name.split('.')[0]})"
                                                                    for name, where in frames[:6]))
    return found


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in (("train", CORPUS), ("t", TEMPLATE), ("text", CORPUS[:300].rsplit(b"\n", 1)[0] + b"\n")):
            (folder / file).write_bytes(content)
        if not errors_of(folder, "use_unwritten_memory"):
            sys.exit("valgrind does not see our use of unwritten memory: this check would prove nothing")
        found = errors_of(folder, "run_all")
        if found or not (folder / "all-done").exists():
            sys.exit("\n".join(found) or "the commands did not run to their end")
        print(f"{len(list(commands()))} commands: no error of crftool's own code")


if __name__ == "__main__":
    main()

"""The compiled kernels; everything else about the package is in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# No -ffast-math (it changes the floating-point mode of the whole process) and no -march=native
# (the build must run elsewhere). Without contraction every CPU level computes the same bits.
GNU_FLAGS = ["-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
MSVC_FLAGS = ["/O2", "/fp:precise"]

# For `make test-debug` and `make test-asan`: every index checked; every access and every step of arithmetic.
DEBUG = os.environ.get("CRFTOOL_DEBUG_KERNELS") == "1"
SANITIZE = os.environ.get("CRFTOOL_SANITIZE") == "1"
SANITIZER_FLAGS = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
                   "-ffp-contract=off"]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
}

KERNELS = ["vector", "strings", "keys", "patterns", "scan", "chain", "batches", "pairs", "queries", "viterbi", "scoring",
           "gradient", "history", "proximal", "stochastic", "workspace", "lookup", "combinations", "decoding", "writing", "tagger",
           "rows", "messages", "parts", "steps", "blocks", "twins"]
# The headers that a kernel, or a header of its own, includes: what must be built anew after a change.
HEADERS = {
    "vector": ["operations", "vector", "vector_body", "products_body"],
    **dict.fromkeys(["lookup", "strings", "keys"], ["operations", "hashing"]),
    "patterns": ["utf8"],
    "writing": ["operations", "utf8", "numbers"],
}


class BuildKernels(build_ext):
    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self):
        flags = MSVC_FLAGS if self.compiler.compiler_type == "msvc" else SANITIZER_FLAGS if SANITIZE else GNU_FLAGS
        for extension in self.extensions:
            extension.extra_compile_args = flags
            extension.extra_link_args = ["-fsanitize=address,undefined"] if SANITIZE else []
        super().build_extensions()


extensions = [
    Extension(f"crftool.kernels.{name}", [f"crftool/kernels/{name}.pyx"], 
              depends=[f"crftool/kernels/{header}.h" for header in HEADERS.get(name, ["operations"])])
    for name in KERNELS
]
setup(
    ext_modules=cythonize(extensions, compiler_directives=DIRECTIVES, force=DEBUG),
    cmdclass={"build_ext": BuildKernels},
)

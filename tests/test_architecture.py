"""The one-way order of the packages: what stands left may never import what stands right of it."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "crftool"
ORDER = [{"errors", "files"}, {"kernels"}, {"corpus"}, {"model"}, {"objectives"}, {"trainers"},
         {"decode", "evaluate", "phrases", "selection", "significance", "spans", "stream"}, {"api"}, {"cli", "__main__"}]
ONLY_IN = {"click": "cli/", "tqdm": "cli/progress.py", "yaml": "cli/options.py"}
MODULES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def rank(name):
    return next(i for i, names in enumerate(ORDER) if name in names)


def imported_modules(path):
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module == "crftool":
                yield from (f"crftool.{alias.name}" for alias in node.names)


def test_every_module_has_a_place():
    assert {path.split("/")[0].removesuffix(".py") for path in MODULES} - {"__init__"} == set.union(*ORDER)


@pytest.mark.parametrize("path", MODULES)
def test_imports_go_one_way(path):
    own = path.split("/")[0].removesuffix(".py")
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] == "crftool" and len(parts) > 1 and parts[1] not in ("__version__", "STARTED"):
            if own == "__init__":                    # inside a function: see test_the_package_starts_light
                continue
            assert rank(parts[1]) <= rank(own), f"{path} imports {module}"
        assert path.startswith(ONLY_IN.get(parts[0], "")), f"{path} imports {module}"


@pytest.mark.parametrize("path", [path for path in MODULES if path.startswith("cli/")])
def test_the_command_line_starts_light(path):
    """Only click and the standard library at the top of a command's module, so that --help is quick."""
    for node in ast.parse((PACKAGE / path).read_text()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            for name in names:
                assert name not in ("numpy", "yaml", "tqdm")
                assert name.split(".")[0] != "crftool" or name in ("crftool", "crftool.errors") \
                    or name.startswith("crftool.cli")


def test_the_package_starts_light():
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        assert not isinstance(node, ast.ImportFrom) and (not isinstance(node, ast.Import) or node.names[0].name == "time")


def test_kernels_import_only_kernels():
    for path in (PACKAGE / "kernels").glob("*.p[yx]*"):
        for line in path.read_text().splitlines():
            if line.startswith(("import crftool", "from crftool", "cimport crftool")):
                assert line.split()[1].startswith("crftool.kernels"), f"{path.name}: {line}"

"""The README stays true: every command and option is in it, and nothing that does not exist."""

import pathlib
import re

import click
import pytest

from crftool.cli import COMMANDS, main

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def options(name):
    command = main.get_command(None, name)
    return {flag for parameter in command.params if isinstance(parameter, click.Option)
            for flag in parameter.opts + parameter.secondary_opts}


def section(name):
    """The part of the README about a command."""
    return README.split(f"**`crftool {name} ")[1].split("**`crftool ")[0].split("\n## ")[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name):
    documented = set(re.findall(r"`(--?[a-z][-a-z0-9]*)`", section(name)))
    assert documented - {"--help"} == options(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples(name):
    text = main.get_command(None, name).get_help(click.Context(main.get_command(None, name), info_name=name))
    assert f"  crftool {name} " in text.rsplit("Examples:\n", 1)[1]
    assert "--help" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name):
    for parameter in main.get_command(None, name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help and parameter.help[0].isupper() or parameter.help[0].isdigit()


def test_options_named_anywhere_exist():
    known = set.union(*map(options, COMMANDS)) | {"--help", "--version"}
    assert set(re.findall(r"`crftool[^`]*?(--[a-z][-a-z0-9]*)", README)) <= known


def test_the_two_commands():
    assert "make demo" in README and "make test" in README
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


def test_ready_templates_compile_and_are_named():
    from crftool.corpus.template import Template
    paths = sorted((ROOT / "templates").glob("*.template"))
    assert len(paths) >= 4
    for path in paths:
        template = Template(path.read_bytes(), str(path))
        assert template.unigrams and template.bigrams and not template.warnings
        assert f"`{path.stem}`" in README

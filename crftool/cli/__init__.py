"""The command line: one module a command, loaded when it is called.

Modules here import click and the standard library at their top, everything else inside the command, so
that `--help` is quick.
"""

import importlib
import os
import sys

import click

from crftool import __version__
from crftool.errors import CrftoolError

COMMANDS = ("learn", "tag", "eval", "select", "inspect")
INTERRUPTED = 130


class PipeClosed(Exception):
    """Nobody reads our output any more."""


class LazyGroup(click.Group):
    def list_commands(self, ctx):
        return list(COMMANDS)

    def get_command(self, ctx, name):
        if name not in COMMANDS:
            return None
        return importlib.import_module(f"crftool.cli.{name}").command

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except BrokenPipeError:                      # click itself would exit with 1
            raise PipeClosed from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="crftool")
def main():
    """Label sequences: train conditional random fields and apply them.

    Files hold one token a line in columns, an empty line after each sequence; a template says which
    columns around a token to look at (CRF++'s language).

    \b
    Examples:
      crftool learn chunk.template train.txt chunk.model
      crftool tag -m chunk.model < test.txt | crftool eval
      crftool select --dev dev.txt chunk.template train.txt
      crftool learn --help
    """


def _drop_output():
    """Let Python's own flush at exit go nowhere, so that it does not fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run():
    """Run the command line; every way to end has its exit code here."""
    try:
        code = main.main(standalone_mode=False)
    except CrftoolError as error:
        click.echo(str(error), err=True)
        code = 1
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = INTERRUPTED
    except PipeClosed:
        _drop_output()
        code = 0
    except MemoryError:
        click.echo("out of memory; use less data, fewer templates or a larger --min-count", err=True)
        code = 1
    except OSError as error:
        click.echo(f"{error.filename or '<stdout>'}: {error.strerror or error}; check the disk and the path", err=True)
        _drop_output()
        code = 1
    sys.exit(code)

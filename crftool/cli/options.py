"""Options that several commands share, and the configuration file."""

import math
import os
import re
import sys

import click

from crftool.errors import CrftoolError, DataError


class FiniteRange(click.FloatRange):
    """Numbers of a range; not a number, and infinity, are none."""

    def convert(self, value, param, ctx):
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def threads_option(command):
    return click.option(
        "-p", "--threads", type=click.IntRange(min=1), default=None, metavar="N",
        help="Threads to use. The result does not depend on it.  [default: all cores]")(command)


def inference_options(command):
    command = click.option(
        "--log-domain", is_flag=True, help="The same as --inference log.")(command)
    return click.option(
        "--inference", type=click.Choice(["auto", "scaled", "sparse", "log"]), default="auto", show_default=True,
        help="How to sum over labellings: scaled numbers with dense or sparse transitions, or logarithms (slow). "
             "auto takes for each transition what is faster, and logarithms where scores are extreme.")(command)


def constrain_option(command):
    return click.option(
        "--constrain", metavar="RULES",
        help="Allow only label sequences of a scheme (iob1, iob2, iobes, bilou) or of a file with lines "
             "`forbid PREVIOUS LABEL`, `allow PREVIOUS LABEL`, ^ being the start and $ the end.")(command)


def chosen_inference(inference, log_domain):
    if log_domain and inference not in ("auto", "log"):
        raise click.UsageError(f"--log-domain contradicts --inference {inference}.")
    return "log" if log_domain else inference


def available_cores():
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_pool(threads):
    from crftool.kernels.pool import Pool
    return Pool(threads or available_cores())


def find_template(name):
    """The path of a template: a file, or the name of a ready one."""
    if os.path.exists(name) or name == "-":
        return name
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder in (os.path.join(package, "templates"), os.path.join(os.path.dirname(package), "templates")):
        path = os.path.join(folder, f"{name}.template")
        if os.sep not in name and os.path.exists(path):
            return path
    return name


def write_output(data):
    """Bytes to standard output, at once."""
    if sys.stdout is None:
        raise CrftoolError("<stdout>: standard output is closed; open it, or name a file")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def parse_size(text):
    """'800M' to bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if not match:
        raise click.BadParameter(f"'{text}' is not a size such as 800M or 4G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def read_config(ctx, option, path):
    """--config: option values from a YAML file, as defaults that the command line overrides."""
    if path is None:
        return
    import yaml

    from crftool.corpus.reader import read_bytes
    try:
        content = yaml.safe_load(read_bytes(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise DataError(path, mark.line + 1 if mark else None, "not valid YAML",
                        "write lines such as `rho2: 0.5`") from None
    if content is None:
        return
    if not isinstance(content, dict):
        raise DataError(path, 1, "not a mapping of options", "write lines such as `rho2: 0.5`")
    known = {name: parameter for parameter in ctx.command.params if isinstance(parameter, click.Option)
             for name in [parameter.name]}
    defaults = {}
    for key, value in content.items():
        name = str(key).lstrip("-").replace("-", "_")
        if name not in known or name in ("config", "help"):
            raise CrftoolError(f"{path}: no option '{key}'; see `{ctx.command_path} --help`")
        if isinstance(value, (dict, list)):
            raise CrftoolError(f"{path}: '{key}' needs a single value; write `{key}: value`")
        defaults[name] = value
    ctx.default_map = {**(ctx.default_map or {}), **defaults}

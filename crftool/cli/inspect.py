"""crftool inspect"""

import json

import click

from crftool.cli.options import write_output

EXAMPLES = """\b
Examples:
  crftool inspect chunk.model
  crftool inspect --top 100 chunk.model | grep ^weight
  crftool inspect --json chunk.model
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.argument("model")
@click.option("--top", type=click.IntRange(min=0), metavar="N", default=20, show_default=True,
              help="How many of the strongest weights to show.")
@click.option("--label", metavar="LABEL", help="Show only weights of this label.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model, top, label, as_json):
    """Show what a model holds.

    Prints lines with tabs, each of which begins with its kind: option (how it was trained), size, label,
    template (line, its observations, its non-zero weights), weight (value, observation, label before if
    any, label; the strongest first), transition (label before, label, weight; of B lines without columns).
    """
    from crftool.errors import CrftoolError
    from crftool.model import Model
    from crftool.model.contents import contents

    loaded = Model.load(model)
    if label is not None and label.encode() not in loaded.labels:
        raise CrftoolError(f"{model}: no label '{label}'; see `crftool inspect {model} | grep ^label`")
    found = contents(loaded, top, None if label is None else loaded.labels.index(label.encode()))
    if as_json:
        write_output(json.dumps(found).encode() + b"\n")
        return
    lines = [("option", name, "" if value is None else value) for name, value in found["options"].items()]
    lines += [("size", name, value) for name, value in found["sizes"].items()]
    lines += [("label", name) for name in found["labels"]]
    lines += [("template", entry["text"], entry["observations"], entry["weights"]) for entry in found["templates"]]
    lines += [("weight", f"{entry['weight']:.6g}", entry["observation"], entry["previous"] or "", entry["label"])
              for entry in found["weights"]]
    lines += [("transition", previous, following, f"{weight:.6g}")
              for previous, row in found["transitions"].items() for following, weight in row.items()]
    write_output("".join("\t".join(map(str, line)) + "\n" for line in lines).encode("utf-8", "replace"))

"""crftool tag"""

import sys

import click

from crftool.cli.options import make_pool, threads_option


EXAMPLES = """\b
Examples:
  crftool tag -m chunk.model test.txt
  crftool tag -m chunk.model < test.txt | crftool eval
  crftool tag -m chunk.model -v 1 test.txt        with probabilities
  crftool tag -m chunk.model -n 5 test.txt        the five best labellings
  crftool tag -m chunk.model --format json -o out.jsonl test.txt.gz
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.option("-m", "--model", required=True, metavar="MODEL", help="Model that `crftool learn` wrote.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-v", "--verbose", "level", type=click.IntRange(0, 2, clamp=True), default=0, show_default=True, metavar="N",
              help="1: print probabilities of the sequence and of each label; 2: of all labels too.")
@click.option("-n", "--nbest", type=click.IntRange(min=1), metavar="N", help="Print the N best labellings of each "
                                                                             "sequence, with probabilities.")
@click.option("--posterior", is_flag=True, help="Choose the most probable label of each token instead of the most "
                                                "probable sequence.")
@click.option("--format", "layout", type=click.Choice(["conll", "labels", "json"]), default="conll",
              show_default=True, help="Columns and label; labels alone; or one JSON object a sequence.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, which appears when all is done, instead of "
                                                     "standard output.")
@threads_option
def command(model, files, level, nbest, posterior, layout, output, threads):
    """Label sequences.

    Reads tokens in the columns of the training data, without the label (if it or other columns follow,
    they are passed through), and prints them with the label that the model gives as a last column. Reads
    standard input if no FILE is named or FILE is `-`; .gz, .bz2 and .xz are read as they are. A sequence
    is answered as soon as its empty line has come. Nothing on standard input gives nothing; a named file
    without tokens is an error.
    """
    if posterior and nbest:
        raise click.UsageError("--posterior chooses one labelling; it cannot go with --nbest.")

    from crftool.files import check_writable, write_atomically
    from crftool.formats import WRITERS
    from crftool.model import Model
    from crftool.tagging import tag_files

    if output:
        check_writable(output)
    trained = Model.load(model)
    pieces = tag_files(trained, files or ("-",), WRITERS[layout](trained.labels, level), make_pool(threads),
                       nbest or 0, posterior)
    if output:
        write_atomically(output, pieces)
        return
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

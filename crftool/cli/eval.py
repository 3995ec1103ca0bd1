"""crftool eval"""

import json
from collections import Counter

import click

from crftool.cli.options import chosen_inference, inference_options, make_pool, threads_option, write_output
from crftool.errors import DataError

EXAMPLES = """\b
Examples:
  crftool tag -m chunk.model test.txt | crftool eval
  crftool eval -m chunk.model test.txt
  crftool eval --json tagged.txt
  crftool eval --confusion --train train.txt --bootstrap 1000 tagged.txt
  crftool eval --compare tagged-a.txt tagged-b.txt
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.argument("file", default="-")
@click.option("-m", "--model", metavar="MODEL", help="Label FILE with this model first; its last column is the gold "
                                                     "label then.")
@click.option("--scheme", type=click.Choice(["conll", "iob1", "iob2", "iobes", "strict"]), default="conll",
              show_default=True, help="How to read phrases: as conlleval does, which forgives; by the letter of a "
              "scheme, odd labels being outside; or strict, as conlleval but every label must be right.")
@click.option("--confusion", is_flag=True, help="Add a table of gold labels, predicted labels and how often.")
@click.option("--train", metavar="FILE", help="Tell apart words that occur in this file and words that do not.")
@click.option("--word-column", type=click.IntRange(min=0), metavar="N", default=0, show_default=True,
              help="The column of the words, for --train.")
@click.option("--bootstrap", type=click.IntRange(min=100), metavar="N",
              help="Add 95% confidence intervals, from N resamples of the sequences.")
@click.option("--compare", metavar="OTHER",
              help="Another output for the same sequences: tell the difference of FILE to it, and how likely it is "
                   "by chance (a paired test).")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", default=1, show_default=True,
              help="Seed of --bootstrap and --compare.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with sequence accuracy.")
@click.option("-v", "--verbose", is_flag=True, help="Add a line with the accuracy of whole sequences.")
@inference_options
@threads_option
def command(file, model, as_json, verbose, inference, log_domain, threads, **extras):
    """Score labelled sequences.

    The last two columns of FILE (standard input if none is named) are the gold and the predicted label.
    Prints what conlleval prints: accuracy over tokens; precision, recall and F1 over phrases, which are
    read from labels such as B-NP, I-NP and O. A precision or recall of nothing is shown as 0.
    """
    if extras["compare"] and model:
        raise click.UsageError("--compare takes two labelled files; leave out -m.")
    if extras["compare"] == file == "-":
        raise click.UsageError("only one of the two files can be standard input.")
    mode = chosen_inference(inference, log_domain)
    parts = _model_labels(file, model, mode, threads) if model else _column_labels(file)
    Scorer(file, as_json, verbose, **extras).run(parts)


class Scorer:
    """Counts over blocks of sequences, and the reports on them."""

    REPEATS = 10_000                 # of the paired test

    def __init__(self, file, as_json, verbose, scheme, confusion, train, word_column, bootstrap, compare, seed):
        self.file, self.as_json, self.verbose, self.scheme = file, as_json, verbose, scheme
        self.confusion, self.train, self.word_column = confusion, train, word_column
        self.bootstrap, self.compare, self.seed = bootstrap, compare, seed
        self._confused, self._per_sequence = Counter(), []
        self._known = {True: [0, 0], False: [0, 0]}  # by whether the word was seen: tokens, right ones

    def run(self, parts):
        import numpy as np

        from crftool.evaluate import Scores, score
        from crftool.spans import count_per_sequence, scores_of_spans

        vocabulary = self._vocabulary() if self.train else None
        counts, golds = Scores.empty(), []
        for gold, predicted, offsets, labels, tokens in parts:
            counts += score(gold, predicted, offsets, labels) if self.scheme == "conll" else \
                scores_of_spans(gold, predicted, offsets, labels, self.scheme)
            if self.confusion:
                self._count_confusions(gold, predicted, labels)
            if vocabulary is not None:
                self._count_known(gold == predicted, tokens, vocabulary)
            if self.bootstrap or self.compare:
                self._per_sequence.append(count_per_sequence(gold, predicted, offsets, labels, self.scheme))
            if self.compare:
                golds.append([labels[i] for i in gold.tolist()])
        if self._per_sequence:
            self._per_sequence = np.concatenate(self._per_sequence)
        extras = self._extras([label for block in golds for label in block])
        if self.as_json:
            write_output(json.dumps({**counts.to_dict(), **extras}).encode() + b"\n")
            return
        write_output(counts.report())
        if self.verbose:
            write_output(b"sequences: %d; correct: %d; accuracy: %6.2f%%\n"
                         % (counts.sequences, counts.correct_sequences, counts.sequence_accuracy))
        self._print(extras)

    # Counting ---------------------------------------------------------------------------------------------

    def _vocabulary(self):
        from crftool.corpus.tokens import read_tokens
        from crftool.kernels.strings import StringTable

        table = StringTable()
        for tokens in read_tokens(self.train):
            self._check_column(tokens, self.train)
            tokens.intern(self.word_column, table, True)
        return table

    def _check_column(self, tokens, path):
        if self.word_column >= tokens.columns:
            raise DataError(path, tokens.line(0), f"no column {self.word_column}", "give another --word-column")

    def _count_confusions(self, gold, predicted, labels):
        import numpy as np

        pairs, numbers = np.unique(gold.astype(np.int64) * len(labels) + predicted, return_counts=True)
        for pair, number in zip(pairs.tolist(), numbers.tolist()):
            self._confused[labels[pair // len(labels)], labels[pair % len(labels)]] += number

    def _count_known(self, right, tokens, vocabulary):
        """`tokens`: those of the block, to be looked up among the words of --train."""
        self._check_column(tokens, self.file)
        seen = tokens.intern(self.word_column, vocabulary, False) >= 0
        for known in (True, False):
            self._known[known][0] += int((seen == known).sum())
            self._known[known][1] += int(right[seen == known].sum())

    # Telling ----------------------------------------------------------------------------------------------

    def _extras(self, golds):
        """What was asked for beyond the scores, as plain values."""
        out = {}
        if self.confusion:
            ranked = sorted(self._confused.items(), key=lambda entry: (-entry[1], entry[0]))
            out["confusion"] = [[_shown(gold), _shown(predicted), number] for (gold, predicted), number in ranked]
        if self.train:
            for name, known in (("seen", True), ("unseen", False)):
                tokens, right = self._known[known]
                out[name] = {"tokens": tokens, "correct_tokens": right,
                             "token_accuracy": 100.0 * right / tokens if tokens else 0.0}
        if self.bootstrap:
            from crftool.significance import confidence_intervals
            accuracy, f1 = confidence_intervals(self._per_sequence, self.bootstrap, self.seed)
            out["confidence"] = {"token_accuracy": list(accuracy), "f1": list(f1)}
        if self.compare:
            out["comparison"] = self._comparison(golds)
        return out

    def _comparison(self, golds):
        import numpy as np

        from crftool.significance import paired_test
        from crftool.spans import count_per_sequence, rates

        others, at = [], 0
        for gold, predicted, offsets, labels, tokens in _column_labels(self.compare):
            own = [labels[i] for i in gold.tolist()]
            if own != golds[at:at + len(own)]:
                wrong = next((i for i, label in enumerate(own) if golds[at + i:at + i + 1] != [label]), len(own))
                raise DataError(self.compare, tokens.line(wrong), f"the gold label differs from that of {self.file}",
                                "compare two outputs for the same data")
            at += len(own)
            others.append(count_per_sequence(gold, predicted, offsets, labels, self.scheme))
        others = np.concatenate(others)
        if at != len(golds) or len(others) != len(self._per_sequence) or \
                (others[:, 0] != self._per_sequence[:, 0]).any():
            raise DataError(self.compare, None, f"other sequences than {self.file}",
                            "compare two outputs for the same data")
        own, other = rates(self._per_sequence.sum(axis=0)), rates(others.sum(axis=0))
        p = paired_test(self._per_sequence, others, self.REPEATS, self.seed)
        out = {"file": self.file, "other": self.compare}
        for name, a, b, chance in zip(("token_accuracy", "f1"), map(float, own), map(float, other), p):
            out[name] = {"file": a, "other": b, "difference": a - b, "p": chance}
        return out

    def _print(self, extras):
        for name in ("seen", "unseen"):
            if name in extras:
                write_output(b"%s words: %d tokens; accuracy: %6.2f%%\n"
                             % (name.encode(), extras[name]["tokens"], extras[name]["token_accuracy"]))
        if "confidence" in extras:
            write_output(b"95%% confidence: accuracy: %.2f%% to %.2f%%; FB1: %.2f to %.2f\n"
                         % (*extras["confidence"]["token_accuracy"], *extras["confidence"]["f1"]))
        if "comparison" in extras:
            for name, shown in (("token_accuracy", "accuracy"), ("f1", "FB1")):
                entry = extras["comparison"][name]
                write_output(f"{shown}: {entry['file']:.2f} against {entry['other']:.2f} ({self.compare}): difference "
                             f"{entry['difference']:+.2f}, p = {entry['p']:.4f}\n".encode())
        for gold, predicted, number in extras.get("confusion", ()):
            write_output(f"{gold}\t{predicted}\t{number}\n".encode())


def _shown(label):
    return label.decode("utf-8", "backslashreplace")


def _column_labels(file):
    """(gold, predicted, offsets, labels, tokens) of each block, from the last two columns."""
    from crftool.corpus.reader import display_name
    from crftool.corpus.tokens import read_tokens
    from crftool.kernels.strings import StringTable

    table, seen = StringTable(), False
    for tokens in read_tokens(file):
        if tokens.columns < 2:
            raise DataError(display_name(file), tokens.line(0), "only one column",
                            "the last two columns must be the gold and the predicted label")
        seen = True
        gold = tokens.intern(tokens.columns - 2, table, True)
        predicted = tokens.intern(tokens.columns - 1, table, True)
        yield gold, predicted, tokens.offsets, [table.text(i) for i in range(len(table))], tokens
    if not seen:
        raise DataError(display_name(file), 1, "no token to score", "check the step that writes it")


def _model_labels(file, model, mode, threads):
    """The same, predicted by a model. A gold label that the model does not know counts as an error."""
    from crftool.corpus.dataset import read_labelled_blocks
    from crftool.decode import Lattices, decode
    from crftool.model import Model

    trained, pool = Model.load(model), make_pool(threads)
    for dataset, labels, tokens in read_labelled_blocks(file, trained.encoder):
        lattices = Lattices(dataset, trained.weights, pool, mode, trained.constraint)
        yield dataset.labels, decode(lattices).labels, dataset.offsets, labels, tokens

"""The twin of the compiled tagger, for tests: the same output by NumPy and Python, in the plainest way.

Tokens, encoder and recursions are those of training and of the Python interface; labels, probabilities and
phrases are put together here, and written by json and bytes formatting.
"""

import json
from dataclasses import dataclass, field

import numpy as np

from crftool.corpus.reader import display_name
from crftool.corpus.tokens import read_tokens
from crftool.decode import Lattices, decode, decode_best
from crftool.errors import DataError
from crftool.kernels.transitions import Constraint
from crftool.phrases import boundary_tables


def slow_output(mapped_or_model, paths, request, pool):
    """What tag_stream prints for a stream.Request."""
    from crftool.model.model import Model
    model = mapped_or_model if isinstance(mapped_or_model, Model) else Model(mapped_or_model)
    constraint = None
    if request.allowed is not None:
        allowed, Y = np.array(request.allowed, bool), len(model.labels)
        constraint = Constraint(allowed[:Y, :Y].copy(), allowed[Y, :Y].copy(), allowed[:Y, Y].copy())
    wish = SlowRequest(request.best, request.posterior, request.inference, constraint, request.force_column,
                       request.min_confidence, request.abstain, request.phrases, request.entropy)
    writer = WRITERS[request.layout](model.labels, request.level)
    return b"".join(tag_files(model, paths, writer, pool, wish))


@dataclass(frozen=True)
class SlowRequest:
    """What is wanted of each sequence; as stream.Request, without the layout."""

    best: int = 0                        # that many labellings, best first; 0: one, without rank
    posterior: bool = False              # the most probable label of each token
    inference: str = "auto"
    constraint: Constraint | None = None
    force_column: int | None = None      # labels known in advance; negative: from the end
    min_confidence: float = 0.0          # labels less probable than this are replaced by ...
    abstain: bytes = b"?"
    phrase_confidence: bool = False
    entropy: bool = False

    @property
    def needs_marginals(self):
        return self.posterior or self.min_confidence > 0.0 or self.phrase_confidence


def tag_files(model, paths, writer, pool, request=SlowRequest()):
    """Pieces of output for the sequences of the files, in order, each as soon as its input is there."""
    for path in paths:
        for tokens in read_tokens(path):
            yield from tag_tokens(model, tokens, writer, pool, request)


def tag_tokens(model, tokens, writer, pool, request):
    forced = _forced_labels(model, tokens, request)
    lattices = Lattices(model.encoder.encode(tokens), model.weights, pool, request.inference, request.constraint,
                        forced)
    if forced is not None or request.constraint is not None:
        _check_possible(model, tokens, request, forced)
    yield from (_best_lists if request.best else _labellings)(model, lattices, tokens, writer, request)


def _labellings(model, lattices, tokens, writer, request):
    decoded = decode(lattices, request.posterior, writer.level > 0 or request.needs_marginals)
    details = _details(model, lattices, decoded, request)
    pieces, offsets = [], tokens.offsets.tolist()
    labels = decoded.labels.tolist()
    for s, (start, end) in enumerate(zip(offsets, offsets[1:])):
        probability = None if decoded.probability is None else decoded.probability[s]
        pieces.append(writer.sequence(tokens, start, labels[start:end], probability, decoded.marginals,
                                      details=details(s, start, end)))
    yield b"".join(pieces)


def _best_lists(model, lattices, tokens, writer, request):
    lists, marginals = decode_best(lattices, request.best)
    for start, labellings in zip(tokens.offsets.tolist(), lists):
        yield b"".join(writer.sequence(tokens, start, path.tolist(), probability, marginals, rank)
                       for rank, (path, probability) in enumerate(labellings))


def _details(model, lattices, decoded, request):
    """A function (sequence, its first token, its end) -> Details."""
    chosen = None if decoded.marginals is None else decoded.marginals[np.arange(len(decoded.labels)), decoded.labels]
    spans = kinds = confidence = per_token = None
    if request.phrase_confidence:
        spans, kinds = _phrases(decoded.labels, lattices.dataset.offsets, model.labels)
        confidence = lattices.segment_probabilities(decoded.labels, spans, *_square(model.labels))
        per_token = chosen.copy()                    # outside phrases: that of the label
        for (first, last), share in zip(spans, confidence):
            per_token[first:last + 1] = share
    entropies = lattices.entropies() if request.entropy else None

    def details(s, start, end):
        abstained = {}
        if request.min_confidence > 0.0:
            abstained = {int(t): request.abstain
                         for t in start + np.flatnonzero(chosen[start:end] < request.min_confidence)}
        if spans is None:
            return Details(abstained, entropy=None if entropies is None else entropies[s])
        which = range(*np.searchsorted(spans[:, 0], (start, end)))
        listed = [(int(spans[i, 0]), int(spans[i, 1]), kinds[i], confidence[i]) for i in which]
        return Details(abstained, per_token[start:end].tolist(), listed,
                       None if entropies is None else entropies[s])

    return details


def _forced_labels(model, tokens, request):
    """[N]  label imposed on each token, -1 where its value in the column is no label; None without column."""
    if request.force_column is None:
        return None
    column = request.force_column + tokens.columns * (request.force_column < 0)
    if not 0 <= column < tokens.columns:
        raise DataError(display_name(tokens.path), tokens.line(0),
                        f"no column {request.force_column} among {tokens.columns}", "mend --force-column")
    return tokens.intern(column, model.encoder.label_table, False)


def _check_possible(model, tokens, request, forced):
    """An error with line and labels where no labelling is allowed."""
    Y, offsets = len(model.labels), tokens.offsets
    if forced is None:
        forced = np.full(len(tokens), -1)
    for start, end in zip(offsets, offsets[1:]):
        free = (forced[start:end] < 0).all()
        if request.constraint is None or free and _free_is_possible(request.constraint, end - start):
            continue
        t = dead_end(request.constraint, Y, forced[start:end])
        if t is not None:
            shown = [model.labels[label].decode("utf-8", "backslashreplace") if label >= 0 else "any label"
                     for label in forced[max(start, start + t - 1):start + t + 1]]
            raise DataError(display_name(tokens.path), tokens.line(int(start + t)),
                            f"no labelling is allowed: {' then '.join(shown)} is forbidden here",
                            "mend the forced labels or loosen --constrain")


def _free_is_possible(constraint, T):
    """Quick answer for the usual case: a label that may begin, follow itself, and end."""
    return bool((constraint.start & constraint.end & (constraint.pairs.diagonal() | (T == 1))).any())


def _square(labels):
    """(starts, ends [Y][Y]): whether a phrase starts or ends between two labels."""
    Y = len(labels)
    return [np.frombuffer(table, np.uint8).reshape(Y + 1, Y + 1)[:Y, :Y].copy() for table in boundary_tables(labels)[:2]]


def _phrases(labels, offsets, names):
    """(spans [P][2], types [P]): first and last token, and type, of every phrase, in order."""
    starts, ends, types = boundary_tables(names)
    Y, spans, kinds = len(names), [], []
    for begin, end in zip(offsets.tolist(), offsets.tolist()[1:]):
        path = [Y, *labels[begin:end].tolist(), Y]
        for t in range(1, len(path) - 1):
            if starts[path[t - 1] * (Y + 1) + path[t]]:
                last = t
                while last < len(path) - 2 and not ends[path[last] * (Y + 1) + path[last + 1]]:
                    last += 1
                spans.append((begin + t - 1, begin + last - 1))
                kinds.append(types[path[t]])
    return np.array(spans, np.int64).reshape(-1, 2), kinds


def dead_end(constraint, Y, forced):
    """The first position at which no label is possible any more; None if some labelling remains.

    `forced` [T]: a label that the position must have, or -1.
    """
    possible = constraint.start.copy() if constraint is not None else np.ones(Y, bool)
    for t, label in enumerate(forced):
        if t > 0:
            possible = possible @ constraint.pairs if constraint is not None else np.full(Y, possible.any())
        if label >= 0:
            possible &= np.arange(Y) == label
        if t == len(forced) - 1 and constraint is not None:
            possible &= constraint.end
        if not possible.any():
            return t
    return None


# Layouts -------------------------------------------------------------------------------------------------------

def _text(value):
    return value.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Details:
    """More about one labelling than CRF++ prints."""

    abstained: dict = field(default_factory=dict)    # token -> the symbol printed instead of its label
    confidence: list | None = None                   # [T]  of the phrase that each token belongs to
    phrases: list | None = None                      # [(first token, last token, type, confidence)]
    entropy: float | None = None                     # of all labellings, in nats


class ConllWriter:
    """CRF++'s output; `level` as its -v: 0 labels, 1 probabilities, 2 those of all labels too."""

    def __init__(self, labels, level=0):
        self.labels, self.level = labels, level

    def sequence(self, tokens, start, path, probability, marginals, rank=None, details=Details()):
        """One labelling of the sequence that starts at token `start`; marginals are those of all tokens."""
        lines = []
        if rank is not None:
            lines.append(b"# %d %f" % (rank, probability))
        elif self.level >= 1:
            lines.append(b"# %f" % probability)
        for t, label in enumerate(path, start):
            fields = self._columns(tokens, t)
            fields.append(details.abstained.get(t, self.labels[label]))
            if self.level >= 1:
                fields[-1] += b"/%f" % marginals[t, label]
            if self.level >= 2:
                fields += [b"%s/%f" % pair for pair in zip(self.labels, marginals[t])]
            if details.confidence is not None:
                fields.append(b"%f" % details.confidence[t - start])
            lines.append(b"\t".join(fields))
        return b"\n".join(lines) + b"\n\n"

    def _columns(self, tokens, t):
        return [tokens.text(t, column) for column in range(tokens.columns)]


class LabelWriter(ConllWriter):
    """The same without the input's columns."""

    def _columns(self, tokens, t):
        return []


class JsonWriter:
    """One JSON object a sequence and line. Bytes that are no UTF-8 appear as lone surrogates."""

    def __init__(self, labels, level=0):
        self.labels, self.level = [_text(label) for label in labels], level

    def sequence(self, tokens, start, path, probability, marginals, rank=None, details=Details()):
        record = {
            "tokens": [[_text(tokens.text(t, column)) for column in range(tokens.columns)]
                       for t in range(start, start + len(path))],
            "labels": [_text(details.abstained[t]) if t in details.abstained else self.labels[label]
                       for t, label in enumerate(path, start)]}
        if rank is not None:
            record["rank"] = rank
        if probability is not None:
            record["probability"] = float(probability)
        if self.level >= 1:
            record["label_probability"] = [float(marginals[t, label]) for t, label in enumerate(path, start)]
        if self.level >= 2:
            record["marginals"] = [dict(zip(self.labels, map(float, marginals[t])))
                                   for t in range(start, start + len(path))]
        if details.phrases is not None:
            record["phrases"] = [{"start": first - start, "end": last - start + 1, "type": _text(kind),
                                  "confidence": float(confidence)}
                                 for first, last, kind, confidence in details.phrases]
        if details.entropy is not None:
            record["entropy"] = float(details.entropy)
        return json.dumps(record).encode() + b"\n"


WRITERS = {"conll": ConllWriter, "labels": LabelWriter, "json": JsonWriter}

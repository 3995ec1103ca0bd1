"""Column text in, labelled text out, by the compiled tagger: whole blocks, on several threads, in order."""

from collections import deque
from dataclasses import dataclass

from crftool.corpus.reader import (BLOCK_SIZE, display_name, first_token, no_token, read_blocks, uneven_columns)
from crftool.corpus.template import check_columns
from crftool.errors import DataError, NumericError
from crftool.kernels.sparsity import largest_sparse
from crftool.kernels.tagger import STATUS, Tagger
from crftool.kernels.writing import Writer
from crftool.phrases import boundary_tables

WORTH_A_THREAD = 1 << 16             # bytes of a block below which another thread does not pay
LARGE_OUTPUT = 8                     # how much smaller blocks are where the output is many times the input
MOST_BEST = 1 << 40                  # labellings: as good as all


@dataclass(frozen=True)
class Request:
    """What is wanted of each sequence, and how it is written."""

    layout: str = "conll"                # or labels, or json
    level: int = 0                       # CRF++'s -v: 1 probabilities, 2 those of all labels
    best: int = 0                        # that many labellings, best first; 0: one, without rank
    posterior: bool = False              # the most probable label of each token
    inference: str = "auto"
    allowed: list | None = None          # see corpus.rules.allowed_pairs
    force_column: int | None = None      # labels known in advance; negative: from the end
    min_confidence: float = 0.0          # labels less probable than this are replaced by ...
    abstain: bytes = b"?"
    phrase_confidence: bool = False

    @property
    def phrases(self):
        """JSON with probabilities tells of phrases and entropy too."""
        return self.phrase_confidence or self.entropy

    @property
    def entropy(self):
        return self.layout == "json" and self.level > 0 and not self.best

    @property
    def sums(self):
        return bool(self.level or self.best or self.posterior or self.min_confidence > 0.0 or self.phrases)


def make_tagger(mapped, request):
    """A kernels.tagger.Tagger for a MappedModel."""
    starts = ends = None
    types = [b""] * len(mapped.labels)
    if request.phrases:
        starts, ends, types = boundary_tables(mapped.labels)
    writer = Writer(mapped.labels, types, request.layout, request.level, request.best > 0, request.sums,
                    request.phrases, request.entropy, request.min_confidence, request.abstain)
    return Tagger(mapped.lookup(), writer, mapped.label_table, mapped.begin_label, request.inference,
                  largest_sparse(len(mapped.labels), request.inference),
                  None if request.allowed is None else b"".join(request.allowed), starts, ends,
                  min(request.best, MOST_BEST), request.posterior)


def tag_stream(mapped, paths, request=Request(), threads=1, block_size=BLOCK_SIZE):
    """Pieces of output, in the order of the input, each as soon as it can be."""
    if request.level > 1 or request.best:
        block_size = max(1, block_size // LARGE_OUTPUT)
    jobs = _jobs(mapped, paths, request, block_size)
    tagger = make_tagger(mapped, request)
    workspace = tagger.workspace()
    for job in jobs:
        if threads > 1 and len(job.block.data) >= WORTH_A_THREAD:
            yield from _threaded(tagger, job, jobs, threads)
            return
        yield job.run(tagger, workspace)


class Job:
    """A block of whole sequences to be tagged."""

    def __init__(self, mapped, block, columns, force_column):
        self.mapped, self.block, self.columns, self.force_column = mapped, block, columns, force_column

    def run(self, tagger, workspace):
        """The output."""
        status, line, detail, output = tagger.tag(self.block.data, workspace, self.columns, self.force_column)
        if status:
            raise self._error(status, self.block.first_line + line, detail)
        return output

    def _error(self, status, line, detail):
        path = self.block.path
        if status == STATUS["forbidden"]:
            shown = " then ".join(self._name(label) for label in detail if label is not None)
            return DataError(display_name(path), line, f"no labelling is allowed: {shown} is forbidden here",
                             "mend the forced labels or loosen --constrain")
        if status == STATUS["out of range"]:
            return NumericError(f"{display_name(path)}:{line}: the scores of this sequence are out of range; "
                                "use --inference auto, or train with a stronger penalty")
        return uneven_columns(path, line, detail, self.columns)

    def _name(self, label):
        return self.mapped.labels[label].decode("utf-8", "backslashreplace") if label >= 0 else "any label"


def _jobs(mapped, paths, request, block_size):
    for path in paths:
        columns, force_column = 0, -1
        for block in read_blocks(path, block_size):
            if not columns:
                line, columns = first_token(block)
                if not columns:
                    continue
                check_columns(mapped.template, path, line, columns)
                force_column = _force_column(request, path, line, columns)
            yield Job(mapped, block, columns, force_column)
        if not columns and path != "-":
            raise no_token(path)


def _force_column(request, path, line, columns):
    """The column of known labels, from 0; -1 for none."""
    if request.force_column is None:
        return -1
    column = request.force_column + columns * (request.force_column < 0)
    if not 0 <= column < columns:
        raise DataError(display_name(path), line, f"no column {request.force_column} among {columns}",
                        "mend --force-column")
    return column


def _threaded(tagger, first, jobs, threads):
    """Tag on `threads` threads while another reads. Results wait for their turn; nothing that is ready waits
    for more input."""
    import queue
    import threading
    from concurrent.futures import ThreadPoolExecutor

    waiting = queue.Queue(2 * threads)
    workspaces = queue.SimpleQueue()
    for _ in range(threads):
        workspaces.put(tagger.workspace())

    def read():
        try:
            for job in jobs:
                waiting.put(job)
            waiting.put(None)
        except BaseException as error:               # raised where the results are taken
            waiting.put(error)

    def work(job):
        workspace = workspaces.get()
        try:
            return job.run(tagger, workspace)
        finally:
            workspaces.put(workspace)

    threading.Thread(target=read, daemon=True).start()
    with ThreadPoolExecutor(threads) as pool:
        pending, job = deque([pool.submit(work, first)]), first
        while pending or job is not None:
            if job is not None and len(pending) < 3 * threads:
                try:
                    job = waiting.get(block=not pending)
                except queue.Empty:
                    yield pending.popleft().result()
                    continue
                if isinstance(job, BaseException):
                    while pending:                   # what came before the error
                        yield pending.popleft().result()
                    raise job
                if job is not None:
                    pending.append(pool.submit(work, job))
            else:
                yield pending.popleft().result()

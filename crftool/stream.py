"""Column text in, labelled text out, by the compiled tagger: whole blocks, on several threads, in order."""

from collections import deque

from crftool.corpus.reader import BLOCK_SIZE, first_token, no_token, read_blocks, uneven_columns
from crftool.corpus.template import check_columns

MOST_LABELS = 256                    # beyond, the general path with its sparse transitions is the better one
OUT_OF_RANGE = 5                     # status of the tagger: the scaled recursion refuses some scores
WORTH_A_THREAD = 1 << 16             # bytes of a block below which another thread does not pay


def tag_stream(mapped, paths, labels_only, threads, level=0, block_size=BLOCK_SIZE):
    """Pieces of output, in the order of the input, each as soon as it can be; `level` as CRF++'s -v."""
    if level > 1:
        block_size = max(1, block_size // 8)         # the output is many times larger than the input
    jobs = _jobs(mapped, paths, labels_only, level, block_size)
    tagger = mapped.tagger()
    workspace = tagger.workspace()
    for job in jobs:
        if threads > 1 and len(job.block.data) >= WORTH_A_THREAD:
            yield from _threaded(tagger, job, jobs, threads)
            return
        workspace, output = job.run(tagger, workspace)
        yield output


class Job:
    """A block of whole sequences to be tagged."""

    def __init__(self, mapped, block, columns, labels_only, level):
        self.mapped, self.block, self.columns = mapped, block, columns
        self.labels_only, self.level = labels_only, level

    def run(self, tagger, workspace):
        """(the workspace to go on with, output)"""
        status, line, there, output = tagger.tag(self.block.data, workspace, self.columns, self.labels_only, self.level)
        if status == OUT_OF_RANGE:
            return workspace, self._in_full()
        if status:
            raise uneven_columns(self.block.path, self.block.first_line + line, there, self.columns)
        return tagger.workspace() if tagger.too_many_transitions(workspace) else workspace, output


    def _in_full(self):
        """The general path, for scores that need the log domain."""
        from crftool.corpus.tokens import Tokens
        from crftool.formats import WRITERS
        from crftool.kernels.pool import Pool
        from crftool.model.model import Model
        from crftool.tagging import Request, tag_tokens

        model = Model(self.mapped)
        writer = WRITERS["labels" if self.labels_only else "conll"](model.labels, self.level)
        return b"".join(tag_tokens(model, Tokens(self.block, self.columns), writer, Pool(), Request()))


def _jobs(mapped, paths, labels_only, level, block_size):
    for path in paths:
        columns = 0
        for block in read_blocks(path, block_size):
            if not columns:
                line, columns = first_token(block)
                if not columns:
                    continue
                check_columns(mapped.template, path, line, columns)
            yield Job(mapped, block, columns, labels_only, level)
        if not columns and path != "-":
            raise no_token(path)


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
            workspace, output = job.run(tagger, workspace)
            return output
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

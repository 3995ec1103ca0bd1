"""`learn --checkpoint` and `--resume`: where checkpoints go, and which training one belongs to."""

import os
from dataclasses import asdict

import click

from crftool.cli.progress import say

# Options that name files, whose content counts; and those whose change a resumed training can bear.
NOT_COMPARED = ("dev", "init", "only", "constrain", "max_iterations")


class Keeper:
    def __init__(self, path, every, resume):
        """`path`: where to write checkpoints, or None. `resume`: the one to go on from, or None."""
        self.path, self.every, self.resume = path, every, resume
        self._saved, self._job = None, None

    @property
    def resumes(self):
        return self.resume is not None

    def check_options(self, model, settings):
        if self.path is None:
            return
        if settings.path:
            raise click.UsageError("--checkpoint and --resume do not go together with --path.")
        for path in {self.path, self.resume} - {None}:
            if os.path.realpath(path) == os.path.realpath(model):
                raise click.UsageError(f"{path} cannot be both the checkpoint and the model.")

    def open(self):
        """Read the checkpoint to go on from, and see that new ones can be written."""
        if self.path is None:
            return
        from crftool.files import check_writable, remove_leftovers
        from crftool.trainers.checkpoint import Saved

        if self.resumes:
            self._saved = Saved(self.resume)
            remove_leftovers(self.path)
        check_writable(self.path)

    def describe(self, algorithm, settings, template, rules, dataset, space, allowed, held_out):
        """Take down all that decides the model, but where it begins."""
        if self.path is None:
            return
        from crftool import __version__
        from crftool.corpus.dataset import digest

        options = {name: value for name, value in asdict(settings).items() if name not in NOT_COMPARED}
        self._job = {
            "crftool version": __version__, **options, "algorithm": algorithm, "template": digest(template.text),
            "training data": digest(dataset.digest().encode(), str(space).encode()), "constraints": digest(rules),
            "weights of --only": digest(None if allowed is None else allowed),
            "dev data": None if held_out is None else held_out.digest(),
            # without iterations there is no stochastic start
            "--max-iterations": settings.max_iterations > 0, "initial weights": settings.init is not None}

    def checkpoints(self, theta, companion, tell):
        """The Checkpoints of a training that begins at theta; `companion`: see there. `tell`: for news."""
        from crftool.corpus.dataset import digest
        from crftool.model import SparseWeights
        from crftool.trainers.checkpoint import Checkpoints

        if self.path is None:
            return Checkpoints()
        if self._job["initial weights"]:
            arrays = (*theta.unigrams, *theta.bigrams) if isinstance(theta, SparseWeights) else (theta,)
            self._job["initial weights"] = digest(*arrays)
        if self._saved is not None:
            self._saved.check_job(self._job)
            tell(f"{self.resume}: going on after iteration {self._saved.count('number')}")
        return Checkpoints(self.path, self.every, self._job, self._saved, companion,
                           lambda error: say(f"warning: {error}; training goes on"))

    def take_saved(self):
        """The checkpoint to go on from, or None, once: a mapped file is not kept open for longer than needed."""
        saved, self._saved = self._saved, None
        return saved

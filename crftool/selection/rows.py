"""What is tried, and what came of it: settings, rows of the table, and the commands that repeat them."""

import json
import shlex
from dataclasses import dataclass, field

from crftool.selection.lab import Outcome

HEADER = ("method", "setting", "active_u", "active_b", "error", "f1", "seconds", "command")


@dataclass(frozen=True)
class Setting:
    """One model that a method can make."""

    method: str
    rho1: float = 0.0
    rho2: float = 0.0
    min_count: int = 1
    number: int | None = None        # features kept
    delta: float | None = None       # threshold of |weight|
    retrain: bool = False            # on what a threshold has left
    lines: tuple | None = None       # template lines in use; None is all of them
    batch: int | None = None         # features induced at a time
    tolerance: float | None = None   # of training, if not that of all rows
    path: tuple | None = None        # all values of rho1 that are trained for one after the other, this one among them

    @property
    def key(self):
        """The same text for the same setting."""
        return json.dumps({name: value for name, value in sorted(vars(self).items())})

    def __str__(self):
        parts = [f"rho1={self.rho1:.10g}", f"rho2={self.rho2:.10g}"]
        if self.min_count > 1:
            parts.append(f"min-count={self.min_count}")
        if self.number is not None:
            parts.append(f"number={self.number}")
        if self.delta is not None:
            parts.append(f"delta={self.delta:.10g}")
        if self.retrain:
            parts.append("retrain")
        if self.tolerance is not None:
            parts.append(f"tolerance={self.tolerance:.3g}")
        if self.lines is not None:
            parts.append("lines=" + ",".join(map(str, self.lines)))
        return " ".join(parts)

    def options(self):
        """The options of `crftool select` that try this setting: alone, or with its path, since a model begins where
        the one before has ended."""
        # A set of templates that a search has met is tried again as it is.
        words = ["--method", "grid" if self.method in WRAPPERS else self.method]
        if self.method == "l1":
            words += ["--path", str(len(self.path)), "--rho1", repr(self.path[-1])]
        else:
            words += ["--rho1", ",".join(map(repr, self.path or (self.rho1,)))]
        words += ["--rho2", repr(self.rho2)]
        if self.min_count > 1:
            words += ["--min-count", str(self.min_count)]
        if self.number is not None:
            words += ["--number", str(self.number)]
        if self.delta is not None:
            words += ["--delta", repr(self.delta)]
        if self.retrain:
            words.append("--retrain")
        if self.batch is not None:
            words += ["--batch", str(self.batch)]
        if self.lines is not None:
            words += ["--lines", ",".join(map(str, self.lines))]
        return words


WRAPPERS = ("forward", "backward", "beam", "anneal")


@dataclass(frozen=True)
class Row:
    setting: Setting
    outcome: Outcome

    def cells(self, common):
        """The cells of the table; `common`: the words of the command that all rows share."""
        outcome = self.outcome
        return (self.setting.method, str(self.setting), f"{outcome.active_u:.10g}", f"{outcome.active_b:.10g}",
                f"{outcome.error:.4f}", f"{outcome.f1:.4f}", f"{outcome.seconds:.2f}",
                shlex.join(["crftool", "select", *self.setting.options(), *common]))

    def to_dict(self, common):
        cells = dict(zip(HEADER, self.cells(common)))
        return {**cells, **vars(self.outcome),
                "options": {name: value for name, value in vars(self.setting).items()
                            if value is not None and name != "path"}}


@dataclass
class Plan:
    """What a method is to try."""

    method: str
    rho1: list | None = None         # None: the method's own choice
    rho2: list = field(default_factory=lambda: [1.0])
    min_counts: list = field(default_factory=lambda: [1])
    numbers: list | None = None      # features to keep
    deltas: list | None = None
    retrain: bool = False
    lines: tuple | None = None
    path: int = 20
    over: str = "lines"
    beam: int = 3
    steps: int = 50
    batch: int | None = None
    patience: int = 3               # batches without gain before induction ends
    seed: int = 1

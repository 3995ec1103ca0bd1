"""Choosing features, templates and penalties: one module a family of methods, and the table of their names.

A method is made of (lab, plan) and has

    rows()                             a Row for each setting, as soon as it is scored
    rows_planned                       how many there may be
    final(setting)                     the Fit of a setting on all training data
    chosen(setting, dataset, scale)    [F] bool: the features it picks from part of the data (not of wrappers)
"""

from crftool.selection.features import Filter, Induction, Threshold
from crftool.selection.filters import MEASURES
from crftool.selection.penalties import Penalties
from crftool.selection.rows import WRAPPERS
from crftool.selection.wrappers import Search

METHODS = {"l1": Penalties, "grid": Penalties, "threshold": Threshold, "induce": Induction,
           **{name: Filter for name in MEASURES}, **{name: Search for name in WRAPPERS}}

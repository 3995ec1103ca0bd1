"""Which transitions are kept dense and which sparse, and the Chain made of them."""

from dataclasses import dataclass

import numpy as np

from crftool.kernels import chain, vector
from crftool.kernels.sparsity import largest_sparse


@dataclass(frozen=True)
class Entries:
    """Weights of label pairs, for transitions that have few."""

    transition: np.ndarray           # [n] int
    previous: np.ndarray             # [n] int
    label: np.ndarray                # [n] int
    weight: np.ndarray               # [n] float64

    @classmethod
    def none(cls):
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, np.empty(0))


@dataclass(frozen=True)
class Constraint:
    """What a sequence of labels may look like."""

    pairs: np.ndarray                # [Y][Y] bool  previous, label
    start: np.ndarray                # [Y]    bool
    end: np.ndarray                  # [Y]    bool

    def scores(self, which):
        """0 where allowed, -inf where not."""
        return np.where(which, 0.0, -np.inf)


def chain_memory(D, Y):
    """[2][D][Y][padded Y]  room for the exponentiated blocks, on the boundary of a cache line."""
    P = chain.padded(Y)
    memory = np.empty(2 * D * Y * P + 8)
    skip = -memory.ctypes.data // 8 % 8
    return memory[skip:skip + 2 * D * Y * P].reshape(2, D, Y, P)


def make_chain(Y, slot, lam, entries, begin, mode, pool, constraint=None, work=None):
    """A Chain: dense transitions have their block lam[slot], those with slot -1 their entries.

    `work`: chain_memory(len(lam), Y), to be used again and again.
    """
    C = len(slot)
    shift = np.zeros(C)
    with np.errstate(invalid="ignore"):              # weights beyond numbers become NaN, and are refused
        np.maximum.at(shift, entries.transition, entries.weight)
        below = shift[entries.transition] - entries.weight
        spread = shift.copy()                        # of a sparse transition: from its largest weight, or 0
        np.maximum.at(spread, entries.transition, np.where(np.isposinf(below), 0.0, below))
    rest, factor = _exp(-shift), _exp(-below)
    excess = factor - rest[entries.transition]
    by_label = np.lexsort((entries.previous, entries.label, entries.transition))
    by_weight = np.lexsort((entries.label, -entries.weight, entries.previous, entries.transition))
    by_previous = np.lexsort((entries.label, entries.previous, entries.transition))
    psi = psi_t = None
    if mode != "log":
        psi, psi_t = chain_memory(len(lam), Y) if work is None else work
    made = chain.Chain(
        slot.astype(np.int32), lam, psi, psi_t, shift, rest,
        _bounds(entries.transition * Y + entries.label, C * Y), entries.previous[by_label].astype(np.int32),
        entries.weight[by_label], factor[by_label], excess[by_label],
        entries.label[by_weight].astype(np.int32), entries.weight[by_weight],
        _bounds(entries.transition * Y + entries.previous, C * Y), entries.label[by_previous].astype(np.int32),
        factor[by_previous], excess[by_previous], begin,
        None if constraint is None else constraint.scores(constraint.start),
        None if constraint is None else constraint.scores(constraint.end),
        constraint is not None)
    if mode != "log":
        pool.run(chain.exponentiate, made, psi, psi_t, shift, spread)
        made.judge(spread)
    return made


def chain_of_blocks(lam, mode, pool, constraint=None, work=None):
    """A Chain from blocks lam [C][R][Y] for all transitions; the begin label's row, if any, is the last."""
    C, R, Y = lam.shape
    if constraint is not None:
        lam = lam.copy()
        lam[:, :Y][:, ~constraint.pairs] = -np.inf
    begin = np.ascontiguousarray(lam[:, Y]) if R > Y else None
    slot, entries = split_blocks(lam[:, :Y], largest_sparse(Y, mode))
    return make_chain(Y, slot, lam, entries, begin, mode, pool, constraint, work)


def split_blocks(lam, limit):
    """(slot [C], Entries) of blocks lam [C][Y][Y], of which those with at most `limit` entries turn sparse."""
    slot, entries = np.arange(len(lam)), Entries.none()
    if limit >= 0:
        sparse = np.count_nonzero(lam, axis=(1, 2)) <= limit
        slot = np.where(sparse, -1, slot)
        which = np.flatnonzero(sparse)
        transition, previous, label = np.nonzero(lam[which])
        entries = Entries(which[transition], previous, label, lam[which[transition], previous, label])
    return slot, entries


def _bounds(keys, n):
    """[n + 1]  where the entries with key 0, 1, ... begin, once sorted by key."""
    return np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=n)))).astype(np.int64)


def _exp(x):
    """exp by our own kernel: the same bits on every machine."""
    out = np.empty(len(x))
    vector.exp(np.ascontiguousarray(x, float), out)
    return out

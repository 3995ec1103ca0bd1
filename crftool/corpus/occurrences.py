"""The data by observation: where each block of weights acts, and which transitions share a matrix.

A block is everything that one observation weighs: mu(y, x) and lam(y', y, x), whichever U and B templates
produce the text x (Sokolovska et al. 2010, section 4.4).
"""

from dataclasses import dataclass

import numpy as np

from crftool.corpus.observations import NONE
from crftool.kernels.chain import padded

BASE_MEMORY = 64 << 20               # bytes that dense transition matrices may take
CHUNK = 32                           # occurrences worked on while their messages are in the cache
MANY_CHUNKS = 8                      # chunks of a block whose transitions have several bases


def paired_bigrams(encoder):
    """[O] int32: the bigram observation with the same text after its letter as each unigram one, or NONE."""
    unigrams, bigrams = encoder.unigrams, encoder.bigrams
    partner = np.full(unigrams.size, NONE, np.int32)
    table_of = {_without_letter(literals): t for t, literals in enumerate(bigrams.literals)}
    for t, literals in enumerate(unigrams.literals):
        other = table_of.get(_without_letter(literals))
        rows = unigrams.rows[t]
        if other is None or not len(rows):
            continue
        found = np.empty(len(rows), np.int64)
        bigrams.tables[other].find_rows(np.ascontiguousarray(unigrams.keys(t)), found)
        partners = np.append(bigrams.rows[other], np.int32(NONE))[found]
        both = (rows >= 0) & (partners >= 0)
        partner[rows[both]] = partners[both]
    return partner


def _without_letter(literals):
    return (literals[0][1:], *literals[1:])


@dataclass(frozen=True)
class Bases:
    """Dense matrices that transitions share. Observations of the few most common kinds make up the base of
    a transition; the others, whose rows are sparse, are its extras."""

    base_of: np.ndarray              # [C]          int32
    bounds: np.ndarray               # [bases + 1]  int64
    members: np.ndarray              #              int32  bigram observations
    extra_bounds: np.ndarray         # [C + 1]      int64
    extras: np.ndarray               #              int32

    @classmethod
    def of(cls, dataset, space):
        """As many B templates as fit, those with the fewest observations first."""
        bigrams = dataset.bigrams
        distinct = [len(np.unique(column)) for column in bigrams.T]
        room = max(1, BASE_MEMORY // (16 * space.R * padded(space.Y)))
        chosen, rows, base_of = [], np.empty((1, 0), np.int32), np.zeros(len(bigrams), np.int32)
        for k in sorted(range(bigrams.shape[1]), key=distinct.__getitem__):
            more_rows, more = np.unique(bigrams[:, chosen + [k]], axis=0, return_inverse=True)
            if len(more_rows) > room:
                break
            chosen, rows, base_of = chosen + [k], more_rows, more.reshape(-1).astype(np.int32)
        others = [k for k in range(bigrams.shape[1]) if k not in chosen]
        return cls(base_of, *_compressed(rows), *_compressed(bigrams[:, others]))

    def bases_of(self, Ob):
        """(bounds [Ob + 1], bases): the bases that each bigram observation is in, each once."""
        base = np.repeat(np.arange(len(self.bounds) - 1, dtype=np.int32), np.diff(self.bounds))
        pairs = np.unique(np.stack((self.members, base), axis=1), axis=0)
        return _bounds(pairs[:, 0], Ob), np.ascontiguousarray(pairs[:, 1])


def _compressed(matrix):
    """(bounds, values) of the rows of a matrix, without NONE."""
    known = matrix >= 0
    return np.concatenate(([0], np.cumsum(known.sum(axis=1)))).astype(np.int64), matrix[known].astype(np.int32)


def _bounds(keys, n):
    return np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=n)))).astype(np.int64)


@dataclass(frozen=True)
class Occurrences:
    """The tokens where each block acts: blocks by falling frequency, tokens of a block rising."""

    unigram: np.ndarray              # [blocks]      int32  its unigram observation, or NONE
    bigram: np.ndarray               # [blocks]      int32  its bigram observation, or NONE
    bounds: np.ndarray               # [blocks + 1]  int64
    token: np.ndarray                # [n]           int32
    times_unigram: np.ndarray        # [n]           int8   how often the unigram observation occurs there
    times_bigram: np.ndarray         # [n]           int8
    chunks: np.ndarray               # [blocks + 1]  int64  which chunks a block has
    chunk_bounds: np.ndarray         # [chunks + 1]  int64  their entries; a sequence is never cut
    by_base: np.ndarray              # [n]           int64  the entries of a chunk, ordered by base and token

    @property
    def blocks(self):
        return len(self.unigram)

    @classmethod
    def of(cls, dataset, space, base_of, partner=None):
        """`partner`: see paired_bigrams; None makes a block of every observation alone."""
        partner = np.full(space.O, NONE, np.int32) if partner is None else partner
        lonely = np.ones(space.Ob, bool)
        lonely[partner[partner >= 0]] = False
        lonely = np.flatnonzero(lonely).astype(np.int32)
        unigram = np.concatenate((np.arange(space.O, dtype=np.int32), np.full(len(lonely), NONE, np.int32)))
        bigram = np.concatenate((partner, lonely))
        block_of_bigram = np.zeros(space.Ob, np.int32)
        block_of_bigram[bigram[bigram >= 0]] = np.flatnonzero(bigram >= 0)
        keys, follows = [], np.ones(dataset.N, bool)
        if not space.begin_label:
            follows[dataset.offsets[:-1][np.diff(dataset.offsets) > 0]] = False
        # A key is block, token and kind in one number; sorted, they are the index.
        for column in dataset.unigrams.T:
            tokens = np.flatnonzero(column >= 0)
            keys.append((column[tokens].astype(np.int64) * dataset.N + tokens) * 2)
        for column in dataset.bigrams.T:
            rows = column[dataset.transition]
            tokens = np.flatnonzero((rows >= 0) & follows)
            keys.append((block_of_bigram[rows[tokens]].astype(np.int64) * dataset.N + tokens) * 2 + 1)
        keys = np.concatenate(keys) if keys else np.empty(0, np.int64)
        keys.sort()
        place, kind = keys >> 1, (keys & 1).astype(np.int8)
        fresh = np.flatnonzero(np.diff(place, prepend=-1))
        bigrams = np.add.reduceat(kind, fresh, dtype=np.int64) if len(fresh) else np.empty(0, np.int64)
        times = np.diff(np.append(fresh, len(place)))
        place = place[fresh]
        block, token = place // max(1, dataset.N), (place % max(1, dataset.N)).astype(np.int32)
        sizes = np.bincount(block, minlength=len(unigram))
        order = np.argsort(-sizes, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        entries = np.argsort(rank[block], kind="stable")
        block, token = rank[block][entries], token[entries]
        base = np.where(follows[token], base_of[dataset.transition[token]], NONE)
        bounds = _bounds(block, len(order))
        chunks, chunk_of = _chunks(bounds, block, _sequence_of(dataset)[token], base)
        return cls(unigram[order], bigram[order], bounds, token,
                   (times - bigrams)[entries].astype(np.int8), bigrams[entries].astype(np.int8),
                   chunks, _bounds(chunk_of, chunks[-1]), np.lexsort((base, chunk_of)))


def _sequence_of(dataset):
    return np.repeat(np.arange(dataset.S), np.diff(dataset.offsets))


def _chunks(bounds, block, sequence, base):
    """(chunks [blocks + 1], chunk of every entry): a few entries each, more where bases have to be sorted."""
    sizes = np.diff(bounds)
    known = base >= 0
    low, high = np.full(len(sizes), np.iinfo(np.int32).max), np.full(len(sizes), NONE)
    np.minimum.at(low, block[known], base[known])
    np.maximum.at(high, block[known], base[known])
    size = np.where(low < high, np.maximum(CHUNK, -(-sizes // MANY_CHUNKS)), CHUNK)
    chunks = np.concatenate(([0], np.cumsum(-(-sizes // size)))).astype(np.int64)
    fresh = (np.diff(block, prepend=-1) != 0) | (np.diff(sequence, prepend=-1) != 0)
    start = np.maximum.accumulate(np.where(fresh, np.arange(len(block)), 0))
    return chunks, chunks[block] + (start - bounds[block]) // size[block]

"""How far scores can be trusted. Sequences are taken as independent; tokens of one sequence are not.

The input is the counts of each sequence (crftool.spans.count_per_sequence).
"""

import numpy as np

from crftool.spans import rates

AT_ONCE = 64                         # resamples worked on together


def _draws(rng, S, repeats):
    """Blocks [m][S]: how often each sequence is drawn, in S draws with replacement."""
    for start in range(0, repeats, AT_ONCE):
        yield rng.multinomial(S, np.full(S, 1.0 / S), min(AT_ONCE, repeats - start)).astype(float)


def confidence_intervals(counts, repeats, seed, level=0.95):
    """((low, high) of the token accuracy, the same of F1): percentiles of the bootstrap over sequences."""
    rng, found = np.random.default_rng(seed), []
    for drawn in _draws(rng, len(counts), repeats):
        found.append(np.stack(rates(drawn @ counts)))
    tail = 50.0 * (1.0 - level)
    accuracy, f1 = (tuple(np.percentile(values, [tail, 100.0 - tail]).tolist())
                    for values in np.concatenate(found, axis=1))
    return accuracy, f1


def paired_test(a, b, repeats, seed):
    """(p of the difference in token accuracy, p of that in F1) between two outputs for the same sequences.

    Approximate randomisation (Noreen 1989, Yeh 2000): if the outputs were alike, exchanging them at any
    sequence would change nothing; p is the share of random exchanges whose difference is at least as large.
    """
    rng = np.random.default_rng(seed)
    observed = np.abs(np.subtract(rates(a.sum(axis=0)), rates(b.sum(axis=0))))
    total, difference = (a + b).sum(axis=0).astype(float), (a - b).astype(float)
    as_large = np.zeros(2)
    for start in range(0, repeats, AT_ONCE):
        signs = rng.integers(0, 2, (min(AT_ONCE, repeats - start), len(a))) * 2.0 - 1.0
        shift = signs @ difference
        found = np.abs(np.subtract(rates((total + shift) / 2), rates((total - shift) / 2)))      # [2][m]
        as_large += (found >= observed[:, None] - 1e-9).sum(axis=1)
    return tuple(((as_large + 1) / (repeats + 1)).tolist())

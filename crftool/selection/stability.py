"""Would other data have led to the same choice? The choice is repeated on halves of the data.

Penalties count against a sum over sequences, so on a share of the sequences they are multiplied by it.
"""

from dataclasses import dataclass

import numpy as np

from crftool.corpus.subset import take_sequences

SHARE = 0.5                          # of the sequences in a subsample


@dataclass(frozen=True)
class Stability:
    frequency: np.ndarray            # [F]  share of the runs that chose each feature
    jaccard: float                   # mean over pairs of runs of |A and B| / |A or B|
    kuncheva: float                  # mean over pairs of the overlap corrected for chance
    sizes: list                      # features chosen in each run


def subsamples(S, B, seed):
    """B halves of the sequences, drawn without replacement, each in order."""
    rng = np.random.default_rng(seed)
    size = max(1, int(SHARE * S))
    return [np.sort(rng.permutation(S)[:size]) for _ in range(B)]


def jaccard(a, b):
    """Of two sets of feature numbers, sorted."""
    both = len(np.intersect1d(a, b, assume_unique=True))
    either = len(a) + len(b) - both
    return both / either if either else 1.0


def kuncheva(a, b, F):
    """(r - k1 k2 / F) / (sqrt(k1 k2) - k1 k2 / F) for sets of k1 and k2 out of F features, r in both.

    For k1 = k2 = k it is Kuncheva's index (r F - k^2) / (k (F - k)): 1 for equal sets, 0 on average for
    independent ones.
    """
    both = len(np.intersect1d(a, b, assume_unique=True))
    expected, largest = len(a) * len(b) / F, np.sqrt(len(a) * len(b))
    if largest <= expected:                          # nothing, or everything, was chosen
        return float(len(a) == len(b))
    return float((both - expected) / (largest - expected))


def measure(sets, F, candidates):
    """The Stability of sets of feature numbers below F, each sorted, that were chosen from so many candidates."""
    frequency = np.zeros(F)
    for chosen in sets:
        frequency[chosen] += 1.0 / len(sets)
    pairs = [(a, b) for i, a in enumerate(sets) for b in sets[:i]]
    return Stability(frequency, float(np.mean([jaccard(a, b) for a, b in pairs])) if pairs else 1.0,
                     float(np.mean([kuncheva(a, b, candidates) for a, b in pairs])) if pairs else 1.0,
                     [len(chosen) for chosen in sets])


def repeat(method, setting, candidates, B, seed, known, told):
    """Stability of a setting over B subsamples. `candidates`: how many features there are to choose from. `known`:
    sets of earlier runs; `told(run, set)` hears of each new one."""
    lab, sets = method.lab, []
    for run, sequences in enumerate(subsamples(lab.dataset.S, B, seed)):
        if run in known:
            sets.append(known[run])
            continue
        mask = method.chosen(setting, take_sequences(lab.dataset, sequences), SHARE)
        lab.check_requests()
        sets.append(np.flatnonzero(mask))
        told(run, sets[-1])
    return measure(sets, lab.space.F, candidates)

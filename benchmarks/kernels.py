"""What inference costs: time per token against the number of labels and the share of active label pairs.

    python benchmarks/kernels.py [--threads N] [--plot FILE.png]

Prints four tables:
1. forward-backward and Viterbi, dense, sparse and in the log domain, over labels and active pairs, with the
   share below which the sparse form wins, beside the one that `--inference auto` assumes;
2. one gradient on Nettalk (letter unigrams and bigrams, 51 labels) against the number of active weights, as
   in figure 5 of Sokolovska et al. 2010;
3. the same gradient beside Wapiti's (package libwapiti), if it is installed;
4. decoding with 1,000 labels and 1% of the pairs active.
Nettalk is found through CRFTOOL_DATA. Times are the best of several runs in one process.
"""

import argparse
import os
import tempfile
import time

import numpy as np

from crftool.corpus.dataset import Dataset, FeatureSpace
from crftool.decode import Lattices
from crftool.kernels.pool import Pool
from crftool.kernels.sparsity import largest_sparse
from crftool.model.weights import TrainedWeights
from crftool.objectives import LogLoss

LABELS = (5, 10, 22, 51, 100, 200, 500, 1000)
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
NETTALK_TEMPLATE = "U:%x[0,0]\nB:%x[0,0]\n"
PAIRS_PER_RUN = 4_000_000            # label pairs that one measured run works through


def best_time(function, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def random_lattices(Y, share, mode, pool, T=50):
    """Lattices of random sequences with one transition, of whose pairs a share has a weight."""
    rng = np.random.default_rng([Y, int(share * 1e6)])
    S = max(2, PAIRS_PER_RUN // (T * Y * Y))
    lam = rng.normal(0, 1, (1, Y * Y)) * (rng.random((1, Y * Y)) < share)
    space = FeatureSpace(Y, 1, 1, False)
    theta = np.concatenate((np.zeros(Y), lam.ravel()))
    data = Dataset(np.arange(0, S * T + 1, T), np.zeros((S * T, 1), np.int32), np.zeros(S * T, np.int32),
                   np.zeros((1, 1), np.int32))
    lattices = Lattices(data, TrainedWeights(space, theta), pool, mode)
    lattices.mu[:] = rng.normal(0, 1, lattices.mu.shape)
    return lattices


def table_of_kernels(pool):
    """{(Y, share): {mode: (forward-backward, Viterbi)}} in microseconds per token."""
    print("1. microseconds per token: forward-backward / Viterbi")
    print(f"{'labels':>6} {'active':>7} {'dense':>17} {'sparse':>17} {'log':>17}   log/dense")
    found = {}
    for Y in LABELS:
        for share in SHARES:
            times = {}
            for mode in ("scaled", "sparse", "log"):
                if mode == "log" and (share < 1.0 or Y > 200):       # does not depend on it, and is slow
                    continue
                lattices = random_lattices(Y, share, mode, pool)
                N = lattices.dataset.N
                times[mode] = (1e6 * best_time(lattices.marginals) / N, 1e6 * best_time(lattices.viterbi) / N)
            found[Y, share] = times
            cells = [f"{'%.3f / %.3f' % times[m]:>17}" if m in times else f"{'':>17}" for m in ("scaled", "sparse", "log")]
            ratio = f"{times['log'][0] / times['scaled'][0]:8.1f}" if "log" in times else ""
            print(f"{Y:6d} {100 * share:6.1f}% {' '.join(cells)}   {ratio}")
    return found


def crossovers(found):
    print("\n   largest share of active pairs with which the sparse form wins (interpolated), and what auto assumes")
    print(f"{'labels':>6} {'forward-backward':>17} {'Viterbi':>9} {'auto':>9}")
    for Y in LABELS:
        wins = []
        for which in (0, 1):
            ratios = [found[Y, s]["sparse"][which] / found[Y, s]["scaled"][which] for s in SHARES]
            wins.append(np.exp(np.interp(0.0, np.log(ratios), np.log(SHARES))) if min(ratios) < 1 < max(ratios)
                        else (0.0 if min(ratios) >= 1 else 1.0))
        print(f"{Y:6d} {100 * wins[0]:16.1f}% {100 * wins[1]:8.1f}% {100 * max(0, largest_sparse(Y, 'auto')) / Y ** 2:8.1f}%")


def nettalk():
    """(Encoder, Dataset) of letter unigrams and bigrams; None without the corpus."""
    folder = os.environ.get("CRFTOOL_DATA")
    if not folder:
        print("\nCRFTOOL_DATA does not name the corpora: no Nettalk")
        return None
    from crftool.corpus.dataset import read_training_data
    from crftool.corpus.template import Template
    return read_training_data(os.path.join(folder, "nettalk", "train.txt.gz"), Template(NETTALK_TEMPLATE.encode()))


def gradient_time(encoder, dataset, theta, pool, mode, observed=False):
    objective = LogLoss(dataset, encoder.space, encoder.unigrams.groups(), pool, observed, mode)
    grad = np.empty(objective.F)
    return best_time(lambda: objective.value_and_gradient(theta, grad))


def nettalk_table(encoder, dataset, pool):
    """Gradient against active weights: those of the most frequent label pairs of each letter stay."""
    print("\n2. one gradient on Nettalk, milliseconds (all pairs' expectations; observed: only of pairs seen)")
    print(f"{'active weights':>14} {'of pairs':>9} {'dense':>8} {'sparse':>8} {'auto':>8} {'observed':>9}")
    space, rng = encoder.space, np.random.default_rng(0)
    counts = np.zeros((space.Ob, space.Y * space.Y))
    follows = np.ones(dataset.N, bool)
    follows[dataset.offsets[:-1]] = False
    t = np.flatnonzero(follows)
    np.add.at(counts, (dataset.bigrams[dataset.transition[t], 0], dataset.labels[t - 1] * space.Y + dataset.labels[t]), 1)
    counts += rng.random(counts.shape) * 1e-3                        # an order for those never seen
    rows = []
    for share in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        keep = counts >= np.quantile(counts, 1 - share)
        theta = np.concatenate((rng.normal(0, 1, space.O * space.Y), (rng.normal(0, 1, counts.shape) * keep).ravel()))
        times = [1e3 * gradient_time(encoder, dataset, theta, pool, mode) for mode in ("scaled", "sparse", "auto")]
        times.append(1e3 * gradient_time(encoder, dataset, theta, pool, "auto", True))
        active = np.count_nonzero(theta)
        rows.append((active, *times))
        print(f"{active:14d} {100 * share:8.1f}% {times[0]:8.1f} {times[1]:8.1f} {times[2]:8.1f} {times[3]:9.1f}")
    return rows


def beside_wapiti(encoder, dataset, pool):
    print("\n3. one pass over Nettalk beside Wapiti")
    import peers
    if not peers.PEERS[0].installed:
        print(f"   left out: pip install {peers.PEERS[0].package}")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".template") as template:
        template.write(NETTALK_TEMPLATE)
        template.flush()
        corpus = os.path.join(os.environ["CRFTOOL_DATA"], "nettalk", "train.txt.gz")
        run = peers.run("Wapiti", corpus, template.name, pool.threads, 12)
    theta = np.random.default_rng(0).normal(0, 1, encoder.space.F)
    own = gradient_time(encoder, dataset, theta, pool, "scaled")
    steps = np.diff([run.ends[i] for i in sorted(run.ends)][-8:])
    print(f"   crftool, dense: {1e3 * own:.1f} ms a gradient, {pool.threads} threads")
    for name, seconds in (("gradient", run.parts.get("value and gradient", [])), ("iteration", steps)):
        if len(seconds):
            print(f"   Wapiti: {1e3 * min(seconds):.0f} ms a {name}: {min(seconds) / own:.0f} times")


def many_labels(pool):
    print("\n4. decoding, 1,000 labels, 1% of the pairs active: microseconds per token")
    times = {}
    for mode in ("scaled", "sparse", "auto"):
        lattices = random_lattices(1000, 0.01, mode, pool)
        times[mode] = 1e6 * best_time(lattices.viterbi) / lattices.dataset.N
    print(f"   dense {times['scaled']:.1f}, sparse {times['sparse']:.1f}: {times['scaled'] / times['sparse']:.0f} times; "
          f"auto {times['auto']:.1f}")


def plot(rows, path):
    try:
        from matplotlib import pyplot
    except ImportError:
        print("no plot: pip install matplotlib")
        return
    active, dense, sparse, auto, observed = np.array(rows).T
    for times, name in ((dense, "dense"), (sparse, "sparse"), (auto, "auto"), (observed, "observed pairs only")):
        pyplot.loglog(active, times, "o-", label=name)
    pyplot.xlabel("active weights")
    pyplot.ylabel("milliseconds a gradient, Nettalk")
    pyplot.legend()
    pyplot.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", metavar="FILE", help="draw table 2 (needs matplotlib)")
    options = parser.parse_args()
    pool = Pool(options.threads)
    crossovers(table_of_kernels(pool))
    data = nettalk()
    if data is not None:
        rows = nettalk_table(*data, pool)
        beside_wapiti(*data, pool)
        if options.plot:
            plot(rows, options.plot)
    many_labels(pool)


if __name__ == "__main__":
    main()

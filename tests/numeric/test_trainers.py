"""The trainers against slow solvers of the enumerated objective, and the conditions of optimality."""

import hashlib
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from brute_force import Corpus, EnumeratedLoss, Sequence, random_corpus
from slow_solvers import newton, objective, proximal_gradient

from crftool.corpus.dataset import read_training_data
from crftool.corpus.template import Template
from crftool.decode import Lattices, decode
from crftool.errors import NumericError
from crftool.kernels.pool import Pool
from crftool.kernels.transitions import Constraint
from crftool.kernels.vector import cpu_levels
from crftool.model.weights import TrainedWeights
from crftool.objectives import ElasticNet, LogLoss
from crftool.trainers import TRAINERS, default_trainer
from crftool.trainers.base import Problem, Stop, count_scale

BEGIN = pytest.mark.parametrize("begin_label", [False, True], ids=["plain", "begin"])
SEEDS = range(4)
TIGHT = 1e-9                         # as far as double precision allows


def small_corpus(seed, begin_label=False, Kb=1, S=6):
    rng = np.random.default_rng([seed, begin_label])
    return random_corpus(rng, rng.integers(1, 5, S), 3, K=2, Kb=Kb, rows=3, begin_label=begin_label)


class Training:
    """A finished training, and what it reported."""

    def __init__(self, corpus, rho1=0.0, rho2=0.0, tolerance=TIGHT, max_iterations=2000, theta=None,
                 observed_only=False, report=None, threads=1, algorithm=None, seed=1, constraint=None):
        pool = Pool(threads)
        dataset, penalty = corpus.dataset(), ElasticNet(rho1, rho2)
        loss = LogLoss(dataset, corpus.space, corpus.groups, pool, observed_only, constraint=constraint)
        self.iterations = []
        self.theta = np.zeros(corpus.F) if theta is None else theta.copy()
        stop = Stop(tolerance, count_scale(dataset, corpus.space), max_iterations)
        train = TRAINERS[algorithm or ("owl-qn" if rho1 > 0.0 else "l-bfgs")].train
        self.result = train(Problem(loss, penalty, pool, seed), self.theta, stop, self._record(report))
        pool.close()

    def _record(self, report):
        def keep(iteration):
            self.iterations.append(iteration)
            return report(iteration) if report else None
        return keep

    @property
    def objectives(self):
        return [iteration.objective for iteration in self.iterations]


def violation(loss, theta, rho1, rho2):
    """How far each weight is from satisfying its condition of optimality, by the definition."""
    gradient = loss.gradient(theta) + rho2 * theta
    at_zero = np.maximum(np.abs(gradient) - rho1, 0.0)
    return np.where(theta == 0.0, at_zero, np.abs(gradient + rho1 * np.sign(theta)))


# Optima -------------------------------------------------------------------------------------------------


@BEGIN
@pytest.mark.parametrize("rho2", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_smooth_optimum(seed, rho2, begin_label):
    corpus = small_corpus(seed, begin_label)
    loss, training = EnumeratedLoss(corpus), Training(corpus, rho2=rho2)
    best = newton(loss, rho2)
    assert training.result.converged
    assert violation(loss, training.theta, 0.0, rho2).max() < 1e-6
    np.testing.assert_allclose(training.theta, best, atol=1e-6)
    assert training.objectives[-1] == pytest.approx(objective(loss, best, 0.0, rho2), rel=1e-12)


@BEGIN
@pytest.mark.parametrize("rho1,rho2", [(0.3, 0.1), (1.0, 0.01), (1.0, 1.0), (0.3, 0.0), (1.5, 0.0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_sparse_optimum(seed, rho1, rho2, begin_label):
    corpus = small_corpus(seed, begin_label)
    loss, training = EnumeratedLoss(corpus), Training(corpus, rho1, rho2)
    best = proximal_gradient(loss, rho1, rho2)
    assert training.result.converged
    assert violation(loss, training.theta, rho1, rho2).max() < 1e-6
    assert training.objectives[-1] == pytest.approx(objective(loss, best, rho1, rho2), rel=1e-10)
    assert training.result.iteration.active == np.count_nonzero(training.theta) < corpus.F
    if rho2 > 0.0:                                   # else the optimum need not be unique
        np.testing.assert_allclose(training.theta, best, atol=1e-5)
        assert_zeros(loss, training.theta, best, rho1, rho2)


def assert_zeros(loss, theta, best, rho1, rho2):
    """Exactly 0.0 where the optimum is zero. Where its gradient is just rho1, either is right."""
    slack = rho1 - np.abs(loss.gradient(best) + rho2 * best)
    assert not theta[slack > 1e-6].any()
    assert theta[np.abs(best) > 1e-4].all()


EXACT = [("hybrid", 0.0), ("l-bfgs", 0.0), ("cg", 0.0), ("cg-fr", 0.0), ("working-set", 0.4), ("owl-qn", 0.4)]


@BEGIN
@pytest.mark.parametrize("algorithm,rho1", EXACT)
@pytest.mark.parametrize("Kb", [0, 1, 2])
def test_every_algorithm_comes_to_the_optimum(algorithm, rho1, Kb, begin_label):
    for seed in SEEDS:
        corpus = small_corpus(seed, begin_label, Kb, S=10)
        loss, training = EnumeratedLoss(corpus), Training(corpus, rho1, 0.3, algorithm=algorithm)
        best = newton(loss, 0.3) if rho1 == 0.0 else proximal_gradient(loss, rho1, 0.3)
        assert training.result.converged, training.result.reason
        assert training.objectives[-1] == pytest.approx(objective(loss, best, rho1, 0.3), rel=1e-9)
        np.testing.assert_allclose(training.theta, best, atol=1e-5)
        if rho1 > 0.0:
            assert_zeros(loss, training.theta, best, rho1, 0.3)


@BEGIN
@pytest.mark.parametrize("algorithm,rho1", [("sgd", 0.0), ("sgd-l1", 0.4)])
def test_stochastic_descent_comes_near(algorithm, rho1, begin_label):
    for seed in SEEDS:
        corpus = small_corpus(seed, begin_label, S=40)
        exact = Training(corpus, rho1, 0.5)
        training = Training(corpus, rho1, 0.5, 1e-7, 500, algorithm=algorithm)
        last = training.iterations[-1]
        assert all(iteration.estimated for iteration in training.iterations[:-1]) and not last.estimated
        assert last.objective == pytest.approx(
            objective(EnumeratedLoss(corpus), training.theta, rho1, 0.5), rel=1e-10)
        assert exact.objectives[-1] <= last.objective < 1.05 * exact.objectives[-1]
        assert f"{last.objective:.4f}" in training.result.reason


@pytest.mark.parametrize("algorithm,rho1", [*EXACT, ("sgd", 0.0), ("sgd-l1", 0.4)])
def test_every_algorithm_gives_the_same_bits(algorithm, rho1):
    """For any number of threads; and the seed decides what is random."""
    corpus = random_corpus(np.random.default_rng(9), [7, 3, 11, 2] * 10, 4, rows=8)
    runs = [Training(corpus, rho1, 0.3, 1e-4, threads=threads, algorithm=algorithm) for threads in (1, 2, 3)]
    assert len({run.theta.tobytes() for run in runs}) == 1
    other = Training(corpus, rho1, 0.3, 1e-4, algorithm=algorithm, seed=2)
    random = algorithm in ("hybrid", "working-set", "sgd", "sgd-l1")
    assert (other.theta.tobytes() != runs[0].theta.tobytes()) == random


@BEGIN
@pytest.mark.parametrize("Kb", [0, 2])
def test_screened_problems_come_to_the_optimum(Kb, begin_label):
    """Some observations occur once or twice, some never."""
    for seed in SEEDS:
        corpus = random_corpus(np.random.default_rng([seed, Kb]), [4, 3, 2] * 4, 3, K=2, Kb=Kb, rows=12,
                               begin_label=begin_label)
        loss, training = EnumeratedLoss(corpus), Training(corpus, 2.0, 0.1, algorithm="working-set")
        best = proximal_gradient(loss, 2.0, 0.1)
        assert training.result.converged, training.result.reason
        np.testing.assert_allclose(training.theta, best, atol=1e-5)
        assert_zeros(loss, training.theta, best, 2.0, 0.1)


@pytest.mark.parametrize("rho2", [0.0, 0.3])
def test_screened_problems_give_the_same_bits(rho2):
    corpus = random_corpus(np.random.default_rng(9), [7, 3, 11, 2] * 10, 4, rows=80)
    runs = [Training(corpus, 2.0, rho2, 1e-6, threads=threads, algorithm="working-set") for threads in (1, 2, 3)]
    assert len({run.theta.tobytes() for run in runs}) == 1


def digest():
    """A fingerprint of trainings with narrow and wide rows; also run in a process of its own."""
    found = hashlib.sha256()
    for Y in (2, 5, 9, 22, 70):
        corpus = random_corpus(np.random.default_rng(Y), [7, 3, 11, 2] * 4, Y, K=3, rows=8)
        for algorithm, rho1 in (("hybrid", 0.0), ("working-set", 0.4), ("owl-qn", 0.4)):
            found.update(Training(corpus, rho1, 0.3, 1e-4, 30, algorithm=algorithm).theta.tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("level", cpu_levels())
def test_cpu_levels_train_the_same_bits(level):
    here = pathlib.Path(__file__).resolve().parent
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", "import test_trainers as t; print(t.digest())"],
        env={**os.environ, "CRFTOOL_ISA": level, "PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()


@pytest.mark.parametrize("algorithm,rho1", [("hybrid", 0.0), ("working-set", 0.4), ("sgd", 0.0), ("sgd-l1", 0.4)])
def test_barred_weights_stay_zero(algorithm, rho1):
    corpus = small_corpus(1, True, S=12)
    free, barred = (Training(corpus, rho1, 0.5, 1e-5, algorithm=algorithm, observed_only=only) for only in (False, True))
    seen = np.zeros(corpus.F, bool)
    for sequence in corpus.sequences:
        seen[list(corpus.features(sequence, sequence.labels.tolist()))] = True
    assert free.theta[~seen].any() and not barred.theta[~seen].any()


@pytest.mark.parametrize("algorithm,rho1", [("hybrid", 0.0), ("working-set", 0.4)])
def test_constrained_optimum(algorithm, rho1):
    """The stochastic start keeps to the rules, and so does the end."""
    corpus = random_corpus(np.random.default_rng(5), [4, 3, 5, 2] * 4, 3, K=2, rows=3)
    pairs = np.ones((3, 3), bool)
    seen = {(int(a), int(b)) for s in corpus.sequences for a, b in zip(s.labels, s.labels[1:])}
    pairs[0, 1] = (0, 1) in seen
    for sequence in corpus.sequences:
        pairs[sequence.labels[:-1], sequence.labels[1:]] = True
    rules = Constraint(pairs, np.ones(3, bool), np.ones(3, bool))
    reference = Training(corpus, rho1, 0.3, constraint=rules)
    training = Training(corpus, rho1, 0.3, constraint=rules, algorithm=algorithm)
    assert training.result.converged
    assert training.objectives[-1] == pytest.approx(reference.objectives[-1], rel=1e-9)


def test_screening_leaves_the_optimum():
    """With rho1 = 2, observations seen once or twice take no part; the optimum is that of all weights."""
    corpus = random_corpus(np.random.default_rng(3), [5, 4, 6] * 6, 3, K=3, rows=12)
    loss, training = EnumeratedLoss(corpus), Training(corpus, 2.0, 0.1, algorithm="working-set")
    assert violation(loss, training.theta, 2.0, 0.1).max() < 1e-6


def test_curvature_is_that_of_independent_tokens():
    """p (1 - p) summed over tokens; compared with sums over the enumerated marginals."""
    corpus = small_corpus(2, True, Kb=2)
    pool, dataset = Pool(2), corpus.dataset()
    loss = LogLoss(dataset, corpus.space, corpus.groups, pool)
    theta = np.random.default_rng(0).normal(0, 1, corpus.F)
    found, expected = np.empty(corpus.F), np.zeros(corpus.F)
    assert loss.curvature(theta, found)
    mu, lam = corpus.space.split(expected)
    lattices = Lattices(dataset, TrainedWeights(corpus.space, theta), pool)
    for s in range(dataset.S):
        start, end = dataset.offsets[s], dataset.offsets[s + 1]
        p = lattices.marginals()[0][start:end]
        pairs = lattices.pair_marginals(s)
        for t in range(start, end):
            for o in dataset.unigrams[t]:
                if o >= 0:
                    mu[o] += p[t - start] * (1 - p[t - start])
            for b in dataset.bigrams[dataset.transition[t]]:
                if b >= 0 and t > start:
                    lam[b, :corpus.space.Y] += pairs[t - start] * (1 - pairs[t - start])
                elif b >= 0:
                    lam[b, corpus.space.Y] += p[0] * (1 - p[0])
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_slow_solvers_agree():
    loss = EnumeratedLoss(small_corpus(1))
    np.testing.assert_allclose(proximal_gradient(loss, 0.0, 1.0), newton(loss, 1.0), atol=1e-9)


@pytest.mark.parametrize("rho1", [0.0, 0.4])
def test_no_bigram_template(rho1):
    corpus = small_corpus(2, Kb=0)
    loss, training = EnumeratedLoss(corpus), Training(corpus, rho1, 0.5)
    assert violation(loss, training.theta, rho1, 0.5).max() < 1e-6


@pytest.mark.parametrize("rho1", [0.0, 0.4])
def test_start_does_not_matter(rho1):
    corpus = small_corpus(3, True)
    start = np.random.default_rng(1).normal(0, 3, corpus.F)
    cold, warm = Training(corpus, rho1, 0.5), Training(corpus, rho1, 0.5, theta=start)
    assert warm.result.converged
    np.testing.assert_allclose(warm.theta, cold.theta, atol=1e-5)


@BEGIN
@pytest.mark.parametrize("rho1", [0.4, 2.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_start_with_weights_of_rare_observations(seed, rho1, begin_label):
    """Those that screening leaves out, and those that never occur, are zero at the end."""
    corpus = random_corpus(np.random.default_rng(seed), [4, 3, 2] * 3, 3, K=2, Kb=2, rows=12, begin_label=begin_label)
    start = np.random.default_rng(seed).normal(size=corpus.F)
    training, loss = Training(corpus, rho1, 0.1, theta=start, algorithm="working-set"), EnumeratedLoss(corpus)
    assert training.result.converged, training.result.reason
    np.testing.assert_allclose(training.theta, proximal_gradient(loss, rho1, 0.1), atol=1e-5)


@pytest.mark.parametrize("rho1", [0.0, 0.4])
def test_start_at_the_optimum(rho1):
    corpus = small_corpus(3)
    first = Training(corpus, rho1, 0.5)
    again = Training(corpus, rho1, 0.5, theta=first.theta, max_iterations=50)
    assert again.result.converged
    np.testing.assert_allclose(again.theta, first.theta, atol=1e-6)


@pytest.mark.parametrize("rho1", [0.0, 0.4])
def test_observed_only(rho1):
    """The optimum among models whose other weights are zero."""
    corpus = small_corpus(1, True, S=4)
    seen = np.zeros(corpus.F, bool)
    for sequence in corpus.sequences:
        seen[list(corpus.features(sequence, sequence.labels.tolist()))] = True
    assert not seen.all()
    loss = EnumeratedLoss(corpus)
    training = Training(corpus, rho1, 0.5, observed_only=True)
    best = newton(loss, 0.5, seen) if rho1 == 0.0 else proximal_gradient(loss, rho1, 0.5, seen)
    assert not training.theta[~seen].any()
    np.testing.assert_allclose(training.theta, best, atol=1e-5)


# What must hold on the way ------------------------------------------------------------------------------


@BEGIN
@pytest.mark.parametrize("rho1,rho2", [(0.0, 1.0), (0.0, 0.01), (0.5, 0.0), (0.5, 0.5)])
def test_objective_never_rises(rho1, rho2, begin_label):
    for seed in SEEDS:
        objectives = Training(small_corpus(seed, begin_label), rho1, rho2).objectives
        assert len(objectives) > 3
        assert (np.diff(objectives) <= 0).all()


@pytest.mark.parametrize("rho1,rho2", [(0.0, 0.5), (0.4, 0.1)])
def test_what_is_reported(rho1, rho2):
    """Every record describes the weights at that time."""
    corpus = small_corpus(2)
    loss = EnumeratedLoss(corpus)
    theta, checked = np.zeros(corpus.F), []
    pool, dataset = Pool(), corpus.dataset()
    problem = Problem(LogLoss(dataset, corpus.space, corpus.groups, pool), ElasticNet(rho1, rho2), pool)

    def report(iteration):
        wrong = violation(loss, theta, rho1, rho2)
        assert iteration.number == len(checked)
        assert iteration.objective == pytest.approx(objective(loss, theta, rho1, rho2), rel=1e-11)
        assert iteration.active == np.count_nonzero(theta)
        assert iteration.violation == pytest.approx(wrong.max(), abs=1e-10)
        assert iteration.gradient_norm == pytest.approx(np.linalg.norm(wrong), abs=1e-10)
        assert iteration.evaluations == problem.evaluations
        checked.append(iteration)

    result = TRAINERS["owl-qn"].train(problem, theta, Stop(1e-6, count_scale(dataset, corpus.space)), report)
    assert result.iteration is checked[-1] and len(checked) > 3


@pytest.mark.parametrize("rho1", [0.0, 0.4])
def test_threads_give_the_same_bits(rho1):
    corpus = random_corpus(np.random.default_rng(9), [7, 3, 11, 2] * 10, 4, rows=8)
    trainings = [Training(corpus, rho1, 0.3, 1e-5, threads=threads) for threads in (1, 2, 3)]
    assert len({training.theta.tobytes() for training in trainings}) == 1
    assert len({tuple(training.objectives) for training in trainings}) == 1


# Penalties ----------------------------------------------------------------------------------------------


@BEGIN
@pytest.mark.parametrize("rho2", [0.0, 0.5])
def test_smallest_rho1_of_the_empty_model(rho2, begin_label):
    for seed in SEEDS:
        corpus = small_corpus(seed, begin_label)
        largest = np.abs(EnumeratedLoss(corpus).gradient(np.zeros(corpus.F))).max()
        above, below = Training(corpus, 1.001 * largest, rho2), Training(corpus, 0.999 * largest, rho2)
        assert above.result.converged and above.result.iteration.active == 0
        assert not above.theta.any()
        assert below.result.converged and below.theta.any()


def test_weights_return_to_exactly_zero():
    """From a start without zeros, owl-qn must cross orthants and leave weights at 0.0."""
    corpus = small_corpus(0)
    start = np.random.default_rng(2).normal(0, 1, corpus.F)
    training = Training(corpus, 0.87, 0.1, theta=start)
    zero = training.theta == 0.0
    assert 0 < np.count_nonzero(zero) < corpus.F
    assert np.abs(training.theta[~zero]).min() > 1e-7          # nothing that only looks like zero
    assert not np.signbit(training.theta[zero]).any()


@BEGIN
@pytest.mark.parametrize("rho1,rho2", [(0.0, 0.8), (0.61, 0.4)])
def test_doubled_data_equal_halved_penalties(rho1, rho2, begin_label):
    corpus = small_corpus(1, begin_label)
    doubled = Training(corpus.repeated(2), rho1, rho2)
    halved = Training(corpus, rho1 / 2, rho2 / 2)
    np.testing.assert_allclose(doubled.theta, halved.theta, atol=1e-5)
    assert doubled.result.iteration.active == halved.result.iteration.active
    assert doubled.objectives[-1] == pytest.approx(2 * halved.objectives[-1], rel=1e-10)


def test_one_label():
    """Nothing to learn, and nothing learnt."""
    corpus = random_corpus(np.random.default_rng(3), [2, 3], 1)
    for rho1 in (0.0, 0.5):
        training = Training(corpus, rho1, 1.0)
        assert training.result.converged and not training.theta.any()


def test_choice_of_trainer():
    assert default_trainer(ElasticNet(0.0, 1.0)) == "hybrid"
    assert default_trainer(ElasticNet(0.1, 0.0)) == "working-set"
    assert TRAINERS["owl-qn"].allows_l1 and not TRAINERS["l-bfgs"].allows_l1


# Stopping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho1", [0.0, 0.4])
def test_iteration_limit_is_not_convergence(rho1):
    training = Training(small_corpus(0), rho1, 0.1, max_iterations=3)
    assert not training.result.converged
    assert "3" in training.result.reason
    assert [iteration.number for iteration in training.iterations] == [0, 1, 2, 3]
    assert training.objectives[-1] < training.objectives[0]


@pytest.mark.parametrize("rho1", [0.0, 0.4])
def test_report_may_stop(rho1):
    training = Training(small_corpus(0), rho1, 0.1,
                        report=lambda iteration: "enough" if iteration.number == 2 else None)
    assert training.result.reason == "enough" and not training.result.converged
    assert training.result.iteration.number == len(training.iterations) - 1 == 2


def test_report_may_stop_before_the_first_step():
    training = Training(small_corpus(0), 0.0, 0.1, report=lambda iteration: "enough")
    assert len(training.iterations) == 1 and not training.theta.any()


def test_tolerance_bounds_the_gradient():
    corpus = small_corpus(1)
    scale = count_scale(corpus.dataset(), corpus.space)
    for tolerance in (1e-2, 1e-4, 1e-6):
        training = Training(corpus, 0.0, 0.1, tolerance)
        assert training.result.converged
        assert training.result.iteration.gradient_norm <= tolerance * scale


@pytest.mark.parametrize("rho1", [0.0, 0.4])
def test_start_out_of_range_is_refused(rho1):
    corpus = small_corpus(0)
    with pytest.raises(NumericError):
        Training(corpus, rho1, 0.1, theta=np.full(corpus.F, np.inf))


@pytest.mark.parametrize("rho1", [0.0, 1e-3])
def test_weak_penalty(rho1):
    """Scores grow large here; the search must cope with steps that go out of range."""
    corpus = small_corpus(1)
    training = Training(corpus, rho1, 1e-6 if rho1 == 0.0 else 0.0, 1e-6, 5000)
    assert training.result.converged
    assert np.isfinite(training.theta).all()
    assert (np.diff(training.objectives) <= 0).all()


# CRF++'s two sentences ----------------------------------------------------------------------------------

SENTENCES = """\
He PRP B-NP
reckons VBZ B-VP
the DT B-NP
current JJ I-NP
account NN I-NP

It PRP B-NP
is VBZ B-VP
a DT B-NP
test NN I-NP
. . O
"""
TEMPLATE = b"""\
U00:%x[-2,0]
U01:%x[0,0]
U02:%x[0,0]/%x[0,1]
UABC%x[1,1]123
U
B
B01:%x[0,1]
"""
LABELS = ["B-NP", "B-VP", "I-NP", "O"]


def expansions(words, tags, t):
    """What the template's U lines and B lines say at position t, spelt out by hand."""
    before = words[t - 2] if t >= 2 else f"_B-{2 - t}"
    tag_after = tags[t + 1] if t + 1 < len(tags) else "_B+1"
    return ([f"U00:{before}", f"U01:{words[t]}", f"U02:{words[t]}/{tags[t]}", f"UABC{tag_after}123", "U"],
            ["B", f"B01:{tags[t]}"])


def corpus_by_hand():
    unigram_ids, bigram_ids, sequences = {}, {}, []
    for block in SENTENCES.strip().split("\n\n"):
        words, tags, labels = zip(*(line.split() for line in block.split("\n")))
        unigrams, bigrams = [], []
        for t in range(len(words)):
            u, b = expansions(words, tags, t)
            unigrams.append([unigram_ids.setdefault(text, len(unigram_ids)) for text in u])
            # CRF++ makes no B feature at the first token, so PRP is not an observation
            bigrams.append([bigram_ids.setdefault(text, len(bigram_ids)) if t > 0 else -1 for text in b])
        sequences.append(Sequence(np.array(unigrams, np.int32), np.array(bigrams, np.int32),
                                  np.array([LABELS.index(label) for label in labels], np.int32)))
    return Corpus(len(LABELS), len(unigram_ids), len(bigram_ids), False, sequences)


@pytest.fixture(scope="module")
def solved_by_hand():
    """(corpus, weights) of the two sentences at rho2 = 1, by Newton's method on the enumerated objective."""
    corpus = corpus_by_hand()
    return corpus, newton(EnumeratedLoss(corpus), 1.0)


def test_two_sentences_by_hand(solved_by_hand):
    corpus, theta = solved_by_hand
    chain = corpus.chains(theta)[0]
    path, score = chain.best_path()
    assert corpus.F == 236
    assert objective(EnumeratedLoss(corpus), theta, 0.0, 1.0) == pytest.approx(4.6036, abs=5e-5)
    assert path.tolist() == corpus.sequences[0].labels.tolist()
    assert math.exp(score - chain.log_z()) == pytest.approx(0.365362, abs=2e-6)


def test_two_sentences(tmp_path, solved_by_hand):
    file = tmp_path / "train.txt"
    file.write_text(SENTENCES)
    encoder, dataset = read_training_data(str(file), Template(TEMPLATE))
    pool, theta = Pool(2), np.zeros(encoder.space.F)
    loss = LogLoss(dataset, encoder.space, encoder.unigrams.groups(), pool)
    result = TRAINERS["l-bfgs"].train(Problem(loss, ElasticNet(0.0, 1.0), pool), theta,
                                Stop(TIGHT, count_scale(dataset, encoder.space)), lambda iteration: None)
    decoded = decode(Lattices(dataset, TrainedWeights(encoder.space, theta), pool), probabilities=True)
    pool.close()
    assert encoder.labels == [label.encode() for label in LABELS]
    assert encoder.space.F == 236
    assert result.converged
    assert f"{result.iteration.objective:.4f}" == "4.6036"
    assert decoded.labels.tolist() == dataset.labels.tolist()
    assert decoded.probability[0] == pytest.approx(0.365362, abs=2e-6)
    corpus, best = solved_by_hand
    chains = corpus.chains(best)
    np.testing.assert_allclose(decoded.marginals, np.concatenate([c.token_marginals() for c in chains]), atol=1e-6)
    np.testing.assert_allclose(np.sort(theta), np.sort(best), atol=1e-6)       # the ids differ, the weights don't

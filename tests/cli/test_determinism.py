"""The same data and options give the same bytes, wherever they come from and whatever computes them."""

import gzip
import json

import pytest
from test_learn import CORPUS, TEMPLATE

DEV = CORPUS[:400].rsplit(b"\n\n", 1)[0] + b"\n"
RULES = b"forbid N M\n"
OPTIONS = ("--rho1", "0.1", "--rho2", "0.01", "--dev", "dev", "--constrain", "rules", "--init", "first")


@pytest.fixture
def folder(workdir):
    for name, content in (("train", CORPUS), ("t", TEMPLATE), ("dev", DEV), ("rules", RULES)):
        workdir.write(name, content)
    workdir.run("learn", "-q", "t", "train", "first")
    return workdir


def learn(folder, *options, template="t", train="train", stdin=b"", environment=None):
    folder.run("learn", "-q", *options, template, train, "m", stdin=stdin, environment=environment)
    return folder.read("m")


def test_names_of_files_do_not_matter(folder):
    model = learn(folder, *OPTIONS)
    (folder.path / "elsewhere").mkdir()
    for name in ("train", "t", "dev", "rules", "first"):
        folder.write(f"elsewhere/other-{name}", folder.read(name))
    renamed = [f"elsewhere/other-{value}" if value in ("dev", "rules", "first") else value for value in OPTIONS]
    assert learn(folder, *renamed, template="elsewhere/other-t", train="elsewhere/other-train") == model


def test_the_way_of_the_data_does_not_matter(folder):
    model = learn(folder)
    folder.write("train.gz", gzip.compress(CORPUS))
    assert learn(folder, train="train.gz") == learn(folder, train="-", stdin=CORPUS) == model


@pytest.mark.parametrize("algorithm", ["hybrid", "sgd"])
def test_the_hash_seed_of_python_does_not_matter(folder, algorithm):
    models = {learn(folder, "-a", algorithm, environment={"PYTHONHASHSEED": seed}) for seed in ("0", "1", "12345")}
    assert len(models) == 1


def options_of(folder, name):
    return json.loads(folder.run("inspect", "--json", name)[0])["options"]


def test_other_content_shows_in_the_record(folder):
    first = options_of(folder, "first")
    folder.write("train", CORPUS.replace(b"56 d N", b"56 d W"))
    learn(folder, *OPTIONS)
    options = options_of(folder, "m")
    assert options["train"] != first["train"] and options["dev"] and options["init"] and options["constrain"] == "forbid N M"
    assert first["dev"] is first["init"] is first["only"] is first["constrain"] is None
    names = {"train", "dev", "rules", "first", "t"}
    assert not names & {str(value) for value in options.values()}


def test_the_seed_decides_the_order_and_is_recorded(folder):
    models = {seed: learn(folder, "-a", "sgd", "-m", "2", "--seed", str(seed)) for seed in (1, 7)}
    assert models[1] != models[7] == learn(folder, "-a", "sgd", "-m", "2", "--seed", "7")
    assert options_of(folder, "m")["seed"] == 7
    assert b"option\tseed\t7\n" in folder.run("inspect", "m")[0]


def test_a_selected_model_tells_its_seed_and_no_names(folder):
    models = []
    for name in ("train", "renamed"):
        folder.write(name, CORPUS)
        folder.run("select", "-q", "--method", "l1", "--path", "3", "--rho1", "0.5", "--folds", "2", "--seed", "5",
                   "-o", "chosen", "t", name)
        models.append(folder.read("chosen"))
    assert models[0] == models[1] and options_of(folder, "chosen")["seed"] == 5

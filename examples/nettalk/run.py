"""Tables 2 and 3 of Sokolovska, Lavergne, Cappé, Yvon: Efficient Learning of Sparse Conditional Random Fields
for Supervised Sequence Labelling (2010), on NETtalk, beside the paper's numbers.

    python3 run.py table2|table3 BUILD DATA CRFTOOL...

Every row is trained by `crftool learn` and scored by `crftool eval`; rows that are done are kept in BUILD.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

# (name, options, what the paper has: iterations, minutes, train and test error, active mu and lam)
TABLE2 = [
    *((f"SBCD rho1={rho1}", ["-a", "bcd", "--rho1", rho1, "--rho2", "0.001", "-m", "30"], paper) for rho1, paper in [
        ("0", "30 125 13.3 14.0 1378 73034"), ("0.1", "30 76 13.5 14.2 1155 4171"),
        ("0.2", "30 70 14.0 14.2 1089 3598"), ("0.5", "30 63 13.7 14.3 957 3077"),
        ("1", "30 55 16.3 16.8 858 3111"), ("2", "30 43 16.4 16.9 760 2275"), ("10", "30 25 17.3 17.7 267 997")]),
    ("OWL-QN rho1=0.1", ["-a", "owl-qn", "--rho1", "0.1", "--rho2", "0", "-m", "50"], "50 165 13.5 14.2 1864 4079"),
    ("L-BFGS rho2=0.02", ["-a", "l-bfgs", "--rho2", "0.02", "-m", "90"], "90 302 13.5 14.1 74412 -"),
    ("SGD rho2=0.02", ["-a", "sgd", "--rho2", "0.02", "-m", "30"], "30 17 18.5 19.1 74412 -"),
]
# (name, template, the paper's million features, error and thousands of weights after 20 and 30 sweeps)
TABLE3 = [
    ("pseudo 3-grams", "pseudo3", "0.236 8.98 12.5 8.67 10.9"), ("pseudo 5-grams", "pseudo5", "0.399 6.77 19.8 6.65 17.1"),
    ("3-grams", "grams3", "14.2 8.22 12.8 8.04 11.7"), ("5-grams", "grams5", "121 6.51 21.7 6.50 20.1")]
RHO1 = "0.1"                         # the paper does not tell; see the README


class Runs:
    def __init__(self, build, data, crftool):
        self.build, self.data, self.crftool = Path(build), Path(data), crftool
        self.build.mkdir(exist_ok=True)

    def learn(self, name, template, options):
        """The row of a training, computed once."""
        done = self.build / f"{name}.json"
        if not done.exists():
            log, model = self.build / f"{name}.log", self.build / f"{name}.model"
            start = time.monotonic()
            run = subprocess.run([*self.crftool, "learn", "--begin-label", *options, "--log-json", str(log),
                                  f"{template}.template", str(self.data / "train.txt.gz"), str(model)],
                                 check=True, stderr=subprocess.PIPE, text=True)
            seconds = time.monotonic() - start
            last = json.loads(log.read_text().splitlines()[-1])
            last.update(seconds=seconds, train=self.error(model, "train"), test=self.error(model, "test"),
                        memory=run.stderr.rsplit("peak memory ", 1)[-1].strip(),
                        features=int(next(line for line in run.stderr.splitlines() if " in all" in line).split()[2]))
            done.write_text(json.dumps(last))
        return json.loads(done.read_text())

    def error(self, model, part):
        """Share of wrong phonemes, in percent."""
        scores = subprocess.run([*self.crftool, "eval", "--json", "-m", str(model),
                                 str(self.data / f"{part}.txt.gz")], check=True, stdout=subprocess.PIPE)
        return json.loads(scores.stdout)["token_error"]


def table2(runs):
    print(f"{'':20}  iter  seconds  train%  test%     mu    lam   | paper: iter  min  train%  test%    mu    lam")
    for name, options, paper in TABLE2:
        row = runs.learn(name.replace(" ", "-"), "letters", options)
        mu, lam = row.get("active_unigrams", row["active"]), row.get("active_bigrams", "-")
        iterations, minutes, train, test, paper_mu, paper_lam = paper.split()
        print(f"{name:20}  {row['iteration']:4d}  {row['seconds']:7.1f}  {row['train']:6.2f}  {row['test']:5.2f}  "
              f"{mu:5}  {lam:5}   |        {iterations:>4}  {minutes:>3}  {train:>6}  {test:>5} {paper_mu:>5}  {paper_lam:>5}",
              flush=True)


def table3(runs):
    print(f"{'':16}  sweeps  M features  test%  k weights  seconds  peak memory  | paper: M features  test%  k weights")
    for name, template, paper in TABLE3:
        features, *paper = paper.split()
        checkpoint, seconds = runs.build / f"{template}.checkpoint", 0.0
        for sweeps, error, active in ((20, *paper[:2]), (30, *paper[2:])):
            options = ["-a", "bcd", "--rho1", RHO1, "--rho2", "0.001", "-m", str(sweeps)]
            options += ["--checkpoint", str(checkpoint)] if sweeps == 20 else ["--resume", str(checkpoint)]
            row = runs.learn(f"{template}-{sweeps}", template, options)
            seconds += row["seconds"]
            print(f"{name:16}  {sweeps:6d}  {row['features'] / 1e6:10.3f}  {row['test']:5.2f}  {row['active'] / 1e3:9.1f}  "
                  f"{seconds:7.0f}  {row['memory']:>11}  |        {features:>10}  {error:>5}  {active:>9}", flush=True)


if __name__ == "__main__":
    {"table2": table2, "table3": table3}[sys.argv[1]](Runs(sys.argv[2], sys.argv[3], sys.argv[4:]))

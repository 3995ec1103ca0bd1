"""One page, complete in itself, that shows what was tried and what was chosen."""

import html

import numpy as np

from crftool.selection import plot
from crftool.corpus.names import Names

STRONGEST = 8                        # features shown for a label
MOST_LABELS = 24                     # labels whose strongest features are shown
MOST_OBSERVATIONS = 60               # rows of a heat map
MOST_FREQUENCIES = 40

STYLE = """
:root { color-scheme: light dark; --ink: #1d2127; --dim: #5d6673; --ground: #ffffff; --rule: #e2e5ea;
  --c0: #1f6fb4; --c1: #d0601c; --c2: #2b8a4b; --c3: #8a4fbf; --c4: #b03060; --c5: #6b6f16; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #a2abb8; --ground: #15181d; --rule: #343a43;
  --c0: #6cb2f0; --c1: #f2955a; --c2: #6fca8c; --c3: #c39bf0; --c4: #f087ae; --c5: #c9cc6a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 2em auto;
  max-width: 60em; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; } h3 { font-size: 1em; margin: .6em 0 .2em; }
p, li { max-width: 48em; } .dim { color: var(--dim); }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 13px; } .wide { overflow-x: auto; }
th, td { padding: .15em .7em; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
tr.chosen td { font-weight: 600; color: var(--c1); }
svg { display: block; max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .title { fill: var(--dim); } svg .small { font-size: 11px; }
.grid { stroke: var(--rule); } .line { fill: none; stroke-width: 1.8; } .dot { stroke: var(--ground); }
.box { fill: var(--ground); stroke: var(--rule); } .border { fill: none; stroke: var(--rule); }
.mark { fill: none; stroke: var(--c1); stroke-width: 2; } .heat { fill: var(--ink); }
.plus { fill: var(--c0); } .minus { fill: var(--c1); }
.labels { display: grid; grid-template-columns: repeat(auto-fill, minmax(27em, 1fr)); gap: .2em 1.5em; }
""" + "".join(f".line.s{i} {{ stroke: var(--c{i}); }} .dot.s{i} {{ fill: var(--c{i}); }}\n" for i in range(6))


def page(title, facts, rows, chosen, again, encoder, theta, stability=None, by="error"):
    """The page as text. `facts`: lines about the data; `theta` [F]: the chosen model's weights."""
    parts = [f"<h1>{html.escape(title)}</h1>", f'<p class="dim">{html.escape(facts)}</p>',
             _chosen(chosen, again), *_plots(rows, chosen, by)]
    names = Names(encoder)
    if stability is not None:
        parts += _stability(stability, names, theta)
    parts += _strongest(encoder, theta, names)
    parts += _heat_maps(encoder, theta, names)
    parts.append(_table(rows, chosen))
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
            + "\n".join(parts) + "\n</body></html>\n")


def _chosen(chosen, again):
    outcome = chosen.outcome
    return (f"<p>Chosen: <b>{html.escape(chosen.setting.method)} {html.escape(str(chosen.setting))}</b>, token error "
            f"{outcome.error:.2f}% (standard error {outcome.deviation:.2f}), F1 {outcome.f1:.2f}, "
            f"{outcome.active_u:,.0f} unigram and {outcome.active_b:,.0f} bigram features.</p>"
            f"<p><code>{html.escape(again)}</code></p>")


def _size(row):
    return row.outcome.active_u + row.outcome.active_b


def _series(rows, value):
    """{name: points}: a line for each rho2 and cut-off, if there are several."""
    out = {}
    for row in rows:
        setting = row.setting
        name = f"rho2={setting.rho2:g}" + (f" min-count={setting.min_count}" if setting.min_count > 1 else "")
        out.setdefault(name, []).append(value(row))
    return out


def _plots(rows, chosen, by):
    searched = chosen.setting.method in ("forward", "backward", "beam", "anneal")
    score = (lambda row: row.outcome.f1) if by == "f1" else (lambda row: row.outcome.error)
    name = "F1" if by == "f1" else "token error, %"
    tried = [row for row in rows if _size(row) > 0]

    def point(row):
        return _size(row), score(row), f"{row.setting}: error {row.outcome.error:.2f}%, F1 {row.outcome.f1:.2f}"

    parts = [f"<h2>{'F1' if by == 'f1' else 'Error'} against the number of features</h2>"]
    if tried:
        by_size = _series(sorted(tried, key=_size), point)
        parts.append(plot.lines(by_size, "non-zero weights", name, log_x=True, mark=point(chosen)[:2],
                                joined=not searched))
    if searched:
        steps = [(i + 1, score(row), str(row.setting)) for i, row in enumerate(rows)]
        best = min if by == "error" else max
        record = [(i + 1, best(s[1] for s in steps[:i + 1]), steps[i][2]) for i in range(len(steps))]
        parts += ["<h2>The search, set by set</h2>",
                  plot.lines({"tried": steps, "best so far": record}, "sets of templates", name)]
    if len({row.setting.rho1 for row in tried}) > 1:
        active = {}
        for kind, field in (("unigram", "active_u"), ("bigram", "active_b")):
            of_kind = _series(tried, lambda row: (row.setting.rho1, getattr(row.outcome, field), str(row.setting)))
            for name, entries in of_kind.items():
                active[kind if len(of_kind) == 1 else f"{kind} {name}"] = entries
        parts += ["<h2>The path: features against rho1</h2>",
                  plot.lines(active, "rho1", "non-zero weights", log_x=True, log_y=True)]
    return parts


def _stability(stability, names, theta):
    chosen = stability.frequency[stability.frequency > 0.0]
    runs = len(stability.sizes)
    shares = np.bincount(np.rint(chosen * runs).astype(int), minlength=runs + 1)[1:]
    step = -(-runs // 20)
    groups = [(f"{i + 1}–{min(runs, i + step)} of {runs}" if step > 1 else f"{i + 1} of {runs}",
               int(shares[i:i + step].sum())) for i in range(0, runs, step)]
    order = np.lexsort((-np.abs(theta), -stability.frequency))[:MOST_FREQUENCIES]
    top = [(_feature_text(names.feature(f)), float(stability.frequency[f]))
           for f in order if stability.frequency[f] > 0.0]
    return ["<h2>Stability</h2>",
            f"<p>Chosen anew on {runs} halves of the data: mean overlap of two choices (Jaccard) "
            f"{stability.jaccard:.3f}; corrected for chance (Kuncheva) {stability.kuncheva:.3f}. How many features "
            "were chosen how often, and those chosen most often:</p>",
            plot.bars(groups, "features by how often they were chosen"), plot.bars(top, "selection frequency", 1.0)]


def _feature_text(feature):
    observation, previous, label = feature
    return f"{observation} {label}" if previous is None else f"{observation} {previous} → {label}"


def _strongest(encoder, theta, names):
    """For each label, the features with the largest |weight|."""
    space = encoder.space
    mu, lam = space.split(theta)
    order = np.argsort(-(np.abs(mu).sum(axis=0) + np.abs(lam).sum(axis=(0, 1))), kind="stable")
    parts = ["<h2>Strongest features of each label</h2>", '<div class="labels">']
    for y in order[:MOST_LABELS]:
        flat = np.concatenate((np.arange(space.O) * space.Y + y,
                               space.O * space.Y + np.arange(space.Ob * space.R) * space.Y + y))
        best = flat[np.argsort(-np.abs(theta[flat]), kind="stable")[:STRONGEST]]
        best = [f for f in best if theta[f] != 0.0]
        if best:
            entries = []
            for f in best:
                observation, previous, _ = names.feature(f)
                entries.append((observation if previous is None else f"{observation} {previous} →", float(theta[f])))
            parts.append(f"<div><h3>{html.escape(names.label(int(y)))}</h3>"
                         + plot.bars(entries, f"strongest features of {names.label(int(y))}", signed=True) + "</div>")
    return parts + ["</div>"]


def _heat_maps(encoder, theta, names):
    """|mu(y, x)| and sum over y' of |lambda(y', y, x)|, of the observations with most weight."""
    mu, lam = encoder.space.split(theta)
    labels = [names.label(y) for y in range(encoder.space.Y)]
    parts = []
    for weights, bigram, title in ((np.abs(mu), False, "|μ(y, x)|"),
                                   (np.abs(lam).sum(axis=1), True, "Σ |λ(y′, y, x)|")):
        strength = weights.sum(axis=1)
        rows = np.sort(np.argsort(-strength, kind="stable")[:MOST_OBSERVATIONS])
        rows = rows[strength[rows] > 0.0]
        if not len(rows):
            continue
        texts = [names.observation(int(row), bigram)[:40] for row in rows]
        order = sorted(range(len(rows)), key=lambda i: texts[i])
        which = "all" if len(rows) == np.count_nonzero(strength) else f"the {len(rows)} strongest"
        drawing = plot.heat_map(weights[rows][order].tolist(), [texts[i] for i in order], labels, title)
        parts += [f"<h2>{title}</h2>", f'<p class="dim">{"Bigram" if bigram else "Unigram"} weights by observation and '
                  f"label, {which} observations"
                  + (", summed over the label before" if bigram else "") + ".</p>",
                  f'<div class="wide">{drawing}</div>']
        if bigram and len(rows) == 1:
            parts += _transitions(encoder, lam[rows[0]], texts[0])
    return parts


def _transitions(encoder, block, text):
    """The only bigram observation has a map of its own: the label before against the label."""
    labels = [label.decode("utf-8", "backslashreplace") for label in encoder.labels]
    rows = labels + ["^"] * (len(block) - len(labels))
    return [f"<h2>|λ(y′, y, {html.escape(text)})|</h2>",
            '<p class="dim">The label before (rows) against the label.</p>',
            '<div class="wide">' + plot.heat_map(np.abs(block).tolist(), rows, labels, "label pairs") + "</div>"]


def _table(rows, chosen):
    parts = ["<h2>Everything tried</h2>", '<div class="wide"><table><tr><th>method</th><th>setting</th>'
             "<th>active U</th><th>active B</th><th>error</th><th>± </th><th>F1</th><th>seconds</th></tr>"]
    for row in rows:
        o = row.outcome
        parts.append(f'<tr{" class=chosen" if row == chosen else ""}><td>{html.escape(row.setting.method)}</td>'
                     f"<td>{html.escape(str(row.setting))}</td><td>{o.active_u:,.0f}</td><td>{o.active_b:,.0f}</td>"
                     f"<td>{o.error:.2f}%</td><td>{o.deviation:.2f}</td><td>{o.f1:.2f}</td>"
                     f"<td>{o.seconds:.1f}</td></tr>")
    return "".join(parts) + "</table></div>"

"""A few kinds of plots as SVG text: points and lines with linear or logarithmic axes, bars, heat maps.

Colours and fonts come from the classes of the page (see crftool.selection.report), so that a plot is
readable on light and dark ground.
"""

import html
import math

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 34, 14, 46    # half of a wide number fits on the right
LETTER = 8                                  # pixels that a letter takes, wide ones included


def number_text(value):
    """Short and plain: 0.05, 12, 3,000, 1.2e-5."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10g}" if abs(value) >= 1000 else f"{value:.4g}"


class Axis:
    """From data to places between `start` and `end`."""

    def __init__(self, values, start, end, log=False):
        values = [v for v in values if math.isfinite(v) and (v > 0.0 or not log)]
        low, high = min(values, default=1.0), max(values, default=1.0)
        self.log, self._start, self._end = log, start, end
        if log:
            self._low, self._high = math.log10(low) - 0.05, math.log10(high) + 0.05
        else:
            room = 0.04 * (high - low) or abs(high) * 0.1 or 1.0
            self._low, self._high = low - room, high + room
            if 0.0 <= low < 0.3 * high:
                self._low = 0.0

    def place(self, value):
        at = math.log10(value) if self.log else value
        share = (at - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self):
        """Round values within the axis."""
        return self._log_ticks() if self.log else self._linear_ticks()

    def _linear_ticks(self):
        rough = (self._high - self._low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first = math.ceil(self._low / step - 1e-9)
        return [round(i * step, 12) for i in range(first, math.floor(self._high / step + 1e-9) + 1)]

    def _log_ticks(self):
        decades = range(math.floor(self._low), math.ceil(self._high) + 1)
        for factors in ((1,), (1, 3), (1, 2, 5)):
            ticks = [factor * 10.0 ** decade for decade in decades for factor in factors]
            ticks = [tick for tick in ticks if self._low <= math.log10(tick) <= self._high]
            if len(ticks) >= 3:
                break
        return ticks[::max(1, -(-len(ticks) // 8))]


def _text(x, y, text, kind="", anchor="middle", turn=False):
    turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{turned}>{html.escape(text)}</text>'


def _svg(width, height, parts, title):
    return (f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
            f'aria-label="{html.escape(title, quote=True)}">' + "".join(parts) + "</svg>")


def _frame(x, y, x_title, y_title):
    """Grid, ticks and titles of a pair of axes."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for tick in y.ticks():
        at = y.place(tick)
        parts += [f'<line x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>',
                  _text(LEFT - 7, at + 4, number_text(tick), anchor="end")]
    for tick in x.ticks():
        at = x.place(tick)
        parts += [f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}" class="grid"/>',
                  _text(at, bottom + 17, number_text(tick))]
    return parts + [_text((LEFT + right) / 2, HEIGHT - 8, x_title, "title"),
                    _text(14, (TOP + bottom) / 2, y_title, "title", turn=True)]


def lines(series, x_title, y_title, log_x=False, log_y=False, mark=None, joined=True):
    """`series`: {name: [(x, y, note)]}; `mark`: the (x, y) of a point to point out."""
    points = [(x, y) for entries in series.values() for x, y, _ in entries]
    x = Axis([p[0] for p in points], LEFT, WIDTH - RIGHT, log_x)
    y = Axis([p[1] for p in points], HEIGHT - BOTTOM, TOP, log_y)
    parts = _frame(x, y, x_title, y_title)
    for i, (name, entries) in enumerate(series.items()):
        entries = [(a, b, note) for a, b, note in entries if (a > 0 or not log_x) and (b > 0 or not log_y)]
        places = [(x.place(a), y.place(b), note) for a, b, note in entries]
        if joined and len(places) > 1:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in places)
            parts.append(f'<polyline points="{path}" class="line s{i % 6}"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" class="dot s{i % 6}"><title>{html.escape(note)}</title>'
                  "</circle>" for a, b, note in places]
    if mark is not None and (mark[0] > 0 or not log_x) and (mark[1] > 0 or not log_y):
        parts.append(f'<circle cx="{x.place(mark[0]):.1f}" cy="{y.place(mark[1]):.1f}" r="8" class="mark"/>')
    if len(series) > 1:
        parts += _legend(list(series))
    return _svg(WIDTH, HEIGHT, parts, f"{y_title} against {x_title}")


def _legend(names):
    """In the upper right corner."""
    width = 34 + LETTER * max(map(len, names))
    left, parts = WIDTH - RIGHT - width - 4, []
    parts.append(f'<rect x="{left}" y="{TOP + 4}" width="{width}" height="{6 + 17 * len(names)}" class="box"/>')
    for i, name in enumerate(names):
        at = TOP + 18 + 17 * i
        parts += [f'<line x1="{left + 6}" x2="{left + 22}" y1="{at - 4}" y2="{at - 4}" class="line s{i % 6}"/>',
                  _text(left + 28, at, name, anchor="start")]
    return parts


def _bar_text(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def bars(entries, title, largest=None, signed=False):
    """Horizontal bars: [(name, value)]; signed ones grow to both sides of zero."""
    height, left = 19, 12 + LETTER * min(38, max((len(name) for name, _ in entries), default=1))
    largest = largest or max((abs(value) for _, value in entries), default=1.0) or 1.0
    room = 12 + LETTER * max((len(_bar_text(value)) for _, value in entries), default=1)
    below = 110 + room if any(value < 0 for _, value in entries) else 4
    zero, span = left + below, 110 if signed else 240
    width = zero + span + room
    parts = []
    for i, (name, value) in enumerate(entries):
        top = 4 + height * i
        length = abs(value) / largest * span
        start = zero - length if value < 0 else zero
        shown = name if len(name) <= 38 else name[:37] + "…"
        parts += [_text(left - 4, top + 13, shown, anchor="end"),
                  f'<rect x="{start:.1f}" y="{top + 2}" width="{max(0.5, length):.1f}" height="{height - 5}" '
                  f'class="{"minus" if value < 0 else "plus"}"><title>{html.escape(name)}: {value:.4g}</title></rect>',
                  _text(zero + length + 5 if value >= 0 else start - 5, top + 13, _bar_text(value),
                        anchor="start" if value >= 0 else "end")]
    return _svg(width, 8 + height * len(entries), parts, title)


def heat_map(matrix, rows, columns, title):
    """Dark (on dark ground: bright) where a value is large. `matrix` [rows][columns] of numbers >= 0."""
    cell = max(9, min(20, 760 // max(1, len(columns))))
    left = 10 + LETTER * max((len(name) for name in rows), default=1)
    top = 14 + LETTER * max((len(name) for name in columns), default=1)
    largest = max((value for row in matrix for value in row), default=0.0) or 1.0
    parts = []
    for j, name in enumerate(columns):
        at = left + cell * (j + 0.5) + 4
        parts.append(_text(at, top - 4, name, "small", "start", True))
    for i, name in enumerate(rows):
        parts.append(_text(left - 4, top + cell * (i + 0.5) + 4, name, "small", "end"))
        for j, value in enumerate(matrix[i]):
            if value > 0.0:
                strength = (value / largest) ** 0.5
                parts.append(f'<rect x="{left + cell * j}" y="{top + cell * i}" width="{cell}" height="{cell}" '
                             f'class="heat" fill-opacity="{max(0.05, strength):.3f}"><title>{html.escape(name)}, '
                             f"{html.escape(columns[j])}: {value:.4g}</title></rect>")
    width, height = left + cell * len(columns), top + cell * len(rows)
    parts.append(f'<rect x="{left}" y="{top}" width="{width - left}" height="{height - top}" class="border"/>')
    return _svg(width + 4, height + 4, parts, title)

"""Axes, and that plots put what they are given where it belongs."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from crftool.selection import plot


@pytest.mark.parametrize("low,high", [(0, 1), (3, 97), (-5, 5), (1e-7, 3e-7), (1e6, 1.1e6), (7, 7), (0, 0)])
def test_linear_ticks_are_few_and_within(low, high):
    axis = plot.Axis([low, high], 0, 100)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 8 and len(set(map(plot.number_text, ticks))) >= 2
    assert all(-1e-6 <= axis.place(tick) <= 100 + 1e-6 for tick in ticks)
    assert 0 <= axis.place(low) <= axis.place(high) <= 100


@pytest.mark.parametrize("low,high", [(1, 1e6), (3, 5), (1000, 300_000), (0.01, 0.02), (7, 7), (1e-9, 1e9)])
def test_logarithmic_ticks(low, high):
    axis = plot.Axis([low, high, 0.0, -1.0], 100, 0, log=True)             # what has no logarithm is left out
    ticks = axis.ticks()
    assert len(ticks) <= 8 and all(0 <= axis.place(tick) <= 100 for tick in ticks)
    assert 100 > axis.place(low) >= axis.place(high) > 0
    if high >= 10 * low:
        steps = [axis.place(10 * low) - axis.place(low), axis.place(high) - axis.place(high / 10)]
        assert steps[0] == pytest.approx(steps[1])                         # a decade is a decade


@pytest.mark.parametrize("value,text", [(0, "0"), (0.05, "0.05"), (12.0, "12"), (3000, "3,000"), (1e6, "1,000,000"),
                                        (1e-5, "1e-5"), (2e9, "2e9"), (-0.25, "-0.25")])
def test_numbers(value, text):
    assert plot.number_text(value) == text


def elements(svg, tag):
    return [element for element in ElementTree.fromstring(svg).iter() if element.tag == tag]


def test_lines():
    svg = plot.lines({"a<b": [(10, 1, "x&y"), (100, 3, ""), (0, 9, "no logarithm")], "c": [(1000, 2, "")]}, "features", "error",
                     log_x=True, mark=(100, 3))
    circles = elements(svg, "circle")
    assert len(circles) == 4                                   # three points and the mark
    xs = [float(circle.get("cx")) for circle in circles[:3]]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11)
    ys = [float(circle.get("cy")) for circle in circles[:3]]
    assert ys[1] < ys[2] < ys[0]                               # up is more
    assert len(elements(svg, "polyline")) == 1                 # a line needs two points
    assert "a<b" in [text.text for text in elements(svg, "text")]
    assert plot.lines({"empty": []}, "x", "y")


def test_bars():
    svg = plot.bars([("one", 2.0), ("two", -1.0)], "title", signed=True)
    one, two = elements(svg, "rect")
    assert float(one.get("width")) == pytest.approx(2 * float(two.get("width")), abs=0.11)
    assert float(two.get("x")) + float(two.get("width")) == pytest.approx(float(one.get("x")), abs=0.11)
    assert (one.get("class"), two.get("class")) == ("plus", "minus")
    width = float(ElementTree.fromstring(svg).get("width"))
    assert all(0 <= float(rect.get("x")) and float(rect.get("x")) + float(rect.get("width")) <= width for rect in (one, two))


def test_heat_map():
    svg = plot.heat_map([[0.0, 4.0], [1.0, 0.0]], ["r1", "r2"], ["c1", "c2"], "title")
    cells = [rect for rect in elements(svg, "rect") if rect.get("class") == "heat"]
    assert [float(cell.get("fill-opacity")) for cell in cells] == [1.0, 0.5]       # by the square root
    assert float(cells[0].get("x")) > float(cells[1].get("x")) and float(cells[0].get("y")) < float(cells[1].get("y"))
    assert re.search("r1, c2: 4", svg)

"""The directive ``benchmark-plots``: a plot for each claim, from the figures of one run.

`python -m benchmarks.ratios --json docs/benchmarks.json` makes these; the plots are drawn as the
site is built, so that no benchmark has to run for it. Each is SVG within the page, whose text takes
the page's colour.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from docutils import nodes
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

COLOURS = {"met": "#2a9d5c", "missed": "#d1495b", "": "#4a86c5"}
GREY = "#808080"  # legible on the light page and on the dark one
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
# Text stays text; ids within a page differ, and are the same in each build.
STYLE = {
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


class BenchmarkPlots(SphinxDirective):
    """What was measured, on which machine; then for each claim its plot."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        _, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        run = json.loads(Path(path).read_text(encoding="utf-8"))
        said = nodes.paragraph(text=machine_of(run))
        if run["quick"]:
            said += [nodes.Text(", with "), nodes.literal(text="--quick")]
        found: list[nodes.Node] = [said]
        for (claim, unit), figures in by_claim(run["figures"]):
            found += [
                nodes.rubric(text=claim + (f", in {unit}" if unit else "")),
                nodes.raw(text=drawn(claim, unit, figures), format="html"),
            ]
        return found


def machine_of(run: dict[str, Any]) -> str:
    machine = run["machine"]
    memory = int(machine["ram"]) / 2**30
    return (
        f"Machine: {machine['cpu']} ({machine['arch']}), {machine['num_cpu']} cores, "
        f"{memory:.0f} GiB of memory, {machine['os']}; {run['python']}"
    )


def by_claim(
    figures: list[dict[str, Any]],
) -> Iterator[tuple[tuple[str, str], list[dict[str, Any]]]]:
    """The figures of each claim; those with a unit of their own apart from ratios."""
    places = {figure["claim"]: place for place, figure in reversed(list(enumerate(figures)))}
    figures = sorted(figures, key=lambda figure: (places[figure["claim"]], figure["unit"]))
    for key, group in groupby(figures, lambda figure: (figure["claim"], figure["unit"])):
        yield key, list(group)


def verdict_of(figure: dict[str, Any]) -> str:
    if figure["target"] is None:
        return ""
    return "met" if figure["value"] <= figure["target"] else "missed"


def drawn(claim: str, unit: str, figures: list[dict[str, Any]]) -> str:
    """SVG: for each figure its value, its range, and its target."""
    with rc_context({**STYLE, "svg.hashsalt": f"{claim} {unit}"}):
        figure = Figure(figsize=(8.6, 0.5 + 0.27 * len(figures)), layout="constrained")
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        axes.spines[["top", "right"]].set_visible(False)
        for place, each in enumerate(figures):
            colour = COLOURS[verdict_of(each)]
            axes.hlines(place, each["low"], each["high"], color=colour, linewidth=3, alpha=0.4)
            axes.plot(each["value"], place, "o", color=colour, markersize=5)
            if each["target"] is not None:
                axes.plot(each["target"], place, "|", color=GREY, markersize=11, markeredgewidth=2)
        axes.set_yticks(range(len(figures)), [label_of(each) for each in figures])
        axes.set_ylim(len(figures) - 0.5, -0.5)
        if not unit:
            axes.axvline(1, color=GREY, linewidth=0.6, linestyle=":")
            if max(each["high"] for each in figures) > 4 * min(each["low"] for each in figures):
                axes.set_xscale("log")
                axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axes.xaxis.set_major_formatter("{x:g}")
                axes.xaxis.set_minor_locator(NullLocator())
        else:
            axes.set_xlim(left=0)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata=NO_METADATA)
    return inline(text.getvalue(), claim)


def label_of(figure: dict[str, Any]) -> str:
    target = "" if figure["target"] is None else f" (≤ {figure['target']:g})"
    return f"{figure['what']}: {figure['value']:,.3g}{target}"


def inline(svg: str, claim: str) -> str:
    """The element alone, as wide as the page allows."""
    element = svg[svg.index("<svg") :]
    size = re.compile(r'<svg[^>]*?viewBox="([^"]+)"[^>]*>')
    opening = (
        rf'<svg role="img" aria-label="{html.escape(claim)}" viewBox="\1" '
        'style="width: 100%; height: auto; stroke-linejoin: round" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    element = size.sub(opening, element, count=1)
    # A style would be one of the whole page.
    element = re.sub(r"<style.*?</style>", "", element, flags=re.DOTALL)
    # The names of groups are the same in each plot, and nothing refers to them.
    element = re.sub(r'<g id="[^"]*">', "<g>", element)
    # On a narrow window it is scrolled: scaled down, its text would be too small to read.
    return f'<div class="benchmark-plot">{element}</div>'


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("benchmark-plots", BenchmarkPlots)
    return {"parallel_read_safe": True}

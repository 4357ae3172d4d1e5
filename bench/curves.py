"""The figures of the last runs as curves: `python bench/curves.py` reads bench/results/ and writes docs/curves/*.svg.

Each picture is drawn for light and dark grounds alike, carries its figures as text, and leaves out what has not been
measured yet. `make bench` draws them at its end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS, CURVES = ROOT / "bench" / "results", ROOT / "docs" / "curves"
WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 76, 150, 64, 64
ENGINE_WORDS = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}

STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2430 }
.title { font-size: 17px; font-weight: 600 }
.ground { fill: #ffffff }
.grid { stroke: #d5d9e0; stroke-width: 1 }
.line { fill: none; stroke-width: 2.5 }
.sqlite { stroke: #0b63b0 } .postgresql { stroke: #a03c00; stroke-dasharray: 8 4 }
.sqlite-fill { fill: #0b63b0 } .postgresql-fill { fill: #a03c00 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8ee } .ground { fill: #14171d } .grid { stroke: #3a404c }
  .sqlite { stroke: #6cb6ff } .postgresql { stroke: #ffab70 }
  .sqlite-fill { fill: #6cb6ff } .postgresql-fill { fill: #ffab70 }
}
"""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """One picture: the lines by the name of their engine, in the units that its axes name."""

    name: str
    title: str
    across: str
    up: str
    lines: dict[str, Points]
    logarithmic: bool = True


def read(name: str) -> dict[str, Any] | None:
    """The results of a benchmark by engine; None where it has not been run."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    results: dict[str, Any] = json.loads(path.read_text())["results"]
    return results


def curves() -> list[Curve]:
    """Every picture for which there are figures."""
    found: list[Curve] = []
    idle, herd, listeners = read("idle"), read("dispatch"), read("listeners")
    if idle:
        found += [
            Curve(
                "idle-tick", "A pass that finds nothing due", "schedules", "µs a pass", _houses(idle, _tick)
            ),
            Curve(
                "dispatch-by-size",
                "200 due at one instant, in houses of different size",
                "schedules",
                "dispatched a second",
                _houses(idle, lambda house: house.get("dispatched_per_second")),
            ),
        ]
    if herd:
        lines = {name: _workers(way["ways"]) for name, way in herd.items()}
        found.append(
            Curve(
                "workers", "A herd, by the number of workers", "workers", "dispatched a second", lines, False
            )
        )
    if listeners:
        lines = {name: [(row["listeners"], row["p50"]) for row in rows] for name, rows in listeners.items()}
        found.append(
            Curve("listeners", "From commit to the page, half of all", "open streams", "milliseconds", lines)
        )
    return [curve for curve in found if any(len(points) > 1 for points in curve.lines.values())]


def _tick(house: dict[str, Any]) -> float | None:
    return house["tick"]["wall_us"] if "tick" in house else None


def _houses(idle: dict[str, Any], value: Callable[[dict[str, Any]], float | None]) -> dict[str, Points]:
    return {
        name: [(house["schedules"], found) for house in way["houses"] if (found := value(house)) is not None]
        for name, way in idle.items()
    }


def _workers(ways: dict[str, Any]) -> Points:
    names = ("one_worker", "two_workers", "three_workers", "four_workers")
    return [(count, ways[name]["per_second"]) for count, name in enumerate(names, 1) if name in ways]


# --- Drawing ---


def draw(curve: Curve) -> str:
    """The picture as SVG."""
    points = [point for line in curve.lines.values() for point in line]
    highest = _nice(max(y for _, y in points))
    across = sorted({x for x, _ in points})
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="title desc">',
        f'<title id="title">{escape(curve.title)}</title>',
        f'<desc id="desc">{escape(_in_words(curve))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="28">{escape(curve.title)}</text>',
        f'<text x="{LEFT}" y="50">{escape(curve.up)}</text>',
    ]
    for step in range(5):
        value = highest * step / 4
        y = _place_up(value, highest)
        parts += [
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
            f'<text x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{value:,.6g}</text>',
        ]
    for x in across:
        place = _place_across(x, across, curve.logarithmic)
        parts.append(f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 24}" text-anchor="middle">{x:,.6g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{escape(curve.across)}</text>')
    ends = {name: line[-1][1] for name, line in curve.lines.items() if line}
    labels = _apart({name: _place_up(value, highest) + 5 for name, value in ends.items()})
    for name, line in curve.lines.items():
        if line:
            parts += _line(name, line, across, highest, labels[name], logarithmic=curve.logarithmic)
    return "\n".join([*parts, "</svg>", ""])


def _line(
    name: str, line: Points, across: Sequence[float], highest: float, label_y: float, *, logarithmic: bool
) -> list[str]:
    places = [(_place_across(x, across, logarithmic), _place_up(y, highest)) for x, y in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle class="{name}-fill" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places]
    said = f"{ENGINE_WORDS[name]} {line[-1][1]:,.6g}"
    return [
        f'<polyline class="line {name}" points="{path}"/>',
        *dots,
        f'<text x="{places[-1][0] + 10:.1f}" y="{label_y:.1f}">{said}</text>',
    ]


def _in_words(curve: Curve) -> str:
    lines = [
        f"{ENGINE_WORDS[name]}: " + ", ".join(f"{y:,.6g} at {x:,.6g}" for x, y in line)
        for name, line in curve.lines.items()
        if line
    ]
    return f"{curve.up} by {curve.across}. " + ". ".join(lines) + "."


def _apart(places: dict[str, float]) -> dict[str, float]:
    """Move labels that would lie over each other."""
    found: dict[str, float] = {}
    for name, y in sorted(places.items(), key=lambda item: item[1]):
        found[name] = max(y, max(found.values()) + 18) if found else y
    return found


def _place_across(x: float, across: Sequence[float], logarithmic: bool) -> float:
    low, high, here = across[0], across[-1], x
    if logarithmic:
        low, high, here = math.log(low), math.log(high), math.log(x)
    share = (here - low) / (high - low) if high > low else 0.5
    return LEFT + 24 + share * (WIDTH - LEFT - RIGHT - 40)


def _place_up(y: float, highest: float) -> float:
    return HEIGHT - BOTTOM - (y / highest) * (HEIGHT - TOP - BOTTOM)


def _nice(value: float) -> float:
    """A round number that is not lower."""
    unit = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(unit * factor for factor in (1, 2, 4, 6, 8, 10) if unit * factor >= value)


def main() -> None:
    CURVES.mkdir(exist_ok=True)
    for curve in curves():
        path = CURVES / f"{curve.name}.svg"
        path.write_text(draw(curve))
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

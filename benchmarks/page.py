"""`python -m benchmarks.page`: write docs/benchmarks.md and its plots from docs/benchmarks.json.

`--update FILE` first takes over the ratios of a file that `make bench` wrote, with its date.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any, Final

import click

__all__ = ["numbers", "page", "plot", "updated", "written"]

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
_HEAD: Final = """# Benchmarks

`make bench` runs each side in the same process, interleaved, and compares the results before it
times anything. Ratios are delvec's time over the peer's, of medians; below 1 delvec is faster. All
on {cores} cores of an {processor}, with Python {python} and PySpark {pyspark}. The command above a
table measures it on your machine.

This page is written by `python -m benchmarks.page` from `benchmarks.json`; with
`--update bench-results/latest.json` it takes over what `make bench` has just measured.
"""

# Greys and hues that can be read on a light page and on a dark one: an image does not know which.
_TEXT: Final = "#7d8590"
_BARS: Final = ("#3f8fd2", "#b0862f")
_LABELS: Final = 470
_SCALE: Final = 300
_LINE: Final = 18


def numbers() -> dict[str, Any]:
    """Return the numbers that the page states."""
    found: dict[str, Any] = json.loads((DOCS / "benchmarks.json").read_text())
    return found


def written(document: dict[str, Any]) -> dict[str, str]:
    """Return all files of the page by their path below docs."""
    plots = {_plot_of(section): plot(section) for section in document["sections"]}
    return {"benchmarks.md": page(document), **plots}


def page(document: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    parts = [_HEAD.format(**document["machine"]), *map(_section, document["sections"])]
    return "\n".join(parts)


def _section(section: dict[str, Any]) -> str:
    columns = section["columns"]
    lines = [
        f"## {section['title']}",
        "",
        f"{section['before']} Numbers of {section['measured']}, by `{section['command']}`.",
        "",
        "| | " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for row in section["rows"]:
        cells = [f"{cell['ratio']:.2f}" for cell in row["ratios"]]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    lines += ["", f"![Ratios as bars: {section['title'].lower()}]({_plot_of(section)})", ""]
    if "after" in section:
        lines += [section["after"], ""]
    return "\n".join(lines)


def _plot_of(section: dict[str, Any]) -> str:
    return f"images/benchmarks-{section['id']}.svg"


def plot(section: dict[str, Any]) -> str:
    """Return an SVG with a bar for each ratio, and a line at 1, where both are equally fast."""
    longest = max(1.0, *(cell["ratio"] for row in section["rows"] for cell in row["ratios"]))
    unit = _SCALE / longest
    body: list[str] = []
    top = _LINE * (len(section["columns"]) + 1)
    for number, name in enumerate(section["columns"]):
        y = _LINE * (number + 1) - 6
        body.append(f'<rect x="{_LABELS}" y="{y - 9}" width="10" height="10" {_fill(number)}/>')
        body.append(f'<text x="{_LABELS + 16}" y="{y}">{escape(name)}</text>')
    for row in section["rows"]:
        label = escape(row["name"].replace("`", ""))
        body.append(f'<text x="{_LABELS - 10}" y="{top + 12}" text-anchor="end">{label}</text>')
        for number, cell in enumerate(row["ratios"]):
            wide = max(1.0, cell["ratio"] * unit)
            size = f'width="{wide:.1f}" height="12"'
            body.append(f'<rect x="{_LABELS}" y="{top + 2}" {size} {_fill(number)}/>')
            at = _LABELS + wide + 6
            body.append(f'<text x="{at:.1f}" y="{top + 12}">{cell["ratio"]:.2f}</text>')
            top += _LINE
        top += 6
    even = _LABELS + unit
    body.append(
        f'<line x1="{even:.1f}" x2="{even:.1f}" y1="{_LINE * (len(section["columns"]) + 1)}"'
        f' y2="{top}" stroke="{_TEXT}" stroke-dasharray="3 3"/>'
    )
    body.append(f'<text x="{even:.1f}" y="{top + 14}" text-anchor="middle">1: as fast</text>')
    width, height = _LABELS + _SCALE + 60, top + 22
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="{_TEXT}" role="img">\n'
        f"<title>{escape(section['title'])}: ratios, below 1 delvec is faster</title>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _fill(number: int) -> str:
    return f'fill="{_BARS[number % len(_BARS)]}"'


def updated(document: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers with those that a run has measured again.

    A section is taken over only if the run has all of its ratios: a table is of one day. A ratio
    without the name of a benchmark was computed from two others, and is entered by hand.
    """
    ratios = {(each["benchmark"], each["peer"]): each["ratio"] for each in results["results"]}
    sections = []
    for section in document["sections"]:
        cells = [cell for row in section["rows"] for cell in row["ratios"]]
        keys = [(cell["benchmark"], cell["peer"]) for cell in cells]
        if not all(key in ratios for key in keys):
            sections.append(section)
            continue
        rows = [
            {
                **row,
                "ratios": [
                    {**cell, "ratio": round(ratios[cell["benchmark"], cell["peer"]], 2)}
                    for cell in row["ratios"]
                ],
            }
            for row in section["rows"]
        ]
        sections.append({**section, "rows": rows, "measured": results["machine"]["when"][:10]})
    return {**document, "sections": sections}


@click.command()
@click.option(
    "--update", type=click.Path(path_type=Path, exists=True), help="Results to take over."
)
def main(*, update: Path | None) -> None:
    """Write the page and its plots; with --update, the numbers before."""
    document = numbers()
    if update is not None:
        document = updated(document, json.loads(update.read_text()))
        text = json.dumps(document, indent=1, ensure_ascii=False)
        (DOCS / "benchmarks.json").write_text(f"{text}\n")
    for name, text in written(document).items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        click.echo(f"written: {path}")


if __name__ == "__main__":
    main()

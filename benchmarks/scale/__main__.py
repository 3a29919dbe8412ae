"""`python -m benchmarks.scale`: measure operations on tables of many files; write docs/scale.md.

The tables have no data; the largest one of 10 million files takes 1.1 GB of disk in each form, and
an hour for all that is measured. Numbers of a run replace those of the same operation and size.
"""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.runner import machine
from benchmarks.scale import run
from benchmarks.scale.measure import GIB
from benchmarks.scale.page import DOCS, numbers, written

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEYS = ("operation", "form", "files")


@click.command()
@click.option("--files", "sizes", type=int, multiple=True, help="A size, to be repeated.")
@click.option("--in", "folder", type=click.Path(path_type=Path), help="Where the tables are made.")
@click.option("--only", type=click.Choice(["delta", "s3", "spark"]), multiple=True)
@click.option("--name", default="", help="Only operations with this in their name.")
@click.option("--most-gib", type=float, help="Address space of a process without a JVM.")
@click.option("--page", "only_page", is_flag=True, help="Measure nothing; write the page.")
def main(
    *,
    sizes: tuple[int, ...],
    folder: Path | None,
    only: tuple[str, ...],
    name: str,
    most_gib: float | None,
    only_page: bool,
) -> None:
    """Measure, and write docs/scale.json, docs/scale.md and its plots."""
    document = numbers()
    if not only_page:
        place = (folder or Path("build/scale")).resolve()
        sizes = sizes or (100_000, 1_000_000, 10_000_000)
        most = None if most_gib is None else int(most_gib * GIB)
        for each in _measured(place, sizes, only or ("delta", "s3", "spark"), name, most):
            document = _updated(numbers(), each)  # at once: a long run may be stopped
            text = json.dumps(document, indent=1, ensure_ascii=False)
            (DOCS / "scale.json").write_text(f"{text}\n")
        shutil.rmtree(run.scratch(place), ignore_errors=True)
    for path, text in written(document).items():
        (DOCS / path).write_text(text)
        click.echo(f"written: {DOCS / path}")


def _measured(
    folder: Path, sizes: tuple[int, ...], only: tuple[str, ...], name: str, most: int | None
) -> Iterator[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    if "delta" in only:
        yield from run.measure_without_jvm(folder, sizes, name, most, click.echo)
    if "s3" in only:
        yield from run.measure_on_s3(folder, sizes, name, click.echo)
    if "spark" in only:
        yield from run.measure_on_spark(folder, sizes, name, click.echo)


def _updated(document: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers with a new one in place of that of the same operation and size."""
    today = datetime.now(timezone.utc).date().isoformat()
    kept = {tuple(each[key] for key in _KEYS): each for each in document["runs"]}
    kept[tuple(found[key] for key in _KEYS)] = {**found, "measured": today}
    return {"machine": machine(), "runs": list(kept.values())}


if __name__ == "__main__":
    main()

"""`python -m benchmarks [NAME]`: run the benchmarks whose names contain NAME."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks import conversion, core, delta, door, iceberg, maintain, resolve, writes  # noqa: F401  (they register their benchmarks)
from benchmarks.runner import REGISTRY, machine, report, run


@click.command()
@click.argument("name", default="")
@click.option("--list", "only_list", is_flag=True, help="List the benchmarks.")
@click.option("--rounds", type=int, help="How often each side runs.")
@click.option(
    "--json",
    "file",
    type=click.Path(path_type=Path),
    default=Path("bench-results/latest.json"),
    show_default=True,
    help="Where the results go.",
)
def main(name: str, *, only_list: bool, rounds: int | None, file: Path) -> None:
    """Run the benchmarks whose names contain NAME, all by default."""
    chosen = {key: prepare for key, prepare in REGISTRY.items() if name in key}
    if not chosen:
        raise click.BadParameter(f"no benchmark has {name!r} in its name; see --list")
    if only_list:
        click.echo("\n".join(chosen))
        return
    results = []
    for key, prepare in chosen.items():
        click.echo(f"{key} …", err=True)
        results += run(key, prepare(), rounds)
    report(results, machine(), file)


if __name__ == "__main__":
    main()

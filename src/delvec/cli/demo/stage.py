"""How a step of the demonstration is told: what to type, what happened, why it matters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from delvec.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delvec.cli.output import Output

__all__ = ["Stage", "Teller", "yes_or_no"]


class Teller:
    """Prints numbered steps, each in the same form. Lines are for 80 columns."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._numbers: Iterator[int] = count(1)

    def begin(self, title: str, *calls: str) -> None:
        """Begin a step: its title, and the calls that a user would type."""
        self.output.heading(f"{next(self._numbers)}. {title}")
        for call in calls:
            self.output.note((">>> ", "dim"), (call, "cyan"))

    def table(self, titles: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print what happened."""
        self.output.table([Column(key, title) for key, title in titles.items()], rows)

    def fact(self, *parts: str | tuple[str, str]) -> None:
        """Print a sentence about what happened."""
        self.output.note(*parts)

    def why(self, text: str) -> None:
        """Print why it matters."""
        self.output.note(("→ ", "bold green"), (text, "italic"))


@dataclass(frozen=True)
class Stage:
    """What the steps on Spark share.

    Attributes:
        teller: Prints.
        spark: The session.
        folder: Where tables are.
    """

    teller: Teller
    spark: SparkSession
    folder: str

    def path(self, name: str) -> str:
        """Return where something of the demonstration is."""
        return f"{self.folder}/{name}"


def yes_or_no(*, value: bool) -> str:
    """Return an answer as a cell.

    >>> yes_or_no(value=True)
    'yes'
    """
    return "yes" if value else "no"

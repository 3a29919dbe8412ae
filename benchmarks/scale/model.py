"""Lines through measured sizes: what a file costs, what the next size should cost, and did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Checked", "Line", "checked", "line_through", "series"]


@dataclass(frozen=True)
class Line:
    """A cost as a function of the files: `base + per_file * files`."""

    base: float
    per_file: float

    def at(self, files: float) -> float:
        """Return the cost of a number of files."""
        return self.base + self.per_file * files


@dataclass(frozen=True)
class Checked:
    """A model and how it held: a line through the smaller sizes, and what the largest one cost.

    Attributes:
        model: The line through the two sizes before the largest.
        largest: The largest size that was measured.
        predicted: What the model says of it.
        found: What it cost.
        far: The line through the two largest sizes, for sizes that were not measured.
    """

    model: Line
    largest: int
    predicted: float
    found: float
    far: Line

    @property
    def error(self) -> float:
        """How much more it cost than predicted, as a share."""
        return self.found / self.predicted - 1 if self.predicted else 0.0


def line_through(first: tuple[int, float], second: tuple[int, float]) -> Line:
    """Return the line through two sizes; costs that fall count as constant.

    >>> line_through((10, 30.0), (20, 50.0))
    Line(base=10.0, per_file=2.0)
    """
    (few, low), (many, high) = first, second
    per_file = max(0.0, (high - low) / (many - few))
    return Line(high - per_file * many, per_file)


def series(
    runs: Sequence[Mapping[str, Any]], operation: str, figure: str, form: str
) -> dict[int, float]:
    """Return a figure of an operation by the number of files, smallest first."""
    found = {
        each["files"]: float(each[figure])
        for each in runs
        if (each["operation"], each["form"]) == (operation, form) and figure in each
    }
    return dict(sorted(found.items()))


def checked(points: Mapping[int, float]) -> Checked | None:
    """Predict the largest size from the two before it; None with fewer than three sizes."""
    if len(points) < 3:
        return None
    first, second, third = sorted(points.items())[-3:]
    model = line_through(first, second)
    far = line_through(second, third)
    return Checked(model, third[0], model.at(third[0]), third[1], far)

"""The report of an inspection: what a table is made of, and what to run next."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from delvec.errors import InvalidArgumentError
from delvec.inspection.facts import headline
from delvec.inspection.figures import (
    EqualityFigures,
    Freed,
    LogFigures,
    PositionFigures,
    Ranking,
    SmallFiles,
    VectorFigures,
)
from delvec.inspection.page import fragment, page
from delvec.inspection.text import lines, text_width
from delvec.report.figures import visible
from delvec.report.rendered import Rendered

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from delvec.inspection.figures import Advice, Moment, SizeClass
    from delvec.report.rendered import Line

__all__ = ["InspectReport"]


@dataclass(frozen=True, kw_only=True)
class InspectReport(Rendered):
    """What a table is made of at one version or snapshot, and what to run next.

        report = t.inspect()
        print(report)
        report.write_html("report.html")

    Attributes:
        table: The path or URI of a Delta table, the name of an Iceberg table.
        format: `delta` or `iceberg`.
        location: Where it is.
        protocol: The versions of the format that it needs, in words.
        version: The version of a Delta table.
        snapshot_id: The snapshot of an Iceberg table; None if it has none.
        branch: The branch of an Iceberg table; None if a snapshot was named.
        is_newest: Whether it is the newest version, or the newest of a branch. There is advice for
            that alone.
        owns_files: Whether its files are its own; not those of a target that shares its source's.
        committed_ms: When it was committed, in milliseconds since 1970.
        inspected_ms: When it was inspected.
        partition_by: The partition columns, or partition fields.
        files: The number of data files.
        bytes: Their size.
        rows: Their rows, deleted ones included; None if a file has no row count in the log.
        live_rows: The rows that are left; None if only reading tells.
        vectors: The deletion vectors.
        positions: The position delete files of Iceberg.
        equality: The equality deletes of Iceberg.
        most_deleted: The files with the most deleted rows.
        partitions: The partitions with the most deleted rows; empty if there are no partitions.
        sizes: The data files by size.
        small_files: Small files, and what putting them together would do.
        log: What opening the table reads.
        moments: The state after each of the newest commits, oldest first.
        freed: Bytes that maintenance would free.
        advice: What to run next, in order.
        notes: What else is to be known, in sentences.
        phases: Seconds by phase.
    """

    table: str
    format: Literal["delta", "iceberg"]
    location: str
    protocol: str = ""
    version: int | None = None
    snapshot_id: int | None = None
    branch: str | None = None
    is_newest: bool = True
    owns_files: bool = True
    committed_ms: int | None = None
    inspected_ms: int = 0
    partition_by: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    rows: int | None = 0
    live_rows: int | None = 0
    vectors: VectorFigures = field(default_factory=VectorFigures)
    positions: PositionFigures = field(default_factory=PositionFigures)
    equality: EqualityFigures = field(default_factory=EqualityFigures)
    most_deleted: Ranking = field(default_factory=Ranking)
    partitions: Ranking = field(default_factory=Ranking)
    sizes: tuple[SizeClass, ...] = ()
    small_files: SmallFiles = field(default_factory=SmallFiles)
    log: LogFigures = field(default_factory=LogFigures)
    moments: tuple[Moment, ...] = ()
    freed: Freed = field(default_factory=Freed)
    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a dictionary that `json.dumps` accepts."""
        return asdict(self)

    def to_html(self) -> str:
        """Return the report as one HTML page with charts; it makes no request."""
        return page(self)

    def write_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the page of `to_html` to a local file, and return its path.

        Raises:
            InvalidArgumentError: The file cannot be written.
        """
        file = Path(path)
        try:
            file.write_text(self.to_html(), encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(
                f"the report cannot be written to {file}: {error.strerror or error}",
                hint="name a file in an existing folder, such as report.html",
            ) from error
        return file

    def lines(self, width: int) -> Iterator[Line]:
        """Yield the lines of the report for a terminal, each with its style.

        Args:
            width: The columns of the terminal. Words that are longer, such as paths, stay whole.
        """
        return lines(self, width)

    def _lines(self) -> Iterator[Line]:
        return lines(self, text_width())

    def __repr__(self) -> str:
        return f"InspectReport({visible(headline(self))})"

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:  # noqa: ANN401
        plain = {"markup": False, "highlight": False, "emoji": False}
        for text, style in lines(self, options.max_width):
            yield console.render_str(text, style=style, **plain)

    def _repr_html_(self) -> str:
        return fragment(self)

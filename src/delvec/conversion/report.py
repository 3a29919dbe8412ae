"""The report of a conversion, for people and for programs."""

from __future__ import annotations

from delvec.report.format import format_count
from delvec.report.rendering import ChangeReport, doc, documented, required
from delvec.storage.backend import RequestCounts


@documented()
class ConversionReport(ChangeReport):
    """What a conversion did; prints as a summary, also on terminals and in notebooks.

    >>> print(ConversionReport("/lake/orders", "ice.db.orders", 3, 12, 7, files_added=2))
    /lake/orders -> ice.db.orders: version 12 (from 3)
      files  2 added
    """

    source: str = required("The Delta table.")
    target: str = required("The Iceberg table.")
    start_version: int | None = required("The version that the target held before; None if none.")
    version: int = required("The version that it holds now.")
    snapshot_id: int | None = doc(
        "The snapshot of the target with that version; None if there was nothing to do.", None
    )
    mode: str = doc("`full` or `incremental`; `none` if there was nothing to do.", "none")
    format_version: int = doc("Of the target.", 3)
    vectors: str = doc("`repack`, `reference`, or `position-deletes` in format 2.", "repack")
    versions: int = doc("How many versions of the source became a snapshot each.", 0)
    files_added: int = doc("Data files that are new in the target.", 0)
    files_removed: int = doc("Data files that are no longer in the target.", 0)
    files_kept: int = doc("Data files that were compared and are the same, vectors included.", 0)
    files_copied: int = doc("Data files that were copied: Iceberg cannot read them as they are.", 0)
    vectors_added: int = doc("Vectors of files that had none, new files included.", 0)
    vectors_replaced: int = doc("Vectors that replace older ones.", 0)
    vectors_dropped: int = doc("Vectors that were removed while their data file stayed.", 0)
    rows: int = doc("Live rows of the target.", 0)
    deleted_rows: int = doc("Deleted rows in its files.", 0)
    verified: str = doc("How the result was verified: `counts`, `rows` or `none`.", "none")
    properties_set: tuple[str, ...] = doc(
        "Properties that others had changed and were set again.", ()
    )
    requests: RequestCounts = doc(
        "Requests of the driver itself; not those of Spark and Iceberg.", RequestCounts
    )

    def brief(self) -> str:
        """Return what happened in one line.

        >>> ConversionReport("/lake/orders", "ice.db.orders", 3, 4, 1, vectors_replaced=2).brief()
        'version 4 (from 3): 2 vectors replaced'
        """
        if self.snapshot_id is None:
            return f"version {self.version:,} is there already"
        words = ("file added", "file removed", "vector added", "vector replaced", "vector dropped")
        what = ", ".join(
            f"{format_count(count, noun)} {verb}"
            for noun, verb in map(str.split, words)
            if (count := getattr(self, f"{noun}s_{verb}"))
        )
        return f"{self._version()}: {what or 'no file changed'}"

    def _headline(self) -> str:
        where = f"{self.source} -> {self.target}"
        if self.snapshot_id is None:
            written = "no file" if self.properties_set else "nothing"
            return f"{where}: version {self.version:,} is there already, {written} was written"
        return f"{where}: {self._version()}"

    def _version(self) -> str:
        before = "new" if self.start_version is None else f"from {self.start_version:,}"
        return f"version {self.version:,} ({before})"

    def _facts(self) -> dict[str, str]:
        rows = f"{self.rows:,} live, {self.deleted_rows:,} deleted"
        return {
            "files": self._counts("files", "added", "removed", "kept", "copied"),
            "vectors": self._vectors("added", "replaced", "dropped"),
            "rows": rows if self.rows or self.deleted_rows else "",
            "versions": f"{self.versions:,}" if self.versions > 1 else "",
            "verified": self.verified if self.verified != "none" else "",
        }

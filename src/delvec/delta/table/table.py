"""The public class `DeltaTable`."""

from __future__ import annotations

from dataclasses import dataclass

from delvec.delta.table.alterations import TableAlterations
from delvec.delta.table.checking import TableCheck
from delvec.delta.table.compacting import TableCompaction
from delvec.delta.table.erasing import TableErasure
from delvec.delta.table.maintenance import TableMaintenance
from delvec.delta.table.reads import TableReads
from delvec.delta.table.restoring import TableRestore
from delvec.delta.table.vacuuming import TableVacuum
from delvec.delta.table.writes import TableWrites

__all__ = ["DeltaTable"]


@dataclass(frozen=True)
class DeltaTable(
    TableReads,
    TableWrites,
    TableAlterations,
    TableCompaction,
    TableRestore,
    TableVacuum,
    TableCheck,
    TableErasure,
    TableMaintenance,
):
    """A handle on a Delta table; each call sees the newest version, unless it names another.

    With a Spark session, rows are read and written as DataFrames. Without one, the log, the
    deletion vectors, Arrow and pandas reads and changes of the metadata work all the same.

        t = delvec.DeltaTable.create(spark, "/lake/orders", "id long, amount double")
        t = delvec.DeltaTable.for_path(spark, "/lake/orders")
        t.append(df)
        t.delete("amount < 0")
        t.update({"amount": "amount * 1.19"}, where="id < 1000")
        t.merge(df, on="t.id = s.id").when_matched_update_all().execute()
        t.to_df().where("amount > 100").show()
        t.to_df(version=3).count()

        t = delvec.DeltaTable.for_path(None, "/lake/orders")    # no JVM
        t.to_arrow([("id", "=", 17)], columns=["amount"])
    """

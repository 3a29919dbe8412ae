"""A Delta table, from Python."""

from __future__ import annotations

from dataclasses import dataclass

from delvec.delta.table.alterations import TableAlterations
from delvec.delta.table.reads import TableReads
from delvec.delta.table.writes import TableWrites

__all__ = ["DeltaTable"]


@dataclass(frozen=True)
class DeltaTable(TableReads, TableWrites, TableAlterations):
    """A handle on a table: each call looks at the newest version, unless one is named.

    With a Spark session rows come as DataFrames, and go back; without, the log, the vectors and
    Arrow tables work all the same.

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

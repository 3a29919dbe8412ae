"""Tables that delvec refuses to write to: the result would be another than their owner wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["require_writable"]


def require_writable(table: LoadedTable) -> None:
    """Refuse a table that the session wants audited, and partition specs of void fields alone.

    Raises:
        UnsupportedFeatureError: It is such a table.
    """
    _require_no_audit(table)
    _require_no_void_spec(table)


def _require_no_void_spec(table: LoadedTable) -> None:
    """Refuse a spec whose fields are all void, which Iceberg cannot describe in JSON."""
    for spec in table.metadata.specs.values():
        if spec["fields"] and all(field["transform"] == "void" for field in spec["fields"]):
            raise UnsupportedFeatureError(
                f"{table.name} has the partition spec {spec['spec-id']} of format version 1, all"
                " fields of which were dropped",
                feature="partition specs of void fields",
                hint="write to the table by Spark's own INSERT, DELETE and MERGE",
            )


def _require_no_audit(table: LoadedTable) -> None:
    """Refuse a write that the session wants audited first: it would be published at once."""
    if table.metadata.properties.get("write.wap.enabled", "").lower() != "true":
        return
    for setting in ("spark.wap.id", "spark.wap.branch"):
        value = table.spark.conf.get(setting, None)
        if value is not None:
            raise UnsupportedFeatureError(
                f"{setting} is {value}, by which writes to {table.name} wait for an audit",
                feature="write-audit-publish by settings",
                hint=f"unset {setting}, and name the branch that is audited: branch=...",
            )

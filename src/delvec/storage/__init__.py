"""Bytes in and out of local disk and object stores: the only place that does I/O on table files.

A `Storage` is opened on a root (a table, mostly) and addresses everything by keys relative to it.
Names are literal everywhere: `part=a%20b` is the object or file of exactly that name, as in Spark.
Keys that lead out of the root are rejected: they may come from the metadata of a hostile table.
"""

from __future__ import annotations

from delvec.storage.backend import FileInfo, RequestCounts
from delvec.storage.disk import STAGED_PREFIX
from delvec.storage.options import options_from_hadoop
from delvec.storage.storage import Storage

__all__ = ["STAGED_PREFIX", "FileInfo", "RequestCounts", "Storage", "options_from_hadoop"]

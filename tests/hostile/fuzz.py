"""Mutated bytes and JSON of tables: whatever is read, a value or an error of delvec's comes out.

Run as a program it feeds so many inputs in one process, and prints what it saw:
`python -m tests.hostile.fuzz COUNT SEED FOLDER`. Sound bytes are damaged in the ways of
`tests.vector.mutations`; JSON also by its structure: a value becomes a hostile one, a key comes
twice, a part is nested deep. Every input is made of its seed and number alone.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import delvec
from delvec.conversion.planning.target_layout import current_mapping
from delvec.datasource.stream_reader import Offset, beginning
from delvec.delta.log.actions import JsonActions
from delvec.delta.schema.expressions import invariants
from delvec.delta.schema.known_properties import check_properties
from delvec.delta.schema.metadata import Metadata, interval_ms
from delvec.delta.schema.partition_values import parse_partition_value
from delvec.delta.schema.types import PrimitiveType, parse_schema
from delvec.delta.skipping.statistics import record_count, tight_bounds, widen_bounds
from delvec.delta.skipping.statistics_columns import statistics_columns
from delvec.documents import parse_json, whole_number
from delvec.errors import DelvecError
from delvec.parquet.field_ids import read_schema
from delvec.parquet.readable import open_parquet, readable
from delvec.vector import Bitmap, Descriptor, encode_frame
from delvec.vector import descriptor as z85
from tests.delta.builder import TableBuilder, removed
from tests.vector.mutations import damaged, decoders

Mutate = Callable[[bytes, random.Random], bytes]


MEMORY: Final = 500 << 20
_SECONDS: Final = 2.0  # of the processor, not of the clock
# Threads and allocators reserve addresses that they never use.
_ADDRESSES: Final = 4 << 30

_DEEP: Final = 5_000
_LONGEST_PART: Final = 1 << 16
_HOSTILE: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 1.5, 2**31, 2**63 - 1, 2**63, 10**40, 1e308, float("inf"), float("nan")),
    *("", " ", "x" * 3000, "9" * 5000, "-1", "\0", "\ud800", "٣", "a//b\\c", "%2e%2e/%00"),
    *("../../../outside/secret.txt", "file:///etc/passwd", "9999999-99-99", "1e999999999"),
    *("999999999-12-31T23:59:59.999999999+99:99", "interval 9999999999999999999 weeks"),
    *("char(99999999999)", "decimal(99,99)", [], {}, [None], {"": {}}, [[]]),
    {"type": "struct", "fields": [{"name": "", "type": "long"}]},
)


class OutOfTimeError(BaseException):
    """An input takes longer than any may."""


@dataclass(frozen=True)
class Target:
    """What reads bytes of a table, with sound ones, and how they are mutated."""

    name: str
    read: Callable[[bytes], object]
    samples: Sequence[bytes]
    mutate: Mutate


def _mutated_json(data: bytes, chance: random.Random) -> bytes:
    """Change JSON by its structure, one document in a line; other bytes as such."""
    if chance.random() < 0.3:
        return damaged(data, chance)
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except ValueError:
        return damaged(data, chance)
    lines[at] = _changed(value, chance).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _changed(value: Any, chance: random.Random) -> str:  # noqa: ANN401
    """Return JSON with one to three of its values replaced."""
    holder = [value]
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = _places(holder)
        inside, key = chance.choice(places)
        found = inside[key]
        if isinstance(found, str) and found[:1] in "{[" and chance.random() < 0.7:
            try:  # a schema or statistics: JSON in a string
                inside[key] = _changed(json.loads(found), chance)
                continue
            except (ValueError, RecursionError):
                pass
        match chance.randrange(10):
            case 0 if isinstance(inside, dict):
                del inside[key]
            case 1 if isinstance(inside, dict):
                inside[chance.choice(("", ".", "path", "version", "x" * 300))] = found
            case 2:
                inside[key] = "<deep>"
            case 3:
                part = json.dumps(chance.choice(places)[0])
                inside[key] = json.loads(part) if len(part) < _LONGEST_PART else ""
            case _:
                inside[key] = deepcopy(chance.choice(_HOSTILE))
    text = json.dumps(holder[0])
    opening, closing = chance.choice((("[", "]"), ('{"a":', "}")))
    text = text.replace('"<deep>"', opening * _DEEP + "1" + closing * _DEEP)
    if chance.random() < 0.05:  # a key twice
        text = text.replace("{", '{"version":1,"path":"x",', 1)
    return text


def _places(value: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401
    """Return all places in a value, as what is around them and the key."""
    found, waiting = [], [value]
    while waiting:
        each = waiting.pop()
        for key in list(each) if isinstance(each, dict) else range(len(each)):
            found.append((each, key))
            if isinstance(each[key], (dict, list)):
                waiting.append(each[key])
    return found


def _mutated_footer(data: bytes, chance: random.Random) -> bytes:
    """Change a Parquet file: its footer, whose length is made right again, or anything."""
    length = int.from_bytes(data[-8:-4], "little")
    if chance.random() < 0.3 or length > len(data) - 12:
        return damaged(data, chance)
    footer = damaged(data[-8 - length : -8], chance)
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _mutation_of(name: str) -> Mutate:
    if name.endswith(".parquet"):
        return _mutated_footer
    return damaged if name.endswith(".bin") else _mutated_json


_FIELDS: Final = {
    "id": "long",
    "name": "string",
    "price": "decimal(12,2)",
    "day": "date",
    "at": "timestamp",
    "part": "string",
}


def _rows(start: int) -> pa.Table:
    ids = range(start, start + 20)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"näme {each}" for each in ids],
            "price": pa.array([f"{each}.25" for each in ids]).cast(pa.decimal128(12, 2)),
            "day": pa.array(ids, pa.int32()).cast(pa.date32()),
            "at": pa.array([each * 10**9 for each in ids], pa.timestamp("us", "UTC")),
        }
    )


def _build(root: Path, kind: str) -> None:
    """Make a table of three files in two partitions, with vectors in a file and in the log."""
    table = TableBuilder(root, fields=_FIELDS, partition_columns=["part"])
    table.protocol["readerFeatures"] += ["v2Checkpoint"]
    table.protocol["writerFeatures"] += ["domainMetadata", "v2Checkpoint"]
    table.properties = {
        "delta.enableDeletionVectors": "true",
        "delta.checkpointInterval": "10",
        "delta.logRetentionDuration": "interval 30 days",
        "delta.deletedFileRetentionDuration": "interval 1 week",
    }
    table.create()
    adds = []
    for number, part in enumerate(("a", "a", "ü b")):
        add = table.write_file(f"part={part}/{number}.parquet", _rows(20 * number), {"part": part})
        bounds = {"id": 20 * number, "name": f"näme {20 * number}", "day": "1970-01-05"}
        stats = {"numRecords": 20, "minValues": bounds, "maxValues": bounds | {"id": 99}}
        adds.append(add | {"path": add["path"].replace(" ", "%20"), "stats": json.dumps(stats)})
    table.commit(*({"add": add} for add in adds))
    [vector] = table.write_vectors([0, 3, 19])
    payload = encode_frame(Bitmap([3, 4, 7, 11, 18]))[4:-4]
    inline = Descriptor("i", z85.encode(payload), None, len(payload), 5).to_json()
    first = table.delete(adds[0], vector)
    second = table.delete(adds[1], inline)
    domain = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["id"]]}'}
    table.commit({"domainMetadata": domain | {"removed": False}})
    live = [first, second, adds[2]]
    if kind == "parts":
        table.checkpoint(live, parts=2)
    elif kind != "commits":
        table.checkpoint_with_sidecars(live, as_json=kind == "v2 json")
    if kind != "commits":
        table.write_hint()
        table.commit({"remove": removed(adds[2])})
    checksum = {"tableSizeBytes": 1, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
    (table.log / f"{table.version:020d}.crc").write_text(json.dumps(checksum))
    if kind == "commits":
        compacted = b"".join(table.commit_path(version).read_bytes() for version in (3, 4))
        (table.log / f"{3:020d}.{4:020d}.compacted.json").write_bytes(compacted)


def _opened(root: Path) -> delvec.DeltaTable:
    return delvec.DeltaTable.for_path(None, str(root))


_OPERATIONS: Final[tuple[Callable[[delvec.DeltaTable], object], ...]] = (
    lambda table: table.to_arrow().validate(full=True),
    lambda table: table.to_arrow(where=[("id", ">", 30)]),
    lambda table: table.to_arrow(where=[("part", "=", "a"), ("day", "<", "1970-01-20")]),
    lambda table: table.arrow_history(),
    lambda table: str(table.check()),
    lambda table: str(table.inspect()),
    lambda table: table.arrow_files(),
    lambda table: table.detail(),
    lambda table: table.vacuum(dry_run=True),
    lambda table: str(table.traces([("id", "=", 5)])),
    lambda table: table.restore(1, dry_run=True),
    lambda table: table.checkpoint(),
    lambda table: table.clean_log(dry_run=True),
    lambda table: table.set_properties({"user.x": "1"}),
)


@dataclass
class _Tables:
    """Whole tables on disk, one file of which is replaced while an operation runs."""

    folder: Path

    def targets(self) -> list[Target]:
        found = []
        for kind in ("commits", "parts", "v2 json", "v2 parquet"):
            root = self.folder / kind.replace(" ", "-")
            _build(root, kind)
            shutil.copytree(root, self.folder / "sound" / root.name)
            for path in sorted(each for each in root.rglob("*") if each.is_file()):
                name = str(path.relative_to(root))
                read, sound = self._reader(root, path), [path.read_bytes()]
                found.append(Target(f"{kind}: {name}", read, sound, _mutation_of(name)))
        return found

    def _reader(self, root: Path, path: Path) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            path.write_bytes(data)
            chance = random.Random(len(data) ^ sum(data[:64]))
            try:
                return chance.choice(_OPERATIONS)(_opened(root))
            finally:
                self._restore(root, path)

        return read

    def _restore(self, root: Path, path: Path) -> None:
        sound = self.folder / "sound" / root.name
        shutil.copyfile(sound / path.relative_to(root), path)
        for each in (root / "_delta_log").iterdir():  # what a write has left
            if each.is_file() and not (sound / "_delta_log" / each.name).exists():
                each.unlink()


def _statistics(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    wanted = {
        ("numRecords",): pa.int64(),
        ("minValues", "id"): pa.int64(),
        ("maxValues", "name"): pa.string(),
        ("minValues", "day"): pa.date32(),
        ("maxValues", "at"): pa.timestamp("us", "UTC"),
        ("minValues", "price"): pa.decimal128(12, 2),
        ("nullCount", "id"): pa.int64(),
    }

    class Source:
        def json_statistics(self) -> pa.Array:
            return pa.array([text, None, text], pa.string())

        def parsed_statistics(self, *path: str) -> None:
            """Have none."""

    found = statistics_columns(Source(), wanted)
    return found, record_count(text), tight_bounds(text), widen_bounds(text, 20, 3)


def _schema(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    schema = parse_schema(text, "name")
    metadata = Metadata.from_json({"schemaString": text})
    return str(schema), schema.to_json(), invariants(metadata)


def _actions(data: bytes) -> object:
    actions = JsonActions("0.json", data)
    return actions.table(["part"]), list(actions.others()), list(actions.all_actions())


def _values(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    interval_ms(text)
    whole_number(text)
    kinds = ("long", "double", "decimal(12,2)", "date", "timestamp", "boolean", "timestamp_ntz")
    for kind in kinds:
        with suppress(DelvecError):
            parse_partition_value(text, PrimitiveType(kind))
    with suppress(DelvecError):
        check_properties({"delta.checkpointInterval": text})
    return None


def _offset(data: bytes) -> object:
    offset = Offset.from_json(parse_json(data, "an offset"))
    return offset.to_json(), offset.in_snapshot, beginning(offset)


def _name_mapping(data: bytes) -> object:
    return current_mapping({"schema.name-mapping.default": data.decode("utf-8", "replace")})


def _parquet(data: bytes) -> object:
    with readable("x.parquet"):
        parquet = open_parquet(io.BytesIO(data))
        groups = [parquet.metadata.row_group(n) for n in range(parquet.metadata.num_row_groups)]
        chunks = [each.column(n) for each in groups for n in range(each.num_columns)]
        return [(chunk.total_compressed_size, chunk.statistics) for chunk in chunks]


def _parquet_schema(data: bytes) -> object:
    length = int.from_bytes(data[-8:-4], "little")
    return read_schema(data[-8 - length : -8], "x.parquet")


def _parsers() -> list[Target]:
    array = {"type": "array", "elementType": "long", "containsNull": True}
    columns = [
        {"name": name, "type": kind, "nullable": True}
        | {
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
                "delta.invariants": '{"expression":{"expression":"id > 0"}}',
                "__CHAR_VARCHAR_TYPE_STRING": "char(5)",
            }
        }
        for number, (name, kind) in enumerate((*_FIELDS.items(), ("list", array)))
    ]
    schema = json.dumps({"type": "struct", "fields": columns}).encode()
    bounds = {"id": 1, "name": "x", "day": "2020-01-01", "at": "2020-01-01T00:00:00.000Z"}
    statistics = json.dumps(
        {"numRecords": 20, "minValues": bounds | {"price": 1.25}, "maxValues": bounds}
        | {"nullCount": {"id": 0}, "tightBounds": True}
    ).encode()
    sink = io.BytesIO()
    pq.write_table(_rows(0), sink, row_group_size=8, write_page_index=True)
    actions: list[dict[str, Any]] = [
        {"add": {"path": "a", "size": 1, "modificationTime": 1, "partitionValues": {}}},
        {"remove": {"path": "b", "deletionTimestamp": 1, "dataChange": True}},
        {"txn": {"appId": "a", "version": 1}},
    ]
    lines = b"\n".join(json.dumps(each).encode() for each in actions)
    texts = [b"7", b"2020-01-01", b"2020-01-01 10:00:00.5", b"interval 2 weeks 1 day", b"1.25"]
    mapping = json.dumps([{"field-id": 1, "names": ["id"]}]).encode()
    offset = json.dumps({"table": "x", "version": 7, "since": 7, "snapshot": True}).encode()
    own = [
        Target("schema", _schema, [schema], _mutated_json),
        Target("statistics", _statistics, [statistics], _mutated_json),
        Target("lines", _actions, [lines], _mutated_json),
        Target("offset", _offset, [offset], _mutated_json),
        Target("texts", _values, texts, damaged),
        Target("name mapping", _name_mapping, [mapping], _mutated_json),
        Target("parquet", _parquet, [sink.getvalue()], _mutated_footer),
        Target("parquet schema", _parquet_schema, [sink.getvalue()], _mutated_footer),
    ]
    return own + [Target(name, read, samples, damaged) for name, read, samples in decoders()]


def targets(folder: Path) -> list[Target]:
    """All that is fed: whole tables, made in a folder, one in eight times; and single parsers."""
    tables, parsers = _Tables(folder).targets(), _parsers()
    return [*tables, *(parsers * (7 * len(tables) // len(parsers)))]


def _out_of_time(*_: object) -> None:
    raise OutOfTimeError


def _limited() -> None:
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    signal.signal(signal.SIGPROF, _out_of_time)


def run(count: int, seed: int, folder: Path, only: int | None = None) -> dict[str, Any]:
    """Feed inputs, and return the outcomes and what should not have been."""
    all_targets = targets(folder)
    for target in all_targets:
        for sample in target.samples:
            target.read(sample)  # as they are they are fine
    _limited()
    outcomes: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    slowest = 0.0
    for number in range(count) if only is None else [only]:
        (folder / "number").write_text(str(number))
        chance = random.Random(f"{seed} {number}")
        target = chance.choice(all_targets)
        data = target.mutate(chance.choice(target.samples), chance)
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        try:
            target.read(data)
            outcomes["value"] += 1
        except DelvecError as error:
            str(error)  # must print, too
            outcomes[type(error).__name__] += 1
        except BaseException as error:  # noqa: BLE001 - all of these are failures
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} at {place.filename}:{place.lineno}"
            told = "".join(traceback.format_exception(error))[-1500:]
            wrong.setdefault(what, f"input {number} of seed {seed}, {target.name}:\n{told}")
            outcomes["FOREIGN"] += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, time.process_time() - started)
    return {"outcomes": outcomes, "wrong": wrong, "slowest": slowest, "peak": _peak()}


def _peak() -> int:
    """Return the most memory that this process had; `getrusage` counts that of its parent too."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) * 1024


def _main(count: str, seed: str, folder: str, only: str | None = None) -> None:
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    found = run(int(count), int(seed), Path(folder), None if only is None else int(only))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])

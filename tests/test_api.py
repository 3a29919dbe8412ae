"""The public surface: every public name with its signature, and every command with its options.

`tests/public_api.txt` is the list. A change of it is a change for users: write the new list with
`python -m tests.test_api` and say so in the CHANGELOG.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click

import delvec
from delvec.cli import main
from delvec.conversion.apply import ConversionReport
from delvec.conversion.clean_target import CleanReport
from delvec.conversion.plan import ConversionPlan
from delvec.delta.table import TableDetail
from delvec.delta.table.writes import MergeBuilder
from delvec.delta.write.report import WriteReport
from delvec.iceberg.commit.lock import UnlockReport
from delvec.iceberg.maintain import check, compact, consolidate
from delvec.iceberg.maintain.procedures import ExpireReport, OrphanReport
from delvec.iceberg.resolve.report import ResolveReport
from delvec.iceberg.search.key_index import IndexReport
from delvec.iceberg.table import IcebergDetail
from delvec.inspection.report import InspectReport
from delvec.spark.delta.scan.explain import ReadReport

LIST = Path(__file__).parent / "public_api.txt"


def signature(value: object) -> str:
    """The parameters and the result as they are written, without module names."""
    assert callable(value)
    return str(inspect.signature(value)).replace("'", "")


def lines_of(name: str, value: object) -> Iterator[str]:
    if isinstance(value, ModuleType):
        for inner in sorted(value.__all__):
            yield from lines_of(f"{name}.{inner}", getattr(value, inner))
    elif inspect.isclass(value):
        yield f"class {name}{signature(value)}"
        for inner in sorted(dir(value)):
            if not inner.startswith("_"):
                yield from member(value, f"{name}.{inner}", inner)
    elif callable(value):
        yield f"def {name}{signature(value)}"
    elif not isinstance(value, str):
        yield f"value {name}"


def members_of(name: str, value: type) -> Iterator[str]:
    """The members of what calls return; users do not construct it."""
    yield f"class {name}"
    names = {inner for inner in dir(value) if not inner.startswith("_")}
    if dataclasses.is_dataclass(value):
        names |= {field.name for field in dataclasses.fields(value) if field.name[0] != "_"}
    for inner in sorted(names):
        found = inspect.getattr_static(value, inner, None)
        yield f"  {inner}{signature(found) if inspect.isfunction(found) else ''}"


def member(owner: type, name: str, inner: str) -> Iterator[str]:
    value = inspect.getattr_static(owner, inner)
    if isinstance(value, (classmethod, staticmethod)) or inspect.isfunction(value):
        yield f"def {name}{signature(getattr(owner, inner))}"
    elif issubclass(owner, BaseException) and inner in dir(OSError):
        return
    else:
        kind = "field" if dataclasses.is_dataclass(owner) else "property"
        yield f"{kind} {name}"


def command_lines(name: str, command: click.Command) -> Iterator[str]:
    yield f"command {name}"
    for parameter in command.params:
        spelled = "/".join([*parameter.opts, *parameter.secondary_opts])
        is_parsed = isinstance(parameter.type, click.types.FuncParamType)  # from what is typed
        kind = "text" if is_parsed else parameter.type.name
        yield f"  {parameter.param_type_name} {spelled} {kind}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from command_lines(f"{name} {inner}", found)


def public_api() -> str:
    lines = [
        line
        for name in delvec.__all__
        for line in lines_of(f"delvec.{name}", getattr(delvec, name))
    ]
    for result in (
        *(ConversionPlan, ConversionReport, check.CheckReport, CleanReport, compact.CompactReport),
        *(consolidate.ConsolidateReport, ExpireReport, IcebergDetail, IndexReport, InspectReport),
        *(MergeBuilder, OrphanReport, ReadReport, ResolveReport, TableDetail, UnlockReport),
        WriteReport,
    ):
        lines += members_of(result.__name__, result)
    lines += command_lines("delvec", main)
    return "\n".join(lines) + "\n"


def test_the_public_names_and_signatures_are_those_of_the_list() -> None:
    assert public_api().splitlines() == LIST.read_text().splitlines()


if __name__ == "__main__":
    LIST.write_text(public_api())

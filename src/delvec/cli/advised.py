"""Commands that `delvec inspect` advises, as a shell takes them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from delvec.report.wordings import shell_word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.inspection.report import InspectReport

__all__ = ["SECRET", "with_commands"]

SECRET: Final = "***"  # noqa: S105 - what stands in its place
"""What stands for a key or a password: reports are sent around and kept."""

_REACHING: Final = ("options", "warehouse", "catalog", "master", "packages", "conf")
# All other settings may be secret: there are too many names of keys to know them all.
_HARMLESS: Final = re.compile(
    r"(.*[._-])?(region|endpoint(_url)?|warehouse|type|uri|catalog-impl|io-impl|allow_http"
    r"|account_name|bucket|timeout|memory|cores|timezone|extensions)|spark\.sql\.catalog\.[^.]+",
    re.IGNORECASE,
)
_IN_URI: Final = re.compile(r"(?<=//)[^/@]*(?=@)|(?<=[?;]).*", re.DOTALL)  # users, parameters


def with_commands(report: InspectReport, table: str) -> InspectReport:
    """Return the report with a command line for each advice.

    It has the table as it was given, and the options of the current command that say how it is
    reached, such as `--warehouse`, as far as the advised command takes them.

    Args:
        report: The report.
        table: The table as the user named it.
    """
    context = click.get_current_context()
    advice = []
    hidden = False
    for each in report.advice:
        name, _, *more = each.arguments
        words = [*more, *_reaching(context, name)]
        hidden = hidden or any("=" in word and SECRET in word for word in words)
        line = ["delvec", name, shell_word(table, is_path=True), *map(shell_word, words)]
        advice.append(replace(each, command=" ".join(line)))
    notes = report.notes
    if hidden:
        notes = (*notes, f"what may be secret is not repeated: put yours in place of {SECRET}")
    return replace(report, advice=tuple(advice), notes=notes)


def _reaching(context: click.Context, name: str) -> Iterator[str]:
    """Yield the options that were given and that another command takes too."""
    group = None if context.parent is None else context.parent.command
    other = group.get_command(context, name) if isinstance(group, click.Group) else None
    taken = {opt for each in ([] if other is None else other.params) for opt in each.opts}
    for param in context.command.params:
        if param.name not in _REACHING or taken.isdisjoint(param.opts):
            continue
        if context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            for value in _values(context.params[param.name]):
                yield from (param.opts[0], value)


def _values(value: Any) -> Iterator[str]:  # noqa: ANN401 - of any option
    if isinstance(value, dict):
        for key, text in value.items():
            yield f"{key}={_shown(key, str(text))}"
    elif isinstance(value, list | tuple):
        yield from map(str, value)
    else:
        yield str(value)


def _shown(name: str, value: str) -> str:
    """Return the value of a setting without what may be secret.

    >>> _shown("region", "eu-west-1"), _shown("api_key", "k"), _shown("uri", "jdbc:x://u:p@h/db?p=w")
    ('eu-west-1', '***', 'jdbc:x://***@h/db?***')
    """
    return _IN_URI.sub(SECRET, value) if _HARMLESS.fullmatch(name) else SECRET

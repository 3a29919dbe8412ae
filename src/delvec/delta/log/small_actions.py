"""The actions that are not of data files: protocol, metadata, transactions and domains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.errors import FormatError, located

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delvec.delta.log.json_actions import JsonActions

__all__ = ["SmallActions", "state_set_by"]


@dataclass
class SmallActions:
    """The newest small action of each kind; files are replayed newest first."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str | None] = field(default_factory=dict)

    def replay(self, actions: Iterable[dict[str, Any]], uri: str) -> list[str]:
        """Take what is not known yet from the actions of one file; return the sidecars it names."""
        sidecars = []
        # Inside a file the last wins, should there be two.
        for action in reversed(list(actions)):
            with located(uri):
                if (value := _object(action, "protocol")) and self.protocol is None:
                    self.protocol = Protocol.from_json(value)
                if (value := _object(action, "metaData")) and self.metadata is None:
                    self.metadata = Metadata.from_json(value)
                if value := _object(action, "txn", appId=str, version=int):
                    self.transactions.setdefault(value["appId"], value["version"])
                if value := _object(action, "domainMetadata", domain=str):
                    text = None if value.get("removed") else value.get("configuration")
                    if not isinstance(text, str | None):
                        raise FormatError("the configuration of a domain is no text")
                    self.domains.setdefault(value["domain"], text)
                if value := _object(action, "sidecar", path=str):
                    sidecars.append(value["path"])
        return sidecars

    def required(self, table: str) -> tuple[Protocol, Metadata]:
        """Return the protocol and the metadata, which every table must have."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metaData"
            raise FormatError(
                f"the log of {table} has no {missing}",
                path=table,
                expected=f"one {missing} action in the first commit or the checkpoint",
            )
        return self.protocol, self.metadata


def state_set_by(actions: JsonActions) -> tuple[Protocol | None, Metadata | None]:
    """Return the protocol and the metadata that one commit sets, None for what it does not set."""
    state = SmallActions()
    state.replay(actions.others(), actions.uri)
    return state.protocol, state.metadata


def _object(action: dict[str, Any], name: str, **needed: type) -> dict[str, Any] | None:
    """Return the body of an action of one kind, with all needed fields; None for other kinds."""
    value = action.get(name)
    if value is None:
        return None
    if not isinstance(value, dict) or not all(_is(value.get(key), needed[key]) for key in needed):
        raise FormatError(
            f"a {name} action is damaged",
            expected=f"an object with {', '.join(needed)}" if needed else "an object",
            found=repr(value)[:60],
        )
    return value


def _is(value: object, kind: type) -> bool:
    return type(value) is kind and (not isinstance(value, int) or abs(value) < 1 << 63)

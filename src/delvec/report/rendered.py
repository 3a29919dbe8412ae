"""How reports and plans are shown: as text, on terminals and in notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Rendered"]

_AS_IT_IS: Final = {"markup": False, "highlight": False, "emoji": False}


class Rendered(ABC):
    """Something that tells itself line by line."""

    @abstractmethod
    def _lines(self) -> Iterator[tuple[str, str]]:
        """Give each line with its style."""

    def __str__(self) -> str:
        return "\n".join(text for text, _ in self._lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    # Rich hands its console over, so that nothing here has to import it.
    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:  # noqa: ANN401
        for text, style in self._lines():
            yield console.render_str(text, style=style, **_AS_IT_IS)

    def __rich_measure__(self, console: Any, options: Any) -> Any:  # noqa: ANN401
        return console.measure(console.render_str(str(self), **_AS_IT_IS), options=options)

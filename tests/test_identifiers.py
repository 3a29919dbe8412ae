"""Names in backticks and paths of names."""

from __future__ import annotations

import pytest

from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote, quote_if_needed, split_path, unquote


def test_paths_are_split_at_dots_outside_of_quotes() -> None:
    assert split_path("a.`b.c`.`d``e`") == ("a", "b.c", "d`e")
    for wrong in ("", ".", "a.", ".a", "a..b", "`a", "a`b`"):
        with pytest.raises(InvalidArgumentError, match="not a path"):
            split_path(wrong)


@pytest.mark.parametrize("name", ["a", "a b", "a.b", "`", "a``b", "2026"])
def test_a_quoted_name_is_unquoted_to_itself(name: str) -> None:
    assert unquote(quote(name)) == name
    assert unquote(quote_if_needed(name)) == name
    assert split_path(quote(name)) == (name,)

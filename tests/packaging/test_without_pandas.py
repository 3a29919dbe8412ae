"""What needs pandas says so; all else works without, as `make test-lowest` shows."""

from __future__ import annotations

from typing import Any

import pytest

from delvec.errors import MissingDependencyError
from delvec.spark.delta.write import file_outcomes as vectors_in_tasks


def test_vectors_written_by_tasks_need_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_in_tasks, "find_spec", lambda _: None)
    nothing: Any = None
    with pytest.raises(MissingDependencyError, match="PySpark needs pandas") as failure:
        vectors_in_tasks.write_vectors_in_tasks(nothing, nothing, nothing, {})
    assert "pip install 'delvec[pandas]'" in str(failure.value.hint)
    assert "spark.delvec.write.hitMemory" in str(failure.value.hint)

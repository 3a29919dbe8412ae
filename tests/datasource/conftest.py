from __future__ import annotations

from tests.spark.delta.conftest import lake

__all__ = ["lake"]

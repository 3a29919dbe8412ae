"""What a Delta table demands of its rows, and the expressions that it stores for them."""

from __future__ import annotations

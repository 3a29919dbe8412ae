from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

from tests.vector import mutations


def feed(count: int, seed: int) -> None:
    """Run in a process of its own: a crash of the C library or a runaway allocation is its end."""
    command = [sys.executable, "-m", "tests.vector.mutations", str(count), str(seed)]
    # An hour is no measurement, only an end for a decoder that hangs.
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    outcomes = Counter(report["outcomes"])
    damaged = {name: n for name, n in outcomes.items() if not name.endswith(": sound")}
    assert sum(damaged.values()) == count
    names = {name for name, _, _ in mutations.decoders()}
    for name in names:  # each decoder saw inputs that it refused
        assert any(key.startswith(f"{name}: ") and key.endswith("Error") for key in damaged), name
    for name in ("bitmap", "payload", "repaired frame", "keys", "footer", "descriptor"):
        assert outcomes[f"{name}: value"] > 0  # and some that were still fine
    assert report["grown_kib"] < 16 * 1024


def test_damaged_inputs_end_in_a_value_or_a_format_error() -> None:
    feed(5_000, seed=1)

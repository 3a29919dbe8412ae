"""A process of its own whose Spark has no jar of delta-spark, as the demonstration has it.

    python -m tests.cli.told FOLDER

Prints the text of all steps in a pipe, and the document for programs, as JSON.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from io import StringIO

from delvec.cli.demo.demo import Tour, show_story
from delvec.cli.output import Output
from delvec.storage import Storage

if __name__ == "__main__":
    text = StringIO()
    with redirect_stdout(text):
        tour = Tour(Output(), Storage.open(sys.argv[1]), is_kept=True)
        found = show_story(tour, iceberg=True)
    print(json.dumps({"text": text.getvalue(), "found": found}))  # noqa: T201

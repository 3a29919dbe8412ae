"""How results are shown: figures, rendered reports, and the time of phases.

    figures    numbers, sizes and names as people read them
    rendered   a report as text, on terminals, in notebooks and as a JSON document
    phases     a stopwatch for the phases of an operation

Imports no other package of delvec.
"""

from __future__ import annotations

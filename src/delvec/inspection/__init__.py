"""The inspection of a table: figures at a glance, what to run next, and a page with charts.

    figures   the parts of a report, as plain numbers
    columns   figures from columns of files: rankings, sizes, ages
    limits    what is too much, and the reasons that name it
    advice    what to run next and why, by these limits
    report    all of it for one table
    text      the report as a page of text
    page      the report as one HTML page without any request; sections, charts and styles are its
              parts

Knows no table format: `delta/maintain/inspect` and `iceberg/table/inspected` gather the numbers.
"""

from __future__ import annotations

"""The inspection of a table: figures at a glance, what to run next, and a page with charts.

    figures   the parts of a report, as plain numbers
    ranking   figures from columns of files: rankings, sizes, ages
    advice    what to run next and why, and the limits that decide it
    facts     the figures in words
    report    all of it for one table, and as a page of text
    html      the report as one HTML page with charts, without any request

Knows no table format: `delta/maintain/inspect` and `iceberg/table/inspection` gather the numbers.
"""

"""From a change of a table to the next commit of its log: validation, conflicts, retries, report.

Only `commit` puts commits. Rows are found and written by an engine that callers pass in.
"""

"""Where rows that satisfy a condition still physically exist, and when they will be gone.

find      all of it: what is there, what is in it, what to do about it
files     the files below the table's folder
history   what the log says of files of any version
rows      matching rows in a file, by the columns that the table had
values    values that a condition names
log       such values in the log
steps     after which step, and when, a trace is gone
report    the result
"""

from __future__ import annotations

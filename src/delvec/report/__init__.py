"""How results are shown, to people and to programs.

    format      numbers, sizes and names as people read them
    hints       what to run next, as a call and as a command
    rendering   a report as text, in notebooks and as JSON; the time of its phases
    findings    what checks found
    commits     what became of commits, for a caller that is interrupted

Imports no other package of delvec.
"""

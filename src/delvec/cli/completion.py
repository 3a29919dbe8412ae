"""`delvec completion`: the script by which a shell completes commands, options and paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.main import main

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]

_SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_DELVEC_COMPLETE"


@delvec_command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(output: Output, shell: str) -> None:
    """Print the script by which SHELL completes commands, options and the paths of tables.

    \b
    bash (4.4 or later), once, then open a new shell:
      delvec completion bash > ~/.local/share/bash-completion/completions/delvec
    zsh, in ~/.zshrc, after compinit:
      eval "$(delvec completion zsh)"
    fish, once:
      delvec completion fish > ~/.config/fish/completions/delvec.fish
    """  # noqa: D301
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    made = get_completion_class(shell)
    if made is None:
        raise AssertionError("click knows all shells of the choice")
    completing = made(main, {}, "delvec", _VARIABLE)
    script = completing.source_template % completing.source_vars()
    output.plain(script)
    output.result({"shell": shell, "script": script})

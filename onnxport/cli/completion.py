"""`onnxport --install-completion`: one line in a shell's start file, with which it completes commands and options."""

from __future__ import annotations

import os
from pathlib import Path

from onnxport.core.errors import MachineError, UsageError

# Shell -> the line. zsh's completion may not be switched on yet when it is read.
LINES = {
    "bash": 'eval "$(_ONNXPORT_COMPLETE=bash_source onnxport)"',
    "zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }; "
    'eval "$(_ONNXPORT_COMPLETE=zsh_source onnxport)"',
    "fish": "_ONNXPORT_COMPLETE=fish_source onnxport | source",
}
AUTO = "auto"


def start_file(shell: str) -> Path:
    """Return the file that a shell reads when it starts for its user."""
    home = Path.home()
    if shell == "fish":
        return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "fish/completions/onnxport.fish")
    return Path(os.environ.get("ZDOTDIR") or home, ".zshrc") if shell == "zsh" else home / ".bashrc"


def install(shell: str = AUTO) -> str:
    """Add the line to the shell's start file, unless it is there; return what was done.

    Args:
        shell: one of LINES, or AUTO for the user's, by $SHELL.

    Raises:
        UsageError: there is no completion for the shell.
        MachineError: the file cannot be read or written.
    """
    name = Path(os.environ.get("SHELL", "")).name if shell == AUTO else shell
    if name not in LINES:
        why = f"$SHELL is {name}" if name else "$SHELL is not set"
        raise UsageError(
            "there is no completion for this shell",
            why=why,
            fix="give one: onnxport --install-completion bash, zsh or fish",
        )
    file = start_file(name)
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if LINES[name] in text.splitlines():
            return f"{file} has the completion of {name} already"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{LINES[name]}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(
            f"{file} cannot be changed", why=str(error), fix=f"add this line yourself: {LINES[name]}"
        ) from error
    return f"added a line to {file}; a new {name} completes onnxport's commands, options and files"

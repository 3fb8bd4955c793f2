"""`onnxport --install-completion`, asked of real shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.sandbox import Sandbox


@pytest.fixture
def home(sandbox: Sandbox) -> Path:
    home = sandbox.folder.parent / "home"
    home.mkdir()
    for variable in ("ZDOTDIR", "XDG_CONFIG_HOME"):
        sandbox.environment.pop(variable, None)
    command = Path(sandbox.command()[0]).parent
    sandbox.environment |= {"HOME": str(home), "PATH": f"{command}:{sandbox.environment['PATH']}"}
    return home


# What a shell says of the completion of onnxport once it has started.
_ASKED = {
    "bash": (["bash", "-ic", "complete -p onnxport"], "_onnxport_completion"),
    "zsh": (["zsh", "-ic", "print $_comps[onnxport]"], "_onnxport_completion"),
    "fish": (["fish", "-c", "complete --do-complete 'onnxport conv'"], "convert"),
}


@pytest.mark.parametrize("shell", list(_ASKED))
def test_a_new_shell_completes(shell: str, sandbox: Sandbox, home: Path) -> None:
    asked, expected = _ASKED[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so there is nobody to ask")
    sandbox.environment["SHELL"] = f"/usr/bin/{shell}"
    assert sandbox.run("--install-completion").code == 0
    done = subprocess.run(
        asked, env=sandbox.environment, cwd=home, capture_output=True, text=True, check=False, timeout=60
    )
    assert expected in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("shell", "file"),
    [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish/completions/onnxport.fish")],
)
def test_the_line_comes_once_behind_what_was_there(
    shell: str, file: str, sandbox: Sandbox, home: Path
) -> None:
    place = home / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("alias ll='ls -l'")
    first = sandbox.run("--install-completion", shell)
    assert (first.code, first.stdout.startswith(f"added a line to {place}")) == (0, True)
    again = sandbox.run("--install-completion", shell)
    assert again.stdout == f"{place} has the completion of {shell} already\n"
    lines = place.read_text().splitlines()
    assert len(lines) == 2
    assert lines[0] == "alias ll='ls -l'"


@pytest.mark.parametrize(("given", "said"), [("/bin/dash", "$SHELL is dash"), ("", "$SHELL is not set")])
def test_another_shell_is_refused(given: str, said: str, sandbox: Sandbox, home: Path) -> None:
    sandbox.environment["SHELL"] = given
    done = sandbox.run("--install-completion")
    assert done.code == 2
    assert said in done.stderr
    assert "--install-completion bash" in done.stderr
    assert list(home.iterdir()) == []


def test_a_file_that_cannot_be_written_is_left_to_the_user(sandbox: Sandbox, home: Path) -> None:
    (home / ".bashrc").mkdir()
    done = sandbox.run("--install-completion", "bash")
    assert done.code == 6
    assert "add this line yourself: eval" in done.stderr

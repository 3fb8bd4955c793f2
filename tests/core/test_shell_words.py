"""What a message proposes for pasting is one word for every name, and the same name in the command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from onnxport.core.shell_words import join, quote, quote_option

NAMES = (
    *(
        "x",
        "a b",
        "it's",
        'say "so"',
        "$(touch pwned)",
        "`touch pwned`",
        "a;touch pwned",
        "a|b&c>d<e",
        "*?[x]",
    ),
    *(
        "~",
        "#x",
        "!x",
        "\\",
        "a\\'b",
        "a\ntouch pwned\n",
        "\x1b[2J",
        "\r\t\x7f",
        "\u202egpj",
        "\u2028",
        "é",
        "",
    ),
    *("\U000e0041x", "\x1b1 $(touch pwned)'\n`touch pwned`", "${HOME}", "-rf", "%s%n"),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(shutil.which("bash") is None, reason="pastes into bash")
def test_a_pasted_name_is_one_word(name: str, tmp_path: Path) -> None:
    line = f"printf '%s\\0' {quote_option('--shape', f'{name}=1,3', name)} {join([name, 'end'])}"
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, check=True, env=environment
    )
    words = done.stdout.decode().split("\0")[:-1]
    assert words == ["--shape", f"{name}=1,3", "--shape", name, name, "end"]
    assert not list(tmp_path.iterdir())
    assert line.isprintable()


def test_plain_words_stay_as_they_are() -> None:
    assert quote_option("--shape", "image=1,3,224,224") == "--shape image=1,3,224,224"
    assert join(["onnxport", "convert", "digits.onnx"]) == "onnxport convert digits.onnx"
    assert quote("1,?,?") == "'1,?,?'"

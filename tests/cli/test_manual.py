"""`man onnxport` says what the code says: its commands, by groups, and the exit codes."""

from __future__ import annotations

import re
from pathlib import Path

from onnxport.cli.commands import GROUPS
from onnxport.core import errors

PAGE = (Path(__file__).parents[2] / "docs/man/onnxport.1").read_text(encoding="utf-8").replace("\\-", "-")


def section(title: str) -> str:
    (text,) = re.findall(rf"^\.SH {title}\n(.*?)(?=^\.SH |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


def test_manual_lists_the_commands_as_help_does() -> None:
    title = ""
    found: dict[str, dict[str, str]] = {}
    for group, name, line in re.findall(
        r"^\.SS (.+)|^\.TP\n\.B (\w+)\n(.+)", section("COMMANDS"), re.MULTILINE
    ):
        title = group or title
        found.setdefault(title, {}).update({name: line} if name else {})
    assert found == GROUPS


def test_manual_lists_every_exit_code() -> None:
    public = {name: value for name, value in vars(errors).items() if name.isupper() and name[0] != "_"}
    codes = {value for value in public.values() if isinstance(value, int)}
    assert {
        int(code) for code in re.findall(r"^\.TP\n\.B (\d+)$", section("EXIT STATUS"), re.MULTILINE)
    } == codes

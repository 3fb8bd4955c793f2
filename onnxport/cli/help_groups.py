"""The options of a command's --help in groups: the common ones first."""

from __future__ import annotations

from typing import Any

import click

# The group of options without another.
COMMON = "Options"
PROOF = "The proof"
OUTPUT = "Output"


class Option(click.Option):
    """An option of a group of the help text, by its title."""

    def __init__(self, *arguments: Any, group: str = COMMON, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group = group


class Command(click.Command):
    """A command that shows its options by groups, each where its first option is; COMMON comes first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {COMMON: []}
        for parameter in self.get_params(ctx):
            # The usage has the arguments; click lists them again, without a word.
            if (record := parameter.get_help_record(ctx)) is not None and any(record[1:]):
                groups.setdefault(getattr(parameter, "group", COMMON), []).append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

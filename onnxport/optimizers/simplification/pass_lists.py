"""Which passes run, and in which order: passes.yaml, or a list of the user's own."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from onnxport.core.errors import InputError, UsageError
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.simplification.registry import PASSES, Pass


def plan(params: OptimizeParams) -> tuple[Pass, ...]:
    """The passes that `params` ask for.

    Raises:
        UsageError: a pass that there is not, or a file that is no list of names.
        InputError: a file that cannot be read.
    """
    for name in params.skip:
        _known(name, "--skip")
    names = levels()[params.level] if params.passes is None else _of_file(params.passes)
    return tuple(PASSES[name] for name in names if name not in params.skip or PASSES[name].required)


@cache
def levels() -> dict[str, tuple[str, ...]]:
    """The lists of passes.yaml; a level's name inside another's list stands for its passes."""
    text = resources.files(__package__).joinpath("passes.yaml").read_text(encoding="utf-8")
    lists: dict[str, Sequence[str]] = yaml.safe_load(text)
    return {level: tuple(_written_out(names, lists)) for level, names in lists.items()}


def _written_out(names: Sequence[str], lists: dict[str, Sequence[str]]) -> Iterator[str]:
    for name in names:
        if name in lists:
            yield from _written_out(lists[name], lists)
        else:
            yield name


def _of_file(path: Path) -> tuple[str, ...]:
    try:
        given: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no YAML", why=" ".join(str(error).split())) from error
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise UsageError(
            f"{path} is no list of passes",
            why="it is to hold names, one a line behind a dash",
            fix=f"start from those of a level: {', '.join(levels()['basic'])}",
        )
    names = tuple(_written_out(given, dict(levels())))
    for name in names:
        _known(name, str(path))
    return tuple(name for name in PASSES if PASSES[name].required and name not in names) + names


def _known(name: str, where: str) -> None:
    if name in PASSES:
        return
    close = difflib.get_close_matches(name, PASSES, n=1)
    raise UsageError(
        f"{where} names the pass {name!r}, and there is none",
        fix=f"did you mean {close[0]!r}?" if close else f"passes are {', '.join(PASSES)}",
    )

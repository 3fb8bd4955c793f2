"""The lists of passes to run, in order: passes.yaml, or a list of the user's own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import yaml

from onnxport.core.errors import UsageError
from onnxport.core.missing_paths import unreadable_path
from onnxport.core.yaml_settings import read_settings
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.passes import Pass
from onnxport.optimizers.simplification import (  # noqa: F401 - these register their passes
    activations,
    chains,
    constants,
    duplicates,
    external,
    gather,
    identities,
    products,
    reshapes,
)
from onnxport.optimizers.simplification.graph import PASSES, ModelEditor


def plan(params: OptimizeParams) -> tuple[Pass[ModelEditor], ...]:
    """Return the passes that `params` select.

    Raises:
        UsageError: an unknown pass, or a file that is no list of names.
        InputError: a file that cannot be read.
    """
    _check_names(params.skip, "--skip")
    names = levels()[params.level] if params.passes is None else _read_list(params.passes)
    return tuple(PASSES[name] for name in names if name not in params.skip or PASSES[name].first)


@cache
def levels() -> dict[str, tuple[str, ...]]:
    """Return the lists of passes.yaml; a level's name inside a list stands for its passes."""
    text = resources.files(__package__).joinpath("passes.yaml").read_text(encoding="utf-8")
    lists: dict[str, Sequence[str]] = yaml.safe_load(text)
    return {level: tuple(_expand(names, lists)) for level, names in lists.items()}


def _expand(names: Sequence[str], lists: dict[str, Sequence[str]]) -> Iterator[str]:
    for name in names:
        if name in lists:
            yield from _expand(lists[name], lists)
        else:
            yield name


def _read_list(path: Path) -> tuple[str, ...]:
    try:
        given = read_settings(path)
    except OSError as error:
        raise unreadable_path(path, error) from error
    except ValueError as error:
        raise UsageError(f"{path} is not YAML", why=str(error)) from error
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise UsageError(
            f"{path} is not a list of passes",
            why="it must be a YAML list of names, one per line after a dash",
            fix=f"start from the list of a level: {', '.join(levels()['basic'])}",
        )
    names = tuple(_expand(given, dict(levels())))
    _check_names(names, str(path))
    return tuple(name for name in PASSES if PASSES[name].first and name not in names) + names


def _check_names(names: Iterable[str], where: str) -> None:
    for name in names:
        if name not in PASSES:
            close = difflib.get_close_matches(name, PASSES, n=1)
            raise UsageError(
                f"{where} names the unknown pass {name!r}",
                fix=f"did you mean {close[0]!r}?" if close else f"passes are {', '.join(PASSES)}",
            )

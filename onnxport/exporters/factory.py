"""A model from the user's own code: `package.module:function`, called in the framework's process."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxport.core.errors import InputError, UsageError
from onnxport.core.shell_words import quote_option
from onnxport.core.user_modules import current_directory_first
from onnxport.exporters.framework import Framework
from onnxport.exporters.missing_modules import missing_module_error
from onnxport.exporters.objects import first_line, is_model, of_object
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

# Where code lies that is none of the user's.
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parents[1])


def from_factory(source: Source, params: ExportParams) -> Framework:
    """Call `package.module:function`; a model object in the module is taken as it is.

    Raises:
        InputError: the module cannot be imported, or the function raises; with the line.
        MissingDependencyError: a module is not installed.
        UsageError: no such function, wrong arguments, or the result is no model.
    """
    module_name, _, name = source.name.partition(":")
    with _keep_folder():
        found = _find_attribute(_import_module(source, module_name), module_name, name)
        if isinstance(found, type) or not is_model(found):
            found = _call(source, found, params)
    return of_object(found, source, params)


@contextlib.contextmanager
def _keep_folder() -> Iterator[None]:
    """Restore the folder after the user's code: our paths are relative."""
    folder = os.getcwd()
    try:
        yield
    finally:
        os.chdir(folder)


def _import_module(source: Source, module_name: str) -> ModuleType:
    try:
        with current_directory_first(source.folder):
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise InputError(
                f"{source.name} cannot be imported",
                why=f"the module {missing!r} does not exist",
                fix="run in the folder that holds it, or put that on PYTHONPATH",
            ) from error
        raise missing_module_error(source.name, error) from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{source.name} cannot be imported", why=_message_with_line(error)) from error


def _find_attribute(module: ModuleType, module_name: str, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [each for each in dir(found) if not each.startswith("_")])
            raise UsageError(
                f"{module_name} has no {name!r}",
                fix=f"did you mean {' or '.join(near)}?" if near else _list_candidates(module),
            )
        found = getattr(found, part)
    return found


def _list_candidates(module: ModuleType) -> str:
    """List the functions and classes of a module, as a way out."""
    own = [
        name
        for name, found in vars(module).items()
        if callable(found)
        and getattr(found, "__module__", "") == module.__name__
        and not name.startswith("_")
    ]
    return f"it has {', '.join(own[:20])}" if own else "write package.module:function"


def _call(source: Source, function: Any, params: ExportParams) -> Any:
    if not callable(function):
        raise UsageError(
            f"{source.name} is neither a function nor a model", fix="name a function that returns the model"
        )
    arguments = _arguments(params.arg)
    _check_arguments(source, function, arguments)
    try:
        return function(**arguments)
    except ModuleNotFoundError as error:
        raise missing_module_error(source.name, error) from error
    except (Exception, SystemExit) as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise InputError(f"{source.name}({given}) raises", why=_message_with_line(error)) from error


def _arguments(given: Mapping[str, str]) -> dict[str, Any]:
    import yaml

    read = {}
    for name, text in given.items():
        try:
            read[name] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(
                f"{text!r} of --arg {name} is not valid YAML",
                why=str(error).splitlines()[0],
                fix="put text into quotes: " + quote_option("--arg", f"{name}='...'"),
            ) from error
    return read


def _check_arguments(source: Source, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuse unknown or missing arguments (UsageError with the function's signature)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some that are written in C have none
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise UsageError(
            f"{source.name}{signature} does not accept these arguments",
            why=str(error),
            fix="give its arguments with --arg NAME=VALUE",
        ) from error


def _message_with_line(error: BaseException) -> str:
    """Return the message and the innermost line of the user's code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({Path(error.filename).name}, line {error.lineno})"
    ours = ("<", _OURS, importlib.__path__[0])
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(ours)
    ]
    users = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    nearest = users[-1:] or frames[:1]  # a package of the user's that is installed lies among the libraries
    places = [f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in nearest]
    return f"{first_line(error)}{''.join(places)}"

"""Label files, and inputs and outputs that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from onnxport.core.errors import InputError, UsageError


class Named(Protocol):
    @property
    def name(self) -> str: ...


_Port = TypeVar("_Port", bound=Named)


def find_port(ports: Sequence[_Port], name: str, kind: str) -> _Port:
    """Return the port called `name`; UsageError if the model has no such `kind` ("input", "output")."""
    for port in ports:
        if port.name == name:
            return port
    raise UsageError(f"the model has no {kind} {name!r}", fix=f"its {kind}s are {list_names(ports)}")


def list_names(ports: Sequence[Named]) -> str:
    return ", ".join(repr(port.name) for port in ports) or "none"


def read_labels(file: Path) -> tuple[bytes, list[str]]:
    """Return a label file's content and its lines; InputError if it cannot be read as UTF-8."""
    try:
        if file.exists() and not file.is_file():  # a device may have no end
            raise InputError(f"the label file {file} cannot be read", why="it is not a regular file")
        content = file.read_bytes()
        return content, content.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"the label file {file} cannot be read", why=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InputError(f"the label file {file} is not UTF-8 text", fix="give one label a line") from error

"""Describes exceptions for the user, on the command line and in a pipeline's report. Needs no pydantic."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from onnxport.core.errors import BUG, MACHINE_FAILED, MISSING_DEPENDENCY, OnnxportError
from onnxport.pipelines.environment import LIBRARIES

# Errors of the operating system about exhausted resources.
_MACHINE_AT_ITS_END = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "ENOMEM", "EMFILE", "ENFILE", "EROFS")
    if hasattr(errno, name)
}


@dataclass(frozen=True)
class Failure:
    """An exception as the user sees it."""

    kind: str
    message: str
    exit_code: int


def failure_of(error: BaseException) -> Failure:
    """Return the message and the exit code for `error`."""
    kind = type(error).__name__
    if isinstance(error, OnnxportError):
        return Failure(kind, str(error), error.exit_code)
    if isinstance(error, MemoryError):
        message = "the machine ran out of memory; close other programs or use a larger one"
        return Failure("MachineError", message, MACHINE_FAILED)
    if isinstance(error, OSError) and error.errno in _MACHINE_AT_ITS_END:
        where = f"{error.filename}: " if error.filename else ""
        return Failure("MachineError", f"the machine failed: {where}{error.strerror}", MACHINE_FAILED)
    if isinstance(error, ModuleNotFoundError) and (absent := _library_of(error)):
        return Failure("MissingDependencyError", absent, MISSING_DEPENDENCY)
    said = (str(error).strip().splitlines() or [""])[-1]
    return Failure(
        "Bug",
        f"a bug in onnxport, {kind}: {said}; please report it to the project's issue tracker, with the output "
        "of the same command under --verbose and of onnxport doctor",
        BUG,
    )


def _library_of(error: ModuleNotFoundError) -> str:
    """Return the message about a missing library; empty if we do not require it."""
    missing = (error.name or "").partition(".")[0]
    for library in LIBRARIES.values():
        if library.import_name == missing:
            return f"{library.name} is not installed; {library.remedy}"
    return ""

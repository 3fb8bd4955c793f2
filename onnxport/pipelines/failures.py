"""Describes exceptions for the user, on the command line and in a pipeline's report. Needs no pydantic."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from onnxport.core.errors import BUG, MACHINE_FAILED, MISSING_DEPENDENCY, USAGE, OnnxportError
from onnxport.pipelines.environment import LIBRARIES

# Errors of the operating system about exhausted resources.
_MACHINE_AT_ITS_END = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "ENOMEM", "EMFILE", "ENFILE", "EROFS")
    if hasattr(errno, name)
}
# Errors about a path as the user gave it, which no code caught by name -> the way out.
_REFUSED_PATHS = {
    errno.ENAMETOOLONG: "give a shorter one",
    errno.EACCES: "give a path that you may use",
    errno.EPERM: "give a path that you may use",
}
_LONGEST_PATH = 100


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
    if isinstance(error, OSError) and error.errno in _REFUSED_PATHS and error.filename is not None:
        path = str(error.filename)
        shown = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}..."
        message = f"the path {shown} cannot be used: {error.strerror}; {_REFUSED_PATHS[error.errno]}"
        return Failure("UsageError", message, USAGE)
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

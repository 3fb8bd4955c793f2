"""A Dask worker's side of dask.py: runs a task in a separate process and returns its result."""

from __future__ import annotations

import contextlib
import platform
import select
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxport.core.child_process import Child, ChildDied
from onnxport.core.errors import MachineError, UsageError
from onnxport.core.version import __version__
from onnxport.pipelines import plugins
from onnxport.pipelines.environment import library
from onnxport.pipelines.executors.base import Result
from onnxport.pipelines.executors.parcel import Parcel, PathMapping
from onnxport.pipelines.executors.task import Task
from onnxport.pipelines.graph.cache_keys import own_sources
from onnxport.pipelines.stages import Provider
from onnxport.quantize.calibration.cluster import unpack
from onnxport.reports.run_report import RunReport

_WORKER = "onnxport.pipelines.executors.process_worker:Worker"
_LOOKS = 1.0  # seconds between two checks that the task is still wanted
# Tools in separate environments; dask.py handles tasks that depend on them.
_TOOLS = ("onnx2tf", "paddle2onnx")

_OF_THREAD = threading.local()


@dataclass(frozen=True)
class Reply:
    """The result of a task, with the files of its product by their names in its room."""

    seconds: float = 0.0
    report: RunReport | None = None
    failure: Exception | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Requirements:
    """The versions that worker and caller must share, and the plugin of the task's stage; None for our own."""

    versions: Mapping[str, str]
    plugin: Provider | None


def requirements_of(task: Task) -> Requirements:
    """Return what the product of `task` depends on beside its files, on this machine."""
    names = {"Python", "platform", "onnxport", "sources", *task.versions} - set(_TOOLS)
    found = {name: _version(name) for name in sorted(names)}
    provider = task.steps[-1].stage.provider if task.steps else None
    return Requirements({name: version for name, version in found.items() if version}, provider)


@lru_cache(maxsize=256)
def _version(name: str) -> str | None:
    """Return a version, which is constant while a process runs."""
    match name:
        case "Python":
            return platform.python_version()
        case "platform":
            return f"{platform.system()} {platform.machine()}"
        case "onnxport":
            return __version__
        case "sources":
            return own_sources()
    with contextlib.suppress(metadata.PackageNotFoundError):
        return library(name).version or metadata.version(name)
    return None


def perform_task(
    needs: Requirements,
    parcel: Parcel,
    node: str,
    topic: str,
    digests: Sequence[str],
    *bundles: Mapping[str, bytes],
) -> Reply:
    """Run the task in `parcel`; its error, if any, is in the reply.

    Args:
        node, topic: its name in progress messages, and their topic.
        digests: of the bundles, which are files by name.
    """
    if fault := _find_mismatch(needs):
        return Reply(failure=fault)
    folders = [unpack(files, digest) for files, digest in zip(bundles, digests, strict=True)]
    from distributed import get_worker

    rooms = Path(tempfile.mkdtemp(prefix="onnxport-rooms-", dir=get_worker().local_directory))
    try:
        # Another room for the second: children of the first that died may still be writing.
        for room in (rooms / "1", rooms / "2"):
            room.mkdir()
            task = parcel.open(folders, room)
            try:
                result = _run_in_child(task, node, topic)
            except ChildDied as death:
                result = Result(task, 0.0, failure=death)
            if not isinstance(result.failure, ChildDied):
                break
        return _reply(result, parcel.return_paths(folders, room), room)
    finally:
        shutil.rmtree(rooms, ignore_errors=True)


def _find_mismatch(needs: Requirements) -> UsageError | None:
    """Return the error about a difference from the caller; None if there is none."""
    for name, version in needs.versions.items():
        own = _version(name)
        if own == version:
            continue
        what = f"{name} {own}, not {version} as here" if own else f"no {name}, but here is {version}"
        if name == "sources":
            what = "different source code of onnxport"
        return _refusal(what)
    if needs.plugin is not None:
        try:
            same = plugins.source_digest(needs.plugin.modules) == needs.plugin.sources
        except (ImportError, OSError):
            same = False
        if not same:
            return _refusal(f"different source code of {needs.plugin}")
    return None


def _refusal(what: str) -> UsageError:
    return UsageError(
        f"a worker of the cluster has {what}",
        why="their results would differ",
        fix="install the same versions everywhere",
    )


def _run_in_child(task: Task, node: str, topic: str) -> Result:
    """Run `task` in the child process of this thread, which stays for the next one; ChildDied if it ended."""
    child: Child | None = getattr(_OF_THREAD, "child", None)
    if child is None:
        child = _OF_THREAD.child = Child(_WORKER, purpose="a worker process", timeout=None)
    try:
        _log_event(topic, "started", node)
        child.ask("perform", task)
        while True:
            while not select.select([child], [], [], _LOOKS)[0]:
                _check_wanted()
            is_over, said = child.hear()
            if is_over:
                result: Result = said
                return result
            if said == ("quiet",):
                child.reply("go on")
            else:
                kind, *rest = said
                _log_event(topic, kind, node, *rest)
    except BaseException:
        child.close()
        _OF_THREAD.child = None
        raise


def _log_event(topic: str, *word: Any) -> None:
    from distributed import get_worker

    get_worker().log_event(topic, word)


def _check_wanted() -> None:
    """Refuse to go on if the caller has gone or cancelled this task (MachineError)."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None or task.state == "cancelled":
        raise MachineError("the caller is gone")


def _reply(result: Result, home: PathMapping, room: Path) -> Reply:
    if result.report is None:
        assert result.failure is not None
        return Reply(result.seconds, failure=home.failure(result.failure))
    found = (file for file in sorted(room.rglob("*")) if file.is_file())
    files = {file.relative_to(room).as_posix(): file.read_bytes() for file in found}
    return Reply(result.seconds, home.report(result.report), files=files)

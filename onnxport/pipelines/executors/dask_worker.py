"""A Dask worker's side of cluster.py: performs a task in a process of its own and hands back what came of it."""

from __future__ import annotations

import contextlib
import platform
import select
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxport.core.child_process import Child, ChildDied
from onnxport.core.errors import MachineError, UsageError
from onnxport.core.version import __version__
from onnxport.pipelines import plugins
from onnxport.pipelines.environment import library
from onnxport.pipelines.executors.base import Result
from onnxport.pipelines.executors.parcel import Homeward, Parcel
from onnxport.pipelines.executors.task import Task
from onnxport.pipelines.graph.cache_keys import own_sources
from onnxport.pipelines.stages import Provider
from onnxport.quantize.calibration.cluster import unpack
from onnxport.reports.run_report import RunReport

_WORKER = "onnxport.pipelines.executors.process_worker:Worker"
_LOOKS = 1.0  # seconds between two looks whether the task is still wanted
# Of tools in environments of their own; cluster.py sees to what hangs on them.
_TOOLS = ("onnx2tf", "paddle2onnx")

_OF_THREAD = threading.local()


@dataclass(frozen=True)
class Reply:
    """What became of a task.

    Attributes:
        files: of the product, by their names in its room.
        failure: what ended it; None with a report.
    """

    seconds: float = 0.0
    report: RunReport | None = None
    failure: Exception | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """What a worker has to have in common with the caller.

    Attributes:
        versions: by name.
        plugin: whose stage the task is; None for ours.
    """

    versions: Mapping[str, str]
    plugin: Provider | None


def wanted(task: Task) -> Wanted:
    """What the product of `task` follows from beside its files, here."""
    names = {"Python", "platform", "onnxport", "sources", *task.versions} - set(_TOOLS)
    found = {name: _version(name) for name in sorted(names)}
    provider = task.steps[-1].stage.provider if task.steps else None
    return Wanted({name: version for name, version in found.items() if version}, provider)


def _version(name: str) -> str | None:
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


def performed(
    needs: Wanted,
    parcel: Parcel,
    node: str,
    topic: str,
    digests: Sequence[str],
    *bundles: Mapping[str, bytes],
) -> Reply:
    """Does the task in `parcel`; what it raises is in the reply.

    Args:
        node: what to call it when telling how it goes.
        topic: under which that is told.
        digests: of the bundles.
        bundles: files by name.
    """
    if fault := _lacking(needs):
        return Reply(failure=fault)
    folders = [unpack(files, digest) for files, digest in zip(bundles, digests, strict=True)]
    from distributed import get_worker

    rooms = Path(tempfile.mkdtemp(prefix="onnxport-rooms-", dir=get_worker().local_directory))
    try:
        # Another room for the second: children of the first that died may still be writing.
        for room in (rooms / "1", rooms / "2"):
            room.mkdir()
            result = _result(parcel.opened(folders, room), node, topic)
            if not isinstance(result.failure, ChildDied):
                break
        return _reply(result, parcel.told_home(folders, room), room)
    finally:
        shutil.rmtree(rooms, ignore_errors=True)


def _lacking(needs: Wanted) -> UsageError | None:
    """What this worker has otherwise than the caller; None for nothing."""
    for name, version in needs.versions.items():
        own = _version(name)
        if own == version:
            continue
        what = f"{name} {own}, and here is {version}" if own else f"no {name}, and here is {version}"
        if name == "sources":
            what = "another code of onnxport than is here"
        return _refusal(what)
    if needs.plugin is not None:
        try:
            same = plugins.sources_of(needs.plugin.modules) == needs.plugin.sources
        except (ImportError, OSError):
            same = False
        if not same:
            return _refusal(f"another code of {needs.plugin} than is here")
    return None


def _refusal(what: str) -> UsageError:
    return UsageError(
        f"a worker of the cluster has {what}",
        why="their results would differ",
        fix="install the same versions everywhere",
    )


def _result(task: Task, node: str, topic: str) -> Result:
    try:
        return _asked(task, node, topic)
    except ChildDied as death:
        return Result(task, 0.0, failure=death)


def _asked(task: Task, node: str, topic: str) -> Result:
    """Has the child of this thread do `task`; it stays for the next one.

    Raises:
        ChildDied: it ended.
    """
    child: Child | None = getattr(_OF_THREAD, "child", None)
    if child is None:
        child = _OF_THREAD.child = Child(_WORKER, purpose="a worker process", timeout=None)
    try:
        _tell(topic, "started", node)
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
                _tell(topic, kind, node, *rest)
    except BaseException:
        child.close()
        _OF_THREAD.child = None
        raise


def _tell(topic: str, *word: Any) -> None:
    from distributed import get_worker

    get_worker().log_event(topic, word)


def _check_wanted() -> None:
    """Raises MachineError where the caller has gone, or gave this task up."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None or task.state == "cancelled":
        raise MachineError("the caller is gone")


def _reply(result: Result, home: Homeward, room: Path) -> Reply:
    if result.report is None:
        assert result.failure is not None
        return Reply(result.seconds, failure=home.failure(result.failure))
    files = {
        file.relative_to(room).as_posix(): file.read_bytes()
        for file in sorted(room.rglob("*"))
        if file.is_file()
    }
    return Reply(result.seconds, home.report(result.report), files=files)

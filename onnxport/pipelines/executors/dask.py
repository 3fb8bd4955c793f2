"""Runs tasks on a Dask cluster (https://distributed.dask.org), with the same bytes as on this machine.

The files of a task are sent once to every worker (parcel.py). Workers need no files of the user, only onnxport and the
same versions of the libraries that compute. If a worker dies, the scheduler gives its tasks to another. A task that
needs more than files runs in this process.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections import deque
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxport.core.errors import CannotConvertError, MachineError
from onnxport.core.resources import Closing
from onnxport.core.shell_words import quote
from onnxport.formats.artifact import writing
from onnxport.pipelines.executors.base import Local, Result, Watcher
from onnxport.pipelines.executors.dask_worker import Reply, perform_task, requirements_of
from onnxport.pipelines.executors.parcel import Bundle, NotPortable, Parcel
from onnxport.pipelines.executors.task import Task
from onnxport.quantize.calibration.cluster import connect, digest_of

if TYPE_CHECKING:
    from distributed import Future

_CLOSING = 10  # seconds
_LOOKS = 5.0  # seconds between two checks of the cluster
_PATIENCE = 60.0  # seconds without a worker: a dead one may come back
_SMALL = 256 << 10  # bytes of a bundle that travels with its tasks
_SENDINGS = 3  # attempts to send a task: its files are lost if all workers with them die


@dataclass
class _Sent:
    """A task on the cluster."""

    task: Task
    parcel: Parcel
    sendings: int = 1
    retries: int = 0


class Cluster(Closing):
    """The executor on the scheduler at `address`, as tcp://host:8786.

    Args:
        retries: of a task that a machine failed: its disk, its memory, a process that hung.

    Raises:
        MissingDependencyError: Dask is not installed here.
        MachineError: no scheduler answers, or it has no workers.
    """

    def __init__(self, address: str, watcher: Watcher, retries: int = 0) -> None:
        self._address, self._watcher, self._retries = address, watcher, retries
        self._client = connect(address)
        if hasattr(watcher, "dashboard") and self._client.dashboard_link:
            watcher.dashboard(self._client.dashboard_link)
        # It logs tracebacks of failures that our own errors report.
        self._log = logging.getLogger("distributed.client")
        self._level = self._log.level
        self._log.setLevel(logging.CRITICAL)
        self._topic = f"onnxport-{uuid.uuid4().hex}"
        # Messages from Dask's threads: an ended future, or a worker's progress.
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client.subscribe_topic(self._topic, lambda event: self._messages.put(event[1]))
        self._local = Local(watcher)
        self._here = 0
        self._running: dict[Future, _Sent] = {}
        self._bundles: dict[object, tuple[str, Future | dict[str, bytes]]] = {}
        self._done: deque[Result] = deque()
        self._failure: MachineError | None = None
        self._worked = time.monotonic()

    @property
    def jobs(self) -> int:
        """Number of tasks that its workers run at a time."""
        return sum(self._client.nthreads().values())

    def submit(self, task: Task) -> None:
        try:
            sent = _Sent(task, Parcel.of(task))
        except (NotPortable, OSError):  # running it here reports a missing file best
            self._run_here(task)
            return
        if missing := self._missing_resources(task):
            self._done.append(Result(task, 0.0, failure=missing))
            return
        self._send(sent)

    def next(self) -> Result:
        while not self._done:
            if self._here:
                self._here -= 1
                return self._local.next()
            self._receive()
        return self._done.popleft()

    def close(self) -> None:
        """Disconnect from the cluster, which drops the submitted tasks."""
        self._local.close()
        self._client.close(timeout=_CLOSING)
        self._log.setLevel(self._level)

    def _run_here(self, task: Task) -> None:
        self._local.submit(task)
        self._here += 1

    def _send(self, sent: _Sent) -> None:
        if self._failure is not None:
            self._done.append(Result(sent.task, 0.0, failure=self._failure))
            return
        try:
            bundles = [self._bundle(bundle) for bundle in sent.parcel.bundles]
            future = self._client.submit(
                perform_task,
                requirements_of(sent.task),
                sent.parcel,
                sent.task.node,
                self._topic,
                [digest for digest, _ in bundles],
                *(contents for _, contents in bundles),
                pure=False,
                resources=dict(sent.task.resources) or None,
            )
        except (OSError, RuntimeError, CancelledError) as error:  # of Dask: our own errors are of other types
            self._give_up(error)
            self._done.append(Result(sent.task, 0.0, failure=self._failure))
            return
        self._running[future] = sent
        future.add_done_callback(self._messages.put)

    def _missing_resources(self, task: Task) -> MachineError | None:
        """Return why no worker can ever run a task: Dask would wait for one."""
        if not task.resources:
            return None
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        for worker in workers:
            offered = worker.get("resources", {})
            if all(offered.get(name, 0) >= amount for name, amount in task.resources.items()):
                return None
        wanted = ",".join(f"{name}={amount:g}" for name, amount in task.resources.items())
        what = f"no worker of the cluster offers what {task.node} needs: {wanted}"
        return MachineError(
            what, fix=f"start one: dask worker {quote(self._address)} --resources {quote(wanted)}"
        )

    def _bundle(self, bundle: Bundle) -> tuple[str, Future | dict[str, bytes]]:
        """Return the digest of the bundle's files, and their contents: on the workers, or to travel with the task."""
        stamp = bundle.stamp
        if stamp not in self._bundles:
            contents = bundle.read()
            # To send a small one by itself takes longer than to send it with every task.
            if sum(map(len, contents.values())) <= _SMALL:
                return digest_of(contents), contents
            # To every worker, since workers die. In a list, since Dask names the items of a dictionary by its keys:
            # model.onnx of two products would be mixed up.
            (there,) = self._client.scatter([contents], broadcast=True, hash=False)
            self._bundles[stamp] = digest_of(contents), there
        return self._bundles[stamp]

    def _receive(self) -> None:
        """Handle the next message; without one, check the cluster."""
        try:
            said = self._messages.get(timeout=_LOOKS)
        except queue.Empty:
            self._check_cluster()
            return
        match said:
            case ("started", node):
                self._watcher.started(node)
            case ("phase", node, step):
                self._watcher.phase(node, step)
            case ("progressed", node, step, done, total):
                self._watcher.progressed(node, step, done, total)
            case _ if said in self._running:
                self._finish(said)

    def _finish(self, future: Future) -> None:
        from distributed.scheduler import KilledWorker

        sent = self._running.pop(future)
        self._worked = time.monotonic()
        try:
            reply: Reply = future.result()
        except KilledWorker as error:
            why = str(error).split("\n")[0]
            failure = MachineError(f"the workers of the cluster die while making {sent.task.node}", why=why)
            self._done.append(Result(sent.task, 0.0, failure=failure))
        except CancelledError as error:
            self._resend(sent, error)
        except Exception as error:  # of Dask, or of a foreign worker: the task's own errors are in the reply
            failure = _cluster_error(self._address, error)
            self._done.append(Result(sent.task, 0.0, failure=failure))
        else:
            self._store(sent, reply)

    def _store(self, sent: _Sent, reply: Reply) -> None:
        if _depends_on_tools(sent.task, reply):
            self._run_here(sent.task)
            return
        failure = reply.failure
        if isinstance(failure, MachineError) and sent.retries < self._retries:
            sent.retries += 1
            self._send(sent)
            return
        try:
            with writing(sent.task.room, "the cache"):
                for name, content in reply.files.items():
                    place = sent.task.room / name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(content)
        except MachineError as error:
            failure = error
        report = reply.report if failure is None else None
        self._done.append(Result(sent.task, reply.seconds, report, failure))

    def _resend(self, sent: _Sent, error: BaseException) -> None:
        """Send a task again whose files were lost with the workers; give up without a scheduler."""
        if self._client.status != "running":
            self._give_up(error)
        elif sent.sendings == _SENDINGS:
            self._done.append(Result(sent.task, 0.0, failure=_cluster_error(self._address, error)))
            return
        self._bundles.clear()
        sent.sendings += 1
        self._send(sent)

    def _check_cluster(self) -> None:
        """Give up a cluster that lost its scheduler or has had no worker for a while."""
        try:
            if self._client.status == "running" and self._client.nthreads():
                self._worked = time.monotonic()
                return
            why = f"no worker for {_PATIENCE:g} s"
        except (OSError, RuntimeError, ValueError, CancelledError) as error:
            why = str(error)
        if self._client.status not in ("running", "connecting"):
            why = "its scheduler is gone"
        elif time.monotonic() - self._worked < _PATIENCE:
            return
        self._give_up(RuntimeError(why))

    def _give_up(self, error: BaseException) -> None:
        """Fail all tasks on the cluster; send no more."""
        self._failure = self._failure or _cluster_error(self._address, error)
        for sent in self._running.values():
            self._done.append(Result(sent.task, 0.0, failure=self._failure))
        self._running.clear()


def _cluster_error(address: str, error: BaseException) -> MachineError:
    why = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, OSError):  # Dask's, of a connection
        why = f"the connection to its scheduler broke ({why})"
    return MachineError(f"the Dask cluster at {address} failed", why=why)


def _depends_on_tools(task: Task, reply: Reply) -> bool:
    """Return whether the result depends on onnx2tf, whose presence and version differ between machines."""
    if not task.steps or getattr(task.steps[-1].params, "route", None) != "auto":
        return False
    facts = reply.report.artifacts[0].facts if reply.report is not None else {}
    return isinstance(reply.failure, CannotConvertError) or facts.get("route") == "onnx2tf"

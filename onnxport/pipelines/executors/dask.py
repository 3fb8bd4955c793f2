"""Performs tasks on a Dask cluster (https://distributed.dask.org): the same bytes as here, whoever dies.

The files that a task names travel with it, once to every worker (parcel.py), so that the workers need no file of the
user's: only onnxport, and the same versions of what computes. What a worker that dies leaves undone the scheduler gives
to another. What needs more than files is done here, by this process.
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
from onnxport.formats.artifact import writing
from onnxport.pipelines.executors.base import Result
from onnxport.pipelines.executors.dask_worker import Reply, performed, wanted
from onnxport.pipelines.executors.local import Local
from onnxport.pipelines.executors.parcel import Bundle, Parcel, Stays
from onnxport.pipelines.executors.progress import Watcher
from onnxport.pipelines.executors.task import Task
from onnxport.quantize.calibration.cluster import connect, digest_of

if TYPE_CHECKING:
    from distributed import Future

_CLOSING = 10  # seconds
_LOOKS = 5.0  # seconds between two looks whether the cluster is still there
_PATIENCE = 60.0  # seconds without a worker: one that died may come back
_SENDINGS = 3  # of a task: with all workers that held its files these die too


@dataclass
class _Sent:
    """A task that is at the cluster."""

    task: Task
    parcel: Parcel
    sendings: int = 1


class Cluster(Closing):
    """See executor.Executor.

    Args:
        address: of the scheduler, as tcp://host:8786.

    Raises:
        MissingDependencyError: Dask is not installed here.
        MachineError: no scheduler answers, or it has no workers.
    """

    def __init__(self, address: str, watcher: Watcher) -> None:
        self._address, self._watcher = address, watcher
        self._client = connect(address)
        # What it logs are tracebacks of what our own errors say in a sentence.
        self._log = logging.getLogger("distributed.client")
        self._level = self._log.level
        self._log.setLevel(logging.CRITICAL)
        self._topic = f"onnxport-{uuid.uuid4().hex}"
        # What threads of Dask tell this one: a future that has ended, or what a worker does.
        self._heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client.subscribe_topic(self._topic, lambda event: self._heard.put(event[1]))
        self._local = Local(watcher)
        self._here = 0
        self._running: dict[Future, _Sent] = {}
        self._bundles: dict[object, tuple[str, Future]] = {}
        self._done: deque[Result] = deque()
        self._gone: MachineError | None = None
        self._worked = time.monotonic()

    @property
    def jobs(self) -> int:
        """How many tasks its workers do at a time."""
        return sum(self._client.nthreads().values())

    def submit(self, task: Task) -> None:
        try:
            sent = _Sent(task, Parcel.of(task))
        except (Stays, OSError):  # what is missing here is said best by who looks for it
            self._keep(task)
            return
        self._send(sent)

    def next(self) -> Result:
        while not self._done:
            if self._here:
                self._here -= 1
                return self._local.next()
            self._hear()
        return self._done.popleft()

    def close(self) -> None:
        """Leaves the cluster, which forgets what it was asked."""
        self._local.close()
        self._client.close(timeout=_CLOSING)
        self._log.setLevel(self._level)

    def _keep(self, task: Task) -> None:
        self._local.submit(task)
        self._here += 1

    def _send(self, sent: _Sent) -> None:
        if self._gone is not None:
            self._done.append(Result(sent.task, 0.0, failure=self._gone))
            return
        try:
            bundles = [self._bundle(bundle) for bundle in sent.parcel.bundles]
            future = self._client.submit(
                performed,
                wanted(sent.task),
                sent.parcel,
                sent.task.node,
                self._topic,
                [digest for digest, _ in bundles],
                *(contents for _, contents in bundles),
                pure=False,
            )
        except (OSError, RuntimeError, CancelledError) as error:  # of Dask; our own errors are none
            self._give_up(error)
            self._done.append(Result(sent.task, 0.0, failure=self._gone))
            return
        self._running[future] = sent
        future.add_done_callback(self._heard.put)

    def _bundle(self, bundle: Bundle) -> tuple[str, Future]:
        """The digest of the bundle's files and their contents at the workers."""
        stamp = bundle.stamp
        if stamp not in self._bundles:
            contents = bundle.read()
            # To every worker: what only one has dies with it. In a list: what is in a dictionary Dask calls by its
            # keys, and another product's model.onnx would be this one.
            (there,) = self._client.scatter([contents], broadcast=True, hash=False)
            self._bundles[stamp] = digest_of(contents), there
        return self._bundles[stamp]

    def _hear(self) -> None:
        """Takes in the next that is told, or looks after the cluster where nothing is."""
        try:
            said = self._heard.get(timeout=_LOOKS)
        except queue.Empty:
            self._look_after()
            return
        match said:
            case ("started", node):
                self._watcher.started(node)
            case ("phase", node, step):
                self._watcher.phase(node, step)
            case ("progressed", node, step, done, total):
                self._watcher.progressed(node, step, done, total)
            case _ if said in self._running:
                self._ended(said)

    def _ended(self, future: Future) -> None:
        from distributed.scheduler import KilledWorker

        sent = self._running.pop(future)
        self._worked = time.monotonic()
        try:
            reply: Reply = future.result()
        except KilledWorker as error:
            why = str(error).split("\n")[0]
            failure = MachineError(f"the workers of the cluster die of {sent.task.node}", why=why)
            self._done.append(Result(sent.task, 0.0, failure=failure))
        except CancelledError as error:
            self._lost(sent, error)
        except (
            Exception
        ) as error:  # of Dask, or of a worker that is none of ours: its own errors are in the reply
            failure = _failed(self._address, error)
            self._done.append(Result(sent.task, 0.0, failure=failure))
        else:
            self._took(sent, reply)

    def _took(self, sent: _Sent, reply: Reply) -> None:
        if _hangs_on_tools(sent.task, reply):
            self._keep(sent.task)
            return
        failure = reply.failure
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

    def _lost(self, sent: _Sent, error: BaseException) -> None:
        """Sends a task again whose files died with the workers; without a scheduler nothing is sent any more."""
        if self._client.status != "running":
            self._give_up(error)
        elif sent.sendings == _SENDINGS:
            self._done.append(Result(sent.task, 0.0, failure=_failed(self._address, error)))
            return
        self._bundles.clear()
        sent.sendings += 1
        self._send(sent)

    def _look_after(self) -> None:
        """Gives up a cluster that has lost its scheduler, or has had no worker for a while."""
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
        """All that is at the cluster failed; nothing else will go there."""
        self._gone = self._gone or _failed(self._address, error)
        for sent in self._running.values():
            self._done.append(Result(sent.task, 0.0, failure=self._gone))
        self._running.clear()


def _failed(address: str, error: BaseException) -> MachineError:
    why = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, OSError):  # Dask's, of a connection
        why = f"the connection to its scheduler broke ({why})"
    return MachineError(f"the Dask cluster at {address} failed", why=why)


def _hangs_on_tools(task: Task, reply: Reply) -> bool:
    """Whether onnx2tf decided, or could: which is there is another matter on every machine."""
    if not task.steps or getattr(task.steps[-1].params, "route", None) != "auto":
        return False
    facts = reply.report.artifacts[0].facts if reply.report is not None else {}
    return isinstance(reply.failure, CannotConvertError) or facts.get("route") == "onnx2tf"

"""Calibration on a Dask cluster (https://distributed.dask.org): shards of the samples, the same bits as locally.

The model and the samples travel with the work: workers need only onnxport and the same versions of the libraries.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.errors import MachineError, MissingDependencyError, UsageError
from onnxport.core.resources import Closing
from onnxport.core.shell_words import quote
from onnxport.core.version import __version__
from onnxport.quantize.calibration.session import external_files
from onnxport.quantize.calibration.shards import Bench, Item, Observed, Shard, Task, split_into_shards

if TYPE_CHECKING:
    from distributed import Client, Future

_LIBRARIES = ("onnxruntime", "numpy")
_LOGGED = 4  # messages
_CONNECTING = 10  # seconds
# Shards per thread of a worker that are on their way or waiting there: one computes while the next one arrives.
_AHEAD = 2
_FORGOTTEN = 3  # times that the scheduler may lose a shard


class Cluster(Closing):
    """The workers of the Dask scheduler at `address` (tcp://host:8786), for one task whose models are written."""

    def __init__(self, task: Task, address: str) -> None:
        self._task, self._address = task, address
        self._client = connect(address)
        self._threads = sum(self._client.nthreads().values())

    def observed(self, items: Sequence[Item]) -> Iterator[tuple[Shard, Observed]]:
        """Observe `items` shard by shard; yield results in the order in which they finish.

        Raises:
            InputError: see Bench.observe.
            UsageError: a worker has other versions of the libraries.
            MachineError: one shard killed several workers, or the scheduler is gone.
        """
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        left = iter(split_into_shards(items, self._threads))
        # To every worker: what only one has dies with it. In a list: what is in a dictionary Dask calls by its keys,
        # and the file of that name of another run on the cluster would be this one.
        tapped = [self._task.tapped(part) for part in range(len(self._task.parts))]
        files = {file.name: file.read_bytes() for file in (*tapped, *external_files(self._task.path))}
        (model,) = self._client.scatter([files], broadcast=True, hash=False)
        running: dict[Future, Shard] = {}
        forgotten = 0

        def submit(again: Shard | None = None) -> list[Future]:
            shard = again or next(left, None)
            if shard is None:
                return []
            future = self._client.submit(
                observe_shard, model, self._portion(shard), shard, versions(), pure=False
            )
            running[future] = shard
            return [future]

        done = as_completed(
            [future for _ in range(_AHEAD * self._threads) for future in submit()], loop=self._client.loop
        )
        for future in done:
            try:
                seen: Observed = future.result()
            except KilledWorker as error:
                raise MachineError("the workers of the cluster die", why=str(error).split("\n")[0]) from error
            except CancelledError as error:
                # The scheduler forgets tasks whose data died with a worker before the others had it.
                forgotten += 1
                if forgotten > _FORGOTTEN:
                    raise MachineError(
                        "the workers of the cluster die", why=str(error).split("\n")[0]
                    ) from error
                (model,) = self._client.scatter([files], broadcast=True, hash=False)
                for further in submit(running.pop(future)):
                    done.add(further)
                continue
            except (OSError, RuntimeError) as error:  # of Dask; our own errors are none
                why = " ".join(str(error).split())
                raise MachineError(f"the Dask cluster at {self._address} failed", why=why) from error
            for further in submit():
                done.add(further)
            yield running.pop(future), seen

    def close(self) -> None:
        """Disconnect from the cluster and cancel pending work."""
        self._client.close(timeout=_CONNECTING)

    def _portion(self, shard: Shard) -> Task:
        """Return the task with a shard's samples only, read here."""
        numbers = {number for _, number in shard}
        files = {number: self._task.files[number] for number in numbers}
        held = {number: replace(file, read=partial(dict, file.read())) for number, file in files.items()}
        return replace(self._task, files=held)


def connect(address: str) -> Client:
    """Return a client of the scheduler at `address`, once it has workers.

    Raises:
        MissingDependencyError: Dask is not installed here.
        MachineError: no scheduler answers, or it has no workers.
    """
    try:
        from dask import config
        from distributed import Client
    except ImportError as error:
        raise MissingDependencyError(
            "--scheduler needs Dask, which is not installed",
            why=str(error),
            fix="install it: pip install 'onnxport[distributed]'",
        ) from error
    try:
        # Dask keeps the last 1,000 messages of a connection with all that they carry: the models of a fleet.
        with config.set({"distributed.admin.low-level-log-length": _LOGGED}):
            client: Client = Client(address, timeout=_CONNECTING, set_as_default=False)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise MachineError(
            f"no Dask scheduler answers at {address}", why=why, fix="start one: dask scheduler"
        ) from error
    if not client.nthreads():
        client.close(timeout=_CONNECTING)
        raise MachineError(
            f"the Dask scheduler at {address} has no workers", fix=f"start some: dask worker {quote(address)}"
        )
    return client


def versions() -> dict[str, str]:
    """Return the local versions of all libraries that the bits of a result depend on."""
    return {"onnxport": __version__} | {name: metadata.version(name) for name in _LIBRARIES}


def observe_shard(
    model: Mapping[str, bytes], portion: Task, shard: Shard, wanted: Mapping[str, str]
) -> Observed:
    """Observe `shard`, the samples of `portion`; runs on a worker.

    Args:
        model: the files of the tapped models, by name.
        wanted: the versions that the caller has; UsageError if this worker has others.
    """
    for name, version in versions().items():
        if version != wanted[name]:
            raise UsageError(
                f"a worker of the cluster has {name} {version}, and here is {wanted[name]}",
                why="their results would differ",
                fix="install the same versions everywhere",
            )
    bench = _bench()
    bench.begin(replace(portion, path=unpack(model) / portion.path.name))
    return bench.observed(shard)


_OF_THREAD = threading.local()
_UNPACKING = threading.Lock()


def _bench() -> Bench:
    """Return this worker thread's bench, whose session is kept for the next shard."""
    if not hasattr(_OF_THREAD, "bench"):
        _OF_THREAD.bench = Bench()
    bench: Bench = _OF_THREAD.bench
    return bench


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 over names and contents."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(name.encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()


def unpack(files: Mapping[str, bytes], digest: str = "") -> Path:
    """Return the worker's own folder with `files` (relative name to content); Dask removes it with the worker."""
    from distributed import get_worker

    folder = Path(get_worker().local_directory, f"onnxport-{digest or digest_of(files)}")
    with _UNPACKING:
        if not folder.is_dir():
            unfinished = folder.with_suffix(".new")
            unfinished.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                place = unfinished / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            unfinished.rename(folder)
    return folder

"""The measuring process: one model, loaded once, run when it is its turn.

Nothing is imported before the runtime but what a Python process has anyway, so that memory is the runtime's and the
model's. A turn ends when the process is quiet: threads of a pool wait for more to do by spinning, which takes the cores
from whoever comes next, and is a setting of the runtime's that a user's own loop leaves as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from onnxport.bench.cpu_time import Spent
from onnxport.bench.energy import Counters
from onnxport.bench.loaders import loader
from onnxport.bench.loaders.base import Chosen, Loaded, Run
from onnxport.bench.providers import TITLES, installing
from onnxport.bench.resident_memory import peak, resident
from onnxport.core.errors import MissingDependencyError, OnnxportError

T = TypeVar("T")

_MOMENT = 0.002  # seconds
_BUSY = 0.25  # of a moment; a spinning thread takes all of it
_PATIENCE = 0.25  # seconds; ONNX Runtime's threads give up after 5 to 50 ms


class Runner:
    """What the parent calls, in the order of the methods.

    Times are seconds, those of turns nanoseconds.
    """

    _model: Loaded
    _run: Run

    def __init__(self) -> None:
        self._bare = resident()
        self._counters = Counters()

    def require(self, runtime: str) -> dict[str, Any]:
        """Imports NumPy and the runtime; what that takes."""
        started = time.perf_counter()
        self._loader = loader(runtime)
        try:
            import numpy  # noqa: F401 - the runtime's or not, every Python process with a model has it

            self._loader.require()
        except ImportError as error:
            raise MissingDependencyError(
                f"{TITLES[runtime]} cannot be imported", why=str(error), fix=installing(runtime)
            ) from error
        return {"bare": self._bare, "imported": resident(), "seconds": time.perf_counter() - started}

    def load(self, path: str, settings: Chosen) -> dict[str, Any]:
        """Loads the model; what it takes, and what it is fed."""
        started = time.perf_counter()
        self._model = self._loader.load(path, settings)
        seconds = time.perf_counter() - started
        self._quiet()
        model = self._model
        return {
            "seconds": seconds,
            "ran_on": model.ran_on,
            "inputs": list(model.inputs),
            "outputs": list(model.outputs),
        }

    def feed(self, files: dict[str, str]) -> dict[str, float]:
        """Gives the model its inputs, by key the `.npy` file, and runs it for the first time."""
        import numpy

        # Our own files: those of strings are pickles.
        arrays = {key: numpy.load(file, allow_pickle=True) for key, file in files.items()}
        started = time.perf_counter()
        self._run = self._guarded(lambda: self._model.feed(arrays))
        ready = time.perf_counter()
        loaded = resident()
        begun = time.perf_counter()
        self._guarded(self._run)
        first = time.perf_counter() - begun
        self._quiet()
        return {"ready": ready - started, "loaded": loaded, "first": first}

    def turn(self, runs: int, settling: int) -> dict[str, Any]:
        """Runs it `settling` times for caches and threads, then `runs` times, each timed by itself."""
        return self._guarded(lambda: self._turn(runs, settling))

    def memory(self) -> int:
        """The most bytes that were resident so far."""
        return peak()

    def answers(self, folder: str) -> dict[str, str]:
        """Runs it once more; the outputs, by key the `.npy` file in `folder`."""
        import numpy

        files = {}
        for number, (key, value) in enumerate(self._guarded(self._model.answers).items()):
            files[key] = f"{folder}/{number}.npy"
            numpy.save(files[key], numpy.asarray(value), allow_pickle=True)
        return files

    def _turn(self, runs: int, settling: int) -> dict[str, Any]:
        run, clock, spent = self._run, time.perf_counter_ns, Spent().nanoseconds
        times, cpu = [], []
        for _ in range(settling):
            run()
        before = self._counters.read()
        for _ in range(runs):
            idle = spent()
            started = clock()
            run()
            times.append(clock() - started)
            cpu.append(spent() - idle)
        used = self._counters.joules(before, self._counters.read())
        self._quiet()
        return {"times": times, "joules": used, "cpu": cpu, "spent": time.process_time_ns()}

    def _quiet(self) -> None:
        """Waits until no thread of this process computes."""
        ends = time.perf_counter() + _PATIENCE
        while time.perf_counter() < ends:
            used, began = time.process_time(), time.perf_counter()
            time.sleep(_MOMENT)
            if time.process_time() - used < _BUSY * (time.perf_counter() - began):
                return

    def _guarded(self, work: Callable[[], T]) -> T:
        """What `work` gives; its failure as the runtime's refusal."""
        try:
            return work()
        except (OnnxportError, MemoryError):
            raise
        except Exception as error:
            raise self._model.refusal(error) from error

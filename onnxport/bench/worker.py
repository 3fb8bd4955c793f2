"""The measuring process: one model, loaded once, that runs when it is its turn.

Only the standard library is imported before the runtime, so that the measured memory is that of runtime and model. A
turn ends when the process is idle: threads of a pool spin while they wait, which takes cores from the next model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from onnxport.bench.counters import CpuClock, EnergyCounters, peak_memory, resident_memory
from onnxport.bench.loaders import loader_for
from onnxport.bench.loaders.base import Chosen, Loaded, Run
from onnxport.bench.providers import TITLES, install_command
from onnxport.core.errors import MissingDependencyError, OnnxportError

T = TypeVar("T")

_SAMPLE = 0.002  # seconds
_BUSY = 0.25  # share of a sample; a spinning thread takes all of it
_LONGEST_WAIT = 0.25  # seconds; ONNX Runtime's threads stop spinning after 5 to 50 ms


class Runner:
    """The methods that the parent calls, in this order. Times are seconds, those of turns nanoseconds."""

    _model: Loaded
    _run: Run

    def __init__(self) -> None:
        self._bare = resident_memory()
        self._counters = EnergyCounters()

    def require(self, runtime: str) -> dict[str, Any]:
        """Import NumPy and the runtime; return the memory before and after."""
        self._loader = loader_for(runtime)
        try:
            import numpy  # noqa: F401 - every Python process with a model has it

            self._loader.require()
        except ImportError as error:
            raise MissingDependencyError(
                f"{TITLES[runtime]} cannot be imported", why=str(error), fix=install_command(runtime)
            ) from error
        return {"bare": self._bare, "imported": resident_memory()}

    def load(self, path: str, settings: Chosen) -> dict[str, Any]:
        """Load the model; return the time, and the model's inputs and outputs."""
        started = time.perf_counter()
        self._model = self._loader.load(path, settings)
        seconds = time.perf_counter() - started
        self._wait_until_idle()
        model = self._model
        return {
            "seconds": seconds,
            "ran_on": model.ran_on,
            "remarks": list(getattr(model, "remarks", ())),
            "inputs": list(model.inputs),
            "outputs": list(model.outputs),
        }

    def feed(self, files: dict[str, str]) -> dict[str, float]:
        """Feed the model from `.npy` files by key, and run it for the first time."""
        arrays = _load_arrays(files)
        started = time.perf_counter()
        self._run = self._call(lambda: self._model.feed(arrays))
        ready = time.perf_counter()
        loaded = resident_memory()
        begun = time.perf_counter()
        self._call(self._run)
        first = time.perf_counter() - begun
        self._wait_until_idle()
        return {"ready": ready - started, "loaded": loaded, "first": first}

    def turn(self, runs: int, settling: int) -> dict[str, Any]:
        """Run the model `settling` times for caches and threads, then `runs` times with each run timed."""
        return self._call(lambda: self._turn(runs, settling))

    def memory(self) -> int:
        """Return the peak of resident bytes."""
        return peak_memory()

    def answers(self, files: dict[str, str], folder: str) -> dict[str, str]:
        """Run the model on other arrays, from `.npy` files by key; return the outputs as such files in `folder`."""
        import numpy

        arrays, written = _load_arrays(files), {}
        self._run = self._call(lambda: self._model.feed(arrays))
        for number, (key, value) in enumerate(self._call(self._model.answers).items()):
            written[key] = f"{folder}/{number}.npy"
            numpy.save(written[key], numpy.asarray(value), allow_pickle=True)
        return written

    def _turn(self, runs: int, settling: int) -> dict[str, Any]:
        run, clock, spent = self._run, time.perf_counter_ns, CpuClock().nanoseconds
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
        self._wait_until_idle()
        return {"times": times, "joules": used, "cpu": cpu, "spent": time.process_time_ns()}

    def _wait_until_idle(self) -> None:
        """Wait until no thread of this process computes."""
        ends = time.perf_counter() + _LONGEST_WAIT
        while time.perf_counter() < ends:
            used, began = time.process_time(), time.perf_counter()
            time.sleep(_SAMPLE)
            if time.process_time() - used < _BUSY * (time.perf_counter() - began):
                return

    def _call(self, work: Callable[[], T]) -> T:
        """Call `work`; raise its failure as the runtime's refusal."""
        try:
            return work()
        except (OnnxportError, MemoryError):
            raise
        except Exception as error:
            raise self._model.refusal(error) from error


def _load_arrays(files: dict[str, str]) -> dict[str, Any]:
    import numpy

    # The parent wrote the files: arrays of strings are pickles.
    return {key: numpy.load(file, allow_pickle=True) for key, file in files.items()}

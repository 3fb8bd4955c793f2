"""Examine a `.tflite` from any converter: its contents, whether its outputs are right, and its latency.

`Bench` runs in a child process, so that an artefact that crashes the interpreter is a line in the table and does not
end the benchmark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime as ort
from ai_edge_litert.interpreter import Interpreter

from benchmarks.figures import Interval
from benchmarks.matching import Array, Match, Permutation, match_inputs, match_outputs
from onnxport.converters.tflite.load_check import count_operators
from onnxport.formats.model import Model
from onnxport.samples.domain import domains
from onnxport.samples.generator import KINDS, generate

THREADS = 2
# Wrong is a fault of the conversion, not rounding, so the line is drawn generously and the same for all tools.
RIGHT = 1e-3

# A timed block takes at least this long, and the first half second of an artefact is not timed.
_BLOCK_SECONDS = 0.02
_WARM_UP_SECONDS = 0.5

Feeds = dict[str, Array]


@dataclass(frozen=True)
class Examination:
    """An artefact's contents and its answers against ONNX Runtime's.

    Attributes:
        operators: how many, `transposes` among them.
        megabytes: its size.
        refused: what the interpreter said, if it did not load or run it.
        worst: the output that is furthest off, relative to its largest value; None if it was not run.
    """

    operators: int
    transposes: int
    megabytes: float
    refused: str = ""
    worst: Match | None = None

    @property
    def right(self) -> bool:
        return self.worst is not None and self.worst.relative <= RIGHT


@dataclass(frozen=True)
class Latency:
    """Two artefacts of one model, timed in turns in one process.

    Attributes:
        ours, theirs: milliseconds of one run, the median over the rounds.
        ratio: ours divided by theirs, per round.
        ratios: the rounds.
    """

    ours: float
    theirs: float
    ratio: Interval
    ratios: tuple[float, ...] = field(repr=False)


class Bench:
    """Serves the benchmark from a child process."""

    def examine(self, model: Path, shapes: Mapping[str, tuple[int, ...]], artefact: Path) -> Examination:
        """Looks into the artefact and runs it on generated samples."""
        counts = count_operators(artefact)
        contents = (sum(counts.values()), counts.get("TRANSPOSE", 0), artefact.stat().st_size / 1e6)
        samples = generated(model, shapes)
        try:
            tflite = _Tflite(artefact)
            ways = tflite.ways_to_feed(samples[0])
            references = reference_answers(model, samples)
            worst = min(
                (
                    worst_of(
                        match_outputs(references, [tflite.run(permuted(feeds, way)) for feeds in samples])
                    )
                    for way in ways
                ),
                key=lambda match: match.relative,
            )
        except (RuntimeError, ValueError) as error:
            return Examination(*contents, refused=" ".join(str(error).split())[:300])
        return Examination(*contents, worst=worst)

    def latency(
        self,
        model: Path,
        shapes: Mapping[str, tuple[int, ...]],
        ours: Path,
        theirs: Path,
        rounds: int,
        threads: int = THREADS,
    ) -> Latency:
        """Times both in turns; who goes first alternates."""
        feeds = generated(model, shapes)[0]
        runners = [_Tflite(path, threads) for path in (ours, theirs)]
        blocks = []
        for tflite in runners:
            tflite.feed(permuted(feeds, tflite.ways_to_feed(feeds)[0]))
            blocks.append(max(1, round(_BLOCK_SECONDS / _warm_up(tflite))))
        seconds: list[tuple[float, float]] = []
        for number in range(rounds):
            took = [0.0, 0.0]
            for index in (0, 1) if number % 2 == 0 else (1, 0):
                took[index] = _time(runners[index], blocks[index])
            seconds.append((took[0], took[1]))
        ratios = tuple(ours / theirs for ours, theirs in seconds)
        ours_ms, theirs_ms = (1000 * median(column) for column in zip(*seconds, strict=True))
        return Latency(ours_ms, theirs_ms, Interval.of(ratios), ratios)


class _Tflite:
    """LiteRT's interpreter with XNNPACK."""

    def __init__(self, path: Path, threads: int = THREADS) -> None:
        self._interpreter: Any = Interpreter(os.fspath(path), num_threads=threads)
        self._interpreter.allocate_tensors()
        self._inputs = {detail["name"]: detail for detail in self._interpreter.get_input_details()}
        self._outputs = {detail["name"]: detail for detail in self._interpreter.get_output_details()}

    def ways_to_feed(self, feeds: Feeds) -> list[dict[str, tuple[str, Permutation]]]:
        """Tensor and permutation for every input, the likeliest first; more than one where axes are of one size."""
        shapes = {name: [int(size) for size in detail["shape"]] for name, detail in self._inputs.items()}
        matches = match_inputs({name: array.shape for name, array in feeds.items()}, shapes)
        most = max((len(ways) for ways in matches.values()), default=1)
        return [
            {name: ways[min(number, len(ways) - 1)] for name, ways in matches.items()}
            for number in range(most)
        ]

    def feed(self, feeds: Mapping[str, Array]) -> None:
        for name, array in feeds.items():
            detail = self._inputs[name]
            self._interpreter.set_tensor(detail["index"], array.astype(detail["dtype"], order="C"))

    def invoke(self) -> None:
        self._interpreter.invoke()

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self.feed(feeds)
        self.invoke()
        return {
            name: np.array(self._interpreter.get_tensor(detail["index"]))
            for name, detail in self._outputs.items()
        }


def generated(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> list[Feeds]:
    """One sample of every kind: a detector is silent on noise, and a trained classifier saturates on 0..255."""
    model = Model.load(path)
    inputs = {spec.name: (spec, shapes[spec.name]) for spec in model.inputs}
    known = domains(model)
    return [generate(inputs, known, kind=kind, seed=0, index=index) for index, kind in enumerate(KINDS)]


def reference_answers(model: Path, samples: Sequence[Feeds]) -> list[dict[str, Array]]:
    options = ort.SessionOptions()
    # As ONNX defines it: the CPU's own integer kernels saturate on x86 without VNNI.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = ort.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, feeds), strict=True)) for feeds in samples]


def permuted(feeds: Feeds, way: Mapping[str, tuple[str, Permutation]]) -> Feeds:
    return {tensor: feeds[name].transpose(permutation) for name, (tensor, permutation) in way.items()}


def worst_of(matches: Sequence[Match]) -> Match:
    return max(matches, key=lambda match: match.relative)


def _warm_up(tflite: _Tflite) -> float:
    """Runs until caches, threads and clocks have settled; the shortest run in seconds."""
    shortest = float("inf")
    for elapsed in _runs(tflite):
        shortest = min(shortest, elapsed)
    return shortest


def _runs(tflite: _Tflite) -> Iterator[float]:
    start = time.perf_counter()
    while time.perf_counter() - start < _WARM_UP_SECONDS:
        before = time.perf_counter()
        tflite.invoke()
        yield time.perf_counter() - before


def _time(tflite: _Tflite, runs: int) -> float:
    """Seconds of one run, the mean of a block. One run before it is not timed: the other artefact had the caches."""
    tflite.invoke()
    start = time.perf_counter()
    for _ in range(runs):
        tflite.invoke()
    return (time.perf_counter() - start) / runs

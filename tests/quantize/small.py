"""Small graphs in int8, each on random inputs: how the tests ask what an operator becomes."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from onnxport.formats.model import Model
from onnxport.pipelines.runner.clock import Clock
from onnxport.quantize import int8
from onnxport.quantize.contract import QuantizationInputs, Quantized
from onnxport.quantize.params import QuantizeParams
from onnxport.samples.readers import find_samples
from tests import exact

Array = np.ndarray[Any, np.dtype[Any]]
_SAMPLES = 4


@dataclass(frozen=True)
class Case:
    """A float model and its int8 one, both as files, and inputs for them."""

    source: Path
    path: Path
    quantized: Quantized
    feeds: tuple[Mapping[str, Array], ...]

    def operators(self, *, int8_allowed: bool = False) -> dict[str, int]:
        """What ONNX Runtime makes of the int8 model, with how many there are of each."""
        target = self.path.with_suffix(".optimized.onnx")
        _session(self.path, target, int8_allowed=int8_allowed)
        return dict(collections.Counter(node.op_type for node in onnx.load(target).graph.node))

    @property
    def sqnr(self) -> float:
        """Of the first output, in dB."""
        return sqnr(self.source, self.path, self.feeds)


def sqnr(source: Path, candidate: Path, feeds: tuple[Mapping[str, Array], ...]) -> float:
    """Of the first output of `candidate` against that of `source`, in dB."""
    own, other = _session(source), _session(candidate)
    wanted = np.stack([own.run(None, each)[0] for each in feeds]).astype(np.float64)
    noise = wanted - np.stack([other.run(None, each)[0] for each in feeds])
    return float(10 * np.log10(np.square(wanted).sum() / max(np.square(noise).sum(), 1e-30)))


def case(text: str, folder: Path, *, initializers: Mapping[str, Array] = {}, **options: Any) -> Case:
    """The model that `text` says in ONNX's own notation, quantized; weights that it lacks are random.

    A value named wN... of a declared shape in `initializers` is taken from there.
    """
    proto = onnx.parser.parse_model(text)
    for name, array in initializers.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return quantized_case(proto, folder, **options)


def quantized_case(proto: onnx.ModelProto, folder: Path, **options: Any) -> Case:
    """`proto` quantized, on normally distributed inputs."""
    onnx.save(proto, folder / "float.onnx")
    model = Model.load(folder / "float.onnx")
    feeds = tuple({spec.name: _random(spec, number) for spec in model.inputs} for number in range(_SAMPLES))
    samples = folder / "samples"
    samples.mkdir()
    for number, each in enumerate(feeds):
        np.savez(samples / f"{number}.npz", **each)
    given = {"precision": "int8", "method": "minmax", "bias_correction": False, "calib": samples} | options
    files = find_samples(samples, model.inputs, _SAMPLES)
    (folder / "scratch").mkdir()
    setting = QuantizationInputs(files, (), folder / "scratch", Clock(None))
    quantized = int8.quantize(model, QuantizeParams(**given), setting)
    quantized.model.save(folder / "int8.onnx")
    onnx.checker.check_model(folder / "int8.onnx", full_check=True)
    return Case(folder / "float.onnx", folder / "int8.onnx", quantized, feeds)


def _random(spec: Any, seed: int) -> Array:
    shape = [dim if isinstance(dim, int) else 2 for dim in spec.shape]
    return np.random.default_rng(seed).normal(size=shape).astype(spec.dtype)


def _session(path: Path, optimized: Path | None = None, *, int8_allowed: bool = False) -> Any:
    options = exact.options() if optimized is None else onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    if int8_allowed:
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

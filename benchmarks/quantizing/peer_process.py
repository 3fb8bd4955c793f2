"""One quantization by a peer, in the peer's own environment: a program of its own that imports nothing of ours.

    python peer_process.py TOOL MODEL SAMPLES OUT COUNT FACTS     # SAMPLES: a folder of .npz files

Writes JSON to FACTS: the processor and wall seconds of the whole call, from the float file to the written one, after
the tool's imports. Every tool runs at its defaults; where these do not suit a CPU, the comment says what was chosen.
"""

from __future__ import annotations

import importlib.metadata
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

Feeds = dict[str, np.ndarray]
Quantize = Callable[[str, "Samples", str], None]


class Samples:
    """The sets of inputs in a folder, each read when it is asked for."""

    def __init__(self, folder: str, count: int) -> None:
        self._files = sorted(Path(folder).glob("*.npz"))[:count]

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Feeds]:
        for file in self._files:
            with np.load(file) as arrays:
                yield dict(arrays)


def onnxruntime_static(method: str) -> Quantize:
    from onnxruntime import quantization
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType

    class Reader(quantization.CalibrationDataReader):
        def __init__(self, samples: Samples) -> None:
            self._sets = iter(samples)

        def get_next(self) -> Feeds | None:
            return next(self._sets, None)

    def quantize(model: str, samples: Samples, out: str) -> None:
        quantization.quantize_static(
            model,
            out,
            Reader(samples),
            quant_format=QuantFormat.QDQ,
            per_channel=True,  # the default, False, is 10 dB worse
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod[method],
        )

    return quantize


def onnxruntime_dynamic() -> Quantize:
    from onnxruntime import quantization

    return lambda model, samples, out: quantization.quantize_dynamic(model, out)


def nncf() -> Quantize:
    import nncf
    import nncf.onnx.quantization.quantize_model
    import onnx

    def quantize(model: str, samples: Samples, out: str) -> None:
        quantized = nncf.quantize(onnx.load(model), nncf.Dataset(list(samples)), subset_size=len(samples))
        onnx.save(quantized, out)

    return quantize


def onnx_neural_compressor() -> Quantize:
    from onnx_neural_compressor import data_reader
    from onnx_neural_compressor.quantization import config
    from onnx_neural_compressor.quantization import quantize as entry
    from onnxruntime.quantization import QuantFormat

    class Reader(data_reader.CalibrationDataReader):
        def __init__(self, samples: Samples) -> None:
            self._samples = samples
            self.rewind()

        def get_next(self) -> Feeds | None:
            return next(self._sets, None)

        def rewind(self) -> None:
            self._sets = iter(self._samples)

    def quantize(model: str, samples: Samples, out: str) -> None:
        setting = config.StaticQuantConfig(
            Reader(samples),
            quant_format=QuantFormat.QDQ,
            per_channel=True,  # as for ONNX Runtime
            calibration_sampling_size=len(samples),
        )
        entry(model, out, setting)

    return quantize


def modelopt() -> Quantize:
    from modelopt.onnx.quantization import quantize as entry

    def quantize(model: str, samples: Samples, out: str) -> None:
        sets = list(samples)
        entry(
            model,
            calibration_data={name: np.concatenate([each[name] for each in sets]) for name in sets[0]},
            calibration_eps=["cpu"],
            high_precision_dtype="fp32",  # the default, fp16, is for GPUs
            output_path=out,
            log_level="WARNING",
        )

    return quantize


def quark() -> Quantize:
    from quark.onnx import ModelQuantizer, QConfig
    from quark.onnx.quantization.config.custom_config import A8W8_QCONFIG

    class Reader:
        def __init__(self, samples: Samples) -> None:
            self._samples = samples
            self.reset_iter()

        def get_next(self) -> Feeds | None:
            return next(self._sets, None)

        def reset_iter(self) -> None:
            self._sets = iter(self._samples)

    def quantize(model: str, samples: Samples, out: str) -> None:
        assert isinstance(A8W8_QCONFIG, QConfig)
        ModelQuantizer(A8W8_QCONFIG).quantize_model(model, out, Reader(samples))

    return quantize


# Tool -> what imports it and gives its quantization, and its package.
TOOLS: dict[str, tuple[Callable[[], Quantize], str]] = {
    "ort-minmax": (lambda: onnxruntime_static("MinMax"), "onnxruntime"),
    "ort-percentile": (lambda: onnxruntime_static("Percentile"), "onnxruntime"),
    "ort-entropy": (lambda: onnxruntime_static("Entropy"), "onnxruntime"),
    "ort-dynamic": (onnxruntime_dynamic, "onnxruntime"),
    "nncf": (nncf, "nncf"),
    "neural-compressor": (onnx_neural_compressor, "onnx-neural-compressor"),
    "modelopt": (modelopt, "nvidia-modelopt"),
    "quark": (quark, "amd-quark"),
}


def used() -> float:
    """Processor seconds so far, of this process and of those that it started and that have ended."""
    return sum(
        part.ru_utime + part.ru_stime
        for part in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main(tool: str, model: str, folder: str, out: str, count: str, facts: str) -> None:
    """Quantizes and prints what it cost."""
    prepare, package = TOOLS[tool]
    quantize = prepare()
    samples = Samples(folder, int(count))
    begun, start = used(), time.perf_counter()
    quantize(model, samples, out)
    cost = {
        "cpu": used() - begun,
        "seconds": time.perf_counter() - start,
        "imports": begun,
        "version": importlib.metadata.version(package),
    }
    Path(facts).write_text(json.dumps(cost))


if __name__ == "__main__":
    main(*sys.argv[1:])

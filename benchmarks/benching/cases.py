"""Eight real models as ONNX and as our TFLite, each with the inputs that `onnxport bench` uses."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import onnxport
from fixtures import models
from onnxport.bench.inputs import Inputs
from onnxport.bench.params import BenchParams
from onnxport.bench.ports import ports_of
from onnxport.core.arrays import Array, Feeds
from onnxport.formats.model import Model

# Key in fixtures/models.toml to the sizes of what it leaves open beside the batch.
MODELS = {
    "basic-pitch/nmp.onnx": "",
    "magika/model.onnx": "",
    "mtcnn/onet.onnx": "",
    "nudenet/320n.onnx": "images=1,3,320,320",
    "rapidocr-v4/ch_PP-OCRv4_det_infer.onnx": "x=1,3,320,320",
    "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx": "x=1,3,48,192",
    "u2netp/u2netp.onnx": "",
    "yunet/face_detection_yunet_2023mar.onnx": "",
}
_LOOPS = {".onnx": "ort_loop.py", ".tflite": "tflite_loop.py"}


@dataclass(frozen=True)
class Case:
    """One file to be measured by both.

    Attributes:
        shape: what `--shape` says; empty for nothing.
        feeds: an `.npz` of the arrays that its runtime takes, by its own keys.
    """

    name: str
    path: Path
    shape: str
    feeds: Path

    def ours(self, threads: int, runs: int, warmup: int, *more: str) -> list[str]:
        """The installed command."""
        command = [str(Path(sys.executable).with_name("onnxport")), "bench", str(self.path), "--json"]
        options = ["--threads", str(threads), "--runs", str(runs), "--warmup", str(warmup), *more]
        return [*command, *options, *(["--shape", self.shape] if self.shape else [])]

    def loop(self, threads: int, runs: int, warmup: int) -> list[str]:
        """The plain loop."""
        script = Path(__file__).with_name(_LOOPS[self.path.suffix])
        return [
            sys.executable,
            str(script),
            str(self.path),
            str(self.feeds),
            *map(str, (threads, runs, warmup)),
        ]


@contextmanager
def cases(keys: list[str], formats: list[str]) -> Iterator[list[Case]]:
    """The files and their inputs, in a folder that goes again."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for key in keys:
            for suffix in formats:
                found.append(_case(key, suffix, Path(folder)))
        yield found


def _case(key: str, suffix: str, folder: Path) -> Case:
    source, shape = models.path(key), MODELS[key]
    name = key.replace("/", "-").removesuffix(".onnx")
    path = source
    if suffix == ".tflite":
        path = folder / f"{name}.tflite"
        options = {"shape": shape} if shape else {}
        onnxport.convert_model(source, "tflite", path, validate=False, **options)
    params = BenchParams.model_validate({"shape": shape} if shape else {})
    graph = Model.load(source)
    feeds = Inputs(params, [graph]).feeding(None)(graph.inputs)
    place = folder / f"{name}{suffix}.npz"
    np.savez(place, allow_pickle=False, **_keyed(path, feeds))
    return Case(f"{name}{suffix}", path, shape, place)


def _keyed(path: Path, feeds: Feeds) -> dict[str, Array]:
    """The arrays by the keys of the runtime of `path`."""
    if path.suffix != ".tflite":
        return dict(feeds)
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(str(path)).get_input_details()
    inputs = [(str(each["index"]), np.dtype(each["dtype"]).name, ()) for each in details]
    return ports_of("litert", path, inputs, ()).to_runtime(feeds)

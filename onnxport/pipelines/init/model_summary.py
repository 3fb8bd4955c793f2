"""Summarizes a model for a first pipeline.yaml: its tensors, its sizes, its operators."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.errors import OnnxportError, printable
from onnxport.core.urls import shown
from onnxport.exporters.sources import KINDS, Source
from onnxport.formats.artifact import Artifact, TensorSpec
from onnxport.pipelines.runner.model_sources import load

if TYPE_CHECKING:
    from onnxport.samples.readers import SampleFile

_CHANNELS = (1, 3, 4)
_IMAGE = (224, 224)
_LENGTH = 128
# Operators that int8 makes smaller and faster; without any there is nothing to quantize.
_PRODUCTS = frozenset("Conv ConvTranspose Gemm MatMul LSTM GRU".split())
_FLOAT = frozenset("float32|float64|float16|float16 weights|bfloat16|bfloat16 weights|unknown".split("|"))


@dataclass(frozen=True)
class ModelSummary:
    """The summary of one model.

    Attributes:
        kind: "onnx", or a key of exporters.sources.KINDS.
        size: bytes, external weights included; 0 if unknown.
        states: inputs that are fed back, with their outputs.
        inputs, operators, precision: of an ONNX file; the defaults for a source to export.
    """

    name: str
    source: str
    kind: str
    size: int = 0
    inputs: tuple[TensorSpec, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    precision: str = "float32"

    @property
    def is_onnx(self) -> bool:
        return self.kind == "onnx"

    @property
    def described(self) -> str:
        """The kind of a source to export, in words."""
        return KINDS.get(self.kind, self.kind)

    @property
    def is_quantized(self) -> bool:
        return self.is_onnx and self.precision not in _FLOAT

    @property
    def can_be_quantized(self) -> bool:
        return not self.is_onnx or bool(self.operators & _PRODUCTS and not self.is_quantized)

    @property
    def image_size(self) -> tuple[int, int, int] | None:
        """Height, width and channels of the only image input; proposed sizes for open dimensions."""
        found = [spec for spec in self.inputs if _is_image(spec)]
        if len(found) != 1:
            return None
        _, *sizes = _proposed_size(found[0])
        channels, height, width = sizes if _is_first(found[0]) else (sizes[2], sizes[0], sizes[1])
        return height, width, channels

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Proposed sizes of inputs with open dimensions: batch 1, images of 224 pixels, length 128."""
        return {spec.name: _proposed_size(spec) for spec in self.inputs if not spec.is_static}


def summarize(given: str, folder: Path) -> tuple[ModelSummary, Artifact | None]:
    """Summarize the model that the user named; also return its artefact if it is an ONNX file.

    Its path in the summary is relative to `folder`, that of the pipeline's file.
    """
    if not given.lower().endswith(".onnx"):
        source = Source.of(given)
        named = given if source.is_factory else _path_from(source.path, folder)
        return ModelSummary(Path(source.name.rpartition(":")[2]).stem, named, source.kind, source.size), None
    from onnxport.samples.domain import without_functions
    from onnxport.samples.states import find_states
    from onnxport.validate.precision import precision_of

    model, artifact = load(Artifact.open(given))
    found = ModelSummary(
        name=artifact.path.stem,
        source=_path_from(artifact.path, folder),
        kind="onnx",
        size=artifact.size,
        inputs=tuple(model.inputs),
        states=find_states(without_functions(model), model.inputs, model.outputs),
        operators=frozenset(node.op_type for graph in model.ir.graphs() for node in graph),
        precision=precision_of(artifact, model),
    )
    return found, artifact


def _path_from(path: Path, folder: Path) -> str:
    """Return `path` relative to `folder`; absolute if it was given so and lies outside; of a copy its URL."""
    if (url := shown(str(path))) != str(path):
        return url
    relative = os.path.relpath(path.resolve(), folder.resolve())
    is_outside = relative.startswith("..") and path.is_absolute()
    return str(path.resolve()) if is_outside else Path(relative).as_posix()


def _is_image(spec: TensorSpec) -> bool:
    if len(spec.shape) != 4 or not spec.dtype.startswith(("float", "uint8")):
        return False
    return _is_first(spec) or spec.shape[3] in _CHANNELS


def _is_first(spec: TensorSpec) -> bool:
    return spec.shape[1] in _CHANNELS


def _proposed_size(spec: TensorSpec) -> list[int]:
    proposed = [_LENGTH] * len(spec.shape)
    if _is_image(spec):
        place = 2 if _is_first(spec) else 1
        proposed[place : place + 2] = _IMAGE
    proposed[:1] = [1]  # the batch
    return [dim if isinstance(dim, int) else size for dim, size in zip(spec.shape, proposed, strict=True)]


FOLDER = "samples"
ENOUGH = 100
_OF_ROWS = (".npz", ".npy", ".safetensors")


@dataclass(frozen=True)
class Samples:
    """The samples of a project: at most a hundred input sets, or why an existing folder does not fit.

    Attributes:
        place: the folder, or the file whose rows they are; relative to that of the pipeline.
        settled: whether the folder itself says how its pictures become inputs.
        preprocess: the settings that make the pictures fit the model; empty where they fit as they are.
    """

    count: int = 0
    images: bool = False
    why_not: str = ""
    place: str = FOLDER
    settled: bool = False
    preprocess: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        return self.place != FOLDER


def find_samples_of(look: ModelSummary, folder: Path) -> Samples:
    """Return the samples of a model in `folder`/samples; else the rows of the only array file in `folder`.

    In a folder each array file is one set of inputs, so the only file of many rows is taken itself.
    """
    place = folder / FOLDER
    of_rows = _rows_of(look, _only_array_file(place if place.is_dir() else folder), folder)
    if of_rows is not None:
        return of_rows
    if not place.is_dir():
        return Samples()
    if not look.is_onnx:
        return Samples(why_not="it can be checked only when the model is exported")
    given: dict[str, str] = {}
    try:
        try:
            files = _first_samples(look, place, given)
        except OnnxportError:
            given = _fitting(look, place)
            if not given:
                raise
            files = _first_samples(look, place, given)
    except (OnnxportError, IndexError) as error:
        return Samples(why_not=printable((str(error) or "it is empty").splitlines()[0]))
    from onnxport.samples.readers import holds_images

    return Samples(len(files), holds_images(files), settled=_has_settings(place), preprocess=given)


def _only_array_file(folder: Path) -> Path | None:
    """Return the only array file of a folder; None beside other samples in a folder of samples."""
    from onnxport.samples.folders import sample_entries
    from onnxport.samples.readers import SUFFIXES

    try:
        found = sample_entries(folder, SUFFIXES if folder.name == FOLDER else _OF_ROWS)
    except OnnxportError:
        return None
    return found[0].path if len(found) == 1 and found[0].kind in _OF_ROWS else None


def _rows_of(look: ModelSummary, file: Path | None, folder: Path) -> Samples | None:
    """Return a file's rows as samples; None where it does not fit the model, or is one set of inputs."""
    if file is None or not look.is_onnx:
        return None
    try:
        files = _first_samples(look, file, {})
    except OnnxportError:
        return None
    return Samples(len(files), place=file.relative_to(folder).as_posix()) if len(files) > 1 else None


def _first_samples(look: ModelSummary, place: Path, given: Mapping[str, str]) -> Sequence[SampleFile]:
    """Find the samples, the first of which can be read; IndexError if there are none."""
    from onnxport.samples.preprocessing import preprocessing
    from onnxport.samples.readers import find_samples

    states = frozenset(look.states)
    settings = preprocessing(given, place)
    files = find_samples(place, look.inputs, ENOUGH, settings=settings, optional=states)
    files[0].load()
    return files


def _fitting(look: ModelSummary, place: Path) -> dict[str, str]:
    """Return settings that make pictures fit the model; none where the user has settings in the folder."""
    if look.image_size is None or _has_settings(place):
        return {}
    height, width, _ = look.image_size
    (image,) = (spec for spec in look.inputs if _is_image(spec))
    scale = {} if image.dtype == "uint8" else {"scale": "1/255"}
    return {"resize": f"{height}x{width}"} | scale


def _has_settings(place: Path) -> bool:
    from onnxport.samples.preprocessing import SIDECARS

    return any((place / name).exists() for name in SIDECARS)

"""The manifest inside our artefacts: their provenance, ports and tensor names.

TFLite has it as a metadata buffer, ONNX and `.ort` files as a metadata property, both under KEY. It has no time stamp
and no path: the same input gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from onnxport.formats.artifact import Dim, TensorSpec

KEY = "onnxport"
DEEPEST = 32  # levels of lists and dictionaries; JSON writers stop at some hundreds
MAIN = "main"  # the default function of a package; the manifest under KEY is this function's


def note_key(function: str = MAIN) -> str:
    """Return the key of the manifest of one of a package's functions."""
    return KEY if function == MAIN else f"{KEY}.function.{function}"


def pixels_key(function: str = MAIN) -> str:
    """Return the key of a function's image inputs: JSON, input key -> layout, scale and bias."""
    return f"{note_key(function)}.pixels"


@dataclass(frozen=True)
class Port:
    """One input or output: in the source model, and in the artefact.

    Attributes:
        name: the ONNX name.
        key: the name in the artefact.
        dtype: NumPy's name of the element type in the source model.
        shape: the artefact's shape; None for an open dimension.
        permutation: axis i of the artefact is axis permutation[i] of the source; empty for identity.
        scale, zero_point: of quantized values, scale * (integer - zero_point); scale 0 for any other.
        texts: what the artefact's integers stand for where the source has texts; empty for any other.
    """

    name: str
    key: str
    dtype: str
    shape: tuple[int | None, ...]
    permutation: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    texts: tuple[str, ...] = ()

    @property
    def spec(self) -> TensorSpec:
        dims: tuple[Dim, ...] = self.shape
        return TensorSpec(self.name, self.dtype, dims)


@dataclass(frozen=True)
class Tap:
    """The place of an intermediate ONNX value in the artefact.

    Attributes:
        key: the name of its tensor.
        permutation: as of a Port.
        scale, zero_point: where the artefact holds the value quantized, as of a Port.
    """

    key: str
    permutation: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True)
class Manifest:
    """An artefact's description of itself.

    Attributes:
        source: SHA-256 of the source artefact (Artifact.digest).
        made_by: onnxport and the libraries that determine the bytes, name -> version.
        options: the parameters of its stage.
        validation: "required" if it was proven, "skipped" if the user waived that.
        inputs, outputs: in the source model's order.
        taps: name of an intermediate ONNX value -> its place, where the runtime can return it.
        islands: ONNX values that an artefact of lower precision computes in float32.
        states: inputs that the artefact keeps between runs -> the output that is the next value; the key of both is
            the state's.
        labels: outputs that are dictionaries in the source (ZipMap) -> the labels of their columns.
    """

    source: str
    made_by: Mapping[str, str]
    options: Mapping[str, object]
    validation: Literal["required", "skipped"]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    taps: Mapping[str, Tap] = field(default_factory=dict)
    islands: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Sequence[int | str]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return canonical JSON: sorted keys, no white space."""
        data = asdict(self)
        for tap in data["taps"].values():
            if not tap["scale"]:
                del tap["scale"], tap["zero_point"]
        for port in (*data["inputs"], *data["outputs"]):
            if not port["texts"]:
                del port["texts"]
        if not self.labels:
            del data["labels"]
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse `text`; raises ValueError, KeyError or TypeError where it is no manifest of ours."""
        try:
            data = json.loads(text)
        except RecursionError as error:
            raise ValueError("lists are nested too deeply") from error
        if count_levels(data) > DEEPEST:
            raise ValueError("lists are nested too deeply")
        if not all(isinstance(data[name], dict) for name in ("made_by", "options", "taps")):
            raise TypeError("onnxport did not write this note")
        return cls(
            source=data["source"],
            made_by=data["made_by"],
            options=data["options"],
            validation=data["validation"],
            inputs=tuple(_port(port) for port in data["inputs"]),
            outputs=tuple(_port(port) for port in data["outputs"]),
            taps={
                name: Tap(**tap | {"permutation": tuple(tap["permutation"])})
                for name, tap in data["taps"].items()
            },
            islands=tuple(data.get("islands", ())),
            states=dict(data.get("states", {})),
            labels=dict(data.get("labels", {})),
        )


def count_levels(value: object) -> int:
    """Return how many lists and dictionaries are around the innermost value."""
    deepest, level = 0, [value]
    while level := [
        inner
        for each in level
        if isinstance(each, dict | list)
        for inner in (each.values() if isinstance(each, dict) else each)
    ]:
        deepest += 1
    return deepest


def _port(data: dict[str, Any]) -> Port:
    lists = {name: tuple(data[name]) for name in ("shape", "permutation")} | {
        "texts": tuple(data.get("texts", ()))
    }
    port = Port(**data | lists)
    named = all(isinstance(text, str) for text in (port.name, port.key, port.dtype, *port.texts))
    sized = all(dim is None or (isinstance(dim, int) and dim >= 0) for dim in port.shape)
    if not named or not sized:
        raise TypeError(f"{port} is neither input nor output")
    return port

"""The note that an artefact of ours carries inside itself: where it came from and what its tensors are called.

TFLite keeps it as a metadata buffer, ONNX and `.ort` files as a metadata property, both under KEY.
It holds no time stamp and no path, so that the same input gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from onnxport.formats.artifact import Dim, TensorSpec

KEY = "onnxport"
# The function of a package that answers where an app names none; the note under KEY is of this one.
MAIN = "main"


def note_key(function: str = MAIN) -> str:
    """Where a package keeps the note on one of its functions."""
    return KEY if function == MAIN else f"{KEY}.function.{function}"


def pixels_key(function: str = MAIN) -> str:
    """Beside it: JSON, key of each input that apps give as a picture to its layout, scale and bias."""
    return f"{note_key(function)}.pixels"


@dataclass(frozen=True)
class Port:
    """One input or output: the source model's name, and what the format had to make of it.

    Attributes:
        name: the ONNX name.
        key: the name in the artefact, where the format could not carry the ONNX one.
        dtype: NumPy name of the element type in the source model.
        shape: the artefact's shape; None for a dimension that may change.
        permutation: physical axis i of the artefact is axis permutation[i] of the source; empty for identity.
        scale, zero_point: the artefact's integers stand for scale * (integer - zero_point); a scale of 0 where they
            stand for themselves.
    """

    name: str
    key: str
    dtype: str
    shape: tuple[int | None, ...]
    permutation: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0

    @property
    def spec(self) -> TensorSpec:
        dims: tuple[Dim, ...] = self.shape
        return TensorSpec(self.name, self.dtype, dims)


@dataclass(frozen=True)
class Tap:
    """Where an intermediate ONNX value is found in the artefact, and how its axes are permuted there."""

    key: str
    permutation: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """What an artefact says of itself.

    Attributes:
        source: SHA-256 of the source artefact (artifact.Artifact.digest).
        made_by: onnxport and the libraries that shaped the bytes, name to version.
        options: the parameters of the stage that made it.
        validation: "required" when it left only after a proof, "skipped" when the user waived it.
        inputs, outputs: in the source model's order.
        taps: intermediate ONNX value name to its place, where the runtime can show it.
        islands: ONNX values that an artefact of lower precision computes in float32.
        states: inputs that the artefact keeps between runs, to the output that is each one's next value; both are
            found under the state's key.
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

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no white space."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """The manifest in `text`; ValueError, KeyError or TypeError if it is none of ours."""
        try:
            data = json.loads(text)
        except RecursionError as error:
            raise ValueError("lists in lists without an end") from error
        if not all(isinstance(data[name], dict) for name in ("made_by", "options", "taps")):
            raise TypeError("the note is none of ours")
        return cls(
            source=data["source"],
            made_by=data["made_by"],
            options=data["options"],
            validation=data["validation"],
            inputs=tuple(_port(port) for port in data["inputs"]),
            outputs=tuple(_port(port) for port in data["outputs"]),
            taps={name: Tap(tap["key"], tuple(tap["permutation"])) for name, tap in data["taps"].items()},
            islands=tuple(data.get("islands", ())),
            states=dict(data.get("states", {})),
        )


def _port(data: dict[str, Any]) -> Port:
    port = Port(**data | {name: tuple(data[name]) for name in ("shape", "permutation")})
    named = all(isinstance(text, str) for text in (port.name, port.key, port.dtype))
    sized = all(dim is None or (isinstance(dim, int) and dim >= 0) for dim in port.shape)
    if not named or not sized:
        raise TypeError(f"{port} is no input or output")
    return port

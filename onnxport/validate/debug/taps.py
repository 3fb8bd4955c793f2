"""The intermediate values that both models can show, and runs that fetch some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.core.scratch import ScratchFolder
from onnxport.formats import ort_file
from onnxport.formats.artifact import Artifact, TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import check_taps
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.debug.graph import Network
from onnxport.validate.debug.rounding import Rounds
from onnxport.validate.metrics import scale_of
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import LayerFigure
from onnxport.validate.sessions import Oriented, isolated
from onnxport.validate.signature import Signature, split_map
from onnxport.validate.tolerance import float_differences

# The reference runs without optimization here, each node by itself.
PLAIN = RuntimeOptions(level="disable")
_FLOAT32 = Rounds()
_BYTES = 4  # of an element; wider ones are indices, of which networks have few


@dataclass(frozen=True)
class Shown:
    """Values of both sides on one set of inputs, by ONNX value name.

    Attributes:
        reference, candidate: the values; the candidate's in the reference's dtypes.
    """

    reference: Mapping[str, Array]
    candidate: Mapping[str, Array]


class Sides(Closing):
    """Both models with their intermediate values; the candidate in a process of its own.

    Args:
        network: the reference.
        candidate: the other file.
        params: its runtime's settings, and the user's names for its tensors.
        signature: the reference's inputs and outputs.
        unread: inputs that the candidate may lack.
        rounds: the candidate's roundings.

    Attributes:
        shared: the values that both can show, outputs included, in the graph's order.
        runs: the number of runs of the candidate so far.
        answers: the candidate's outputs in the last run that showed more than these.
        dtypes: the candidate's own, of the values that this run showed.
    """

    def __init__(
        self,
        network: Network,
        candidate: Artifact,
        params: ValidateParams,
        signature: Signature,
        rounds: Rounds = _FLOAT32,
        unread: Sequence[TensorSpec] = (),
    ) -> None:
        self.network, self.rounds = network, rounds
        is_sealed = candidate.format == "ort"
        runtime = _SealedRuntime(candidate, params) if is_sealed else isolated(candidate, params, "candidate")
        names = "the reference", str(candidate.path)
        renames = split_map(params.map, signature, Oriented(runtime), names)
        self.candidate = Oriented(runtime, *renames, unread=unread)
        self.runs = 0
        self.answers: Mapping[str, Array] = {}
        self.dtypes: Mapping[str, np.dtype[np.generic]] = {}
        taps = self.candidate.runtime.taps
        outputs = {spec.name for spec in self.candidate.outputs}
        self.has_taps = bool(taps)
        self._read_as = _read_as(candidate, network)
        self.shared = tuple(
            name for name in network.values if name in outputs or self._read_as.get(name, name) in taps
        )

    def fetch(self, feeds: Feeds, names: Sequence[str]) -> Shown:
        """Run each side once, with the values of `names`."""
        self.runs += 1
        outputs = {spec.name for spec in self.candidate.outputs}
        shown = {name: self._read_as.get(name, name) for name in names}
        given = self.candidate.run(feeds, taps=[each for name, each in shown.items() if name not in outputs])
        self.answers = {name: given[name] for name in outputs}
        self.dtypes = {name: given[each].dtype for name, each in shown.items()}
        return self.beside(feeds, {name: given[each] for name, each in shown.items()})

    def beside(self, feeds: Feeds, candidate: Mapping[str, Array]) -> Shown:
        """Run the reference for its values beside these of the candidate."""
        known = self._reference(self.network.giving(candidate), feeds)
        return Shown(known, {name: _convert(known[name], value) for name, value in candidate.items()})

    def alone(self, feeds: Feeds) -> dict[str, Array]:
        """Run the candidate for its outputs only."""
        self.runs += 1
        return self.candidate.run(feeds)

    def sizes(self, feeds: Feeds) -> dict[str, int]:
        """Return the bytes of each value on these inputs, by one run of the reference that gives only shapes."""
        shapes = {f"{name}/shape": name for name in self.network.values}
        nodes = [onnx.helper.make_node("Shape", [name], [shape]) for shape, name in shapes.items()]
        found = self._reference(self.network.giving(shapes, nodes), feeds)
        return {name: _BYTES * math.prod(map(int, found[shape])) for shape, name in shapes.items()}

    def _reference(self, data: bytes, feeds: Feeds) -> dict[str, Array]:
        """Load and run a form of the reference; no two runs show the same values."""
        with OrtRuntime(data, PLAIN, folder=self.network.folder) as runtime:
            return runtime.run(feeds)

    def close(self) -> None:
        self.candidate.runtime.close()


# A tap that holds a value of the reference only after its rounding.
_ROUNDED = ""


def _read_as(candidate: Artifact, network: Network) -> dict[str, str]:
    """Map values of the reference to the values that the candidate shows for them.

    Those that only an ONNX candidate quantizes are read quantized. A `.tflite` holds a result of an integer kernel
    rounded: that is the value of the DequantizeLinear behind it, if the reference has one.
    """
    if candidate.format == "tflite":
        if all(node.op_type != "QuantizeLinear" for node in network.nodes):
            return {}
        from onnxport.formats.tflite.ports import read_signature  # loads LiteRT

        rounded = {name for name, tap in read_signature(candidate.path).taps.items() if tap.scale}
        after = {name: read for name, read in network.quantized().items() if read not in network.outputs}
        return dict.fromkeys(rounded, _ROUNDED) | {after[name]: name for name in rounded if name in after}
    if candidate.format != "onnx":
        return {}
    found = Network(Model.load(candidate.path)).quantized()
    return {name: read for name, read in found.items() if read not in network.producers}


def layer_figure(
    network: Network, name: str, shown: Shown, share: float | None, own: float | None = None
) -> LayerFigure:
    """Return how far the two sides are apart at one value; `own` is the SQNR of its node alone."""
    reference, candidate = shown.reference[name], shown.candidate[name]
    node = network.ref(name)
    if reference.shape != candidate.shape or reference.dtype.kind not in "fiub":
        equal = reference.shape == candidate.shape and bool(np.array_equal(reference, candidate))
        error = 0.0 if equal else np.inf
        return LayerFigure(node=node, max_abs=error, scale=0.0, sqnr_db=None, local_share=share)
    ours, theirs = (np.asarray(side, np.float64) for side in (reference, candidate))
    pattern, difference = float_differences(ours, theirs)
    finite = not pattern.any() and bool(np.isfinite(ours).all())
    return LayerFigure(
        node=node,
        max_abs=np.inf if pattern.any() else float(difference.max(initial=0.0)),
        scale=scale_of(ours),
        sqnr_db=sqnr(ours, difference) if finite else None,
        local_share=share,
        local_sqnr_db=own,
    )


def sqnr(reference: Array, difference: Array) -> float | None:
    """Return 10 log10(sum ref^2 / sum diff^2) in dB; Infinity without error, None without signal."""
    signal, noise = float(np.square(reference).sum()), float(np.square(difference).sum())
    if not signal:
        return None
    return 10 * math.log10(signal / noise) if noise else np.inf


def _convert(reference: Array, candidate: Array) -> Array:
    """Convert the candidate's value to the reference's dtype: TFLite has int32 where ONNX has int64."""
    if candidate.dtype == reference.dtype or "O" in (candidate.dtype.kind, reference.dtype.kind):
        return candidate
    return candidate.astype(reference.dtype)


class _SealedRuntime(Closing):
    """An `.ort` file as a Runtime that shows the values of its main graph: a copy names them as outputs.

    The file's graph is already optimized, and ONNX Runtime does not change it when it loads it: the copy runs the same
    kernels in the same order.
    """

    def __init__(self, artifact: Artifact, params: ValidateParams) -> None:
        self._artifact, self._params = artifact, params
        self._plain = isolated(artifact, params, "candidate")

    @property
    def name(self) -> str:
        return self._plain.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._plain.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._plain.outputs

    @cached_property
    def taps(self) -> frozenset[str]:
        graph = self._session()["model"]["graph"]
        made = {name.decode() for node in graph.get("nodes", ()) for name in node.get("outputs", ()) if name}
        return frozenset(made - {spec.name for spec in self.outputs})

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`; every choice of taps writes and loads a copy of the file."""
        check_taps(self.taps, taps, str(self._artifact.path))
        if not taps:
            return self._plain.run(feeds)
        session = self._session()
        session["model"]["graph"]["outputs"] += [name.encode() for name in taps]
        with ScratchFolder() as folder:
            copy = Path(folder, self._artifact.path.name)
            copy.write_bytes(ort_file.write(session))
            with isolated(Artifact(copy, "ort"), self._params, "candidate") as opened:
                return opened.run(feeds)

    def close(self) -> None:
        self._plain.close()

    def _session(self) -> ort_file.Table:
        try:
            return ort_file.read(self._artifact.path.read_bytes())
        except ValueError as error:
            raise InputError(f"{self._artifact.path} cannot be read", why=str(error)) from error

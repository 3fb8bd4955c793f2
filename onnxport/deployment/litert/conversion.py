"""Our own conversion of an ONNX model, for probes only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from onnxport.converters.params import TfliteParams
from onnxport.deployment.report import Fallback
from onnxport.formats.graph import Node
from onnxport.formats.graph.tflite import Subgraph, TfliteModel, read_tflite
from onnxport.formats.model import Model


@dataclass(frozen=True)
class ConvertedModel:
    """A `.tflite` file, and the ONNX nodes that it was made from."""

    file: TfliteModel  # its graphs are linked
    # An ONNX node by its name and by those of its outputs; empty where the user named the file itself.
    sources: Mapping[str, ir.Node]

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """The main subgraph, and those that its operators run."""
        run = set(self.file.main.graph.graphs())
        return tuple(each for each in self.file.subgraphs if each.graph in run)

    def fallback(self, node: Node, why: str) -> Fallback:
        """Return a fallback in the terms of the model that the user named."""
        source = self.sources.get(node.label)
        if source is None:
            return Fallback(op=node.op, node=node.label, why=why)
        domain = "" if source.domain in ("", "ai.onnx") else f"{source.domain}::"
        return Fallback(
            op=f"{domain}{source.op_type}", node=source.name or node.label, why=f"{node.op}: {why}"
        )


def convert_once(path: Path, folder: Path) -> ConvertedModel:
    """Return the file at `path`; an `.onnx` file is converted into `folder`, once for all processes."""
    if path.suffix == ".tflite":
        return ConvertedModel(_read(path), {})
    model = Model.load(path)
    made = folder / f"{path.stem}.product.tflite"
    with _exclusive(folder):
        if not made.exists():
            begun = made.with_stem(f"{path.stem}-{os.getpid()}")
            convert(model, begun, TfliteParams())
            begun.replace(made)
    nodes = list(model.graph.all_nodes())
    # Tensors inside a lowering have the name of the node, all others that of their ONNX value.
    by_name = {node.name: node for node in nodes if node.name}
    by_value = {value.name: node for node in nodes for value in node.outputs if value.name}
    return ConvertedModel(_read(made), by_name | by_value)


def _read(path: Path) -> TfliteModel:
    file = read_tflite(path)
    file.main.graph.link()
    return file


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Let one process at a time use the folder; without file locks (Windows), each process converts."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / "product.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def convert(model: Model, output: Path, params: TfliteParams) -> None:
    """Convert a model without a proof."""
    from onnxport.converters.tflite.compiler import TfliteConverter
    from onnxport.formats.manifest import Manifest
    from onnxport.optimizers.canonical_form import prepare

    with TfliteConverter() as converter:
        prepared = prepare(model, shapes={}, native=converter.native_ops)
        note = Manifest(model.artifact.digest(), {}, {}, "skipped")
        converter.convert(prepared.model, output, params, note, model)

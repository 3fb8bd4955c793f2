"""Probes of installed runtimes, each in a process of its own.

A module of this package is named in `runtimes.RUNTIMES` and has

    def probe(path: Path, options: ProbeOptions) -> Placement

which runs in a child: it may import its library, print, crash or hang. It raises `NotAvailable` if the installed
library lacks the runtime, and an OnnxportError for a model that the runtime does not take. A refusal that it expects
is a Placement with the extent "none".
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxport.core.errors import CannotConvertError, OnnxportError
from onnxport.deployment.report import Extent, Fallback, Placement
from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model


class NotAvailable(OnnxportError):
    """The installed build lacks the runtime, which is then estimated if it has a data file."""


@dataclass(frozen=True)
class ProbeOptions:
    """Settings of a probe; the model has the user's sizes in it already."""

    runtime: str  # its word in `--runs-on`; a module may answer for several
    title: str  # its name in the report
    folder: Path  # for intermediate files; it is removed afterwards
    shared: Path  # for files that other probes of the same model can use, maybe at the same time
    provider: str = ""  # ONNX Runtime's name for it, if it is an execution provider
    threads: int = 1  # kernel threads, if anything runs
    # The user's sizes of inputs, for a probe of the file as it is stored.
    shapes: Mapping[str, GivenShape] = field(default_factory=dict)

    def placement(self, version: str, extent: Extent = "none") -> Placement:
        """Return the placement that a probe fills in."""
        return Placement(runtime=self.runtime, title=self.title, how="asked", extent=extent, version=version)


class ProbeWorker:
    """The child's side (`core.child_process.Child`)."""

    def probe(self, module_name: str, path: Path, options: ProbeOptions) -> Placement:
        module = importlib.import_module(module_name)
        answer: Placement = module.probe(path, options)
        return answer


def extent_of(taken: int, nodes: int) -> Extent:
    """Return how much of a model a runtime with a fallback takes."""
    return "all" if taken == nodes else "part" if taken else "none"


def refusal_placement(path: Path, answer: Placement, error: CannotConvertError) -> Placement:
    """Return `answer` for a model that our converter refuses, so that there is no product to probe."""
    nodes = count_nodes(Model.load(path))
    fallbacks = tuple(Fallback(op=each.op, node=each.node, why=each.why) for each in error.refusals)
    return answer.model_copy(
        update={
            "extent": "none",
            "nodes": nodes,
            "taken": max(nodes - len(fallbacks), 0) if fallbacks else 0,
            "partitions": None,
            "fallbacks": fallbacks,
            "why": "" if fallbacks else "; ".join(part for part in (error.what, error.why) if part),
        }
    )


def count_nodes(model: Model) -> int:
    """Return the number of nodes without constants, those in bodies included."""
    return sum(1 for node in model.graph.all_nodes() if node.op_type != "Constant")

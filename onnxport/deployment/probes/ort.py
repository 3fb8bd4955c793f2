"""ONNX Runtime asked which of its execution providers it gives each node to.

The answer is that of a session with default settings: providers are asked about the graph that is left after its
basic optimizations (constants folded, Identity gone, BatchNormalization in the weights before it), and before
those that fuse operators for one provider. Nodes that are left have the names that they have in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxport.deployment.probes import AskOptions, NotHere
from onnxport.deployment.report import Extent, Fallback, Placement
from onnxport.runtimes.ort.inference_session import CPU, open_session

REFUSALS = (
    state.EPFail,
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.InvalidProtobuf,
    state.NoSuchFile,
    state.NotImplemented,
    state.RuntimeException,
)


def ask(path: Path, options: AskOptions) -> Placement:
    """Loads the model with the provider before ONNX Runtime's own CPU provider; nothing runs."""
    if options.provider not in onnxruntime.get_available_providers():
        raise NotHere(f"the installed ONNX Runtime has no {options.provider}")
    if not hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info"):
        raise NotHere(
            f"ONNX Runtime {onnxruntime.__version__} does not tell what it assigns", why="1.24 does"
        )
    answer = Placement(
        runtime=options.runtime,
        title=options.title,
        how="asked",
        extent="none",
        version=onnxruntime.__version__,
    )
    try:
        assigned = _assigned(path, options)
    except REFUSALS as error:
        return answer.model_copy(update={"why": " ".join(str(error).split())[:300]})
    return _placed(answer, assigned, options.provider)


def _assigned(path: Path, options: AskOptions) -> list[Any]:
    session = open_session(
        path,
        threads=options.threads,
        provider=options.provider,
        prepacking=False,
        config={"session.record_ep_graph_assignment_info": "1"},
    )
    return list(session.get_provider_graph_assignment_info())


def _placed(answer: Placement, assigned: Iterable[Any], provider: str) -> Placement:
    """`answer` with what is in groups of nodes as ONNX Runtime tells them: a group is a subgraph that a provider
    compiles, or a single node that it has a kernel for."""
    taken, groups, fallbacks = 0, 0, []
    for group in assigned:
        nodes = group.get_nodes()
        if group.ep_name == provider:
            taken += len(nodes)
            groups += 1
        else:
            fallbacks += [
                Fallback(
                    op=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
                    node=node.name,
                    why=f"given to {group.ep_name}",
                )
                for node in nodes
            ]
    count = taken + len(fallbacks)
    extent: Extent = "all" if not fallbacks else "part" if taken else "none"
    return answer.model_copy(
        update={
            "extent": extent,
            "nodes": count,
            "taken": taken,
            "partitions": None if provider == CPU else groups,
            "fallbacks": tuple(fallbacks),
        }
    )

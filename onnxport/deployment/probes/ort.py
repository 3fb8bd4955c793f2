"""ONNX Runtime: to which execution provider it assigns each node, with default settings.

It assigns nodes after its basic optimizations and before those that fuse operators for one provider. Nodes that remain
have their names of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxport.deployment.probes import NotAvailable, ProbeOptions, extent_of
from onnxport.deployment.report import Fallback, Placement
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


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Load the model with the provider before ONNX Runtime's own CPU provider; nothing runs."""
    if options.provider not in onnxruntime.get_available_providers():
        raise NotAvailable(f"the installed ONNX Runtime has no {options.provider}")
    if not hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info"):
        raise NotAvailable(
            f"ONNX Runtime {onnxruntime.__version__} does not report its assignment", why="1.24 does"
        )
    answer = options.placement(onnxruntime.__version__)
    try:
        session = open_session(
            path,
            threads=options.threads,
            provider=options.provider,
            prepacking=False,
            config={"session.record_ep_graph_assignment_info": "1"},
        )
        assigned = session.get_provider_graph_assignment_info()
    except REFUSALS as error:
        return answer.model_copy(update={"why": " ".join(str(error).split())[:300]})
    return _summarize(answer, assigned, options.provider)


def _summarize(answer: Placement, assigned: Iterable[Any], provider: str) -> Placement:
    """Return `answer` with ONNX Runtime's groups: subgraphs that a provider compiles, or nodes with a kernel each."""
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
                    why=f"assigned to {group.ep_name}",
                )
                for node in nodes
            ]
    count = taken + len(fallbacks)
    return answer.model_copy(
        update={
            "extent": extent_of(taken, count),
            "nodes": count,
            "taken": taken,
            "partitions": None if provider == CPU else groups,
            "fallbacks": tuple(fallbacks),
        }
    )

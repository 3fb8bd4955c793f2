"""A profile: the runtime runs in a process of its own; its nodes are traced to those of the ONNX model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.bench.inputs import Inputs
from onnxport.core.child_process import Child
from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.artifact import Artifact
from onnxport.formats.graph import Node
from onnxport.formats.graph.onnx import read_onnx
from onnxport.formats.model import Model
from onnxport.profiling.interleaving import typical
from onnxport.profiling.origins import origins
from onnxport.profiling.params import ProfileParams
from onnxport.profiling.recording import Recording, Run, Span
from onnxport.profiling.report import NodeTime, ProfileReport
from onnxport.profiling.summary import by_op, by_source, node_times
from onnxport.runtimes.custom_libraries import writable
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.settings import runtime_options

_TARGETS = {
    "onnx": ("onnxport.profiling.ort:OrtProfiler", "ONNX Runtime"),
    "ort": ("onnxport.profiling.ort:OrtProfiler", "ONNX Runtime"),
    "tflite": ("onnxport.profiling.litert:LitertProfiler", "LiteRT"),
}
# The range of the nodes' times per run time in which they are taken at face value.
_FAIR = (0.7, 1.4)
# Below this ratio, more was subtracted for the profiler than it took: the rest are no shares either.
_SHARES = 0.5
# A larger share of time without ONNX nodes suggests that the source is another model's.
_STRANGE = 0.5
_PATIENCE = "give it more time with --timeout SECONDS, fewer --runs, or smaller inputs"


@dataclass(frozen=True)
class Profile:
    """A profile's report with its data.

    Attributes:
        sources: executed node to the nodes of the model that it computes.
    """

    report: ProfileReport
    recording: Recording
    sources: Mapping[Node, Sequence[Node]]

    def trace(self) -> str:
        """Return all runs in the Trace Event Format, which Perfetto and chrome://tracing load.

        Complete events (`ph` X) have `ts` and `dur` in microseconds. Kernels run one after the other: all are on one
        process and one thread, which metadata events (`ph` M) name.
        """
        place, nodes = {"pid": 1, "tid": 1}, list(self.recording.executed.walk())
        names = {"process_name": self.report.model, "thread_name": self.recording.ran_on}
        events: list[dict[str, Any]] = [
            {"ph": "M", **place, "ts": 0, "name": kind, "args": {"name": name}}
            for kind, name in names.items()
        ]

        def add(name: str, category: str, timed: Run | Span, details: dict[str, Any]) -> None:
            head = {"ph": "X", "name": name, "cat": category, **place}
            events.append({**head, "ts": timed.start, "dur": timed.duration, "args": details})

        for number, run in enumerate(self.recording.runs, 1):
            add(f"run {number}", "run", run, {})
            for span in run.spans:
                origin = self.sources.get(nodes[span.node], ()) if span.node >= 0 else ()
                details = {"op": span.op, "provider": span.provider}
                add(span.name, span.op, span, details | {"onnx nodes": [each.label for each in origin]})
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":"))


def profile_model(artifact: Artifact, params: ProfileParams, command: str) -> Profile:
    """Run the model and find where its time goes.

    Raises:
        MissingDependencyError: only macOS can profile it.
        UsageError: settings or sizes that do not fit the model.
        InputError: it cannot be loaded.
        MachineError: the runtime crashed or hung.
    """
    require_profiler(artifact)
    options = _options(artifact, params)
    target, runtime = _TARGETS[artifact.format]
    purpose = f"{runtime} profiling {artifact.path}"
    with (
        ScratchFolder() as folder,
        Child(
            target, purpose=purpose, timeout=params.timeout, patience=_PATIENCE, writes=writable(Path(folder))
        ) as child,
    ):
        child.ask("open", artifact.path, options, Path(folder))
        source = params.source or (artifact.path if artifact.format == "onnx" else None)
        inputs = Inputs(params, [] if source is None else [Model.load(source)])  # it bounds their values
        specs = child.answer()
        inputs.resolve_sizes([(str(artifact.path), specs)])
        feeds = inputs.feeding(None)(specs)
        recording: Recording = child.call("record", feeds, params.runs, params.warmup)
    sources = _sources(recording, source)
    nodes = node_times(recording, sources)
    report = ProfileReport(
        command=command,
        model=str(artifact.path),
        format=artifact.format,
        ran_on=recording.ran_on,
        threads=params.threads,
        runs=len(recording.runs),
        inputs=inputs.origin,
        run_ms=1000 * typical(recording.plain),
        profiled_ms=1000 * typical(recording.profiled),
        outside_ms=recording.outside / 1000,
        nodes_ms=sum(node.ms for node in nodes),
        nodes=nodes,
        by_op=by_op(nodes),
        by_source=by_source(nodes),
        notes=(*recording.notes, *_notes(recording, nodes, source)),
    )
    return Profile(report, recording, sources)


def require_profiler(artifact: Artifact) -> None:
    """Raise MissingDependencyError for a format without a profiler here."""
    if artifact.format not in _TARGETS:
        raise MissingDependencyError(
            f"{artifact.path} cannot be profiled by onnxport",
            why="Core ML shows where a model spends its time only in Xcode",
            fix="open the package in Xcode on a Mac and make a performance report",
        )


def _options(artifact: Artifact, params: ProfileParams) -> RuntimeOptions:
    given = {"threads": str(params.threads)}
    if artifact.format == "onnx":
        given["level"] = params.level
    elif params.level != "all":
        raise UsageError(
            f"--level is for .onnx files, and {artifact.path} is not one",
            fix="leave it out: the file is already optimized",
        )
    name = (params.provider or "").lower()
    if name and artifact.format != "tflite":
        given["provider"] = name
    elif name in ("cpu", "xnnpack"):
        given["delegate"] = "none" if name == "cpu" else name  # as `bench` names built-in kernels
    elif name:
        raise UsageError(
            f"--provider {params.provider!r} does not exist for .tflite files", fix="give xnnpack or cpu"
        )
    return runtime_options(artifact.format, given, "--provider")


def _sources(recording: Recording, source: Path | None) -> Mapping[Node, Sequence[Node]]:
    """Return the ONNX nodes of each executed node: by the source if given, else by the file itself."""
    if source is not None:
        return origins(recording.executed, read_onnx(source))
    if recording.file is None:
        return origins(recording.executed, recording.executed)
    return {
        executed: [node for node in nodes if not recording.noted.isdisjoint(node.output_names)]
        for executed, nodes in origins(recording.executed, recording.file).items()
    }


def _notes(recording: Recording, nodes: Sequence[NodeTime], source: Path | None) -> list[str]:
    notes = []
    if recording.file is not None and source is None:
        notes.append(
            "ONNX nodes are named by their outputs, as the file's manifest lists them; --source FILE.onnx gives "
            "their own names"
            if recording.noted
            else "the file does not name the ONNX nodes that it was made from; give --source FILE.onnx"
        )
    if recording.overhead:
        notes.append(
            f"the profiler adds {recording.overhead:.1f} µs to each node's time, "
            "measured on nodes that do almost nothing; it is subtracted"
        )
    ratio = sum(node.ms for node in nodes) / (1000 * typical(recording.plain))
    if not _FAIR[0] <= ratio <= _FAIR[1]:
        advice = (
            "read them as shares" if ratio > _SHARES else "they mean little; run it again with more --runs"
        )
        notes.append(
            f"the nodes' times add up to {ratio:.2g} times a run without the profiler, which is too short "
            f"to profile or was disturbed: {advice}"
        )
    untraced = [node for node in nodes if not node.sources]
    if untraced:
        share = sum(node.share for node in untraced)
        doubt = f"; was the file made from {source}?" if source is not None and share > _STRANGE else ""
        notes.append(
            f"{len(untraced)} of {len(nodes)} nodes cannot be traced to ONNX nodes "
            f"({100 * share:.1f} % of the time){doubt}"
        )
    return notes

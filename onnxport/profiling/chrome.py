"""A recording in the Trace Event Format, which Perfetto and chrome://tracing load.

Complete events (`ph` X) have `ts` and `dur` in microseconds. All are on one process and one thread, since kernels run
one after the other. Metadata events (`ph` M) name both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from onnxport.formats.graph import Node
from onnxport.profiling.recording import Recording

_PROCESS = 1
_THREAD = 1


def chrome_trace(recording: Recording, sources: Mapping[Node, Sequence[Node]], model: str) -> str:
    """Return the JSON document of all runs with the profiler."""
    nodes = list(recording.executed.walk())
    names = {"process_name": model, "thread_name": recording.ran_on}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": _PROCESS, "tid": _THREAD, "ts": 0, "name": kind, "args": {"name": name}}
        for kind, name in names.items()
    ]
    for number, run in enumerate(recording.runs, 1):
        events.append(_event(f"run {number}", "run", run.start, run.duration, {}))
        for span in run.spans:
            origin = sources.get(nodes[span.node], ()) if span.node >= 0 else ()
            details = {
                "op": span.op,
                "provider": span.provider,
                "onnx nodes": [each.label for each in origin],
            }
            events.append(_event(span.name, span.op, span.start, span.duration, details))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":"))


def _event(
    name: str, category: str, start: float, duration: float, details: dict[str, Any]
) -> dict[str, Any]:
    place = {"pid": _PROCESS, "tid": _THREAD, "ts": start, "dur": duration}
    return {"ph": "X", "name": name, "cat": category, **place, "args": details}

"""rten, by its converter `rten-convert`: whether that writes a `.rten` file. Nothing runs.

rten itself has no Python package. It also reads `.onnx` files without the converter, and takes more of them since.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.probes import AskOptions
from onnxport.deployment.report import Extent, Fallback, Placement
from onnxport.formats.graph import OperatorGraph
from onnxport.formats.model import Model

_LIMIT = 600  # seconds; the time limit of the child that this runs in is shorter as a rule
_CODE = "import sys; from rten_convert.converter import main; sys.exit(main())"
_NODE = re.compile(r'^Error converting operator "([^"]*)": (.*)$', re.MULTILINE)
_UNKNOWN = re.compile(r'Unsupported operator "([^"]+)"')
_NOTE = "asked was rten-convert, which writes .rten files; rten itself also reads .onnx files"


def ask(path: Path, options: AskOptions) -> Placement:
    """Converts to a file in a folder that is removed."""
    target = options.folder / "model.rten"
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CODE, str(path.resolve()), str(target)],
        cwd=options.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_LIMIT,
        check=False,
    )
    graph = estimation_graph(Model.load(path))
    is_written = done.returncode == 0 and target.exists()
    fallbacks = () if is_written else tuple(_fallbacks(done.stderr, graph))
    count = sum(1 for _ in graph.all_nodes())
    extent: Extent = "all" if is_written else "none" if done.returncode >= 0 else "unknown"
    last = next(
        (line for line in reversed(done.stderr.strip().splitlines()) if line.strip()), "it says nothing"
    )
    return Placement(
        runtime=options.runtime,
        title=options.title,
        how="asked",
        extent=extent,
        version=importlib.metadata.version("rten-convert"),
        nodes=count,
        taken=count - len(fallbacks),
        fallbacks=fallbacks,
        why="" if is_written or fallbacks else last.strip()[:300],
        notes=(_NOTE,),
    )


def _fallbacks(said: str, graph: OperatorGraph) -> list[Fallback]:
    """A line for each node that it cannot convert; of operators that it lacks for the first one only."""
    found = []
    for name, why in _NODE.findall(said):
        if unknown := _UNKNOWN.search(why):
            nodes = [node for node in graph.all_nodes() if node.op == unknown[1]]
            why = f"rten-convert has no {unknown[1]}"
        else:
            nodes = [node for node in graph.all_nodes() if node.label == name][:1]
        found += [Fallback(op=node.qualified, node=node.label, why=why[:300]) for node in nodes]
    return found

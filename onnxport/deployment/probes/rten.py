"""rten, by its converter `rten-convert`, which has to write a `.rten` file; nothing runs.

rten itself has no Python package. It also reads `.onnx` files without the converter, and takes more of them.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.probes import ProbeOptions
from onnxport.deployment.report import Extent, Fallback, Placement
from onnxport.formats.graph import OperatorGraph
from onnxport.formats.model import Model

_LIMIT = 600  # seconds; the time limit of the child process is usually shorter
_CODE = "import sys; from rten_convert.converter import main; sys.exit(main())"
_NODE = re.compile(r'^Error converting operator "([^"]*)": (.*)$', re.MULTILINE)
_UNKNOWN = re.compile(r'Unsupported operator "([^"]+)"')
_NOTE = "this is the answer of rten-convert, which writes .rten files; rten itself also reads .onnx files"


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Convert the model into a temporary folder."""
    target = options.folder / "model.rten"
    model = Model.load(path)
    copy = _copy(model, options.folder / "model")
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CODE, str(copy), str(target)],
        cwd=options.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_LIMIT,
        check=False,
    )
    graph = estimation_graph(model)
    is_written = done.returncode == 0 and target.exists()
    fallbacks = () if is_written else tuple(_fallbacks(done.stderr, graph))
    count = sum(1 for _ in graph.all_nodes())
    extent: Extent = "all" if is_written else "none" if done.returncode >= 0 else "unknown"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "it gives no reason"
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


def _copy(model: Model, folder: Path) -> Path:
    """Copy the model's files: rten-convert writes a file beside them, where a probe has no right to write."""
    path = model.artifact.path
    for file in model.artifact.files:
        place = folder / file.relative_to(path.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    return folder / path.name


def _fallbacks(message: str, graph: OperatorGraph) -> list[Fallback]:
    """Parse a line for each node that it cannot convert; a missing operator is reported for its first node only."""
    found = []
    for name, why in _NODE.findall(message):
        if unknown := _UNKNOWN.search(why):
            nodes = [node for node in graph.all_nodes() if node.op == unknown[1]]
            why = f"rten-convert has no {unknown[1]}"
        else:
            nodes = [node for node in graph.all_nodes() if node.label == name][:1]
        found += [Fallback(op=node.qualified, node=node.label, why=why[:300]) for node in nodes]
    return found

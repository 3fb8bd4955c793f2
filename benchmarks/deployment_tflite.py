"""Whether `inspect --runs-on tflite-cpu` tells what LiteRT did: of real models, against LiteRT's own log.

    python -m benchmarks.deployment_tflite [KEY ...]

Each model is converted as `onnxport convert --to tflite` would. Our answer is read off the interpreter's operators. The
witness is the line that LiteRT logs when it gives nodes to a delegate ("Replacing 28 out of 30 node(s) ... yielding 2
partitions for subgraph 0"), at a level that only a variable inside the library sets; `nm` (binutils) finds it. LiteRT
counts the parts of both kinds, the delegate's and its own kernels'; `subsets`, by which partitions of the GPU delegate
are estimated, is held to that count. A row is a model, with "; " between its subgraphs where there are several.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fixtures import models

_LINE = re.compile(
    r"Replacing (\d+) out of (\d+) node\(s\) .*? yielding (\d+) partitions for subgraph (\d+) "
)
_LEVEL = "tflite::logging_internal::MinimalLogger::minimum_log_severity_"
_VERBOSE = 0
# Of the same weights in other clothes, or without any.
_OTHER = ("light/", "mobilenetv2/", "efficientnet_lite0/")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--witness"]:
        return _witness(Path(arguments[1]))
    known = models.keys()
    keys = arguments or [
        key for key in known if key.endswith((".onnx", ".tflite")) and not key.startswith(_OTHER)
    ]
    wrong = 0
    print("| model | nodes | taken | partitions | LiteRT's log: taken of nodes, parts | our parts | same |")
    print("|---|---|---|---|---|---|---|")
    for key in keys:
        with tempfile.TemporaryDirectory() as folder:
            row, same = _row(key, Path(folder))
        wrong += not same
        print(f"| {key} | {row} | {'yes' if same else '**no**'} |", flush=True)
    print(f"\n{len(keys) - wrong} of {len(keys)} the same")
    return int(wrong > 0)


def _row(key: str, folder: Path) -> tuple[str, bool]:
    from onnxport.deployment.litert.subsets import subsets

    from onnxport.core.errors import CannotConvertError
    from onnxport.deployment.litert.conversion import convert_once
    from onnxport.deployment.probes import ProbeOptions
    from onnxport.deployment.probes.tflite_cpu import find_partitions, probe

    try:
        about = convert_once(models.path(key), folder)
    except CannotConvertError as error:
        refusal = f"{error.refusals[0].op}: {error.refusals[0].why}" if error.refusals else error.what
        return f"| | | not converted: {refusal[:60]} | ", True
    answer = probe(about.file.path, ProbeOptions("tflite-cpu", "LiteRT", folder, folder))
    taken = frozenset().union(*find_partitions(about.file, 1).taken)
    ours = {}
    for each in about.file.subgraphs:
        count = len(taken.intersection(each.graph.nodes))
        if count:
            ours[each.index] = (count, len(each.graph.nodes), len(subsets(each.graph, taken)))
    said = _said(about.file.path)
    shown = "; ".join(f"{count} of {nodes}, {parts}" for count, nodes, parts in said.values()) or "nothing"
    parts = "; ".join(str(parts) for _, _, parts in ours.values())
    return f"{answer.nodes} | {answer.taken} | {answer.partitions} | {shown} | {parts}", said == ours


def _said(path: Path) -> dict[int, tuple[int, int, int]]:
    """Return LiteRT's log of each subgraph that it delegates in part."""
    command = [sys.executable, "-m", "benchmarks.deployment_tflite", "--witness", str(path)]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    # Of several sizes that were tried the last.
    return {
        int(index): (int(taken), int(nodes), int(parts)) for taken, nodes, parts, index in _LINE.findall(log)
    }


def _witness(path: Path) -> int:
    """In a process of its own: LiteRT loads the file and prints all that it has to say."""
    import ai_edge_litert

    from onnxport.deployment.litert.interpreter import allocate

    library = Path(ai_edge_litert.__path__[0]) / "libpywrap_litert_common.so"
    symbols = subprocess.run(["nm", "-C", library], capture_output=True, text=True, check=True).stdout
    (offset,) = (line.split()[0] for line in symbols.splitlines() if line.endswith(f" {_LEVEL}"))
    mapped = Path("/proc/self/maps").read_text().splitlines()
    base = min(int(line.partition("-")[0], 16) for line in mapped if line.endswith(str(library)))
    ctypes.c_int.from_address(base + int(offset, 16)).value = _VERBOSE
    allocate(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

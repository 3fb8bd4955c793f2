"""Whether `inspect --runs-on tflite-cpu` tells what LiteRT did: of real models, against LiteRT's own log.

    python -m benchmarks.deployment_tflite [KEY ...]

Each model is converted as `onnxport convert --to tflite` would. Our answer is read off the interpreter's operators. The
witness is the line that LiteRT logs when it gives nodes to a delegate ("Replacing 28 out of 30 node(s) ... yielding 2
partitions for subgraph 0"), which it prints at a level that only a variable inside the library sets; `nm` (binutils)
finds it. LiteRT counts the parts of both kinds, ours and its own kernels'; the third figure holds `subsets`, by which the
GPU delegate's partitions are estimated, to that count.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fixtures import models

_LINE = re.compile(r"Replacing (\d+) out of (\d+) node\(s\) .*? yielding (\d+) partitions for subgraph 0 ")
_LEVEL = "tflite::logging_internal::MinimalLogger::minimum_log_severity_"
_VERBOSE = 0
# Of the same weights in other clothes, or without any.
_OTHER = ("light/", "mobilenetv2/", "efficientnet_lite0/")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--witness"]:
        return _witness(Path(arguments[1]))
    keys = arguments or [
        key for key in models.keys() if key.endswith((".onnx", ".tflite")) and not key.startswith(_OTHER)
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
    from onnxport.deployment.asking import AskOptions
    from onnxport.deployment.asking.tflite_cpu import ask, partitions_of
    from onnxport.deployment.litert.product import subject
    from onnxport.deployment.litert.subsets import subsets
    from onnxport.errors import CannotConvertError

    try:
        about = subject(models.path(key), folder)
    except CannotConvertError as error:
        refusal = f"{error.refusals[0].op}: {error.refusals[0].why}" if error.refusals else error.what
        return f"| | | not converted: {refusal[:60]} | ", True
    answer = ask(about.path, AskOptions("tflite-cpu", "LiteRT", folder))
    taken = {about.file.nodes[index] for each in partitions_of(about, 1)[0] for index in each}
    ours = len(subsets(about.file.graph, taken)) if taken else 0
    said = _said(about.path)
    same = said == ((answer.taken, answer.nodes, ours) if answer.taken else None)
    shown = "nothing" if said is None else f"{said[0]} of {said[1]}, {said[2]}"
    return f"{answer.nodes} | {answer.taken} | {answer.partitions} | {shown} | {ours}", same


def _said(path: Path) -> tuple[int, int, int] | None:
    """What LiteRT's log says of the main graph; None where it delegates nothing."""
    command = [sys.executable, "-m", "benchmarks.deployment_tflite", "--witness", str(path)]
    lines = _LINE.findall(subprocess.run(command, capture_output=True, text=True, check=True).stderr)
    return tuple(map(int, lines[-1])) if lines else None  # of several sizes that were tried the last


def _witness(path: Path) -> int:
    """In a process of its own: LiteRT loads the file and prints all that it has to say."""
    import ai_edge_litert

    from onnxport.deployment.litert.interpreting import allocated

    library = Path(ai_edge_litert.__path__[0]) / "libpywrap_litert_common.so"
    symbols = subprocess.run(["nm", "-C", library], capture_output=True, text=True, check=True).stdout
    (offset,) = (line.split()[0] for line in symbols.splitlines() if line.endswith(f" {_LEVEL}"))
    mapped = Path("/proc/self/maps").read_text().splitlines()
    base = min(int(line.partition("-")[0], 16) for line in mapped if line.endswith(str(library)))
    ctypes.c_int.from_address(base + int(offset, 16)).value = _VERBOSE
    allocated(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Graphs that open files or the network when they run: TensorFlow's operators can, so such a graph needs --trust.

https://github.com/tensorflow/tensorflow/blob/master/SECURITY.md: "TensorFlow models are programs".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxport.core.errors import InputError

# Operators that open files by a name in the graph, or call Python. SavedModels hold SaveV2, RestoreV2 and
# MergeV2Checkpoints for their own checkpoints, in functions that no signature calls.
_FILES = frozenset(
    "ReadFile WriteFile MatchingFiles PyFunc PyFuncStateless EagerPyFunc Save SaveSlices Restore RestoreSlice"
    " TextLineReader TextLineReaderV2 TFRecordReader TFRecordReaderV2 WholeFileReader WholeFileReaderV2"
    " FixedLengthRecordReader FixedLengthRecordReaderV2 LMDBReader TextLineDataset TFRecordDataset"
    " TFRecordDatasetV2 FixedLengthRecordDataset FixedLengthRecordDatasetV2 SqlDataset CSVDataset CSVDatasetV2"
    " LMDBDataset ExperimentalLMDBDataset SnapshotDataset SnapshotDatasetV2 SaveDataset SaveDatasetV2"
    " LoadDataset LoadAndRemapMatrix GenerateVocabRemapping CreateSummaryFileWriter CreateSummaryDbWriter"
    " CacheDataset CacheDatasetV2 DumpHashTable MatchingFilesDataset ExperimentalMatchingFilesDataset"
    " ExperimentalCSVDataset ExperimentalSqlDataset DatasetToTFRecord ExperimentalDatasetToTFRecord DistributedSave"
    " SnapshotChunkDataset ListSnapshotChunksDataset SnapshotDatasetReader SnapshotNestedDatasetReader RecordInput"
    " Skipgram FixedUnigramCandidateSampler DTensorRestoreV2 DumpTensor CalibrationStatisticsSaver".split()
)
# Operators that listen, or connect to other machines.
_NETWORK = frozenset(
    "RpcServer RpcClient RegisterDataset RegisterDatasetV2 DataServiceDataset DataServiceDatasetV2"
    " DataServiceDatasetV3 DataServiceDatasetV4".split()
)
_WRITERS = frozenset(("SaveV2", "MergeV2Checkpoints"))
_CHECKPOINTS = _WRITERS | {"RestoreV2"}


def check_file_access(
    path: Path, graph: Any, *, trust: bool, roots: Iterable[str], restores: Iterable[str] = ()
) -> None:
    """Refuse a GraphDef with operators that open files or the network, unless trusted (InputError).

    Args:
        roots: nodes and functions that a run computes; checkpoints are refused only where these need them.
        restores: nodes that load the file's own checkpoint; they may read.
    """
    if trust:
        return
    functions = {each.signature.name: list(each.node_def) for each in graph.library.function}
    everywhere = [*graph.node, *(node for nodes in functions.values() for node in nodes)]
    found = [node for node in everywhere if node.op in _FILES | _NETWORK or _prints_to_file(node)]
    found += [node for node in _needed(roots, graph.node, functions) if node.op in _CHECKPOINTS]
    found += [node for node in _needed(restores, graph.node, functions) if node.op in _WRITERS]
    if found:
        does = "uses the network" if found[0].op in _NETWORK else "opens files of this machine"
        raise InputError(
            f"{path} {does} when it runs",
            why=f"its graph has {found[0].op} ({found[0].name!r})",
            fix="give --trust if you know where it comes from",
        )


def _prints_to_file(node: Any) -> bool:
    attributes = node.attr  # looking up a name that it lacks would add it to the graph
    urls = [attributes["output_stream"].s] if "output_stream" in attributes else []
    urls += attributes["debug_urls"].list.s if "debug_urls" in attributes else []
    return any(bytes(url).startswith(b"file:") for url in urls)


def _needed(roots: Iterable[str], main: Iterable[Any], functions: Mapping[str, list[Any]]) -> Iterator[Any]:
    """Yield the nodes of the main graph that `roots` need, and those of functions that these call."""
    known = {node.name: [node] for node in main}
    waiting, seen = [*roots], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in functions.get(name) or known.get(name, []):
            yield node
            if name not in functions:
                waiting += [each.lstrip("^").partition(":")[0] for each in node.input]
            for value in node.attr.values():
                waiting += [value.func.name, *(each.name for each in value.list.func)]

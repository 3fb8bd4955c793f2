"""Open ONNX Runtime sessions: the one place that knows ONNX Runtime's options by name."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from onnxport.runtimes.options import OrtLevel
from onnxport.runtimes.ort.custom_operators import register_libraries

CPU = "CPUExecutionProvider"

_FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"
_FATAL = 4  # log severity: an error arrives as an exception, its echo on stderr would be noise


def open_session(
    model: Path | bytes,
    *,
    level: OrtLevel = "all",
    threads: int = 0,
    provider: str = CPU,
    devices: Sequence[onnxruntime.OrtEpDevice] = (),
    spinning: bool = True,
    prepacking: bool = True,
    shared_memory: bool = False,
    optimized: Path | None = None,
    optimized_weights: str = "",
    external_data: Path | None = None,
    initializers: Mapping[str, onnxruntime.OrtValue] | None = None,
    config: Mapping[str, str] | None = None,
    disabled_optimizers: Sequence[str] = (),
    **attributes: Any,
) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session of `model`, with the user's custom operators; raises what ONNX Runtime raises.

    Args:
        threads: of one operator; 0 for one per core.
        provider: full name of the execution provider; the CPU runs what it does not.
        devices: of a registered plugin provider, in place of `provider`; where it cannot start, that is an error.
        spinning: threads spin while they wait, which starves other processes.
        prepacking: kernels keep a copy of their weights in their own layout; wasted in a session that never runs.
        shared_memory: sessions of this process take their activations from one arena, and none plans its memory ahead
            for a size: less where several run one after the other.
        optimized, optimized_weights: where ONNX Runtime writes the optimized graph, and its large weights beside it.
        external_data: folder of the external data of a model given as bytes.
        initializers: weights by name, in place of the model's external data.
        config: further session config entries (onnxruntime_session_options_config_keys.h).
        attributes: further attributes of `SessionOptions`.
    """
    options = onnxruntime.SessionOptions()
    name = "ORT_DISABLE_ALL" if level == "disable" else f"ORT_ENABLE_{level.upper()}"
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
    options.intra_op_num_threads = threads
    options.log_severity_level = _FATAL
    if shared_memory:
        _make_shared_arena()
        options.enable_mem_pattern = False
    if optimized is not None:
        options.optimized_model_filepath = os.fspath(optimized)
    if initializers:
        options.add_external_initializers(list(initializers), list(initializers.values()))
    for attribute, value in attributes.items():
        setattr(options, attribute, value)
    entries = {
        "session.intra_op.allow_spinning": "" if spinning else "0",
        "session.disable_prepacking": "" if prepacking else "1",
        "session.use_env_allocators": "1" if shared_memory else "",
        "session.optimized_model_external_initializers_file_name": optimized_weights,
        _FOLDER_OF_WEIGHTS: str(external_data or ""),
        **(config or {}),
    }
    for key, entry in entries.items():
        if entry:
            options.add_session_config_entry(key, entry)
    register_libraries(options)
    if devices:
        options.add_provider_for_devices(list(devices), {})
    open_it = functools.partial(
        onnxruntime.InferenceSession,
        sess_options=options,
        providers=None if devices else list(dict.fromkeys((provider, CPU))),
        disabled_optimizers=disabled_optimizers,
        enable_fallback=not devices,  # else Python opens it again on the CPU, and says so on stdout only
    )
    return open_file(open_it, model, options, external_data) if isinstance(model, Path) else open_it(model)


def open_file(
    open_it: Callable[[str | bytes], onnxruntime.InferenceSession],
    path: Path,
    options: onnxruntime.SessionOptions,
    external_data: Path | None = None,
) -> onnxruntime.InferenceSession:
    """Open a file, or what it would hold if it said nothing wrong of itself; raise what ONNX Runtime raises.

    Args:
        open_it: opens a path or the bytes of a model with `options`.
        external_data: folder of the external data, if it is not the file's.
    """
    try:
        return open_it(os.fspath(path))
    except Exception:  # ONNX Runtime's exceptions have no base class of their own
        from onnxport.formats.repairs import mended_bytes

        if path.suffix.lower() == ".ort" or (mended := mended_bytes(path)) is None:
            raise
        if external_data is None:
            options.add_session_config_entry(_FOLDER_OF_WEIGHTS, os.fspath(path.parent))
        return open_it(mended)


@functools.cache
def _make_shared_arena() -> None:
    """Give this process's sessions an arena to share; ONNX Runtime keeps one for each device."""
    kind, use = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
    onnxruntime.create_and_register_allocator(onnxruntime.OrtMemoryInfo("Cpu", kind, 0, use), None)

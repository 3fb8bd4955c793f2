"""ONNX Runtime's WebGPU execution provider, without its CPU: a file runs there whole, or the nodes left over are named.

The provider is a plugin in a distribution of its own, and drives the kernels of ONNX Runtime Web's WebGPU. It needs a
GPU; on Linux a Vulkan device in software is enough (docs/guide/gpu.md).
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnxruntime as ort
import onnxruntime_ep_webgpu as plugin

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, MachineError, MissingDependencyError, OnnxportError
from onnxport.core.scratch import ScratchFolder
from onnxport.runtimes.base import RunError
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.runtimes.vulkan import open_vulkan

DISTRIBUTION = "onnxruntime-ep-webgpu"
# Without it the provider has no device where there is no GPU.
_ALLOW_SOFTWARE = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER"
_ONLY_THERE = {"session.disable_cpu_ep_fallback": "1"}
_NAMED = {"session.record_ep_graph_assignment_info": "1"}
# Off by default; what it switches on computes the low 32 bits.
_INT64 = {"ep.webgpuexecutionprovider.enableInt64": "1"}
_LEFT_OVER = re.compile(r"fallback to CPU EP has been explicitly disabled")
_NO_ADAPTER = re.compile(r"Failed to get a WebGPU adapter|No supported adapters")
_OTHER_BUFFERS = re.compile(r"tensor->Location\(\)|WebGPU buffers")
_NO_BUFFER = re.compile(
    r"\[Invalid Buffer|max(?:imum)? (?:storage )?buffer (?:binding )?size|[Oo]ut of memory"
)
_FUSED = re.compile(r"Failed to find op_id: com\.ms\.internal\.nhwc:")
_OPTIMIZE = "write it with onnxport convert --to ort --level basic"
_NEWEST_OPSET = 21  # of many of its kernels
_LOWER = (
    f"many of its kernels end at opset {_NEWEST_OPSET}: "
    f"try onnxport optimize --opset {_NEWEST_OPSET}, or cut the model (onnxport extract)"
)
_CUT = "cut the model there (onnxport extract), and run the other part elsewhere"
_SHARED = "it shares values with the CPU, such as sizes computed at run time, which fails in an .ort file"
_FIX_SIZES = "fix the sizes of the model first (onnxport optimize --shape), or run it as an .onnx file"
_MOST_NAMED = 8
_SOFTWARE = "the GPU is one in software: its answers count, its speed says nothing of a real GPU, and it has no float16"
_WITH_INT64 = (
    "its kernels for int64 were switched on, and compute 32 bits: give your session the entry "
    "ep.webgpuexecutionprovider.enableInt64=1"
)
_DEFAULT = RuntimeOptions()


@dataclass(frozen=True)
class CpuNode:
    """A node that ONNX Runtime left to its CPU."""

    op: str
    name: str


class WebgpuRefusal(InputError):
    """The provider does not take a file whole.

    Attributes:
        nodes: those left to the CPU, of `count` in all; empty where no node is at fault.
    """

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", nodes: tuple[CpuNode, ...] = (), count: int = 0
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.nodes, self.count = nodes, count


class WebgpuRuntime(OrtRuntime):
    """A model on ONNX Runtime's WebGPU provider; reads the options `level`, `threads`, and `vulkan` in `own`.

    For an `.ort` file ONNX Runtime says only in a run what it left to the CPU. Where nodes are left, the provider's
    kernels for int64 are switched on.

    Raises:
        WebgpuRefusal: nodes are left to the CPU.
        InputError: ONNX Runtime cannot load the model.
        MissingDependencyError: there is no GPU.
    """

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT) -> None:
        self._device = find_device(dict(options.own).get("vulkan", ""))
        self._profiles = ScratchFolder()
        self._is_checked = path.suffix.lower() != ".ort"
        self._int64 = False
        options = replace(options, provider="CPU", integers="cpu")
        try:
            super().__init__(path, options)
        except WebgpuRefusal as refusal:
            if not refusal.nodes:
                raise
            self._int64 = True
            super().__init__(path, options)

    @property
    def name(self) -> str:
        return f"ONNX Runtime {ort.__version__}, WebGPU provider {version(DISTRIBUTION)} on {self.device}"

    @property
    def device(self) -> str:
        """The hardware that the provider runs on, as far as ONNX Runtime says."""
        kind = "a GPU in software" if self._is_software else "a GPU"
        return f"{kind} ({self._device.device.vendor})" if self._device.device.vendor else kind

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for the report."""
        software = (_SOFTWARE,) if self._is_software else ()
        return (*software, _WITH_INT64) if self._int64 else software

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`.

        Raises:
            WebgpuRefusal: the run shows nodes on the CPU.
            MachineError: a tensor does not fit the GPU's buffers.
        """
        try:
            return self._run_there(feeds, taps)
        except WebgpuRefusal as refusal:
            if self._int64 or self._is_checked or not refusal.nodes:
                raise
            self._int64 = True
            self._sessions.clear()
            return self._run_there(feeds, taps)

    def _run_there(self, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        try:
            found = super().run(feeds, taps=taps)
        except RunError as error:
            if _NO_BUFFER.search(error.why):
                raise MachineError(
                    f"{self._label} is too large for {self.device}",
                    why="a tensor has more bytes than one of its buffers may",
                    fix="give smaller sizes (--shape), or cut the model (onnxport extract)",
                ) from error
            if not _OTHER_BUFFERS.search(error.why):
                raise
            nodes = () if self._is_checked else self._profiled()
            raise self._refuse(nodes, len(nodes), _SHARED) from error
        if not self._is_checked:
            if nodes := self._profiled():
                raise self._refuse(nodes, len(nodes))
            self._is_checked = True
        return found

    def close(self) -> None:
        super().close()
        self._profiles.cleanup()

    @property
    def node_count(self) -> int:
        """How many nodes of an `.onnx` file ONNX Runtime placed, after its basic optimizations."""
        groups = self._session(frozenset()).get_provider_graph_assignment_info()
        return sum(len(each.get_nodes()) for each in groups)

    @property
    def _is_software(self) -> bool:
        return bool(self._device.device.type == ort.OrtHardwareDeviceType.CPU)

    @property
    def _switches(self) -> dict[str, str]:
        return _INT64 if self._int64 else {}

    def _place(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "devices": [self._device],
            "config": {**_ONLY_THERE, **_NAMED, **self._switches},
        }
        if not self._is_checked:
            prefix = os.path.join(self._profiles.name, "run")
            found |= {"enable_profiling": True, "profile_file_prefix": prefix}
            found["config"]["session.load_model_format"] = "ORT"
        return found

    def _profiled(self) -> tuple[CpuNode, ...]:
        """Return the nodes that a run had on the CPU, by the first session's profile, which ends here."""
        path = Path(self._sessions[frozenset()].end_profiling())
        events = [each for each in json.loads(path.read_text()) if each.get("cat") == "Node"]
        path.unlink()
        found = {
            CpuNode(each["args"].get("op_name", ""), each["name"].removesuffix("_kernel_time"))
            for each in events
            if each["args"].get("provider", plugin.get_ep_name()) != plugin.get_ep_name()
        }
        return tuple(sorted(found, key=lambda node: (node.op, node.name)))

    def _load_error(self, error: Exception) -> OnnxportError:
        said = str(error)
        if _NO_ADAPTER.search(said):
            return MissingDependencyError(
                "ONNX Runtime's WebGPU provider found no GPU",
                fix="install a Vulkan driver, or name the folder of one with vulkan=DIR (docs/guide/gpu.md)",
            )
        if _LEFT_OVER.search(said):
            nodes, count = left_over(self._source, self._device, self._options, self._folder, self._switches)
            return self._refuse(nodes, count)
        if _FUSED.search(said):
            return WebgpuRefusal(
                f"{self._label} does not load on ONNX Runtime's WebGPU provider",
                why="its convolutions are fused for the CPU (graph optimization above basic)",
                fix=_OPTIMIZE,
            )
        return super()._load_error(error)

    def _way_out(self) -> str:
        """Return what helps against nodes on the CPU: an older opset only where the file has a newer one."""
        if not isinstance(self._source, Path):
            return _LOWER
        # Imported here: a file that runs whole is not read.
        from onnxport.formats.model import Model
        from onnxport.formats.ort_model import load_ort

        try:
            opset = (load_ort if self._is_ort else Model.load)(self._source).opset
        except InputError:  # ONNX Runtime reads what we do not: an .ort file with weights in another file
            return _CUT
        return _LOWER if opset > _NEWEST_OPSET else _CUT

    def _refuse(self, nodes: tuple[CpuNode, ...], count: int, why: str = "") -> WebgpuRefusal:
        named = ", ".join(f"{each.op} {each.name!r}" for each in nodes[:_MOST_NAMED])
        more = f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
        return WebgpuRefusal(
            f"{self._label} does not run whole on ONNX Runtime's WebGPU provider",
            why=f"left to the CPU: {named}{more}" if nodes else why,
            fix=self._way_out() if nodes else _FIX_SIZES if why == _SHARED else "",
            nodes=nodes,
            count=count,
        )


@functools.cache
def find_device(vulkan: str) -> Any:
    """Return the provider's device, a GPU before one in software; `vulkan` as in `open_vulkan`.

    Raises:
        MissingDependencyError: there is none.
        MachineError: the driver does not answer.
    """
    open_vulkan(vulkan)
    os.environ.setdefault(_ALLOW_SOFTWARE, "1")
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu", plugin.get_library_path())
    found = [each for each in ort.get_ep_devices() if each.ep_name == plugin.get_ep_name()]
    found.sort(key=lambda each: each.device.type != ort.OrtHardwareDeviceType.GPU)
    if not found:
        raise MissingDependencyError("ONNX Runtime's WebGPU provider has no device here (docs/guide/gpu.md)")
    return found[0]


def left_over(
    source: Path | bytes,
    device: Any,
    options: RuntimeOptions = _DEFAULT,
    folder: Path | None = None,
    switches: Mapping[str, str] | None = None,
) -> tuple[tuple[CpuNode, ...], int]:
    """Return the nodes of an ONNX model that ONNX Runtime leaves to the CPU, and how many it placed in all."""
    session = open_session(
        source,
        level=options.level,
        devices=[device],
        prepacking=False,
        external_data=folder,
        config={**_NAMED, **(switches or {})},
    )
    groups = session.get_provider_graph_assignment_info()
    nodes = [
        CpuNode(f"{node.domain}::{node.op_type}" if node.domain else node.op_type, node.name)
        for group in groups
        for node in group.get_nodes()
        if group.ep_name != plugin.get_ep_name()
    ]
    return tuple(nodes), sum(len(group.get_nodes()) for group in groups)

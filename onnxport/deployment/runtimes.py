"""The runtimes that `--runs-on` knows, and how each is probed."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.deployment.estimation.table import has_table
from onnxport.deployment.params import ALL
from onnxport.formats.artifact import SUFFIXES, Format
from onnxport.runtimes.registry import is_installed

PROBES = "onnxport.deployment.probes"

_VULKAN = "a Vulkan device: install a driver, or one in software (docs/guide/gpu.md)"
_ORT_BUILDS = ("onnxruntime", *(f"onnxruntime-{build}" for build in "gpu openvino directml qnn cann".split()))


@dataclass(frozen=True)
class Runtime:
    """A runtime, or an execution provider of ONNX Runtime's."""

    name: str  # its word in `--runs-on`; the data file of one that can be estimated is `data/<name>.yaml`
    title: str  # its own name
    probe_module: str = ""  # the module that probes it; empty for a runtime that is only estimated
    # Distributions of which one has to be installed for the probe; none if onnxport's own suffice.
    needs: tuple[str, ...] = ()
    extra: str = ""  # our extra that installs it
    # ONNX Runtime's name for it, if it is an execution provider; it is probed if the installed build has
    # it.
    provider: str = ""
    formats: tuple[Format, ...] = ("onnx",)  # of files that it can be probed with
    # What may make it take more of a model, for a probed runtime (`Reason.remedies`).
    remedies: tuple[str, ...] = ()
    # The probe gets the file with its declared inner shapes, even if they contradict the user's sizes.
    uses_declared_shapes: bool = False
    # What a machine with the distributions may still lack, and how to get it; such a runtime is asked only by name.
    also_needs: str = ""

    @property
    def can_probe(self) -> bool:
        """Whether its distributions are installed; a build may still lack the provider."""
        return bool(self.probe_module) and (not self.needs or any(map(is_installed, self.needs)))

    @property
    def has_table(self) -> bool:
        return has_table(self.name)

    def missing(self) -> MissingDependencyError:
        """Return the error for a runtime that can be neither probed nor estimated."""
        if self.provider:
            return MissingDependencyError(
                f"--runs-on {self.name}: the installed ONNX Runtime has no {self.provider}",
                fix="install a build of onnxruntime that has it in an environment of its own",
            )
        if self.also_needs and self.can_probe:
            needed, _, fix = self.also_needs.partition(": ")
            return MissingDependencyError(f"--runs-on {self.name} needs {needed}", fix=fix)
        return MissingDependencyError(
            f"--runs-on {self.name} needs {' or '.join(self.needs)}, which is not installed",
            fix=f"run: {sys.executable} -m pip install 'onnxport[{self.extra}]'" if self.extra else "",
        )


def _provider(name: str, title: str, provider: str) -> Runtime:
    return Runtime(
        name,
        f"ONNX Runtime, {title}",
        probe_module=f"{PROBES}.ort",
        needs=_ORT_BUILDS,
        provider=f"{provider}ExecutionProvider",
    )


def _engine(name: str, title: str, distribution: str, *, remedies: tuple[str, ...] = ()) -> Runtime:
    """Return an engine that validate runs too (`runtimes/registry.py`)."""
    needs = (distribution,)
    return Runtime(
        name, title, f"{PROBES}.engines", needs, extra=name, remedies=remedies, uses_declared_shapes=True
    )


def _converted(name: str, title: str, distribution: str, format_: Format) -> Runtime:
    """Return a runtime for files of `format_`, and for `.onnx` files by our conversion."""
    module = f"{PROBES}.{name.replace('-', '_')}"
    return Runtime(name, title, module, (distribution,), formats=("onnx", format_))


# In the order in which they are shown.
RUNTIMES: Mapping[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        _provider("ort-cpu", "CPU provider", "CPU"),
        Runtime("ort-mobile", "ONNX Runtime's mobile usability checker", f"{PROBES}.ort_mobile", _ORT_BUILDS),
        _provider("nnapi", "NNAPI provider", "Nnapi"),
        _provider("coreml-ep", "Core ML provider", "CoreML"),
        _provider("xnnpack", "XNNPACK provider", "Xnnpack"),
        _provider("qnn", "QNN provider", "QNN"),
        _provider("cuda", "CUDA provider", "CUDA"),
        _provider("tensorrt", "TensorRT provider", "Tensorrt"),
        _provider("openvino-ep", "OpenVINO provider", "OpenVINO"),
        Runtime(
            "ort-webgpu",
            "ONNX Runtime, WebGPU provider",
            f"{PROBES}.ort_webgpu",
            ("onnxruntime-ep-webgpu",),
            extra="webgpu",
            remedies=("opset 21",),
            also_needs=_VULKAN,
        ),
        _converted("tflite-cpu", "LiteRT, XNNPACK delegate", "ai-edge-litert", "tflite"),
        _converted("tflite-gpu", "LiteRT, GPU delegate", "ai-edge-litert", "tflite"),
        replace(
            _converted("litert-gpu", "LiteRT, GPU runtime", "ai-edge-litert", "tflite"),
            also_needs=_VULKAN,
        ),
        _converted("coreml", "Core ML", "coremltools", "coreml"),
        _engine("openvino", "OpenVINO", "openvino"),
        _engine("tract", "tract", "tract", remedies=("declared",)),
        Runtime("rten", "rten", probe_module=f"{PROBES}.rten", needs=("rten-convert",), extra="rten"),
        Runtime("candle", "candle"),
        Runtime("burn", "burn"),
        _engine("ncnn", "ncnn", "ncnn"),
        _engine("mnn", "MNN", "MNN"),
    )
}


def select_runtimes(words: Sequence[str], format_: Format) -> tuple[Runtime, ...]:
    """Return the runtimes that `words` name; "all" means those for this format that can be probed or estimated.

    Raises UsageError for an unknown name or none, or a runtime that takes no such file.
    """
    if not words:
        raise UsageError("--runs-on names no runtime", fix="give all, or names of runtimes")
    found: dict[str, Runtime] = {}
    for word in words:
        if word == ALL:
            found |= {
                name: each
                for name, each in RUNTIMES.items()
                if format_ in each.formats and (each.has_table or each.can_probe) and not each.also_needs
            }
        else:
            found[word] = _find_runtime(word, format_)
    if not found:  # --error-on-fallback would pass
        raise UsageError(
            f"no runtime takes {SUFFIXES[format_]} files", fix="give the model that it was converted from"
        )
    return tuple(each for name, each in RUNTIMES.items() if name in found)


def _find_runtime(word: str, format_: Format) -> Runtime:
    runtime = RUNTIMES.get(word)
    if runtime is None:
        nearest = difflib.get_close_matches(word, (*RUNTIMES, ALL), n=1)
        fix = f"did you mean {nearest[0]!r}?" if nearest else f"known are all, {', '.join(RUNTIMES)}"
        raise UsageError(f"--runs-on: there is no runtime {word!r}", fix=fix)
    if format_ not in runtime.formats:
        suffixes = " and ".join(SUFFIXES[each] for each in runtime.formats)
        raise UsageError(
            f"--runs-on {word} takes {suffixes} files", fix="give the model that it was converted from"
        )
    return runtime

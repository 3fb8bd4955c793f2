"""The installed libraries, the targets and sources that they enable, and how to install the others.

It needs the standard library only, so `onnxport doctor` works if everything else is missing. Slow modules are imported
where they are used, since every command imports this module.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxport.core.errors import MissingDependencyError
from onnxport.core.version import __version__
from onnxport.formats.artifact import SUFFIXES
from onnxport.runtimes.registry import FIRST

if TYPE_CHECKING:
    from onnxport.validate.params import ValidateParams


@dataclass(frozen=True)
class Library:
    """A distribution of the package index.

    Attributes:
        purpose: what we use it for.
        module: its import name, if different.
        platforms: (system, machine) pairs that it has wheels for; empty for all.
        before: the first Python version without wheels; None if there is none yet.
        builds: other distributions with the same module, one of which may replace it.
        extra: our extra that installs it; empty if it is always installed.
    """

    name: str
    purpose: str
    module: str = ""
    platforms: tuple[tuple[str, str], ...] = ()
    before: tuple[int, int] | None = None
    builds: tuple[str, ...] = ()
    extra: str = ""

    @property
    def import_name(self) -> str:
        return self.module or self.name.replace("-", "_")

    @property
    def version(self) -> str | None:
        """The installed version, found without an import; None if it is missing."""
        import importlib.metadata

        for name in (self.name, *self.builds):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(name)
        return None

    @property
    def fits_this_platform(self) -> bool:
        import platform

        return not self.platforms or (platform.system(), platform.machine()) in self.platforms

    @property
    def fits_this_python(self) -> bool:
        return self.before is None or sys.version_info[:2] < self.before

    @property
    def remedy(self) -> str:
        """The sentence that says how to get it."""
        if self.before is not None and self.fits_this_platform and not self.fits_this_python:
            newest = f"{self.before[0]}.{self.before[1] - 1}"
            return f"{self.name} has wheels up to Python {newest} only: do this step with such a Python"
        if self.extra:
            return install_extras(self.extra)
        if self.fits_this_platform:
            return f"run: {sys.executable} -m pip install {self.name}"
        places = ", ".join(f"{_SYSTEMS.get(system, system)} {machine}" for system, machine in self.platforms)
        return f"{self.name} has wheels for {places} only: do this step on such a machine"


def install_extras(*extras: str) -> str:
    """Return the sentence that says how to get some of our extras."""
    return f"run: {sys.executable} -m pip install 'onnxport[{','.join(extras)}]'"


_SYSTEMS = {"Darwin": "macOS"}
_LINUX, _LINUX_ARM = ("Linux", "x86_64"), ("Linux", "aarch64")
_MAC, _WINDOWS = ("Darwin", "arm64"), ("Windows", "AMD64")

# The distributions of pyproject.toml, in the order that doctor shows them.
LIBRARIES: Mapping[str, Library] = {
    library.name: library
    for library in (
        Library("click", "the command line"),
        Library("rich", "progress on a terminal"),
        Library("pydantic", "options and reports"),
        Library("pydantic-core", "options in a cache's keys"),
        Library("jinja2", "reports in HTML"),
        Library("numpy", "arrays"),
        Library("flatbuffers", "attributes of custom operators"),
        Library("ml_dtypes", "bfloat16 and other types that NumPy lacks"),
        Library("PyYAML", "preprocessing beside samples", module="yaml"),
        Library("safetensors", "samples in .safetensors"),
        Library("protobuf", "reading ONNX files", module="google"),
        Library("onnx", "reading and checking ONNX files"),
        Library("onnx-ir", "ONNX graphs in memory"),
        Library(
            "onnxruntime",
            "the reference every artefact is proven against",
            builds=tuple(f"onnxruntime-{build}" for build in "gpu openvino directml qnn cann".split()),
        ),
        Library("litert-converter", "the compiler to TFLite", platforms=(_LINUX, _MAC)),
        Library("ai-edge-litert", "running TFLite files", platforms=(_LINUX, _LINUX_ARM, _MAC, _WINDOWS)),
        Library(
            "coremltools",
            "building and reading Core ML packages",
            platforms=(_LINUX, _MAC, ("Darwin", "x86_64")),
            before=(3, 14),
        ),
        Library("pillow", "pictures as samples", module="PIL", extra="images"),
        Library("scipy", "resampling of .wav samples", extra="audio"),
        Library("fsspec", "files by URL", extra="remote"),
        Library("aiohttp", "files by http:// and https://", extra="remote"),
        Library("s3fs", "files by s3://", extra="s3"),
        Library("gcsfs", "files by gs://", extra="gs"),
        Library("oras", "files by oci://, in registries of containers", extra="oci"),
        Library("huggingface-hub", "files by hf://", extra="hf"),
        Library("netron", "viewing models", extra="view"),
        Library("mlflow-skinny", "reports in MLflow", module="mlflow", builds=("mlflow",), extra="mlflow"),
        Library("wandb", "reports in Weights & Biases", extra="wandb"),
        Library("dask", "work on a Dask cluster", extra="distributed"),
        Library("torch", "export from PyTorch", extra="torch"),
        Library("onnxscript", "export from PyTorch", extra="torch"),
        Library(
            "tensorflow", "export from TensorFlow and Keras", builds=("tensorflow-cpu",), extra="tensorflow"
        ),
        Library("tf2onnx", "export from TensorFlow and Keras", extra="tensorflow"),
        Library("scikit-learn", "export from scikit-learn", module="sklearn", extra="sklearn"),
        Library("skl2onnx", "export from scikit-learn", extra="sklearn"),
        Library("pandas", "columns of scikit-learn estimators", extra="sklearn"),
        Library("skops", "reading .skops files", extra="sklearn"),
        Library("xgboost", "export from XGBoost", builds=("xgboost-cpu",), extra="boosting"),
        Library("lightgbm", "export from LightGBM", extra="boosting"),
        Library("catboost", "export from CatBoost", extra="boosting"),
        Library("onnxruntime-ep-webgpu", "running ONNX files on WebGPU", extra="webgpu"),
        Library("tract", "running ONNX files in tract", extra="tract"),
        Library("openvino", "running ONNX files in OpenVINO", extra="openvino"),
        Library("ncnn", "running ONNX files in ncnn", extra="ncnn"),
        Library("pnnx", "making ncnn's files", extra="ncnn"),
        Library("MNN", "running ONNX files in MNN", extra="mnn"),
        Library("rten-convert", "asking whether RTen takes a model", extra="rten"),
    )
}

# The libraries that each source needs; TARGETS below are those of each target.
SOURCES: Mapping[str, tuple[str, ...]] = {
    "onnx": ("onnx", "onnx-ir"),
    "pytorch": ("torch", "onnxscript"),
    "tensorflow": ("tensorflow", "tf2onnx"),
    "sklearn": ("scikit-learn", "skl2onnx"),
    "skops": ("scikit-learn", "skl2onnx", "skops"),
    "xgboost": ("xgboost",),
    "lightgbm": ("lightgbm",),
    "catboost": ("catboost",),
}

# The libraries that run a file of a format.
RUNS_ON: Mapping[str, tuple[str, ...]] = {format_: kind.distributions for format_, kind in FIRST.items()} | {
    "onnx": ("onnx", "onnx-ir", "onnxruntime"),
    "ort": ("onnxruntime",),
}
# The compiler of a target, where that is a library.
_COMPILERS: Mapping[str, tuple[str, ...]] = {"tflite": ("litert-converter",)}
TARGETS: Mapping[str, tuple[str, ...]] = {
    name: ("onnx", "onnx-ir", *_COMPILERS.get(name, ()), *RUNS_ON[name])
    for name in SUFFIXES
    if name != "onnx"
}


def runtime_libraries(params: ValidateParams) -> tuple[str, ...]:
    """Return the distributions of the runtimes that a comparison names, beside those of RUNS_ON."""
    from onnxport.runtimes import registry
    from onnxport.runtimes.options import AUTO

    found: dict[str, None] = {}
    for given in (params.reference_runtime, params.candidate_runtime):
        with contextlib.suppress(MissingDependencyError):  # raised when it runs
            found |= dict.fromkeys(registry.distributions(given.get("runtime", AUTO)))
    return tuple(found)


def is_core(library: Library) -> bool:
    """Return whether nothing works without it; libraries of some platforms only are needed for their targets."""
    return not library.platforms and not library.extra


def library(name: str) -> Library:
    """Return the distribution of that name; unknown ones are a plugin's."""
    return LIBRARIES.get(name) or Library(name, "a plugin")


def missing(names: Iterable[str]) -> list[Library]:
    return [library(name) for name in names if library(name).version is None]


def require(names: Iterable[str], purpose: str) -> None:
    """Refuse to start without a library (MissingDependencyError with the command that installs it)."""
    absent = missing(names)
    if absent:
        listed = ", ".join(each.name for each in absent)
        fix = "; ".join(dict.fromkeys(each.remedy for each in absent))
        raise MissingDependencyError(f"{purpose} needs {listed}, which is not installed", fix=fix)


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of onnxport and of the installed ones among `names`."""
    found = {name: library(name).version for name in names}
    return {"onnxport": __version__} | {name: version for name, version in found.items() if version}


def describe(names: Iterable[str]) -> dict[str, str]:
    """Describe a run's environment for its report: Python, platform, CPU and versions."""
    import platform

    about = {"python": platform.python_version(), "platform": platform.platform(), "cpu": instruction_sets()}
    return about | versions(names)


def processor() -> str:
    """Return the name of the CPU, or of the machine."""
    import platform

    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("model name", "Model", "Hardware")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# Instruction sets of int8 products: without one of the x86 sets of the second line, ONNX Runtime's sums of uint8 and
# int8 saturate at 16 bits, which changes the answers of a quantized model.
INSTRUCTION_SETS = (
    *("avx2", "avx512f", "asimd"),
    *("avx_vnni", "avx512_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm", "sve"),
)


def instruction_sets() -> str:
    """Return the machine type and the instruction sets that affect a quantized model's answers."""
    import platform

    flags = _cpu_flags()
    return " ".join((platform.machine(), *(name for name in INSTRUCTION_SETS if name in flags)))


def _cpu_flags() -> set[str]:
    """Return the CPU's features by their Linux names; nothing on other systems."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.lower().startswith(("flags", "features"))]
    except OSError:
        return set()
    return set(lines[0].partition(":")[2].split()) if lines else set()

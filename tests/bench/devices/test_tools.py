"""The outputs of benchmark tools, as people published them, become figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.bench.devices.tools import find_binaries
from onnxport.bench.devices.tools.base import Invocation
from onnxport.bench.devices.tools.benchmark_model import BenchmarkModel
from onnxport.bench.devices.tools.perf_test import PerfTest
from onnxport.bench.report import Delegation, Settings
from onnxport.core.errors import InputError, UsageError

RECORDINGS = Path(__file__).parent / "recordings"


def recorded(name: str) -> str:
    return (RECORDINGS / f"{name}.txt").read_text(encoding="utf-8")


def test_benchmark_model_on_android_with_percentiles_and_partitions() -> None:
    found = BenchmarkModel().read(recorded("android_xnnpack"))
    assert found is not None
    assert (found.load, found.first, found.median, found.least) == (92.318, 235.158, 141.253, 140.071)
    assert (found.runs, found.is_average) == (25, False)
    assert (found.loaded, found.peak) == (int(54.2852 * 2**20), int(73.4102 * 2**20))
    assert found.delegations == (
        Delegation(delegate="TfLiteXNNPackDelegate", nodes=539, of=548, partitions=19),
    )


def test_an_older_benchmark_model_has_an_average() -> None:
    found = BenchmarkModel().read(recorded("android_gpu"))
    assert found is not None
    assert (found.load, found.first, found.median, found.least) == (870.557, 130.565, 119.375, 113.737)
    assert (found.runs, found.is_average, found.peak) == (50, True, None)
    assert found.delegations == (Delegation(delegate="GPU", extent="all"),)


def test_a_delegate_that_takes_a_part() -> None:
    found = BenchmarkModel().read(recorded("android_nnapi"))
    assert found is not None
    assert found.delegations == (Delegation(delegate="NNAPI", extent="part", kernels=44),)
    said = "Though GPU delegate is explicitly applied, the model graph will not be executed by the delegate."
    assert BenchmarkModel().read_delegations(said) == (Delegation(delegate="GPU", extent="none"),)


def test_a_single_warm_up_run_and_an_exponent() -> None:
    found = BenchmarkModel().read(recorded("board_cpu"))
    assert found is not None
    assert (found.first, found.median, found.runs) == (1357.602, 1239.807, 50)
    same = BenchmarkModel().read("Initialized session in 1.5ms.\ncount=1 curr=80\ncount=7 curr=12(all same)")
    assert same is not None
    assert (same.load, same.first, same.median, same.least, same.runs) == (1.5, 0.08, 0.012, 0.012, 7)


@pytest.mark.parametrize(
    "text", ["", "count=0", "Initialized session in ms\ncount=1 curr=x", "P50 Latency: s"]
)
def test_an_output_without_figures_has_none(text: str) -> None:
    assert BenchmarkModel().read(text) is None
    assert PerfTest().read(text) is None


def test_perf_test() -> None:
    found = PerfTest().read(recorded("ort_arm"))
    assert found is not None
    assert (found.load, found.first, found.runs, found.peak) == (pytest.approx(217.932), 196.0, 5, 271122432)
    assert [found.least, found.median, found.p90, found.p99] == pytest.approx(
        [95.8204, 99.5086, 101.519, 101.519]
    )


def test_perf_test_of_2020_and_the_words_of_its_readme() -> None:
    found = PerfTest().read(recorded("ort_2020"))
    assert found is not None
    assert (found.median, found.is_average, found.first, found.peak) == (144.871, True, None, 158171136)
    worded = PerfTest().read(
        recorded("ort_2020") + "P50 Latency is 0.0587108sec\nMin Latency is 0.0559777 sec"
    )
    assert worded is not None
    assert [worded.median, worded.least] == pytest.approx([58.7108, 55.9777])


def test_placements_of_onnx_runtime() -> None:
    assert PerfTest().read_delegations(recorded("ort_placement")) == (
        Delegation(delegate="QNNExecutionProvider", nodes=1, of=3),
        Delegation(delegate="CPUExecutionProvider", nodes=2, of=3),
    )


def test_commands() -> None:
    settings = Settings(runtime="litert", provider="gpu", threads=4)
    shapes = {"/d/a.raw": (1, 3), "/d/b.raw": (2,)}
    invocation = Invocation("/d/benchmark_model", "/d/m.tflite", shapes, settings, 17, 10, 600.0)
    words = BenchmarkModel().command(invocation)
    assert words[:3] == ["/d/benchmark_model", "--graph=/d/m.tflite", "--num_runs=17"]
    assert {"--use_gpu=true", "--num_threads=4", "--warmup_runs=10", "--max_secs=600"} <= set(words)
    assert words[-3:] == [
        "--input_layer=input_0,input_1",
        "--input_layer_shape=1,3:2",
        "--input_layer_value_files=input_0:/d/a.raw,input_1:/d/b.raw",
    ]
    settings = Settings(runtime="ort", provider="qnn", threads=2, level="extended")
    invocation = Invocation("/d/onnxruntime_perf_test", "/d/m.onnx", {}, settings, 17, 10, 600.0)
    assert PerfTest().command(invocation)[1:] == [
        *("-e", "qnn", "-x", "2", "-o", "2", "-s", "-m", "times", "-r", "17", "/d/m.onnx", "/dev/null"),
    ]
    assert PerfTest().probe(invocation)[-4:] == ["-v", "-n", "/d/m.onnx", "/dev/null"]  # type: ignore[index]


def test_binaries_are_known_by_their_names_or_by_the_runtime_before_them(tmp_path: Path) -> None:
    (tmp_path / "android_aarch64_benchmark_model").write_text("x")
    folder = tmp_path / "ort"
    folder.mkdir()
    for name in ("onnxruntime_perf_test", "libonnxruntime.so"):
        (folder / name).write_text(name)
    found = find_binaries([str(tmp_path / "android_aarch64_benchmark_model"), str(folder)])
    assert {runtime: binary.file.name for runtime, binary in found.items()} == {
        "litert": "android_aarch64_benchmark_model",
        "ort": "onnxruntime_perf_test",
    }
    assert sorted(file.name for file in found["ort"].beside) == ["libonnxruntime.so", "onnxruntime_perf_test"]
    (tmp_path / "tool").write_text("x")
    with pytest.raises(UsageError, match="has no name of a tool"):
        find_binaries([str(tmp_path / "tool")])
    assert list(find_binaries([f"ort={tmp_path / 'tool'}"])) == ["ort"]
    with pytest.raises(UsageError, match="second tool of ort"):
        find_binaries([f"ort={tmp_path / 'tool'}", str(folder)])
    with pytest.raises(InputError, match="does not exist"):
        find_binaries([str(tmp_path / "benchmark_model")])

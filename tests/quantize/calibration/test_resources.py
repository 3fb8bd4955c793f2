"""Processes, a cache, an interruption, a limit of memory: all give the bits of the plain pass."""

import hashlib
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxport.cli.output import remaining
from onnxport.core.errors import InputError, MachineError, UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.quantize.calibration import Resources, calibrate, memory
from onnxport.quantize.calibration.memory import split_taps
from onnxport.quantize.calibration.observers import Histogram
from onnxport.quantize.params import QuantizeParams
from onnxport.samples.readers import find_samples
from tests.quantize.calibration.conftest import taps


def bits(observed):
    return {name: [pickle.dumps(each) for each in observers] for name, observers in observed.items()}


@pytest.fixture
def expected(model, files, watch):
    result = bits(calibrate(model, taps(), files, watch=watch))
    watch.seen.clear()
    return result


@pytest.mark.parametrize("jobs", [2, 3])
def test_processes_give_the_same_bits(model, files, watch, expected, jobs):
    assert bits(calibrate(model, taps(), files, watch=watch, resources=Resources(jobs=jobs))) == expected
    assert watch.seen[-1] == (12, 12)


def test_the_order_of_the_samples_does_not_matter(model, files, watch, expected):
    assert bits(calibrate(model, taps(), files[::-1], watch=watch)) == expected


def children():
    """The processes that this one started."""
    found = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "calibration" in line]


@dataclass
class Deadly:
    """A sample that kills whoever reads it: always, or until it has left its mark.

    The mark is the time of a file, which a confined process may set.
    """

    read: Callable[[], Mapping[str, object]]
    mark: Path | None = None

    def __call__(self):
        if self.mark is not None and self.mark.stat().st_mtime == 0:
            return self.read()
        if self.mark is not None:
            os.utime(self.mark, (0, 0))
        return os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [0, 7, 11])
def test_what_a_killed_process_left_undone_another_does(model, files, watch, expected, tmp_path, number):
    mark = tmp_path / "mark"
    mark.touch()
    deadly = [
        replace(file, read=Deadly(file.read, mark)) if file is files[number] else file for file in files
    ]
    assert bits(calibrate(model, taps(), deadly, watch=watch, resources=Resources(jobs=2))) == expected
    assert mark.exists()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_sample_that_kills_every_process_ends_the_calibration(model, files, watch):
    deadly = [replace(file, read=Deadly(file.read)) if file is files[5] else file for file in files]
    with pytest.raises(MachineError, match=r"calibrates crashed \(signal SIGKILL\)"):
        calibrate(model, taps(), deadly, watch=watch, resources=Resources(jobs=2))
    assert not children()


def test_an_error_in_a_process_names_the_sample(model, files, watch):
    with np.load(files[7].path) as arrays:
        sample = dict(arrays)
    sample["x"][0, 0, 0, 0] = np.nan
    np.savez(files[7].path, **sample)
    with pytest.raises(InputError, match=r"'x' of the sample 7\.npz holds NaN"):
        calibrate(model, taps(), files, watch=watch, resources=Resources(jobs=2))
    assert not children()


CACHED = Resources(caches=True)


def test_what_was_calibrated_is_found_again(model, files, watch, cache, expected):
    first = calibrate(model, taps(), files, watch=watch, resources=CACHED)
    assert watch.seen
    watch.seen.clear()
    second = calibrate(model, taps(), files, watch=watch, resources=CACHED)
    assert bits(first) == bits(second) == expected
    assert not watch.seen
    assert len(list(cache.iterdir())) == 1


def test_without_a_cache_nothing_is_kept(model, files, watch, cache):
    calibrate(model, taps(), files, watch=watch)
    assert not cache.exists()


def change_sample(model, files):
    with np.load(files[3].path) as arrays:
        sample = dict(arrays)
    sample["x"][0, 0, 0, 0] += 1
    np.savez(files[3].path, **sample)
    return model, files, taps()


def change_model(model, files):
    proto = onnx.load(model)
    weight = onnx.numpy_helper.to_array(proto.graph.initializer[0]).copy()
    weight[0, 0, 0, 0] += 1
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "weight"))
    onnx.save(proto, model)
    return model, files, taps()


def change_observer(model, files):
    return model, files, taps() | {"r": (Histogram(16),)}


def fewer_samples(model, files):
    return model, files[:-1], taps()


@pytest.mark.parametrize("change", [change_sample, change_model, change_observer, fewer_samples])
def test_what_differs_is_calibrated_anew(model, files, watch, change):
    calibrate(model, taps(), files, watch=watch, resources=CACHED)
    changed = change(model, files)
    fresh = bits(calibrate(*(changed[0], changed[2], changed[1]), watch=watch))
    watch.seen.clear()
    found = calibrate(*(changed[0], changed[2], changed[1]), watch=watch, resources=CACHED)
    assert bits(found) == fresh
    assert watch.seen


def test_another_version_of_a_library_is_another_key(model, files, watch, cache, monkeypatch):
    from importlib import metadata

    calibrate(model, taps(), files, watch=watch, resources=CACHED)
    version = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: version(name) + (".1" if name == "onnxruntime" else "")
    )
    calibrate(model, taps(), files, watch=watch, resources=CACHED)
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-7], lambda data: b"", lambda data: data[:200] + b"?" + data[201:]]
)
def test_a_damaged_entry_is_done_anew_and_mended(model, files, watch, cache, expected, damage):
    calibrate(model, taps(), files, watch=watch, resources=CACHED)
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert bits(calibrate(model, taps(), files, watch=watch, resources=CACHED)) == expected
    assert entry.read_bytes() == whole


def test_an_entry_that_would_run_code_runs_none(model, files, watch, cache, tmp_path):

    from onnxport.quantize.calibration.cache import _FORM

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "run"),)

    calibrate(model, taps(), files, watch=watch, resources=CACHED)
    (entry,) = cache.iterdir()
    payload = pickle.dumps(([], Evil()))
    entry.write_bytes(_FORM + hashlib.sha256(payload).digest() + payload)
    calibrate(model, taps(), files, watch=watch, resources=CACHED)
    assert not (tmp_path / "run").exists()


def test_a_cache_that_cannot_be_written_fails_nothing(model, files, watch, cache, expected):
    cache.parent.joinpath("calibration").write_text("a file where the folder should be")
    assert bits(calibrate(model, taps(), files, watch=watch, resources=CACHED)) == expected


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_key_is_the_same_in_another_process(model, files, watch, cache, seed):
    calibrate(model, taps(), files, watch=watch, resources=CACHED)
    program = f"""
        from pathlib import Path
        from onnxport.quantize.calibration import Resources, calibrate
        from onnxport.samples.readers import find_samples
        from tests.quantize.calibration.conftest import SPECS, Watch, taps
        watch = Watch()
        files = find_samples(Path({str(files[0].path.parent)!r}), SPECS, 12)
        calibrate(Path({str(model)!r}), taps(), files, watch=watch, resources=Resources(caches=True))
        assert not watch.seen
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | {"PYTHONHASHSEED": seed},
        check=True,
    )


class Interrupting:
    """Ctrl-C after some samples."""

    def __init__(self, after):
        self.seen, self._after = [], after

    def progress(self, done, total):
        self.seen.append(done)
        if len(self.seen) == self._after:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("jobs", [1, 2])
def test_after_an_interruption_it_goes_on_where_it_was(model, files, watch, expected, jobs):
    resources = Resources(jobs=jobs, caches=True)
    interrupting = Interrupting(5)
    with pytest.raises(KeyboardInterrupt):
        calibrate(model, taps(), files, watch=interrupting, resources=resources)
    assert not children()
    done = interrupting.seen[-1]
    assert 5 <= done < 12
    seen = calibrate(model, taps(), files, watch=watch, resources=resources)
    assert watch.seen[0][0] > done
    assert bits(seen) == expected


def test_an_interruption_in_the_middle_of_a_sample_waits_for_its_end(
    model, files, watch, expected, monkeypatch
):
    from onnxport.quantize.calibration import observers

    observe, calls = observers.Histogram.observe, []

    def interrupted(self, values, sample):
        calls.append(sample)
        if len(calls) == 8:  # the second of three tensors
            signal.raise_signal(signal.SIGINT)
        observe(self, values, sample)

    with monkeypatch.context() as patch:
        patch.setattr(observers.Histogram, "observe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            calibrate(model, taps(), files, watch=watch, resources=CACHED)
    assert len(calls) == 9
    seen = calibrate(model, taps(), files, watch=watch, resources=CACHED)
    assert bits(seen) == expected


@pytest.fixture
def light(monkeypatch):
    """Beside small models a process weighs too much to try a limit with: here it weighs nothing."""
    monkeypatch.setattr(memory, "_measure_process", lambda *_: 0)


def test_less_memory_takes_several_runs_of_fewer_tensors(model, files, watch, expected, light):
    sizes = memory._sizes(model, taps(), files[-1])
    assert sizes == {"x": 2 * 3 * 16 * 31 * 4, "r": 2 * 4 * 16 * 31 * 4, "y": 2 * 4 * 16 * 31 * 4}
    limit = memory._PER_OBSERVER * sizes["r"] + sizes["r"] + sizes["x"]
    parts, jobs = split_taps(model, taps(), files[-1], limit, 1)
    assert [list(part) for part in parts] == [["x", "r"], ["y"]]
    assert jobs == 1
    seen = calibrate(model, taps(), files[::-1], watch=watch, resources=Resources(memory=limit))
    assert bits(seen) == expected
    assert watch.seen[-1] == (12, 12)


def test_parts_come_out_of_the_same_kernels(tmp_path, watch, light):
    """ONNX Runtime fuses a convolution that nothing shows with the sum behind it, which rounds otherwise."""
    text = """
    <ir_version: 10, opset_import: ["" : 17]>
    net (float[1, 256, 14, 14] x) => (float[1, 256, 14, 14] y)
    {
        a = Conv(x, weight)
        b = Conv(a, weight)
        c = Add(b, a)
        d = Conv(c, weight)
        e = Add(d, c)
        y = Relu(e)
    }
    """
    draw = np.random.default_rng(0)
    proto = onnx.parser.parse_model(text)
    weight = draw.standard_normal((256, 256, 1, 1)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    onnx.save(proto, tmp_path / "net.onnx")
    spec = TensorSpec("x", "float32", (1, 256, 14, 14))
    np.savez(tmp_path / "0.npz", x=draw.standard_normal((1, 256, 14, 14), np.float32))
    files = find_samples(tmp_path, [spec], 1)
    watched = {name: (Histogram(),) for name in "abcdy"}
    whole = bits(calibrate(tmp_path / "net.onnx", watched, files, watch=watch))
    one = 256 * 14 * 14 * 4
    for tensors in (1, 2, 4):
        limit = (memory._PER_OBSERVER + tensors) * one
        parts, _ = split_taps(tmp_path / "net.onnx", watched, files[0], limit, 1)
        assert len(parts) == -(-5 // tensors)
        seen = calibrate(
            tmp_path / "net.onnx", watched, files, watch=watch, resources=Resources(memory=limit)
        )
        assert bits(seen) == whole


def test_fewer_processes_come_before_fewer_tensors(model, files, monkeypatch):
    monkeypatch.setattr(memory, "_measure_process", lambda *_: 160 * 2**20)
    parts, jobs = split_taps(model, taps(), files[-1], 400 * 2**20, 8)
    assert jobs == 2
    assert len(parts) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the process is taken to be large")
def test_a_limit_below_a_process_is_refused(model, files, watch):
    """What a process takes is measured, whatever the one that starts it has taken; none runs this model in 30 MB."""
    weight = bytearray(400 * 2**20)  # zeros that are written to lie in memory
    weight[:: 2**12] = bytes(range(256)) * (len(weight) // 2**20)
    with pytest.raises(
        UsageError, match=r"--memory-limit 30MB does not hold.*takes about \d+ MB; give at least"
    ) as told:
        calibrate(model, taps(), files, watch=watch, resources=Resources(memory=30_000_000))
    least = int(re.search(r"about (\d+) MB", str(told.value))[1])
    assert 30 < least < 300
    calibrate(model, taps(), files, watch=watch, resources=Resources(memory=(least + 1) * 1_000_000))


@pytest.mark.parametrize(
    ("text", "size"), [("800MB", 800_000_000), ("1.5 gb", 1_500_000_000), ("64KB", 64_000)]
)
def test_sizes_in_memory(text, size):
    params = QuantizeParams(precision="int8", calib=Path("x"), memory_limit=text, jobs=3, cache=False)
    assert Resources.of(params) == Resources(3, size, False)


@pytest.mark.parametrize("text", ["0", "2XB", "GB", "-1GB", ""])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="give a size such as 500MB or 2GB"):
        QuantizeParams(precision="int8", calib=Path("x"), memory_limit=text)


def test_the_time_left_follows_from_the_pace():
    assert remaining(10.0, 4, 100) == ", about 4:10 left"
    assert remaining(0.1, 4, 100) == remaining(10.0, 0, 100) == remaining(10.0, 4, 0) == ""

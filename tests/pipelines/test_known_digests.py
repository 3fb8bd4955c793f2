"""A large file is read once for its digest, by whatever run, while the file system says that it is the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from onnxport.pipelines.graph.digests import recall_digests, sha256
from onnxport.pipelines.graph.known_digests import KnownDigests
from tests.cli.sandbox import Sandbox

_BYTES = 5 << 20
_HOUR = 3600 * 10**9


def _rewrite(file: Path, *, offset: int = -1) -> None:
    """Change one byte in place, and give the file the time that it had."""
    before = file.stat()
    with file.open("r+b") as stream:
        stream.seek(offset, os.SEEK_END)
        last = stream.read(1)
        stream.seek(offset, os.SEEK_END)
        stream.write(bytes([last[0] ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _age(file: Path, nanoseconds: int = _HOUR) -> None:
    before = file.stat().st_mtime_ns
    os.utime(file, ns=(before, before - nanoseconds))


def _digest_in_a_run(file: Path, record: Path | None) -> str:
    with recall_digests(None if record is None else KnownDigests(record)):
        return sha256(file).hex()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "weights.bin"
    file.write_bytes(bytes(_BYTES))
    return file


def _hashed(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_same_inode_size_and_time_is_not_read_again(large: Path, tmp_path: Path) -> None:
    _age(large)
    first = _digest_in_a_run(large, tmp_path / "digests.json")
    assert first == _hashed(large)
    _rewrite(large)
    assert _digest_in_a_run(large, tmp_path / "digests.json") == first != _hashed(large)
    assert _digest_in_a_run(large, None) == _hashed(large)


def _written_again(file: Path) -> None:
    _rewrite(file)
    _age(file, -1)


def _longer(file: Path) -> None:
    before = file.stat()
    with file.open("ab") as stream:
        stream.write(b"1")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replaced(file: Path) -> None:
    before = file.stat()
    other = file.with_name("other")
    other.write_bytes(b"1" * _BYTES)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


@pytest.mark.parametrize("change", [_written_again, _longer, _replaced])
def test_another_time_size_or_inode_is_read(
    change: Callable[[Path], None], large: Path, tmp_path: Path
) -> None:
    _age(large)
    first = _digest_in_a_run(large, tmp_path / "digests.json")
    change(large)
    assert _digest_in_a_run(large, tmp_path / "digests.json") == _hashed(large) != first


def test_file_that_was_just_written_is_read_again(large: Path, tmp_path: Path) -> None:
    os.utime(large)  # a write in the same tick of the clock would leave this time
    _digest_in_a_run(large, tmp_path / "digests.json")
    _rewrite(large)
    assert _digest_in_a_run(large, tmp_path / "digests.json") == _hashed(large)


@pytest.mark.parametrize(
    "record", ["", "{", "[]", '{"form": 1, "digests": {"a": "zz"}}', '{"form": 1, "digests": {"a": 1}}']
)
def test_damaged_record_is_replaced(record: str, large: Path, tmp_path: Path) -> None:
    _age(large)
    place = tmp_path / "digests.json"
    place.write_text(record)
    assert _digest_in_a_run(large, place) == _hashed(large)
    assert _hashed(large) in place.read_text()


def test_record_that_cannot_be_written_costs_nothing(large: Path, tmp_path: Path) -> None:
    _age(large)
    (tmp_path / "file").write_text("not a folder")
    assert _digest_in_a_run(large, tmp_path / "file" / "digests.json") == _hashed(large)


def test_paranoid_run_finds_what_inode_size_and_time_hide(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    model = sandbox.folder / "wide.onnx"
    _save_wide(model)
    (sandbox.folder / "pipeline.yaml").write_text("version: 1\nmodel: wide.onnx\ntargets: {out: {to: ort}}\n")
    _age(model)
    command = ("run", "pipeline.yaml")
    assert "from the cache" not in sandbox.run(*command).stdout
    offset = model.read_bytes().rindex(np.float32(0.5).tobytes()) - model.stat().st_size
    _rewrite(model, offset=offset)
    assert "from the cache" in sandbox.run(*command).stdout
    assert "from the cache" not in sandbox.run(*command, "--paranoid").stdout


def _save_wide(path: Path) -> None:
    """Save a product with more weights than are read without asking."""
    weights = np.full((1024, 1280), 0.5, np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in (("x", 1024), ("y", 1280))
    )
    graph = helper.make_graph([node], "wide", [x], [y], [numpy_helper.from_array(weights, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

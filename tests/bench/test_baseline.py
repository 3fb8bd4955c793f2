"""A baseline is read back, or refused with reason and fix; for another machine, the differences are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnxport.bench import baseline
from onnxport.core.errors import InputError, UsageError
from tests.reports.bench import handmade

GOOD = handmade.report([handmade.row("net.onnx", 14.0, 5.0)])


def changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(GOOD.model_dump_json()) | changes).encode()


def without(key: str) -> bytes:
    document = json.loads(GOOD.model_dump_json())
    del document["rows"][0][key]
    return json.dumps(document).encode()


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    whole = handmade.whole()
    (tmp_path / "b.json").write_text(whole.model_dump_json(indent=2), encoding="utf-8")
    assert baseline.read(tmp_path / "b.json") == whole


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_what_a_windows_shell_redirected_is_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "b.json").write_text(GOOD.model_dump_json(), encoding=encoding)
    assert baseline.read(tmp_path / "b.json") == GOOD


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b" \n", "it is empty"),
    "text": (b"error: no such model\n", "it is not JSON"),
    "cut short": (changed()[:-40], "it is not JSON"),
    "binary": (b"\xff\xd8\x00\x01" * 50, "it is not JSON"),
    "deep": (b"[" * 200_000, "it is not JSON"),
    "a list": (b"[1, 2]", "other JSON"),
    "an object": (b'{"a": 1}', "other JSON"),
    "results without their version": (b'{"rows": []}', r'need "results_version": 1'),
    "a run's report": (
        json.dumps({"command": ["onnxport", "convert", "a.onnx"], "artifacts": []}).encode(),
        "the report of another command: onnxport convert a.onnx",
    ),
    "a failure": (b'{"error": {"kind": "InputError"}, "exit_code": 4}', "a run that failed with exit 4"),
    "newer": (changed(schema_version=2), "has version 2 of the bench schema: this onnxport reads version 1"),
    "no form": (changed(schema_version=None), "has version None"),
    "rows of text": (changed(rows="all"), "a damaged baseline: rows"),
    "a row without status": (without("status"), "a damaged baseline: rows.0.status"),
    "a machine without cores": (changed(machine={}), "a damaged baseline: machine.processor"),
    "a further key": (changed(extra=1), "a damaged baseline: extra"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_baseline_is_refused_with_the_reason_and_a_way_out(case: str, tmp_path: Path) -> None:
    data, why = BAD[case]
    path = tmp_path / "b.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        baseline.read(path)
    assert why in str(caught.value)
    assert caught.value.fix
    assert str(caught.value).isprintable()


def test_no_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        baseline.read(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a folder"):
        baseline.read(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("processor", "Apple M4", "the processor: AMD EPYC 7R13 before, Apple M4 now"),
        ("cores", 64, "the number of cores: 2 before, 64 now"),
        ("instruction_sets", "x86_64 avx2", "the instruction sets: x86_64 avx2 avx512f avx512_vnni before"),
        ("system", "macOS-15.1-arm64", "the system: Linux-6.1.0"),
    ],
)
def test_another_machine_is_refused_by_what_differs(field: str, value: Any, said: str) -> None:
    other = GOOD.machine.model_copy(update={field: value})
    with pytest.raises(UsageError, match="another machine") as caught:
        baseline.check_machine(Path("b.json"), GOOD, other)
    assert said in caught.value.why
    assert "--force" in caught.value.fix


def test_another_load_memory_or_patch_of_the_system_is_the_same_machine() -> None:
    update = {"load": 7.0, "memory": 1, "system": "Linux-6.1.1-x86_64-with-glibc2.36"}
    baseline.check_machine(Path("b.json"), GOOD, GOOD.machine.model_copy(update=update))


def test_libraries_of_another_version_are_named() -> None:
    now = GOOD.versions | {"onnxruntime": "1.28.0", "coremltools": "9.0"}
    (said,) = baseline.version_changes(GOOD.versions, now)
    assert "onnxruntime was 1.27.0 in the baseline and is 1.28.0" in said

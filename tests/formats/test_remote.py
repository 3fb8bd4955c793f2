"""Files by URL: fetched whole, refused where they may not be, and never shown with a password."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from onnxport.core import limits
from onnxport.core.errors import InputError, MachineError, OnnxportError, UsageError
from onnxport.core.urls import shown, without_queries
from onnxport.formats.artifact import Staging
from onnxport.formats.remote import fetch, place_for
from tests.servers import Web, s3_server, web_server

pytest.importorskip("aiohttp")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "site").mkdir()
    with web_server(tmp_path / "site") as found:
        yield found


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    with s3_server() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def _files(folder: Path) -> dict[str, bytes]:
    return {
        each.relative_to(folder).as_posix(): each.read_bytes() for each in folder.rglob("*") if each.is_file()
    }


def _model(folder: Path) -> Path:
    """Write a model with its weight in data/w.bin."""
    weight = onnx.numpy_helper.from_array(np.arange(64, dtype="f"), "w")
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [64]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight]
    )
    (folder / "data").mkdir()
    onnx.save(
        onnx.helper.make_model(graph),
        folder / "model.onnx",
        save_as_external_data=True,
        location="data/w.bin",
        size_threshold=0,
        convert_attribute=False,
    )
    return folder / "model.onnx"


def test_a_model_comes_with_its_external_data(web: Web) -> None:
    _model(web.folder)
    found = Path(fetch(web.url("model.onnx")))
    assert _files(found.parent) == _files(web.folder)
    assert onnx.load(found).graph.initializer[0].raw_data == (web.folder / "data/w.bin").read_bytes()


def test_data_files_outside_of_the_folder_are_not_asked_for(web: Web) -> None:
    path = _model(web.folder)
    path.write_bytes(path.read_bytes().replace(b"data/w.bin", b"../../.bin"))
    Path(fetch(web.url("model.onnx")))
    assert web.asked == ["GET /model.onnx"]


def test_a_file_that_is_larger_than_the_limit_is_refused_by_what_the_server_says(web: Web) -> None:
    (web.folder / "m.tflite").write_bytes(b"x" * 5000)
    with (
        limits.limits(download=4000),
        pytest.raises(InputError, match=r"larger than 4000 bytes.*--limit download"),
    ):
        fetch(web.url("m.tflite"))


def test_a_server_that_says_no_length_is_counted(web: Web) -> None:
    web.silent = True
    (web.folder / "endless.tflite").write_bytes(b"x" * 50_000_000)
    with limits.limits(download=1000), pytest.raises(InputError, match="larger than 1000 bytes"):
        fetch(web.url("endless.tflite"))
    (copy,) = Path(tempfile.gettempdir()).glob("onnxport-scratch-*/url*/endless.tflite")
    assert copy.stat().st_size < 50_000_000  # it stopped on the way


def test_external_data_counts_for_the_limit(web: Web) -> None:
    size = _model(web.folder).stat().st_size
    with limits.limits(download=size + 250), pytest.raises(InputError, match="larger than"):
        fetch(web.url("model.onnx"))


def test_a_digest_in_the_url_is_checked(web: Web) -> None:
    (web.folder / "m.tflite").write_bytes(b"first")
    right = hashlib.sha256(b"first").hexdigest()
    assert Path(fetch(web.url(f"m.tflite#sha256={right}"))).read_bytes() == b"first"
    (web.folder / "m.tflite").write_bytes(b"second")
    now = hashlib.sha256(b"second").hexdigest()
    with pytest.raises(InputError, match=f"its SHA-256 is {now}, not {right}"):
        fetch(web.url(f"m.tflite#sha256={right}"))


@pytest.mark.parametrize("pin", ["#sha256=12", "#sha256=", "#sha256"])
def test_a_digest_that_is_none_is_refused(web: Web, pin: str) -> None:
    with pytest.raises(UsageError, match="is not a SHA-256"):
        fetch(web.url(f"m.tflite{pin}"))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "zip://a::https://h/b.zip", "ftp://h/x"])
def test_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not known; known are http://"):
        fetch(url)


@pytest.mark.parametrize(
    "url", ["https://host", "https://host/", "https://host/..", "https://host/a%2f%2e%2e"]
)
def test_a_url_without_a_file_name_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="names no file"):
        fetch(url)


def test_a_file_that_is_missing_is_bad_input(web: Web) -> None:
    with pytest.raises(InputError, match=r"/none\.onnx cannot be fetched: it does not exist"):
        fetch(web.url("none.onnx"))


def test_a_server_that_is_not_there_is_a_failure_of_the_machine() -> None:
    with pytest.raises(MachineError, match=r"http://127\.0\.0\.1:1/m\.onnx cannot be fetched"):
        fetch("http://127.0.0.1:1/m.onnx")


@pytest.mark.parametrize("status", [405, 501])
def test_a_server_that_takes_no_files_is_wrong_usage(web: Web, status: int) -> None:
    """Waiting does not help there."""
    web.no_put = status
    place = Path(place_for(web.url("m.onnx")))
    with Staging(place) as staging:
        (staging.folder / "m.onnx").write_text("model")
        with pytest.raises(UsageError, match=rf"/m\.onnx cannot be written: .*{status}.*another URL"):
            staging.commit({staging.folder / "m.onnx": place})


def test_no_message_has_a_password_or_a_token(web: Web) -> None:
    web.token = "right"
    given = web.url("m.onnx?token=wr0ng&x='1'", user="someone:passw0rd@")
    with pytest.raises(InputError, match="refuses access") as caught:
        fetch(given)
    failure = caught.value
    said = [str(failure), repr(failure), failure.what, failure.why, failure.fix, shown(f"run {given} now")]
    assert not [text for text in said if "wr0ng" in text or "passw0rd" in text]
    assert failure.__cause__ is None
    assert said[-1] == f"run http://127.0.0.1:{web.port}/m.onnx now"


def test_words_of_a_command_have_no_tokens() -> None:
    said = without_queries("--calib=https://me:pw@host/a.npz?X-Amz-Signature=abc#sha256=12")
    assert said == "--calib=https://host/a.npz"


def test_the_query_is_used_for_external_data_too(web: Web) -> None:
    web.token = "right"
    _model(web.folder)
    found = Path(fetch(web.url("model.onnx?token=right")))
    assert _files(found.parent) == _files(web.folder)
    assert shown(f"{found} x") == f"http://127.0.0.1:{web.port}/model.onnx x"


def test_a_folder_of_samples_comes_from_s3(s3: None, tmp_path: Path) -> None:
    import s3fs

    for name in ("a.npz", "deep/b.npz"):
        s3fs.S3FileSystem(skip_instance_cache=True).pipe_file(f"bucket/samples/{name}", name.encode())
    found = Path(fetch("s3://bucket/samples"))
    assert _files(found) == {"a.npz": b"a.npz", "deep/b.npz": b"deep/b.npz"}
    assert shown(str(found / "deep")) == "s3://bucket/samples/deep"


def test_a_folder_that_is_written_replaces_the_one_on_s3(s3: None) -> None:
    import s3fs

    files = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    files.pipe_file("bucket/out/m.mlpackage/Data/old.bin", b"old")
    files.pipe_file("bucket/out/m.mlpackage.txt", b"another")
    place = Path(place_for("s3://bucket/out/m.mlpackage"))
    with Staging(place, folder=True) as staging:
        made = staging.folder / "m.mlpackage"
        (made / "Data").mkdir(parents=True)
        (made / "Manifest.json").write_bytes(b"{}")
        (made / "Data/new.bin").write_bytes(b"new")
        staging.commit_folder(made, place)
    assert {name: files.cat_file(name) for name in files.find("bucket/out")} == {
        "bucket/out/m.mlpackage/Data/new.bin": b"new",
        "bucket/out/m.mlpackage/Manifest.json": b"{}",
        "bucket/out/m.mlpackage.txt": b"another",
    }


def test_the_files_of_an_artefact_go_to_one_folder(web: Web) -> None:
    place = Path(place_for(web.url("m.onnx")))
    with Staging(place) as staging:
        names = ("m.onnx.data", "m.onnx")
        for name in names:
            (staging.folder / name).write_text(name)
        staging.commit({staging.folder / name: place.with_name(name) for name in names})
    assert web.asked == ["PUT /m.onnx.data", "PUT /m.onnx"]
    assert _files(web.folder) == {name: name.encode() for name in names}


def test_the_log_of_a_package_stays_out_of_the_terminal() -> None:
    pytest.importorskip("gcsfs")
    code = (
        "import logging; from onnxport.formats.remote import Url, _open; "
        "_open(Url.parse('gs://bucket/x.onnx')); logging.getLogger('gcsfs.retry').error('out of retries')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxport.formats.remote as module

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(OnnxportError, match=r"s3:// needs fsspec and s3fs.*onnxport\[s3\]"):
        fetch("s3://bucket/x.onnx")

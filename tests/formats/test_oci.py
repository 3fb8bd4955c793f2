"""Files in a registry of containers, against Debian's docker-registry (.ci/registry installs it)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxport.core.errors import InputError, MachineError, UsageError
from onnxport.formats.remote import fetch, place_for, upload

pytest.importorskip("oras")
PROGRAM = shutil.which("docker-registry")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs docker-registry (.ci/registry)")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a registry of its own, and its folder."""
    assert PROGRAM is not None
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = (
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/files}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    (folder / "config.yml").write_text(settings)
    command = [PROGRAM, "serve", str(folder / "config.yml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(100):
            with socket.socket() as asked:
                if not asked.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}", folder / "files"
        server.terminate()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nobody else writes: a writer need not wait before it looks again."""
    monkeypatch.setattr("onnxport.formats.oci._WAIT", 0.0)


def push(url: str, content: bytes) -> None:
    place = place_for(url)
    assert isinstance(place, Path)
    place.write_bytes(content)
    upload([place])


def pull(url: str) -> bytes:
    place = fetch(url)
    assert isinstance(place, Path)
    return place.read_bytes()


def test_what_was_pushed_is_pulled_and_files_of_a_tag_are_kept_apart(registry: tuple[str, Path]) -> None:
    tag = f"oci://{registry[0]}/models/detector:1.0"
    push(f"{tag}/phone.tflite", b"one")
    push(f"{tag}/server.ort", b"two" * 1000)
    push(f"{tag}/phone.tflite", b"three")
    assert pull(f"{tag}/phone.tflite") == b"three"
    assert pull(f"{tag}/server.ort") == b"two" * 1000


def test_oras_itself_reads_what_was_pushed(registry: tuple[str, Path], tmp_path: Path) -> None:
    import oras.client

    push(f"oci://{registry[0]}/reader:2/model.tflite", b"model")
    client = oras.client.OrasClient(insecure=True)
    (pulled,) = client.pull(f"{registry[0]}/reader:2", outdir=str(tmp_path))
    assert (Path(pulled).name, Path(pulled).read_bytes()) == ("model.tflite", b"model")


def test_what_oras_pushed_is_read(
    registry: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import oras.client

    monkeypatch.chdir(tmp_path)
    Path("weights.onnx").write_bytes(b"weights")
    oras.client.OrasClient(insecure=True).push(f"{registry[0]}/theirs:1", files=["weights.onnx"])
    assert pull(f"oci://{registry[0]}/theirs:1/weights.onnx") == b"weights"


def test_a_folder_is_pushed_and_pulled_whole(registry: tuple[str, Path]) -> None:
    url = f"oci://{registry[0]}/apple:1/model.mlpackage"
    place = place_for(url)
    assert isinstance(place, Path)
    (place / "Data").mkdir(parents=True)
    (place / "Data" / "weight.bin").write_bytes(b"w")
    (place / "Manifest.json").write_text("{}")
    upload([place])
    (place / "Data" / "weight.bin").rename(place / "Data" / "other.bin")
    upload([place])  # the old file goes
    found = fetch(f"{url}/")
    assert isinstance(found, Path)
    files = {each.relative_to(found).as_posix() for each in found.rglob("*") if each.is_file()}
    assert files == {"Manifest.json", "Data/other.bin"}


@pytest.mark.parametrize("name", ["none:1/model.onnx", "models/none:9/model.onnx"])
def test_what_is_not_there_is_said(registry: tuple[str, Path], name: str) -> None:
    with pytest.raises(InputError, match=f"{name} cannot be fetched: it does not exist"):
        fetch(f"oci://{registry[0]}/{name}")


def test_a_url_without_a_tag_says_what_to_write() -> None:
    with pytest.raises(UsageError, match="write oci://HOST/NAME:TAG/FILE"):
        fetch("oci://127.0.0.1:1/models/model.onnx")


def test_changed_bytes_are_refused(registry: tuple[str, Path]) -> None:
    url = f"oci://{registry[0]}/broken:1/model.onnx"
    push(url, b"these bytes")
    blob = next(
        each for each in registry[1].rglob("data") if each.is_file() and each.read_bytes() == b"these bytes"
    )
    blob.write_bytes(b"those bytes")
    with pytest.raises((MachineError, InputError)):
        fetch(url)


def test_no_file_is_lost_where_several_write_to_one_tag_at_once(registry: tuple[str, Path]) -> None:
    """Each in a process of its own, as the runs of a CI are; they start together."""
    tag = f"oci://{registry[0]}/busy:1"
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom onnxport.formats.remote import place_for, upload\n"
        "place = place_for(sys.argv[1])\nplace.write_bytes(sys.argv[1].encode())\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\nupload([place])\n"
    )
    start = str(time.time() + 4)
    urls = [f"{tag}/model{number}.onnx" for number in range(4)]
    writers = [subprocess.Popen([sys.executable, "-c", code, url, start]) for url in urls]
    assert [writer.wait(60) for writer in writers] == [0] * len(writers)
    assert [pull(url) for url in urls] == [url.encode() for url in urls]

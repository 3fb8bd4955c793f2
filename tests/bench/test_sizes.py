"""The compressed size of an artefact is that of a real ZIP file."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

from onnxport.bench.files import compressed_size
from onnxport.formats.artifact import Artifact


def test_all_files_of_an_artefact_count_as_a_zip_holds_them(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"the graph " * 5000)
    (tmp_path / "m.data").write_bytes(random.Random(0).randbytes(70_000))
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in ("m.onnx", "m.data"):
            zipped.write(tmp_path / name, name)
    found = compressed_size(Artifact(tmp_path / "m.onnx", "onnx", (tmp_path / "m.data",)))
    # A stream says lengths behind the data, 16 bytes a file, where a ZIP on disk has them in front.
    assert found == archive.stat().st_size + 2 * 16

"""What a process used of the user's files is recorded; onnxport's own files are not the user's."""

from __future__ import annotations

from pathlib import Path

import onnxport
from onnxport.core.user_code import Watch


def test_files_of_onnxport_are_not_the_users() -> None:
    own = Path(onnxport.__file__).with_name("api.py")
    with Watch() as watch:
        own.read_text()
    used = watch.consulted()
    assert not [name for name in used.files if name.endswith("api.py")]
    assert not [name for name in used.modules if name.startswith("onnxport")]

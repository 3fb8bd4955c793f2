"""Small YAML files of settings that lie beside a user's files, or that an option names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxport.core.regular_file import read_regular

_MOST = 1 << 20  # bytes


def read_settings(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, too large, no UTF-8, or not YAML.
    """
    import yaml

    text = read_regular(path, _MOST).decode("utf-8")
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("lists are nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error

"""Draw docs/images/terminal.svg: commands of the README and what they print, as a picture.

python docs/site/picture.py
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "onnxport convert digits.onnx --to tflite,coreml,ort -o made/",
    "onnxport quantize digits.onnx --int8 --calib samples.npz -o digits_int8.onnx",
    "onnxport validate digits.onnx digits_int8.onnx --inputs samples.npz",
)
_COLUMNS = 118


def main() -> None:
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "fixtures" / "digits" / "digits.onnx", folder)
        shutil.copy(ROOT / "fixtures" / "digits" / "test.npz", Path(folder, "samples.npz"))
        for command in COMMANDS:
            arguments = [sys.executable, "-m", *command.split()]
            done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=True)
            console.print(Text(f"$ {command}", style="bold"))
            for line in done.stdout.splitlines():
                console.print(_colored(line), soft_wrap=False)
            console.print()
    drawing = console.export_svg(title="onnxport")
    # Fonts from another machine would be loaded whenever somebody opens the page.
    drawing = re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL).replace(
        "Fira Code,", "ui-monospace,"
    )
    (ROOT / "docs" / "images" / "terminal.svg").write_text(drawing, encoding="utf-8")


def _colored(line: str) -> Text:
    text = Text(re.sub(r" {3,}", "  ", line))
    text.highlight_words(["proven", "measured"], "green")
    return text


if __name__ == "__main__":
    main()

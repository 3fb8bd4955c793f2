"""PyTorch definitions of real networks, in the parameter names of the state dicts that packages carry, and factories.

`onnxport export tests.exporters.networks:mobilenetv2 --weights ... --input image=1,3,224,224`
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from examples.pytorch.mobilenetv2 import MobileNetV2
from fixtures import efficientnet_lite0 as lite0_recipe


class EfficientNetLite0(nn.Module):
    """Tan and Le 2019, without squeeze-and-excite. [N, 3, 224, 224] to [N, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = _same(3, 32, 3, 2), nn.BatchNorm2d(32, eps=1e-3)
        blocks: list[nn.Module] = []
        channels = 32
        for count, size, first_stride, expansion, out in lite0_recipe.STAGES:
            for stride in [first_stride] + [1] * (count - 1):
                blocks.append(_MBConv(channels, out, size, stride, expansion))
                channels = out
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = _same(channels, 1280, 1, 1), nn.BatchNorm2d(1280, eps=1e-3)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = nn.functional.relu6(self._bn0(self._conv_stem(image)))
        for block in self._blocks:
            x = block(x)
        x = nn.functional.relu6(self._bn1(self._conv_head(x)))
        scores: Tensor = self._fc(x.mean((2, 3)))
        return scores


class _MBConv(nn.Module):
    def __init__(self, channels: int, out: int, size: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.widens, self.adds = expansion != 1, stride == 1 and channels == out
        if self.widens:
            self._expand_conv, self._bn0 = _same(channels, wide, 1, 1), nn.BatchNorm2d(wide, eps=1e-3)
        self._depthwise_conv, self._bn1 = (
            _same(wide, wide, size, stride, wide),
            nn.BatchNorm2d(wide, eps=1e-3),
        )
        self._project_conv, self._bn2 = _same(wide, out, 1, 1), nn.BatchNorm2d(out, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu6(self._bn0(self._expand_conv(x))) if self.widens else x
        y = nn.functional.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.adds else y


class _Padded(nn.Conv2d):
    """A strided filter that pads more behind than before, as TensorFlow does for an even size."""

    def forward(self, x: Tensor) -> Tensor:
        total = self.kernel_size[0] - self.stride[0]
        before, after = total // 2, total - total // 2
        return super().forward(nn.functional.pad(x, (before, after, before, after)))


def _same(channels: int, out: int, size: int, stride: int, groups: int = 1) -> nn.Conv2d:
    return _Padded(channels, out, size, stride, groups=groups, bias=False)


class ResNet18(nn.Module):
    """He et al. 2015, as torchvision names its parts. [N, 3, H, W] to [N, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        for number, (channels, out) in enumerate(((64, 64), (64, 128), (128, 256), (256, 512)), 1):
            stride = 1 if number == 1 else 2
            setattr(self, f"layer{number}", nn.Sequential(_Basic(channels, out, stride), _Basic(out, out, 1)))
        self.fc = nn.Linear(512, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        scores: Tensor = self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return scores


class _Basic(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = (
            nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride != 1 or channels != out
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu(self.bn1(self.conv1(x)))
        return nn.functional.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Tagger(nn.Module):
    """A label for every token: embedding, two bidirectional recurrent layers. [N, L] ids to [N, L, 5]."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.recurrent = getattr(nn, kind)(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embed(tokens))
        scores: Tensor = self.head(states)
        return scores


class Encoder(nn.Module):
    """A transformer encoder with padding. [N, L] ids and a mask that is True where there is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(100, 16), nn.Parameter(torch.randn(64, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> dict[str, Tensor]:
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        hidden = self.encoder(x, src_key_padding_mask=padding_mask)
        return {"hidden": hidden, "pooled": hidden.mean(1)}


class Detector(nn.Module):
    """Boxes on a grid of anchors, the overlapping ones removed. [1, 3, H, W] of 0..255 to boxes, scores, labels."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 5, 4, 2), nn.ReLU(), nn.Conv2d(16, 16, 5, 4, 2), nn.ReLU()
        )
        self.head = nn.Conv2d(16, 4 + 1 + 3, 1, bias=False)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        cells = self.head(self.backbone(image / 255))
        height, width = cells.shape[2:]
        y = torch.arange(height, device=image.device).view(-1, 1).expand(height, width).flatten() * 16.0
        x = torch.arange(width, device=image.device).view(1, -1).expand(height, width).flatten() * 16.0
        cells = cells[0].flatten(1)
        center_x, center_y = x + 8 * cells[0].tanh(), y + 8 * cells[1].tanh()
        half_width, half_height = 12 + 8 * cells[2].tanh(), 12 + 8 * cells[3].tanh()
        boxes = torch.stack(
            [center_x - half_width, center_y - half_height, center_x + half_width, center_y + half_height], 1
        )
        scores, labels = cells[4].sigmoid(), cells[5:].argmax(0)
        kept = torch.ops.torchvision.nms(boxes, scores, 0.3)
        return {"boxes": boxes[kept], "scores": scores[kept], "labels": labels[kept]}


def mobilenetv2() -> nn.Module:
    return MobileNetV2()


def efficientnet_lite0() -> nn.Module:
    return EfficientNetLite0()


def resnet18() -> nn.Module:
    torch.manual_seed(0)
    return ResNet18()


def tagger(kind: str = "LSTM") -> nn.Module:
    torch.manual_seed(0)
    return Tagger(kind)


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return Encoder()


def detector() -> nn.Module:
    """Needs torchvision's operator, or the one of `nms` in its place."""
    _define_nms()
    torch.manual_seed(0)
    return Detector()


def _define_nms() -> None:
    """torchvision's nms where torchvision is not: its wheels fit one build of torch each, and ours need not be that."""
    try:
        import torchvision  # noqa: F401 - it registers its operators
    except (ImportError, RuntimeError):
        if not hasattr(torch.ops.torchvision, "nms"):
            torch.library.define(
                "torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
            torch.library.impl("torchvision::nms", "CPU", nms)
            torch.library.register_fake("torchvision::nms", _nms_shape)


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Indices of the boxes [N, 4] (x1, y1, x2, y2), best first, that overlap no better one by more than `threshold`."""
    left = scores.argsort(descending=True, stable=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[left, :2])
        high = torch.minimum(boxes[best, 2:], boxes[left, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        left = left[~(shared / (area[best] + area[left] - shared) > threshold)]
    return torch.stack(kept) if kept else scores.new_zeros(0, dtype=torch.int64)


class _Inner(nn.Module):
    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self._computed = forward

    def forward(self, x: Tensor) -> Any:
        return self._computed(x)


def _in_a_module(forward: Callable[..., Any]) -> nn.Module:
    """A module whose part "inner.0" does what the function does."""
    return nn.Sequential(OrderedDict(inner=nn.Sequential(_Inner(forward))))


def deciding() -> nn.Module:
    def forward(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x

    return _in_a_module(forward)


def of_two_rows() -> nn.Module:
    def forward(x: Tensor) -> Tensor:
        doubled = x * 2
        return doubled.view(2, 3, -1)

    return _in_a_module(forward)


def untranslatable() -> nn.Module:
    return _in_a_module(lambda x: torch.linalg.svdvals(x))


def of_numpy() -> nn.Module:
    return _in_a_module(lambda x: torch.from_numpy(np.sin(x.numpy())))


def spectral() -> nn.Module:
    return _in_a_module(lambda x: torch.fft.fft(x))


def narrow() -> nn.Module:
    """Takes three features."""
    return nn.Sequential(OrderedDict(first=nn.Linear(3, 4), second=nn.Linear(4, 2)))


def flattening() -> nn.Module:
    """Takes 64 pixels, however they lie: torch.export says nothing of that."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


class Signature(nn.Module):
    """Every kind of parameter; gives nested outputs, a constant among them."""

    def forward(
        self, x: Tensor, scale: float = 2.0, *, shift: Tensor, extra: Tensor | None = None
    ) -> dict[str, Any]:
        y = x * scale + shift
        return {"y": y, "parts": (y[:, :1], {"sum": y.sum(1)}), "version": 3}


def signature() -> nn.Module:
    return Signature()


@dataclass
class Answer:
    first: Tensor
    second: Tensor | None
    third: Tensor


def giving_a_dataclass() -> nn.Module:
    return _in_a_module(lambda x: Answer(x + 1, None, x.flatten(1)))


def giving_back() -> nn.Module:
    """An input, one value twice, and a value that has an output's usual name."""
    return _in_a_module(lambda x: (x, x.relu(), (x.relu() + 1)))


def halving() -> nn.Module:
    """Sizes that are multiples of 4."""
    return _in_a_module(lambda x: x.view(x.shape[0], x.shape[1] // 4, 4).sum(2))


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states: Tensor = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]
        return states


def packed() -> nn.Module:
    return Packed()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


def counting() -> nn.Module:
    return Counting()


def program() -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows")
    return torch.export.export(narrow().eval(), (torch.randn(4, 3),), dynamic_shapes=({0: rows},))


def scripted() -> torch.jit.ScriptModule:
    return torch.jit.script(narrow())


def _nms_shape(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(count, dtype=torch.int64)

"""MobileNetV2 (Sandler et al. 2018) in PyTorch, without torchvision; its parameters have torchvision's names."""

from __future__ import annotations

from torch import Tensor, nn

# Expansion, channels, blocks, stride of the first (table 2 of the paper).
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(nn.Module):
    """[N, 3, H, W], normalized, to the logits [N, 1000] of ImageNet's classes."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, 32, 3, stride=2)]
        channels = 32
        for expansion, out, blocks, stride in STAGES:
            for block in range(blocks):
                layers.append(_InvertedResidual(channels, out, 1 if block else stride, expansion))
                channels = out
        self.features = nn.Sequential(*layers, _convolution(channels, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, image: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.features(image).mean((2, 3)))
        return scores


class _InvertedResidual(nn.Module):
    """Widens (not in the first stage), filters each channel by itself, narrows, and adds what it began with."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        widening = [] if expansion == 1 else [_convolution(channels, wide, 1)]
        narrowing = [nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.conv = nn.Sequential(*widening, _convolution(wide, wide, 3, stride, groups=wide), *narrowing)
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.adds else y


def _convolution(channels: int, out: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    filters = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(filters, nn.BatchNorm2d(out), nn.ReLU6())

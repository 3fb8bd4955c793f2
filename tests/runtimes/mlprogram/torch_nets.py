"""Nets of torch, converted by coremltools' own frontend: `python -m tests.runtimes.mlprogram.torch_nets FOLDER`.

For each net, precision and target it saves `<name>.mlpackage`, what torch computes and its inputs, in `<name>.npz`. In
a process of its own, because the rest of us imports coremltools with torch hidden from it.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

TARGETS = ("iOS16", "iOS18")
PRECISIONS = ("fp32", "fp16")


class Convolutions(nn.Module):
    """A stem, a depthwise block with a residual, a normalization, and a way up."""

    def __init__(self, normalization: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
        self.deep = nn.Conv2d(16, 16, 5, padding=2, groups=16)
        self.point = nn.Conv2d(16, 16, 1)
        self.grouped = nn.Conv2d(16, 24, 3, padding=2, dilation=2, groups=4)
        self.norm = normalization
        self.up = nn.ConvTranspose2d(24, 8, 3, 2, 1, output_padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.point(functional.gelu(self.deep(x)))
        x = functional.max_pool2d(x, 3, 2, 1)
        x = functional.leaky_relu(self.norm(self.grouped(x)), 0.1)
        x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
        x = functional.silu(self.up(x))
        x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        return functional.softmax(self.head(x.mean((2, 3))), -1)


class Recurrent(nn.Module):
    """A recurrent layer of torch, whose sequence and last state are returned."""

    def __init__(self, kind: type[nn.Module], **rest: Any) -> None:
        super().__init__()
        self.layer = kind(6, 10, batch_first=True, **rest)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps, state = self.layer(x)
        return steps, state[0] if isinstance(state, tuple) else state


class Layer(nn.Module):
    """A transformer's: attention and two dense layers, each normalized before and added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.projections(self.before(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = (each.transpose(1, 2) for each in projected.unbind(2))
        x = x + self.joined(
            functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        )
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Encoder(nn.Module):
    """Words in, sentences' vectors out."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Parameter(torch.randn(9, 32))
        self.layers = nn.Sequential(Layer(32, 4), Layer(32, 4))

    def forward(self, words: Tensor) -> Tensor:
        return torch.tanh(self.layers(self.words(words) + self.places)[:, 0])


class UNet(nn.Module):
    """Two levels down and up again, joined at each."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1), nn.InstanceNorm2d(outputs), nn.ELU()
            )

        self.down1, self.down2, self.bottom = block(2, 8), block(8, 16), block(16, 32)
        self.up2, self.join2 = nn.ConvTranspose2d(32, 16, 2, 2), block(32, 16)
        self.join1, self.out = block(24, 8), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        low = self.bottom(functional.max_pool2d(second, 2))
        second = self.join2(torch.cat([self.up2(low), second], 1))
        up = functional.interpolate(second, scale_factor=2.0, mode="bilinear", align_corners=True)
        return torch.sigmoid(self.out(self.join1(torch.cat([up, first], 1))))


@dataclass(frozen=True)
class Net:
    """How to make a net, and what it is given for a batch of `n`."""

    make: Callable[[], nn.Module]
    feed: Callable[[int], Tensor]
    dynamic: bool = True


NETS = {
    "convolutions": Net(lambda: Convolutions(nn.BatchNorm2d(24)), lambda n: torch.randn(n, 3, 32, 32)),
    # coremltools converts no group norm with an open batch.
    "groupnorm": Net(
        lambda: Convolutions(nn.GroupNorm(4, 24)), lambda n: torch.randn(n, 3, 32, 32), dynamic=False
    ),
    "lstm": Net(lambda: Recurrent(nn.LSTM, num_layers=2), lambda n: torch.randn(n, 7, 6), dynamic=False),
    "bilstm": Net(
        lambda: Recurrent(nn.LSTM, bidirectional=True), lambda n: torch.randn(n, 7, 6), dynamic=False
    ),
    "gru": Net(lambda: Recurrent(nn.GRU), lambda n: torch.randn(n, 7, 6), dynamic=False),
    "rnn": Net(lambda: Recurrent(nn.RNN), lambda n: torch.randn(n, 7, 6), dynamic=False),
    "encoder": Net(Encoder, lambda n: torch.randint(0, 50, (n, 9), dtype=torch.int32)),
    "unet": Net(UNet, lambda n: torch.randn(n, 2, 16, 24)),
}


def _trained(model: nn.Module) -> nn.Module:
    """Batch norms with statistics that are not 0 and 1, as after training."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features) * 0.2
            module.running_var = torch.rand(module.num_features) + 0.5
    return model.eval()


def save(folder: Path, name: str, precision: str, target: str) -> None:
    """One net's package, and what torch makes of batches of its inputs."""
    import coremltools as ct

    net = NETS[name]
    torch.manual_seed(0)
    model = _trained(net.make())
    given = net.feed(2)
    batch = ct.RangeDim(1, 4, default=2) if net.dynamic else 2
    kind = np.int32 if given.dtype == torch.int32 else np.float32
    converted = ct.convert(
        torch.jit.trace(model, given, check_trace=False),
        inputs=[ct.TensorType("x", (batch, *given.shape[1:]), kind)],
        minimum_deployment_target=getattr(ct.target, target),
        compute_precision=ct.precision.FLOAT16 if precision == "fp16" else ct.precision.FLOAT32,
        skip_model_load=True,
    )
    stem = f"{name}-{precision}-{target}"
    converted.save(str(folder / f"{stem}.mlpackage"))
    arrays = {}
    for n in (2, 3) if net.dynamic else (2,):
        x = net.feed(n)
        with torch.no_grad():
            found = model(x)
        arrays[f"x{n}"] = x.numpy()
        for place, each in enumerate(found if isinstance(found, tuple) else (found,)):
            arrays[f"y{n}_{place}"] = each.numpy()
    np.savez(folder / f"{stem}.npz", **arrays)


def main(folder: Path) -> None:
    os.environ.setdefault("TQDM_DISABLE", "1")
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    for name in NETS:
        for precision in PRECISIONS:
            for target in TARGETS:
                save(folder, name, precision, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

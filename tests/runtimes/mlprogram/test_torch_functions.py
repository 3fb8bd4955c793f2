"""Convolutions, pools, norms, resizing and recurrent layers against torch's own, on random cases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from tests.runtimes.mlprogram.draws import Random, flag
from tests.runtimes.mlprogram.programs import evaluated

torch = pytest.importorskip("torch")
functional = torch.nn.functional

Case = tuple[dict[str, Any], list[Any]]
CASES: dict[str, tuple[str, Callable[[Random], Case]]] = {}
COUNT = 20


def case(name: str, operator: str = "") -> Callable[[Callable[[Random], Case]], Callable[[Random], Case]]:
    """A draw of MIL's arguments, with torch's results."""

    def register(draw: Callable[[Random], Case]) -> Callable[[Random], Case]:
        CASES[name] = operator or name, draw
        return draw

    return register


def floats(random: Random, *shape: int) -> Any:
    return random.standard_normal(shape).astype(np.float32)


def sizes(random: Random, rank: int, low: int, high: int) -> list[int]:
    return [int(each) for each in random.integers(low, high + 1, rank)]


@case("conv")
def conv(random: Random) -> Case:
    rank = int(random.integers(1, 4))
    groups = int(random.choice([1, 2, 4]))
    kernel, strides, dilations = (
        sizes(random, rank, 1, 3),
        sizes(random, rank, 1, 3),
        sizes(random, rank, 1, 2),
    )
    x = floats(random, 2, 4, *sizes(random, rank, 7, 9))
    weight = floats(random, 8 if groups > 1 else int(random.integers(1, 6)), 4 // groups, *kernel)
    bias = floats(random, len(weight)) if flag(random) else None
    pad = sizes(random, 2 * rank, 0, 2)
    before_last_first = [each for axis in reversed(range(rank)) for each in pad[2 * axis : 2 * axis + 2]]
    padded = functional.pad(torch.from_numpy(x), before_last_first)
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    wanted = run(
        padded,
        torch.from_numpy(weight),
        None if bias is None else torch.from_numpy(bias),
        strides,
        0,
        dilations,
        groups,
    )
    given = {"x": x, "weight": weight, "strides": strides, "pad_type": "custom", "pad": pad}
    given |= {"dilations": dilations, "groups": groups}
    return given | ({} if bias is None else {"bias": bias}), [wanted]


@case("conv that keeps the size", "conv")
def conv_same(random: Random) -> Case:
    rank = int(random.integers(1, 3))
    x, weight = (
        floats(random, 1, 3, *sizes(random, rank, 4, 9)),
        floats(random, 2, 3, *sizes(random, rank, 1, 4)),
    )
    run = (functional.conv1d, functional.conv2d)[rank - 1]
    wanted = run(torch.from_numpy(x), torch.from_numpy(weight), padding="same")
    return {"x": x, "weight": weight, "pad_type": "same"}, [wanted]


@case("conv_transpose")
def conv_transpose(random: Random) -> Case:
    rank, groups = int(random.integers(1, 4)), int(random.choice([1, 2]))
    kernel, strides, dilations = (
        sizes(random, rank, 1, 3),
        sizes(random, rank, 1, 3),
        sizes(random, rank, 1, 2),
    )
    x, weight = floats(random, 2, 4, *sizes(random, rank, 3, 5)), floats(random, 4, 3, *kernel)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pad = [int(random.integers(0, min(2, each) + 1)) for each in reach]
    more = [int(random.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True)]
    run = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    tensors = torch.from_numpy(x), torch.from_numpy(weight)
    wanted = run(*tensors, None, strides, pad, more, groups, dilations)
    given = {"x": x, "weight": weight, "strides": strides, "dilations": dilations, "groups": groups}
    given |= {"pad_type": "custom", "pad": np.repeat(pad, 2).astype(np.int32)}
    return given | ({"output_shape": list(wanted.shape)} if any(more) else {}), [wanted]


def pool(random: Random, highest: int) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Arguments of a pool for MIL and for torch; only sizes of which both make the same number of windows."""
    while True:
        rank, ceil = int(random.integers(1, highest + 1)), flag(random)
        rank = min(rank, 2) if ceil else rank
        kernel, strides = sizes(random, rank, 1, 4), sizes(random, rank, 1, 3)
        pad = [int(random.integers(0, each // 2 + 1)) for each in kernel]
        x = floats(random, 2, 3, *sizes(random, rank, 5, 9))
        last = [
            (-(-(n + 2 * p - k) // s)) * s
            for n, p, k, s in zip(x.shape[2:], pad, kernel, strides, strict=True)
        ]
        # Without padding MIL keeps a last window that begins behind the input, torch drops it.
        if not ceil or all(start < n + p for start, n, p in zip(last, x.shape[2:], pad, strict=True)):
            given = {"x": x, "kernel_sizes": kernel, "strides": strides, "ceil_mode": ceil}
            given |= {"pad_type": "custom", "pad": np.repeat(pad, 2).astype(np.int32)}
            return given, (torch.from_numpy(x), kernel, strides, pad)


@case("max_pool")
def max_pool(random: Random) -> Case:
    given, arguments = pool(random, 3)
    run = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[len(arguments[1]) - 1]
    return given, [run(*arguments, ceil_mode=given["ceil_mode"])]


@case("avg_pool")
def avg_pool(random: Random) -> Case:
    given, arguments = pool(random, 3)
    excluded = flag(random)
    run = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[len(arguments[1]) - 1]
    wanted = run(*arguments, ceil_mode=given["ceil_mode"], count_include_pad=not excluded)
    return given | {"exclude_padding_from_average": excluded}, [wanted]


@case("l2_pool")
def l2_pool(random: Random) -> Case:
    x, kernel, stride = (
        floats(random, 1, 2, *sizes(random, 2, 4, 8)),
        sizes(random, 2, 1, 3),
        sizes(random, 2, 1, 3),
    )
    squares = functional.avg_pool2d(torch.from_numpy(x) ** 2, kernel, stride, divisor_override=1)
    return {"x": x, "kernel_sizes": kernel, "strides": stride, "pad_type": "valid"}, [torch.sqrt(squares)]


@case("batch_norm")
def batch_norm(random: Random) -> Case:
    x = floats(random, 2, 3, *sizes(random, int(random.integers(1, 4)), 1, 4))
    mean, gamma, beta = (floats(random, 3) for _ in range(3))
    variance = random.uniform(0.1, 2, 3).astype(np.float32)
    tensors = (torch.from_numpy(each) for each in (x, mean, variance, gamma, beta))
    given = {
        "x": x,
        "mean": mean,
        "variance": variance,
        "gamma": gamma,
        "beta": beta,
        "epsilon": np.float32(1e-3),
    }
    return given, [functional.batch_norm(*tensors, eps=1e-3)]


@case("instance_norm")
def instance_norm(random: Random) -> Case:
    x, gamma, beta = (
        floats(random, 2, 3, *sizes(random, int(random.integers(1, 3)), 2, 5)),
        *floats(random, 2, 3),
    )
    wanted = functional.instance_norm(
        *map(torch.from_numpy, (x,)), weight=torch.from_numpy(gamma), bias=torch.from_numpy(beta)
    )
    return {"x": x, "gamma": gamma, "beta": beta}, [wanted]


@case("local_response_norm")
def local_response_norm(random: Random) -> Case:
    x, size = (
        floats(random, 2, 7, *sizes(random, int(random.integers(1, 3)), 2, 4)),
        int(random.choice([1, 3, 5])),
    )
    given = {"x": x, "size": size, "alpha": np.float32(0.3), "beta": np.float32(0.6), "k": np.float32(1.5)}
    return given, [functional.local_response_norm(torch.from_numpy(x), size, 0.3, 0.6, 1.5)]


@case("resize")
def resize(random: Random) -> Case:
    x, count = floats(random, 1, 2, *sizes(random, 2, 2, 6)), sizes(random, 2, 2, 11)
    aligned = flag(random)
    wanted = functional.interpolate(torch.from_numpy(x), count, mode="bilinear", align_corners=aligned)
    mode = str(random.choice(["ALIGN_CORNERS", "STRICT_ALIGN_CORNERS"])) if aligned else "UNALIGN_CORNERS"
    given = {"x": x, "shape": np.array([1, *count], np.int32), "resized_dims": np.uint32(2)}
    return given | {"sampling_mode": mode, "interpolation_mode": "LINEAR"}, [wanted]


@case("upsample_bilinear")
def upsample_bilinear(random: Random) -> Case:
    x, factors = (
        floats(random, 1, 2, *sizes(random, 2, 2, 6)),
        [float(each) for each in random.choice([1.5, 2, 2.25, 3], 2)],
    )
    aligned = flag(random)
    wanted = functional.interpolate(
        torch.from_numpy(x),
        scale_factor=factors,
        mode="bilinear",
        align_corners=aligned,
        recompute_scale_factor=True,
    )
    scales = {
        f"scale_factor_{name}": np.float32(each)
        for name, each in zip(("height", "width"), factors, strict=True)
    }
    return {"x": x, "align_corners": aligned} | scales, [wanted]


@case("upsample_nearest_neighbor")
def upsample_nearest_neighbor(random: Random) -> Case:
    x, factors = floats(random, 1, 2, *sizes(random, 2, 1, 4)), sizes(random, 2, 1, 3)
    scales = dict(zip(("scale_factor_height", "scale_factor_width"), factors, strict=True))
    return {"x": x} | scales, [
        functional.interpolate(torch.from_numpy(x), scale_factor=factors, mode="nearest")
    ]


@case("resample")
def resample(random: Random) -> Case:
    x, (height, width) = floats(random, 2, 2, *sizes(random, 2, 2, 5)), sizes(random, 2, 1, 4)
    coordinates = random.uniform(-2, 2, (2, height, width, 2)).astype(np.float32)
    aligned, mode = flag(random), str(random.choice(["bilinear", "nearest"]))
    padding = str(random.choice(["zeros", "border", "reflection"]))
    tensors = torch.from_numpy(x), torch.from_numpy(coordinates)
    wanted = functional.grid_sample(*tensors, mode, padding, align_corners=aligned)
    mirrored = "reflection" if aligned else "symmetric"
    given = {"x": x, "coordinates": coordinates, "sampling_mode": mode, "align_corners": aligned}
    given |= {"padding_mode": {"zeros": "constant", "reflection": mirrored}.get(padding, padding)}
    return given | {"padding_value": np.float32(0), "coordinates_mode": "normalized_minus_one_to_one"}, [
        wanted
    ]


@case("pixel_shuffle")
def pixel_shuffle(random: Random) -> Case:
    factor = int(random.integers(1, 4))
    x = floats(random, 2, 2 * factor**2, *sizes(random, 2, 1, 3))
    return {"x": x, "upscale_factor": factor}, [functional.pixel_shuffle(torch.from_numpy(x), factor)]


@case("pixel_unshuffle")
def pixel_unshuffle(random: Random) -> Case:
    factor = int(random.integers(1, 4))
    x = floats(random, 2, 2, *(factor * each for each in sizes(random, 2, 1, 3)))
    wanted = functional.pixel_unshuffle(torch.from_numpy(x), factor)
    return {"x": x, "downscale_factor": np.uint32(factor)}, [wanted]


@case("silu")
def silu(random: Random) -> Case:
    x = floats(random, 3, 4) * 4
    return {"x": x}, [functional.silu(torch.from_numpy(x))]


def blocks(array: Any, order: tuple[int, ...]) -> Any:
    """torch's weights of the gates in MIL's order."""
    parts = np.split(array, len(order))
    return np.concatenate([parts[each] for each in order])


def recurrent(
    random: Random, kind: Any, order: tuple[int, ...], **rest: Any
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A layer of torch, MIL's arguments for it, and its weights by torch's names, the gates in MIL's order."""
    steps, batch, features, hidden = sizes(random, 4, 1, 4)
    torch.manual_seed(int(random.integers(1000)))
    layer = kind(features, hidden, **rest)
    weights = {name: blocks(each.detach().numpy(), order) for name, each in layer.named_parameters()}
    x = floats(random, steps, batch, features)
    directions = 2 if rest.get("bidirectional") else 1
    given = {"x": x, "initial_h": floats(random, batch, directions * hidden), "output_sequence": flag(random)}
    return (
        layer,
        given | {"weight_ih": weights["weight_ih_l0"], "weight_hh": weights["weight_hh_l0"]},
        weights,
    )


def state(array: Any, directions: int) -> Any:
    return torch.from_numpy(np.stack(np.split(array, directions, axis=1)))


def joined(tensor: Any) -> Any:
    return torch.cat(list(tensor), dim=-1)


@case("lstm")
def lstm(random: Random) -> Case:
    both = flag(random)
    layer, given, weights = recurrent(random, torch.nn.LSTM, (0, 1, 3, 2), bidirectional=both)
    given["initial_c"] = floats(random, *given["initial_h"].shape)
    given["bias"] = weights["bias_ih_l0"] + weights["bias_hh_l0"]
    if both:
        given |= {f"weight_{each}_back": weights[f"weight_{each}_l0_reverse"] for each in ("ih", "hh")}
        given |= {"bias_back": weights["bias_ih_l0_reverse"] + weights["bias_hh_l0_reverse"]}
        given["direction"] = "bidirectional"
    states = (state(given["initial_h"], 1 + both), state(given["initial_c"], 1 + both))
    with torch.no_grad():
        steps, (h, c) = layer(torch.from_numpy(given["x"]), states)
    return given, [steps if given["output_sequence"] else joined(h)[None], joined(h), joined(c)]


@case("gru")
def gru(random: Random) -> Case:
    """torch resets after the product with the hidden state, which is undefined in strict mode."""
    layer, given, weights = recurrent(random, torch.nn.GRU, (0, 2, 1))
    given |= {"reset_after": True, "input_bias": weights["bias_ih_l0"], "bias": weights["bias_hh_l0"]}
    with torch.no_grad():
        steps, h = layer(torch.from_numpy(given["x"]), state(given["initial_h"], 1))
    return given, [steps if given["output_sequence"] else h, h[0]]


@case("rnn")
def rnn(random: Random) -> Case:
    activation = str(random.choice(["tanh", "relu"]))
    reverse = flag(random)
    layer, given, weights = recurrent(random, torch.nn.RNN, (0,), nonlinearity=activation)
    given |= {"bias": weights["bias_ih_l0"] + weights["bias_hh_l0"], "activation": activation}
    x = torch.from_numpy(given["x"])
    with torch.no_grad():
        steps, h = layer(x.flip(0) if reverse else x, state(given["initial_h"], 1))
    given["direction"] = "reverse" if reverse else "forward"
    return given, [(steps.flip(0) if reverse else steps) if given["output_sequence"] else h, h[0]]


@pytest.mark.parametrize("name", sorted(CASES))
def test_agrees_with_torch(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(crc32(name.encode()))
    operator, draw = CASES[name]
    drawn = [draw(random) for _ in range(COUNT)]
    found = evaluated(
        tmp_path,
        operator,
        [given for given, _ in drawn],
        "iOS18",
        strict=name != "gru",
        fixed=("weight", "bias"),
    )
    for (given, wanted), results in zip(drawn, found, strict=True):
        for expected, result in zip(wanted, results, strict=True):
            np.testing.assert_allclose(result, expected.numpy(), 1e-5, 1e-5, err_msg=f"{operator} of {given}")

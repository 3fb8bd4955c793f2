"""Shape rules of operators with windows: convolutions, pools, spectra, resampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxport.samples.shapes.analysis import Rule, Site
from onnxport.samples.shapes.fact import UNKNOWN, Fact, Size, fixed, fixed_elements, size


def _convolution(weights: int) -> Rule:
    def rule(site: Site) -> Iterator[Fact]:
        dims, filters = site.dims(0), site.dims(weights)
        if dims is None or filters is None or len(dims) != len(filters) or len(dims) < 3:
            yield UNKNOWN
            return
        channels = _multiply(filters[1], site.integer("group", 1))
        site.equal(dims[1], channels, "the channels of its weights")
        kernel = [fixed(extent) for extent in filters[2:]]
        yield Fact((dims[0], filters[0], *_windows(site, dims[2:], kernel)))

    return rule


def _transposed_convolution(site: Site) -> Iterator[Fact]:
    dims, filters = site.dims(0), site.dims(1)
    if dims is None or filters is None or len(dims) != len(filters) or len(dims) < 3:
        yield UNKNOWN
        return
    site.equal(dims[1], filters[0], "the channels of its weights")
    spatial = len(dims) - 2
    given = site.integers("output_shape")
    kernel = [fixed(extent) for extent in filters[2:]]
    sizes = [_transposed_size(site, dims[2 + axis], kernel[axis], axis, spatial) for axis in range(spatial)]
    sizes = [size(each) for each in given[-spatial:]] if given else sizes
    yield Fact((dims[0], _multiply(filters[1], site.integer("group", 1)), *sizes))


def _transposed_size(site: Site, extent: Size, kernel: int | None, axis: int, spatial: int) -> Size:
    if not isinstance(extent, np.ndarray) or kernel is None:
        return None
    stride, dilation, padding = _settings(site, axis, spatial)
    if site.text("auto_pad", "NOTSET").startswith("SAME"):
        return extent * stride
    added = (site.integers("output_padding") or [0] * spatial)[axis]
    return (extent - 1) * stride + added + (kernel - 1) * dilation + 1 - padding


def _pool(site: Site) -> Iterator[Fact]:
    dims, kernel = site.dims(0), site.integers("kernel_shape")
    if dims is None or kernel is None or len(dims) != len(kernel) + 2:
        yield UNKNOWN
        return
    result = Fact((*dims[:2], *_windows(site, dims[2:], kernel)))
    yield result  # the greatest values
    yield result  # their positions


def _windows(site: Site, extents: Sequence[Size], kernel: Sequence[int | None]) -> list[Size]:
    """Return the number of windows per axis; at least one must fit."""
    return [
        _window_count(site, extent, kernel[axis], axis, len(extents)) for axis, extent in enumerate(extents)
    ]


def _window_count(site: Site, extent: Size, kernel: int | None, axis: int, spatial: int) -> Size:
    if not isinstance(extent, np.ndarray) or kernel is None:
        return None
    stride, dilation, padding = _settings(site, axis, spatial)
    reach = (kernel - 1) * dilation + 1
    mode = site.text("auto_pad", "NOTSET")
    if mode.startswith("SAME"):
        return -(-extent // stride)
    room = extent + (0 if mode == "VALID" else padding) - reach
    site.require(room >= 0, f"at least one window of {reach} in axis {axis + 2}")
    if site.integer("ceil_mode", 0):
        count = -(-room // stride) + 1
        # The last window starts within the input or the padding before it.
        before = (site.integers("pads") or [0] * spatial)[axis]
        return np.where((count - 1) * stride >= extent + before, count - 1, count)
    return room // stride + 1


def _settings(site: Site, axis: int, spatial: int) -> tuple[int, int, int]:
    """Return the stride, the dilation and the sum of the padding of an axis."""
    strides, dilations, pads = (site.integers(name) for name in ("strides", "dilations", "pads"))
    padding = pads[axis] + pads[axis + spatial] if pads else 0
    return (strides or [1] * spatial)[axis], (dilations or [1] * spatial)[axis], padding


def _global_pool(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    yield UNKNOWN if dims is None else Fact((*dims[:2], *[size(1)] * (len(dims) - 2)))


def _resize(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    is_old = site.node.op_type == "Upsample" or len(site.node.inputs) < 3
    scales = site.fact(1 if is_old else 2).elements
    sizes = site.fact(3).elements if site.has(3) else None
    if dims is None:
        yield UNKNOWN
        return
    if site.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        yield Fact((None,) * len(dims))
        return
    axes = site.integers("axes") or list(range(len(dims)))
    result = list(dims)
    for position, axis in enumerate(axes):
        if sizes and len(sizes) == len(axes):
            result[axis] = sizes[position]
        elif scales and len(scales) == len(axes):
            result[axis] = _scale(dims[axis], scales[position])
        else:
            result[axis] = None
    for axis, extent in enumerate(result):
        if isinstance(extent, np.ndarray):
            site.require(extent >= 1, f"a size of at least 1 in axis {axis}")
    yield Fact(tuple(result))


def _scale(extent: Size, scale: Size) -> Size:
    if isinstance(scale, np.ndarray) and (scale == 1).all():
        return extent
    if not isinstance(extent, np.ndarray) or not isinstance(scale, np.ndarray):
        return None
    # ONNX Runtime multiplies in float32.
    return np.floor(extent.astype(np.float32) * scale.astype(np.float32)).astype(np.int64)


def _move_blocks(to_space: bool) -> Rule:
    """Move blocks of blocksize x blocksize from channels to height and width, or back."""

    def rule(site: Site) -> Iterator[Fact]:
        dims, block = site.dims(0), site.integer("blocksize", 1)
        if dims is None or len(dims) != 4:
            yield UNKNOWN
            return
        batch, channels, *image = dims
        if to_space:
            yield Fact(
                (batch, _divide(site, channels, block**2), *(_multiply(each, block) for each in image))
            )
        else:
            yield Fact(
                (batch, _multiply(channels, block**2), *(_divide(site, each, block) for each in image))
            )

    return rule


def _stft(site: Site) -> Iterator[Fact]:
    dims, step = site.dims(0), fixed_elements(site.fact(1))
    window = site.dims(2) if site.has(2) else None
    given = fixed_elements(site.fact(3)) if site.has(3) else None
    length = given[0] if given else fixed(window[0]) if window else None
    if dims is None or length is None or not step:
        yield UNKNOWN
        return
    frames: Size = None
    if isinstance(dims[1], np.ndarray):
        site.require(dims[1] >= length, f"a signal of at least {length} samples")
        frames = np.maximum(dims[1] - length, 0) // max(step[0], 1) + 1
    bins = length // 2 + 1 if site.integer("onesided", 1) else length
    yield Fact((dims[0], frames, size(bins), size(2)))


def _multiply(extent: Size, factor: int) -> Size:
    if factor == 1:
        return extent
    return extent * factor if isinstance(extent, np.ndarray) else None


def _divide(site: Site, extent: Size, by: int) -> Size:
    if not isinstance(extent, np.ndarray):
        return None
    site.require(extent % by == 0, f"a size that is a multiple of {by}")
    return np.asarray(extent // by)


def _roi_align(site: Site) -> Iterator[Fact]:
    dims, rois = site.dims(0), site.dims(1)
    if dims is None or rois is None or len(dims) != 4:
        yield UNKNOWN
        return
    height, width = site.integer("output_height", 1), site.integer("output_width", 1)
    yield Fact((rois[0], dims[1], size(height), size(width)))


def _grid_sample(site: Site) -> Iterator[Fact]:
    dims, grid = site.dims(0), site.dims(1)
    if dims is None or grid is None:
        yield UNKNOWN
        return
    site.equal(dims[0], grid[0], "the batch of its grid")
    yield Fact((*dims[:2], *grid[1:-1]))


RULES: dict[str, Rule] = {
    "Conv": _convolution(1),
    "FusedConv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "QLinearAveragePool"), _pool),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "QLinearGlobalAveragePool"), _global_pool
    ),
    "Resize": _resize,
    "Upsample": _resize,
    "DepthToSpace": _move_blocks(to_space=True),
    "SpaceToDepth": _move_blocks(to_space=False),
    "STFT": _stft,
    "RoiAlign": _roi_align,
    "GridSample": _grid_sample,
}

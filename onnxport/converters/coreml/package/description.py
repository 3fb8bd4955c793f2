"""The description of inputs and outputs in a package, as coremltools writes it: types and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxport.converters.app_metadata import ImageInput
from onnxport.converters.coreml.library import any_symbolic, proto, types
from onnxport.converters.coreml.package.sizes import Sizes

_ARRAYS = proto.FeatureTypes_pb2.ArrayFeatureType
_KINDS = {
    "fp32": _ARRAYS.FLOAT32,
    "fp16": _ARRAYS.FLOAT16,
    "int32": _ARRAYS.INT32,
    "int8": getattr(_ARRAYS, "INT8", _ARRAYS.INT32),
}


def describe_function(
    target: Any, function: Any, sizes: Mapping[str, Sizes], images: Mapping[str, ImageInput] = {}
) -> None:
    """Fill `target`, a ModelDescription or FunctionDescription, with the inputs and outputs of a MIL function.

    Args:
        sizes: input key to its sizes, for inputs with open dimensions.
        images: input key to the conversion of its pixels.
    """
    for name, var in function.inputs.items():
        if types.is_state(var.sym_type):
            state = target.state.add(name=name)
            _describe_array(state.type.stateType.arrayType, var.sym_type.wrapped_type().get_shape(), var)
        elif name in images:
            _describe_image(target.input.add(name=name).type.imageType, var, images[name], sizes.get(name))
        else:
            _describe_input(target.input.add(name=name).type.multiArrayType, var, sizes.get(name))
    for var in function.outputs:
        feature = target.output.add(name=var.name).type
        if types.is_dict(var.sym_type):
            feature.dictionaryType.stringKeyType.SetInParent()
        elif types.is_str(var.sym_type):
            feature.stringType.SetInParent()
        else:
            # An output whose size follows an open input has no shape in its description.
            _describe_array(feature.multiArrayType, () if any_symbolic(var.shape) else var.shape, var)


def _describe_input(array: Any, var: Any, sizes: Sizes | None) -> None:
    if not any_symbolic(var.shape):
        _describe_array(array, var.shape, var)
        return
    assert sizes is not None, "every open input has sizes"
    _describe_array(array, sizes.default, var)
    for shape in sizes.choices:
        array.enumeratedShapes.shapes.add(shape=shape)
    for least, most in sizes.bounds:
        array.shapeRange.sizeRanges.add(lowerBound=least, upperBound=most)


def _describe_image(picture: Any, var: Any, image: ImageInput, sizes: Sizes | None) -> None:
    picture.colorSpace = picture.ColorSpace.Value(image.layout)
    shape = var.shape
    if any_symbolic(shape):
        assert sizes is not None, "every open input has sizes"
        shape = sizes.default
        for choice in sizes.choices:
            picture.enumeratedSizes.sizes.add(height=choice[2], width=choice[3])
        for axis, (least, most) in list(enumerate(sizes.bounds))[2:]:
            found = picture.imageSizeRange.heightRange if axis == 2 else picture.imageSizeRange.widthRange
            found.lowerBound, found.upperBound = least, most
    picture.height, picture.width = int(shape[2]), int(shape[3])


def _describe_array(array: Any, shape: Any, var: Any) -> None:
    array.dataType = _KINDS[types.builtin_to_string(var.dtype)]
    array.shape.extend(int(dim) for dim in shape)

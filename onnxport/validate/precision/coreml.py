"""The precision of an `.mlpackage`, by the types that its program declares; the first rule that fits decides.

1. A `dequantize` of something that the program `quantize`s itself: "int8", or "mixed" where anything is float16 too.
2. Float8, quantized at run time or stored in weights: "mixed".
3. Products (convolution, linear, matmul, recurrent) on weights that a `constexpr_` operator unpacks: "int8 weights",
   "int4 weights", "palettized weights", "sparse weights" or "float16 weights", whatever they are computed in.
4. The dtype of most products: "float16" or "float32"; in a program without products, what most operators do. A
   package of ours that was made in float16 is "float16" if anything in it is: its manifest lists what is float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from onnxport.formats.manifest import Manifest, note_key
from onnxport.formats.mlpackage.program import Operation, Package
from onnxport.formats.mlpackage.reader import read_package
from onnxport.validate.report import Precision

_PRODUCTS = frozenset(
    "conv conv_transpose linear matmul einsum lstm gru rnn scaled_dot_product_attention conv_quantized".split()
)
# These compute nothing. The others tell the precision of a model without products.
_SILENT = frozenset(
    (
        "const cast identity quantize dequantize reshape transpose expand_dims squeeze slice_by_index slice_by_size "
        "concat split stack gather gather_nd gather_along_axis shape tile pad"
    ).split()
)
_FLOATS: Mapping[str, Precision] = {"float16": "float16", "float32": "float32"}
_NARROW = frozenset(("int4", "uint4", "uint1", "uint2", "uint3", "uint6"))


def precision(path: Path, function: str = "") -> Precision:
    """Return the precision of a function of the package at `path`, the default one unless given.

    It is "unknown" for a function without operators.

    Raises:
        InputError: no package, or a damaged one.
    """
    package = read_package(path)
    name = function or package.default
    operations = list(package.functions[name].block.walk()) if name in package.functions else []
    makers = {name: each for each in operations for name, _ in each.outputs}
    if grids := {dtype for each in operations if (dtype := _grid(each, makers))}:
        is_int8 = "float16" not in _computed(operations) and not any(map(_is_float8, grids))
        return "int8" if is_int8 else "mixed"
    products = [each for each in operations if each.type in _PRODUCTS]
    stored: Counter[Precision] = Counter(kind for each in products if (kind := _stored(each, makers)))
    if stored:
        return stored.most_common(1)[0][0]
    kinds = Counter(_computed(products)) or Counter(_computed(operations))
    if kinds["float16"] and _is_half(package, name):
        return "float16"
    if not kinds:
        return "unknown"
    kind, count = kinds.most_common(1)[0]
    return kind if count * 2 > kinds.total() else "mixed"


def islands(path: Path, function: str = "") -> frozenset[str]:
    """Return the ONNX values that a float16 package of ours computes in float32; none for other packages."""
    package = read_package(path)
    note = _note(package, function or package.default)
    return frozenset(note.islands) if note else frozenset()


def computes_in_half(path: Path, function: str = "") -> bool:
    """Return whether a package of ours was made in float16, in whatever its weights are stored."""
    package = read_package(path)
    return _is_half(package, function or package.default)


def _is_half(package: Package, name: str) -> bool:
    """Return whether the package is ours and was made in float16, but for what has to be float32."""
    note = _note(package, name)
    if note is None:
        return False
    options = note.options.get("coreml")
    return bool(note.islands) or (isinstance(options, dict) and options.get("precision") in ("fp16", "mixed"))


def manifest_text(path: Path, function: str = "") -> str | None:
    """Return our manifest of a function in the package at `path`; None in a foreign package."""
    package = read_package(path)
    return _manifest_text(package, function or package.default)


def _manifest_text(package: Package, name: str) -> str | None:
    return package.description.metadata.userDefined.get(note_key(name)) or None


def _note(package: Package, name: str) -> Manifest | None:
    text = _manifest_text(package, name)
    return Manifest.from_json(text) if text else None


def _grid(operation: Operation, makers: Mapping[str, Operation]) -> str:
    """Return the dtype that it de-quantizes after the program itself quantized to it; empty for none."""
    if operation.type != "dequantize":
        return ""
    for name in operation.inputs.get("input", ()):
        if isinstance(name, str) and name in makers and makers[name].type != "const":
            return dict(makers[name].outputs)[name].dtype
    return ""


def _is_float8(dtype: str) -> bool:
    return dtype.startswith("float8")


def _stored(product: Operation, makers: Mapping[str, Operation]) -> Precision | None:
    """Return how its weights are stored, if a constexpr operator unpacks them."""
    names = [name for bound in product.inputs.values() for name in bound if isinstance(name, str)]
    unpacking = [each for name in names if (each := makers.get(name)) and each.type.startswith("constexpr_")]
    return _packed(unpacking[0], makers) if unpacking else None


def _packed(unpacking: Operation, makers: Mapping[str, Operation]) -> Precision:
    if "lut" in unpacking.type:
        return "palettized weights"
    if "sparse" in unpacking.type:
        return "sparse weights"
    if unpacking.type == "constexpr_cast":
        return "float16 weights"
    dtype = _dtype(unpacking, makers)
    if _is_float8(dtype):
        return "mixed"
    return "int4 weights" if dtype in _NARROW else "int8 weights"


def _dtype(unpacking: Operation, makers: Mapping[str, Operation]) -> str:
    """Return the dtype of the numbers that it unpacks; empty before iOS18, when there were bytes only."""
    for bound in unpacking.inputs.get("data", ()):
        return dict(makers[bound].outputs)[bound].dtype if isinstance(bound, str) else bound.dtype
    return ""


def _computed(operations: list[Operation]) -> Iterator[Precision]:
    for operation in operations:
        if operation.type not in _SILENT and not operation.type.startswith("constexpr_"):
            yield from (_FLOATS[type_.dtype] for _, type_ in operation.outputs[:1] if type_.dtype in _FLOATS)

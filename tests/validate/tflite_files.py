"""Small `.tflite` files written in MLIR, so that the runtime's tests need no converter of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnxport.formats.manifest import KEY, Manifest, Port, Tap

# Relu between two additions on a value of any batch and length; every tensor has a location, hence a name.
CHAIN = """
func.func @main(%x: tensor<?x3xf32> loc("x"), %n: tensor<1xi32> loc("n")) -> (tensor<?x3xf32>, tensor<1xi32>) {
  %one = arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %two = arith.constant dense<2> : tensor<1xi32>
  %a = "tfl.exp"(%x) : (tensor<?x3xf32>) -> tensor<?x3xf32> loc("middle")
  %y = "tfl.add"(%a, %one) {fused_activation_function = "NONE"}
    : (tensor<?x3xf32>, tensor<3xf32>) -> tensor<?x3xf32> loc("y")
  %m = "tfl.add"(%n, %two) {fused_activation_function = "NONE"}
    : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32> loc("m")
  func.return %y, %m : tensor<?x3xf32>, tensor<1xi32>
}
"""


def chain_manifest(permutation: tuple[int, ...] = ()) -> Manifest:
    """What says of CHAIN: names with characters that TFLite refuses, int64 held as int32, one tap."""
    return Manifest(
        source="0" * 64,
        made_by={},
        options={},
        validation="skipped",
        inputs=(
            Port("images,1:0", "x", "float32", (None, 3), permutation),
            Port("count", "n", "int64", (1,)),
        ),
        outputs=(
            Port("answers,1:0", "y", "float32", (None, 3), permutation),
            Port("counted", "m", "int64", (1,)),
        ),
        taps={"hidden": Tap("middle", permutation), "gone": Tap("fused away", ())},
    )


def write(
    path: Path, text: str, inputs: Sequence[str], outputs: Sequence[str], manifest: Manifest | None = None
) -> Path:
    """Compiles one function, with a signature where names are given."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir, passmanager

    context = ir.Context()
    api.prepare_mlir_context(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        if inputs:
            api.set_signature(module.operation, "serving_default", list(inputs), list(outputs))
        config = api.ConvertToTFLConfig()
        api.run_convert_to_tfl_passes(module, passmanager.PassManager(), config)
        if manifest is not None:
            note = ir.DictAttr.get({KEY: ir.StringAttr.get(manifest.to_json())})
            module.operation.attributes["tfl.metadata"] = note
        path.write_bytes(api.export_flatbuffer_to_bytes(module.operation))
    return path


def chain(path: Path, manifest: Manifest | None = None) -> Path:
    return write(path, CHAIN, ("x", "n"), ("y", "m"), manifest)


def stateful(path: Path) -> Path:
    """A recurrent layer, whose state LiteRT keeps from one run to the next: h = tanh(x + h)."""
    text = """
    func.func @main(%x: tensor<1x2x1xf32>) -> tensor<1x2x1xf32> {
      %w = arith.constant dense<1.0> : tensor<1x1xf32>
      %b = arith.constant dense<0.0> : tensor<1xf32>
      %h = "tfl.pseudo_const"() {value = dense<0.0> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
      %y = "tfl.unidirectional_sequence_rnn"(%x, %w, %w, %b, %h)
        {fused_activation_function = "TANH", time_major = false}
        : (tensor<1x2x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>, tensor<1xf32>, tensor<1x1xf32>)
        -> tensor<1x2x1xf32>
      func.return %y : tensor<1x2x1xf32>
    }
    """
    return write(path, text, ("x",), ("y",))

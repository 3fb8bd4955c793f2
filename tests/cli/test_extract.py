"""`onnxport extract`: what it makes, what it proves, and that a wrong part never leaves."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from tests.cli.sandbox import Sandbox

# Doubles the weights of the part, as a bug could.
WRONG = """
import onnxport.optimizers.extraction as room
import onnx_ir
right = room.extract
def wrong(model, cut):
    part = right(model, cut)
    for value in part.graph.initializers.values():
        value.const_value = onnx_ir.tensor(value.const_value.numpy() * 2, name=value.name)
    return part
room.extract = wrong
"""


def test_a_part_is_proven_and_computes_the_model_s_values(sandbox: Sandbox) -> None:
    done = sandbox.run("extract", "model.onnx", "--inputs", "relu1", "--outputs", "flat", "-o", "part.onnx")
    assert done.code == 0, done.stderr
    assert done.stdout.startswith("part.onnx   nodes 9 -> 5")
    assert "proven" in done.stdout
    assert "--samples-from DIR" in done.stderr
    model = onnx.load(sandbox.model)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("relu1", "flat"))
    whole = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    image = np.random.default_rng(3).standard_normal((2, 1, 8, 8)).astype(np.float32)
    relu1, flat = whole.run(["relu1", "flat"], {"image": image})
    part = onnxruntime.InferenceSession(sandbox.folder / "part.onnx", providers=["CPUExecutionProvider"])
    assert [each.shape for each in part.get_inputs()] == [["N", 16, 8, 8]]
    np.testing.assert_allclose(part.run(None, {"relu1": relu1})[0], flat, rtol=1e-5, atol=1e-6)


def test_a_wrong_part_does_not_leave(sandbox: Sandbox) -> None:
    sandbox.patch(WRONG)
    done = sandbox.run("extract", "model.onnx", "--inputs", "relu1", "--outputs", "flat", "-o", "part.onnx")
    assert done.code == 1, done.stdout
    assert "not equivalent" in done.stderr
    assert not (sandbox.folder / "part.onnx").exists()


def test_the_proof_feeds_the_user_s_samples_to_the_whole_model(sandbox: Sandbox) -> None:
    (sandbox.folder / "in").mkdir()
    image = np.random.default_rng(5).random((1, 1, 8, 8)).astype(np.float32)
    np.savez(sandbox.folder / "in" / "one.npz", image=image)
    done = sandbox.run(
        "extract", "model.onnx", "--inputs", "pool", "--samples-from", "in", "-o", "part.onnx", "--json"
    )
    assert done.code == 0, done.stderr
    (artifact,) = done.document["artifacts"]
    assert artifact["report"]["verdict"] == "proven"
    assert {each["source"] for each in artifact["report"]["fed"]} >= {"samples"}


def test_what_onnx_runtime_lacks_behind_the_part_does_not_keep_it_from_its_proof(sandbox: Sandbox) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Weigh", ["b"], ["y"], domain="com.acme"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.acme", 1)]
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=opsets), sandbox.folder / "custom.onnx")
    done = sandbox.run("extract", "custom.onnx", "--inputs", "a", "--outputs", "b", "-o", "part.onnx")
    assert done.code == 0, done.stderr
    assert "proven" in done.stdout


def test_what_onnx_runtime_lacks_in_front_leaves_a_second_cut_to_compare_with(sandbox: Sandbox) -> None:
    nodes = [
        helper.make_node("Read", ["x"], ["a"], domain="com.acme"),
        helper.make_node("Add", ["a", "w"], ["b"]),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    x, a, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xay")
    weight = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight], value_info=[a])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.acme", 1)]
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=opsets), sandbox.folder / "custom.onnx")
    done = sandbox.run("extract", "custom.onnx", "--inputs", "a", "-o", "part.onnx")
    assert done.code == 0, done.stderr
    assert "ONNX Runtime lacks com.acme, so the part was compared" in done.stderr
    sandbox.patch(WRONG)
    done = sandbox.run("extract", "custom.onnx", "--inputs", "a", "-o", "wrong.onnx")
    assert done.code == 1, done.stdout
    assert not (sandbox.folder / "wrong.onnx").exists()


def test_errors_name_the_option_of_this_command(sandbox: Sandbox) -> None:
    zero = onnx.numpy_helper.from_array(np.zeros(4, np.float32), "zero")
    beyond = onnx.numpy_helper.from_array(np.array([7]), "beyond")
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "zero"], ["still"]),
        helper.make_node("Shape", ["a"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "beyond"], ["none"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    for name, still in (("still", True), ("none", False)):
        kept = nodes[:2] if still else [nodes[0], *nodes[2:]]
        last = helper.make_node("Exp", ["still"], ["y"])
        if not still:
            last = helper.make_node("Expand", ["a", "none"], ["y"])
        graph = helper.make_graph([*kept, last], "g", [x], [y], [zero] if still else [beyond])
        onnx.save(
            helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]),
            sandbox.folder / f"{name}.onnx",
        )
    for name in ("still", "none"):
        done = sandbox.run("extract", f"{name}.onnx", "--inputs", "a", "-o", "part.onnx")
        assert done.code, done.stdout
        assert "--samples-from DIR" in done.stderr, name
        assert "--inputs DIR" not in done.stderr, name


def test_names_and_cuts_are_explained(sandbox: Sandbox) -> None:
    done = sandbox.run("extract", "model.onnx", "--outputs", "flt")
    assert done.code == 2
    assert "--outputs: the model has no value 'flt'; did you mean 'flat'?" in done.stderr
    done = sandbox.run("extract", "model.onnx", "--outputs", "before-the-end")
    assert done.code == 2
    assert "the model has no value 'before-the-end'; its last values are 'flat', 'pool'" in done.stderr
    done = sandbox.run("extract", "model.onnx")
    assert done.code == 2
    assert "give --inputs, --outputs or both" in done.stderr
    assert not (sandbox.folder / "model_part.onnx").exists()

"""Frameworks' models made to run code or to open files: nothing of it happens without --trust.

Each test of a kind of file shows both: the refusal, and that the same file does it once it is trusted.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.exporters.framework import Framework
from onnxport.exporters.params import ExportParams
from onnxport.exporters.process import Host
from onnxport.exporters.sources import LOADERS, Source, is_archive
from tests.cli.sandbox import ROOT
from tests.hostile.attacking import Target
from tests.hostile.test_sample_attacks import Evil


def load(path: Path, **options: Any) -> Framework:
    """Load as the child process of an export does."""
    import importlib

    source = Source.of(path)
    module, _, function = LOADERS[source.kind].partition(":")
    framework: Framework = getattr(importlib.import_module(module), function)(source, ExportParams(**options))
    return framework


@pytest.mark.parametrize("suffix", [".pkl", ".joblib"])
def test_a_pickle_runs_nothing_without_trust(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"a{suffix}"
    file.write_bytes(pickle.dumps(Evil(tmp_path)))
    with pytest.raises(InputError, match=r"reading it can run any code.*--trust"):
        load(file)
    assert not (tmp_path / "pwned").exists()
    with pytest.raises(UsageError):
        load(file, trust=True)
    assert (tmp_path / "pwned").exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".pt2"])
def test_a_pickle_of_torch_runs_nothing(suffix: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = tmp_path / f"a{suffix}"
    torch.save({"a": Evil(tmp_path)}, file)
    with pytest.raises(OnnxportError):
        load(file)
    with pytest.raises(OnnxportError):
        load(file, trust=suffix != ".pt2")  # a pickled module is not loaded at all
    assert not (tmp_path / "pwned").exists()


def test_weights_run_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from onnxport.exporters.pytorch.weights import read_tensors

    file = tmp_path / "a.pt"
    torch.save({"a": Evil(tmp_path)}, file)
    with pytest.raises(InputError, match="may run any code"):
        read_tensors(file)
    assert not (tmp_path / "pwned").exists()


def test_a_script_that_opens_files_needs_trust(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    code = f"""
    def forward(self, x):
        return x + torch.from_file({str(secret)!r}, False, 4)
    """
    module = torch.jit.ScriptModule()
    module.define(code)
    file = tmp_path / "a.pt"
    module.save(str(file))
    with pytest.raises(InputError, match=r"opens files of this machine.*--trust"):
        load(file, exporter="torchscript", input={"x": "4"})
    assert load(file, exporter="torchscript", input={"x": "4"}, trust=True).inputs


def test_a_script_that_writes_by_another_name_needs_trust(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    valid, file = tmp_path / "valid.pt", tmp_path / "a.pt"
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), valid)
    written = f"    f = torch\n    f.save(input, {str(tmp_path / 'pwned')!r})\n".replace("'", '"').encode()
    with zipfile.ZipFile(valid) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("activation.py"):
                content = content.replace(b"-> Tensor:\n", b"-> Tensor:\n" + written)
                assert written in content
            new.writestr(name, content)
    torch.jit.load(file)(torch.ones(2))
    assert (tmp_path / "pwned").exists()
    with pytest.raises(InputError, match=r"opens files of this machine.*--trust"):
        load(file, exporter="torchscript", input={"x": "4"})


def test_a_script_of_numbered_modules_needs_no_trust(tmp_path: Path) -> None:
    """TorchScript writes `getattr(self, "0")` for the first module of a Sequential."""
    torch = pytest.importorskip("torch")
    net = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()))
    file = tmp_path / "a.pt"
    torch.jit.save(net, file)
    assert load(file, exporter="torchscript", input={"x": "1,4"}).inputs


@pytest.mark.parametrize(
    "spelt",
    [
        "getattr(torch, 'save')",
        'getattr(torch, "\\x66rom_file")',
        "torch.from_file",
        "torch. from_file",
        "torch.\\\n    save",
        "(torch. # a\n save)",
        "ops.aten.save",
    ],
)
def test_a_script_that_opens_files_is_found_however_it_is_spelt(spelt: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from onnxport.exporters.pytorch.loader import load as load_script

    file = tmp_path / "a.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/constants.pkl", b"")
        archive.writestr("a/code/__torch__/net.py", f"def forward(x):\n  return {spelt}('a', True, 4)\n")
    with pytest.raises(InputError, match="opens files of this machine"):
        load_script(Source.of(file), ExportParams(exporter="torchscript"))


def test_an_exported_program_that_opens_files_needs_trust(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 3)
    file = tmp_path / "a.pt2"
    torch.export.save(torch.export.export(net, (torch.ones(1, 4),)), file)
    assert load(file).inputs
    changed = tmp_path / "b.pt2"
    for spelt in (b"aten.from_file.default", b"aten.\\u0066rom_file.default", b"aten.save.default"):
        with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(b"aten.linear.default", spelt))
        with pytest.raises(InputError, match=r"opens files of this machine.*--trust"):
            load(changed)


def test_a_keras_file_that_names_a_vocabulary_needs_trust(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    secret = tmp_path / "secret.txt"
    secret.write_text("the\nsecret\n")
    model = keras.Sequential(
        [keras.layers.Input((1,), dtype="string"), keras.layers.StringLookup(vocabulary=["a"])]
    )
    file = tmp_path / "a.keras"
    model.save(file)
    changed = tmp_path / "b.keras"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                config = json.loads(content)
                for layer in config["config"]["layers"]:
                    if "vocabulary" in layer["config"]:
                        layer["config"]["vocabulary"] = str(secret)
                content = json.dumps(config).encode()
            new.writestr(name, content)
    with pytest.raises(InputError, match=r"reads the file .*secret\.txt.*--trust"):
        load(changed)


@pytest.mark.parametrize("writes", [False, True])
def test_a_saved_model_that_opens_files_needs_trust(writes: bool, tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x: Any) -> Any:
            if writes:
                tf.io.write_file(str(tmp_path / "pwned"), "x")
                return {"y": x}
            return {"y": x + tf.cast(tf.strings.length(tf.io.read_file(str(secret))), tf.float32)}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "saved"), {"serving_default": net.__call__})
    (tmp_path / "pwned").unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"opens files of this machine.*(Read|Write)File.*--trust"):
        load(tmp_path / "saved")
    assert not (tmp_path / "pwned").exists()
    assert load(tmp_path / "saved", trust=True).inputs
    as_text(tmp_path / "saved")
    (tmp_path / "pwned").unlink(missing_ok=True)
    with pytest.raises(InputError, match="opens files of this machine"):
        load(tmp_path / "saved")
    assert not (tmp_path / "pwned").exists()


def as_text(folder: Path) -> None:
    """Write a SavedModel in its other form."""
    from google.protobuf import text_format
    from tensorflow.core.protobuf import saved_model_pb2

    file = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    file.with_suffix(".pbtxt").write_text(text_format.MessageToString(model))
    file.unlink()


def test_a_saved_model_whose_signature_restores_needs_trust(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x: Any) -> Any:
            (found,) = tf.raw_ops.RestoreV2(
                prefix=str(tmp_path / "other"), tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]
            )
            return {"y": x + tf.reduce_sum(found)}

    net = Net()
    net.weight = tf.Variable([1.0])  # so that the file has RestoreV2 of its own, too
    tf.saved_model.save(net, str(tmp_path / "saved"), {"serving_default": net.__call__})
    with pytest.raises(InputError, match=r"opens files of this machine.*RestoreV2"):
        load(tmp_path / "saved")


def test_a_saved_model_that_writes_when_it_is_loaded_needs_trust(tmp_path: Path) -> None:
    """TensorFlow 1's files name an operator that loading runs."""
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], "x")
        y = tf.identity(x * 2.0, "y")
        written = tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "pwned"), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.ones(1)]
        )
        builder = v1.saved_model.Builder(str(tmp_path / "saved"))
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=written
        )
        builder.save()
    tf.saved_model.load(str(tmp_path / "saved"))
    assert (tmp_path / "pwned.index").exists()
    with pytest.raises(InputError, match=r"opens files of this machine.*SaveV2"):
        load(tmp_path / "saved")


def test_a_saved_model_that_writes_when_it_is_restored_needs_trust(tmp_path: Path) -> None:
    """In TensorFlow 1's files, too, whose restoring is a node of the graph."""
    tf = pytest.importorskip("tensorflow")
    from tensorflow.core.protobuf import saved_model_pb2

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 1], "x")
        y = tf.identity(x * v1.get_variable("weight", initializer=[2.0], use_resource=True), "y")
        written = tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "pwned"), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.ones(1)]
        )
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(tmp_path / "saved"))
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    assert load(tmp_path / "saved").inputs
    file = tmp_path / "saved" / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    meta = model.meta_graphs[0]
    next(node for node in meta.graph_def.node if node.name == meta.saver_def.restore_op_name).input.append(
        f"^{written.name}"
    )
    file.write_bytes(model.SerializeToString())
    tf.saved_model.load(str(tmp_path / "saved"))
    assert (tmp_path / "pwned.index").exists()
    with pytest.raises(InputError, match=r"opens files of this machine.*SaveV2"):
        load(tmp_path / "saved")


def test_a_saved_model_with_a_checkpoint_needs_no_trust(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")

    class Net(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable([1.0, 2.0])

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
        def __call__(self, x: Any) -> Any:
            return {"y": x * self.weight}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "saved"), {"serving_default": net.__call__})
    assert load(tmp_path / "saved").inputs


def test_a_frozen_graph_that_opens_files_needs_trust(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        tf.add(x, tf.cast(tf.strings.length(tf.io.read_file("/etc/hostname")), tf.float32), "y")
    file = tmp_path / "a.pb"
    file.write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(InputError, match=r"opens files of this machine.*ReadFile.*--trust"):
        load(file)
    assert load(file, trust=True).inputs


def test_a_frozen_graph_that_reads_a_checkpoint_needs_trust(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        (found,) = tf.raw_ops.RestoreV2(
            prefix=str(tmp_path / "other"), tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]
        )
        tf.add(x, found, "y")
    file = tmp_path / "a.pb"
    file.write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(InputError, match=r"opens files of this machine.*RestoreV2.*--trust"):
        load(file)


def test_a_damaged_archive_of_tensors_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from onnxport.exporters.pytorch.weights import read_tensors

    file = tmp_path / "a.pt"
    torch.save({"a": torch.ones(4)}, file)
    valid = file.read_bytes()
    for old, new in ((b"PK\x01\x02", b"PK\x01\x03"), (b"data.pkl", b"data.\x80\x80\x80")):
        assert old in valid
        file.write_bytes(valid.replace(old, new))
        with pytest.raises(InputError, match="cannot be read as a state dict"):
            read_tensors(file)


@pytest.mark.parametrize(
    "pickled", [b"\x80\x02X\x01", b"\x80\x02", b"", b"\x80\x02]h\x00.", b"\x80\x02J\x01."]
)
def test_a_state_dict_of_a_damaged_pickle_is_refused(pickled: bytes, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from onnxport.exporters.pytorch.weights import read_tensors

    valid, file = tmp_path / "valid.pt", tmp_path / "a.pt"
    torch.save({"a": torch.ones(4)}, valid)
    with zipfile.ZipFile(valid) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, pickled if name.endswith("data.pkl") else old.read(name))
    with pytest.raises(InputError, match=r"a\.pt (is not|cannot be read as) a state dict"):
        read_tensors(file)


def test_an_archive_without_an_end_is_no_state_dict(tmp_path: Path) -> None:
    """Above 4 kB torch seeks its end before the file's begin, which the system refuses."""
    torch = pytest.importorskip("torch")
    from onnxport.exporters.pytorch.weights import read_tensors

    file = tmp_path / "a.pt"
    torch.save({"a": torch.ones(2000)}, file)
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(InputError, match="cannot be read as a state dict"):
        read_tensors(file)


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [("functional.py", b"torch.relu", b"torch.\xff\xfe"), ("data.pkl", b"training", b"grooming")],
)
def test_a_damaged_script_is_refused(part: str, old: bytes, new: bytes, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    valid, file = tmp_path / "valid.pt", tmp_path / "a.pt"
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), valid)
    changed = 0
    with zipfile.ZipFile(valid) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            is_chosen = name.endswith(part) and old in content
            changed += is_chosen
            target.writestr(name, content.replace(old, new) if is_chosen else content)
    assert changed
    with pytest.raises(InputError, match="cannot be read as TorchScript"):
        load(file, exporter="torchscript", input={"x": "4"})


def test_an_archive_on_several_disks_is_none(tmp_path: Path) -> None:
    """Of zip64's locator before the end of an archive, zipfile reads the number of disks, and raises."""
    file = tmp_path / "a.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"")
    valid = file.read_bytes()
    locator = b"PK\x06\x07" + bytes(12) + b"\2\0\0\0"
    assert is_archive(file)
    file.write_bytes(valid.replace(b"PK\x05\x06", locator + b"PK\x05\x06"))
    assert not is_archive(file)


def test_a_damaged_keras_file_is_refused(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    file, changed = tmp_path / "a.keras", tmp_path / "b.keras"
    model.save(file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
        new.writestr("config.json", old.read("config.json"))  # neither metadata nor weights
    with pytest.raises(InputError, match=r"b\.keras"):
        load(changed)
    content = bytearray(file.read_bytes())
    content[content.index(b"\x89HDF") + 40] ^= 255  # which the checksum of the archive tells
    changed.write_bytes(content)
    with pytest.raises(InputError, match=r"b\.keras"):
        load(changed)


def test_a_damaged_skops_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("skops")
    from tests.hostile.subjects import ROOT

    changed = tmp_path / "b.skops"
    with (
        zipfile.ZipFile(ROOT / "fixtures" / "digits" / "linear.skops") as old,
        zipfile.ZipFile(changed, "w") as new,
    ):
        for name in old.namelist():  # a header of NumPy that is no Python
            new.writestr(name, old.read(name).replace(b"'shape': (", b"'shape':(("))
    with pytest.raises(InputError, match=r"b\.skops cannot be read as a skops file"):
        load(changed)


def test_a_booster_whose_names_are_no_text_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    from tests.hostile.subjects import _boosters

    _boosters(tmp_path)
    file = tmp_path / "l.txt"
    file.write_bytes(file.read_bytes().replace(b"Column_0", b"Column\xff0", 1))
    with pytest.raises(InputError, match=r"l\.txt is not a LightGBM model"):
        load(file)


def test_a_booster_that_dumps_no_json_is_refused(tmp_path: Path) -> None:
    """LightGBM writes a setting as it is read, here without its end, and cannot read its own dump."""
    pytest.importorskip("lightgbm")
    from tests.hostile.subjects import _boosters

    _boosters(tmp_path)
    file = tmp_path / "l.txt"
    assert b"[sigmoid: 1]" in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(b"[sigmoid: 1]", b"[sigmoid: -1"))
    with pytest.raises(InputError, match=r"l\.txt is not a LightGBM model"):
        load(file)


@pytest.mark.parametrize("has_list", [True, False])
def test_a_saved_model_without_functions_for_signatures_is_refused(has_list: bool, tmp_path: Path) -> None:
    """The name "signatures" leads to a list of another part of the object graph, or is missing."""
    pytest.importorskip("tensorflow")
    from tensorflow.core.protobuf import saved_model_pb2

    from tests.hostile.subjects import _saved_model

    _saved_model(tmp_path)
    file = tmp_path / "saved" / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    nodes = saved.meta_graphs[0].object_graph_def.nodes
    (known,) = (each for each in nodes[0].children if each.local_name == "signatures")
    if has_list:
        of_lists = [number for number, node in enumerate(nodes) if "trackable_list" in str(node.user_object)]
        known.node_id = of_lists[0]
    else:
        known.local_name = "others"
    file.write_bytes(saved.SerializeToString())
    with pytest.raises(InputError, match="TensorFlow cannot load the SavedModel"):
        load(tmp_path / "saved")


@pytest.mark.parametrize("size", [None, -(2**32) - 1])
def test_a_saved_model_whose_input_is_no_tensor_is_refused(size: int | None, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    from tensorflow.core.protobuf import saved_model_pb2

    from tests.hostile.subjects import _saved_model

    _saved_model(tmp_path)
    file = tmp_path / "saved" / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for function in saved.meta_graphs[0].object_graph_def.concrete_functions.values():
        _, named = function.canonicalized_input_signature.tuple_value.values
        for value in named.dict_value.fields.values():
            if size is None:
                value.none_value.SetInParent()
            else:
                value.tensor_spec_value.shape.dim[1].size = size
    file.write_bytes(saved.SerializeToString())
    with pytest.raises(InputError):
        load(tmp_path / "saved")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (rb'"split_indices":\[\d', b'"split_indices":[9', "is damaged"),
        (rb"classifier", b"class\x8afier", "is not an XGBoost model"),
    ],
)
def test_a_booster_that_xgboost_loads_and_cannot_tell_is_refused(
    old: bytes, new: bytes, says: str, tmp_path: Path
) -> None:
    """A column beyond the table, and an attribute that is no UTF-8."""
    pytest.importorskip("lightgbm")
    from tests.hostile.subjects import _boosters

    _boosters(tmp_path)
    file = tmp_path / "x.json"
    changed, number = re.subn(old, lambda _: new, file.read_bytes(), count=1)
    assert number == 1
    file.write_bytes(changed)
    with pytest.raises(InputError, match=rf"x\.json {says}"):
        load(file)


def test_the_child_process_tells_what_trust_does(tmp_path: Path) -> None:
    """Host is what an export's child runs: the refusal crosses the border as the user's error."""
    file = tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps(Evil(tmp_path)))
    with pytest.raises(InputError, match="--trust"):
        Host().open(Source.of(file), ExportParams())


@pytest.mark.exhaustive
def test_a_length_that_fills_the_memory_is_stopped(target: Target) -> None:
    """XGBoost allocates what the file says."""
    xgboost = pytest.importorskip("xgboost")
    features = np.random.default_rng(0).normal(size=(60, 4))
    trees = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(features, features[:, 0] > 0)
    file = target.folder / "bad.ubj"
    trees.save_model(file)
    content = file.read_bytes()
    at = content.index(b"[$d#L") + 5
    file.write_bytes(content[:at] + (2**31).to_bytes(8, "big") + content[at + 8 :])
    run = target.running.run(target.folder, "export", "bad.ubj", "-o", "out.onnx", timeout=60)
    assert run.code == 6, run.stderr
    assert "took too much memory: it held 2" in run.stderr
    assert "--limit child-memory=" in run.stderr


def test_a_damaged_catboost_file_is_refused(tmp_path: Path) -> None:
    """Texts in it that are no UTF-8, and settings that are null."""
    catboost = pytest.importorskip("catboost")
    features = np.random.default_rng(0).normal(size=(60, 4))
    model = catboost.CatBoostClassifier(iterations=3, depth=2, verbose=False, allow_writing_files=False)
    model.fit(features, features[:, 0] > 0).save_model(str(tmp_path / "a.cbm"))
    content = (tmp_path / "a.cbm").read_bytes()
    refused = 0
    for text in re.finditer(rb"[ -~]{6,}", content):
        places = [text.start() + 2 + offset for offset in range(0, len(text[0]) - 4, 31)]
        damaged = [content[:at] + b"\xff" + content[at + 1 :] for at in places]
        empty = re.sub(rb"\{[^{}]*\}", lambda found: b"null".ljust(len(found[0])), text[0])
        for each in (*damaged, content[: text.start()] + empty + content[text.end() :]):
            (tmp_path / "a.cbm").write_bytes(each)
            try:
                load(tmp_path / "a.cbm")
            except OnnxportError:
                refused += 1
    assert refused > 5


def test_a_confined_framework_does_not_talk_of_its_confinement(target: Target) -> None:
    """Joblib tells that it can make no semaphores."""
    shutil.copy(ROOT / "fixtures" / "digits" / "linear.skops", target.folder)
    run = target.run("export", "linear.skops", "-o", "out.onnx", "--no-validate")
    assert not run.code, run.stderr
    assert "joblib" not in run.stderr


# Operators of TensorFlow with an argument that is called like a file, and none: names of counters, tables that are
# filled from text (docs/internals/security.md), URLs of debuggers, which are looked at one by one.
_NO_FILE = re.compile(
    r"(Experimental)?SetStatsAggregatorDataset|InitializeTableFromTextFile|Debug(Identity|N)"
)


def test_every_operator_of_tensorflow_that_names_a_file_needs_trust() -> None:
    tf = pytest.importorskip("tensorflow")
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session as session

    from onnxport.exporters.tensorflow.file_access import check_file_access

    listed = op_def_pb2.OpList.FromString(bytes(session.TF_GetBuffer(session.TF_GetAllOpList())))
    named = re.compile(r"file|path|dir$|directory|prefix|urls|address")
    missing = []
    for op in listed.op:
        texts = [each.name for each in op.input_arg if each.type == tf.string.as_datatype_enum]
        texts += [each.name for each in op.attr if each.type in ("string", "list(string)")]
        graph = tf.compat.v1.GraphDef()
        graph.node.add(name="a", op=op.name)
        if not any(map(named.search, texts)) or _NO_FILE.match(op.name):
            continue
        try:
            check_file_access(Path("a"), graph, trust=False, roots=["a"])
        except InputError:
            continue
        missing.append(op.name)
    assert len(listed.op) > 1000
    assert missing == []

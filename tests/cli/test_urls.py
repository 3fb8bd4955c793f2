"""Models, samples and outputs by URL: in commands, in pipelines and their locks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.cli.sandbox import DIGITS, Sandbox
from tests.servers import Web, s3_server, web_server

pytest.importorskip("aiohttp")

TOKEN = "t0ken-of-the-test"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "site").mkdir()
    with web_server(tmp_path / "site") as found:
        found.token = TOKEN
        (found.folder / "digits.onnx").write_bytes(DIGITS.read_bytes())
        yield found


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    with s3_server() as environment:
        yield environment


def _stored(s3: dict[str, str]) -> dict[str, bytes]:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=s3["AWS_ENDPOINT_URL"],
        aws_access_key_id=s3["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=s3["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    names = [each["Key"] for each in client.list_objects_v2(Bucket="bucket").get("Contents", [])]
    return {name: client.get_object(Bucket="bucket", Key=name)["Body"].read() for name in names}


def _model(web: Web) -> str:
    return web.url(f"digits.onnx?token={TOKEN}", user="me:passw0rd@")


def _shown(web: Web) -> str:
    return web.url("digits.onnx")


def _has_secret(text: str) -> bool:
    return any(secret in text for secret in (TOKEN, "passw0rd", "s3cret"))


def test_convert_takes_a_model_of_one_url_to_another(sandbox: Sandbox, web: Web) -> None:
    out = f"http://me:passw0rd@127.0.0.1:{web.port}/made/out.ort?token={TOKEN}"
    shown = web.url("made/out.ort")
    ended = sandbox.run(
        *("convert", _model(web), "--to", "ort", "-o", out, "--json", "--attest"),
        *("--report", web.url("run.html"), "--report", "run.json", "--report", "run.md"),
    )
    assert ended.code == 0, ended.stderr
    found = ended.document
    assert (found["source"]["path"], found["artifacts"][0]["path"]) == (_shown(web), shown)
    plain = sandbox.run("convert", "model.onnx", "--to", "ort", "-o", "plain.ort", "-q")
    assert plain.code == 0
    assert (web.folder / "made/out.ort").read_bytes() == (sandbox.folder / "plain.ort").read_bytes()
    files = [sandbox.folder / "run.json", sandbox.folder / "run.md", web.folder / "run.html"]
    texts = [ended.stdout, ended.stderr, *(file.read_text() for file in files)]
    texts.append((web.folder / "made/out.ort.intoto.json").read_text())
    assert not any(map(_has_secret, texts))
    assert [text for text in texts if "onnxport-scratch" in text] == []
    assert not list(sandbox.temporary.iterdir())


def test_convert_writes_to_s3(sandbox: Sandbox, s3: dict[str, str]) -> None:
    sandbox.environment |= s3
    ended = sandbox.run("convert", "model.onnx", "--to", "ort", "-o", "s3://bucket/out.ort")
    assert ended.code == 0, ended.stderr
    assert ended.stdout.startswith("s3://bucket/out.ort ")
    assert {"out.ort", "out.required_operators.config"} <= set(_stored(s3))


def test_the_default_output_is_in_the_current_folder(sandbox: Sandbox, web: Web) -> None:
    ended = sandbox.run("convert", _model(web), "--to", "ort")
    assert ended.code == 0, ended.stderr
    assert (sandbox.folder / "digits.ort").is_file()


def test_calibration_samples_come_by_url(sandbox: Sandbox, web: Web, s3: dict[str, str]) -> None:
    import boto3

    sandbox.environment |= s3
    client = boto3.client(
        "s3",
        endpoint_url=s3["AWS_ENDPOINT_URL"],
        aws_access_key_id="someone",
        aws_secret_access_key="s3cret-of-the-test",
        region_name="us-east-1",
    )
    images = np.load(DIGITS.with_name("test.npz"))["image"]
    (sandbox.folder / "calib").mkdir()
    for number in range(12):
        file = sandbox.folder / "calib" / f"{number}.npz"
        np.savez(file, image=images[number : number + 1])
        client.upload_file(str(file), "bucket", f"calib/{number}.npz")
    said = {}
    for place in ("calib", "s3://bucket/calib/"):
        ended = sandbox.run(
            "quantize", "model.onnx", "--int8", "--calib", place, "-o", "q.onnx", "--no-latency"
        )
        said[place] = ended.code, (sandbox.folder / "q.onnx").read_bytes(), ended.stderr
    assert said["calib"][:2] == said["s3://bucket/calib/"][:2], said["s3://bucket/calib/"][2]


def _pipeline(sandbox: Sandbox, web: Web, name: str, **target: str) -> None:
    said = {
        "version": 1,
        "models": {"digits": _model(web)},
        "targets": {"app": {"to": "ort", "output": web.url(f"{name}/{{model}}.ort"), **target}},
    }
    (sandbox.folder / "pipeline.yaml").write_text(yaml.safe_dump(said))


def test_a_pipeline_pins_what_its_urls_hold(sandbox: Sandbox, web: Web) -> None:
    _pipeline(sandbox, web, "pinned")
    first = sandbox.run("run", "pipeline.yaml", "--report", "reports")
    assert first.code == 0, first.stderr
    lock = (sandbox.folder / "pipeline.lock").read_text()
    assert _shown(web) in lock
    assert web.url("pinned/digits.ort") in lock
    written = [path.read_text() for path in (sandbox.folder / "reports").iterdir()]
    cached = [path.read_text() for path in (sandbox.folder / ".onnxport").rglob("*.json")]
    assert written
    assert not any(
        _has_secret(text) or "onnxport-scratch" in text for text in (lock, first.stdout, *written, *cached)
    )
    made = (web.folder / "pinned/digits.ort").read_bytes()

    assert sandbox.run("run", "pipeline.yaml", "--frozen").code == 0
    assert sandbox.run("run", "pipeline.yaml").code == 0

    other = sandbox.folder / "other.onnx"
    assert sandbox.run("optimize", "model.onnx", "-o", "other.onnx").code == 0
    (web.folder / "digits.onnx").write_bytes(other.read_bytes())
    for further in ((), ("--frozen",)):
        refused = sandbox.run("run", "pipeline.yaml", *further)
        assert refused.code == 2
        digests = re.search(
            r"digits\.onnx: the model has changed, ([0-9a-f]{12}) -> ([0-9a-f]{12})", refused.stderr
        )
        assert digests is not None, refused.stderr
        assert digests[1] in lock
        assert digests[2] not in lock
    assert (sandbox.folder / "pipeline.lock").read_text() == lock
    assert (web.folder / "pinned/digits.ort").read_bytes() == made

    assert sandbox.run("run", "pipeline.yaml", "--update-sources").code == 0
    assert digests[2] in (sandbox.folder / "pipeline.lock").read_text()
    assert sandbox.run("run", "pipeline.yaml", "--frozen").code == 0


def test_what_exceeds_a_limit_is_not_uploaded(sandbox: Sandbox, web: Web) -> None:
    _pipeline(sandbox, web, "large", max_size="1KB")
    assert sandbox.run("run", "pipeline.yaml").code == 1
    assert not (web.folder / "large").exists()


def test_an_output_that_cannot_be_uploaded_is_an_error(sandbox: Sandbox, web: Web) -> None:
    ended = sandbox.run("convert", "model.onnx", "--to", "ort", "-o", web.url("nowhere/out.ort"), "--json")
    assert ended.code == 2
    said = ended.document["error"]["message"]
    assert re.match(r"http://\S+/nowhere/out\.\S+ cannot be written: there is no such place", said)
    assert not list(sandbox.folder.glob("*.ort"))


def test_init_names_the_url(sandbox: Sandbox, web: Web) -> None:
    web.token = ""
    assert sandbox.run("init", _shown(web), "--ci", "none").code == 0
    said = yaml.safe_load((sandbox.folder / "pipeline.yaml").read_text())
    assert _shown(web) in json.dumps(said)
    assert "onnxport-scratch" not in json.dumps(said)


def test_processes_know_the_copies(sandbox: Sandbox, web: Web) -> None:
    _pipeline(sandbox, web, "jobs")
    ended = sandbox.run("run", "pipeline.yaml", "--jobs", "2", "--json")
    assert ended.code == 0, ended.stderr
    assert ended.document["nodes"][0]["run"]["source"]["path"] == _shown(web)
    assert "onnxport-scratch" not in json.dumps(ended.document)


@pytest.mark.parametrize(
    "words", [("plan", "https://host/pipeline.yaml"), ("samples", "model.onnx", "-o", "s3://b/x")]
)
def test_what_takes_no_url_says_so(sandbox: Sandbox, words: tuple[str, ...]) -> None:
    ended = sandbox.run(*words)
    assert ended.code == 2
    assert "a URL is not possible here" in ended.stderr

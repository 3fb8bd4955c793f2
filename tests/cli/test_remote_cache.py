"""`onnxport run --remote-cache`: products of other machines, which a broken server never turns into a failed run."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.sandbox import DIGITS, Outcome, Sandbox
from tests.servers import Web, s3_server, web_server

PIPELINE = """
version: 1
models:
  digits: digits.onnx
targets:
  server: {to: ort}
"""


class Project:
    """A pipeline, whose own cache can be forgotten as on another machine."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox, self.folder = sandbox, sandbox.folder
        (self.folder / "pipeline.yaml").write_text(PIPELINE, encoding="utf-8")
        (self.folder / "digits.onnx").write_bytes(DIGITS.read_bytes())
        sandbox.environment["ONNXPORT_CACHE"] = str(self.folder / "own")

    def run(self, url: str, *options: str) -> Outcome:
        return self.sandbox.run("run", "pipeline.yaml", "--remote-cache", url, "--json", *options)

    def forget(self) -> None:
        shutil.rmtree(self.folder / "own")

    def delivered(self) -> bytes:
        (file,) = (self.folder / "build").glob("**/*.ort")
        return file.read_bytes()


def statuses(outcome: Outcome) -> set[str]:
    return {node["status"] for node in outcome.document["nodes"]}


def notes(outcome: Outcome) -> str:
    return "\n".join(outcome.document["notes"])


@pytest.fixture
def project(sandbox: Sandbox) -> Project:
    return Project(sandbox)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    folder = tmp_path / "web"
    folder.mkdir()
    with web_server(folder) as server:
        yield server


def test_a_product_comes_from_another_machine(project: Project, web: Web) -> None:
    outcome = project.run(web.url("cache"))
    assert outcome.code == 0, outcome.stderr
    assert statuses(outcome) == {"made"}
    first = project.delivered()
    (archive,) = web.folder.glob("cache/*/*.zip")
    project.forget()
    outcome = project.run(web.url("cache"))
    assert (outcome.code, statuses(outcome)) == (0, {"cached"})
    assert project.delivered() == first
    asked = len(web.asked)
    assert statuses(project.run(web.url("cache"))) == {"cached"}  # now from its own
    assert len(web.asked) == asked
    project.forget()
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    outcome = project.run(web.url("cache"))
    assert (outcome.code, statuses(outcome)) == (0, {"made"})
    assert "has a damaged entry" in notes(outcome)
    assert project.delivered() == first
    project.forget()
    assert statuses(project.run(web.url("cache"))) == {"cached"}  # the damaged one was replaced


def test_read_only_writes_nothing(project: Project, web: Web) -> None:
    outcome = project.run(web.url("cache"), "--remote-cache-read-only")
    assert (outcome.code, statuses(outcome)) == (0, {"made"})
    assert not [line for line in web.asked if line.startswith("PUT")]
    outcome = project.sandbox.run("run", "pipeline.yaml", "--remote-cache-read-only")
    assert outcome.code == 2
    outcome = project.run("ftp://host/cache")
    assert outcome.code == 2
    assert "ftp is not known" in outcome.stderr


def test_a_server_that_refuses_or_is_gone_fails_no_run(project: Project, web: Web) -> None:
    web.token = "secret"
    outcome = project.run(web.url("cache"))
    assert (outcome.code, statuses(outcome)) == (0, {"made"})
    assert "the remote cache is not used any more" in notes(outcome)
    assert "refuses access" in notes(outcome)
    project.forget()
    outcome = project.run("http://127.0.0.1:1/cache")
    assert (outcome.code, statuses(outcome)) == (0, {"made"})
    assert "the connection failed" in notes(outcome)
    project.forget()
    outcome = project.run(web.url("nowhere") + "?token=secret")  # answers 404 to what is written
    assert (outcome.code, statuses(outcome)) == (0, {"made"})
    assert "gets no products any more" in notes(outcome)
    assert "secret" not in notes(outcome)


def test_a_silent_server_fails_no_run(project: Project) -> None:
    """It takes the connection and never answers."""
    project.sandbox.patch("from onnxport.pipelines.cache import shared_cache\nshared_cache.SILENCE = 1.0\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []
        Thread(target=lambda: held.append(server.accept()[0]), daemon=True).start()
        outcome = project.run(f"http://127.0.0.1:{server.getsockname()[1]}/cache")
    assert (outcome.code, statuses(outcome)) == (0, {"made"})
    assert "was silent for 1 s" in notes(outcome)


def test_an_entry_of_another_product_is_not_taken(project: Project, web: Web) -> None:
    """A whole and intact entry under the key of another."""
    assert project.run(web.url("cache")).code == 0
    (archive,) = web.folder.glob("cache/*/*.zip")
    project.forget()
    text = PIPELINE.replace("to: ort", "to: ort, level: basic")
    (project.folder / "pipeline.yaml").write_text(text, encoding="utf-8")
    outcome = project.run(web.url("cache"), "--remote-cache-read-only")
    assert outcome.code == 0, outcome.stderr
    key = outcome.document["nodes"][-1]["key"]
    project.forget()
    forged = web.folder / "cache" / key[:2] / f"{key}.zip"
    forged.parent.mkdir(exist_ok=True)
    forged.write_bytes(archive.read_bytes())
    outcome = project.run(web.url("cache"), "--remote-cache-read-only")
    assert (outcome.code, statuses(outcome)) == (0, {"made"})
    assert "has a damaged entry" in notes(outcome)


def test_s3_holds_the_cache(project: Project) -> None:
    pytest.importorskip("moto")
    with s3_server() as environment:
        project.sandbox.environment |= environment
        outcome = project.run("s3://bucket/deep/cache")
        assert (outcome.code, statuses(outcome)) == (0, {"made"}), outcome.stderr
        assert not notes(outcome)
        project.forget()
        assert statuses(project.run("s3://bucket/deep/cache")) == {"cached"}
        project.forget()
        outcome = project.run("s3://none/cache")
        assert (outcome.code, statuses(outcome)) == (0, {"made"})
        assert "gets no products any more" in notes(outcome)

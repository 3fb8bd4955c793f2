"""Servers on this machine that hold files: the web by http.server, S3 by moto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


@dataclass
class Web:
    """A web server on the loopback address that serves `folder`.

    Attributes:
        token: if set, requests without `?token=` of this value are answered with 403.
        silent: whether answers leave out their length.
        no_put: the status that answers PUT, if not 0.
        asked: methods and paths of the requests.
    """

    folder: Path
    port: int
    token: str = ""
    silent: bool = False
    no_put: int = 0
    asked: list[str] = field(default_factory=list)

    def url(self, name: str, user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.port}/{name}"


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, web: list[Web], **named: Any) -> None:
        self.web = web
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        web = self.web[0]
        web.asked.append(f"GET {self.path}")
        if web.token and f"token={web.token}" not in self.path:
            self.send_error(403)
        elif web.silent:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(Path(self.translate_path(self.path)).read_bytes())
        else:
            super().do_GET()

    def do_PUT(self) -> None:
        self.web[0].asked.append(f"PUT {self.path}")
        size = self.headers.get("Content-Length")
        if size is None:
            self.send_error(411)
            return
        if self.web[0].no_put:
            self.rfile.read(int(size))
            self.send_error(self.web[0].no_put)
            return
        target = Path(self.translate_path(self.path))
        if self.path.startswith("/nowhere/"):
            self.send_error(404)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.rfile.read(int(size)))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def web_server(folder: Path) -> Iterator[Web]:
    web: list[Web] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, web=web, directory=str(folder))) as server:
        web.append(Web(folder, server.server_address[1]))
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield web[0]
        server.shutdown()


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Yield the environment for a client of an empty S3 with a bucket `bucket`."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        import boto3

        said = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "s3cret-of-the-test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        boto3.client(
            "s3",
            endpoint_url=said["AWS_ENDPOINT_URL"],
            aws_access_key_id="someone",
            aws_secret_access_key="s3cret-of-the-test",
            region_name="us-east-1",
        ).create_bucket(Bucket="bucket")
        yield said
    finally:
        server.stop()

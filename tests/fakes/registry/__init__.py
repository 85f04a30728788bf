"""A registry on loopback over plain HTTP: what an OCI client asks for when it pulls, and when it pushes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True, kw_only=True)
class Blobs:
    """An image as a registry holds it: every blob by its digest, and the manifest that names them."""

    manifest: bytes
    blobs: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        return digest(self.manifest)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image_of(files: Mapping[str, bytes]) -> Blobs:
    """An image of one layer with these files in it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    packed = gzip.compress(layer.getvalue(), mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Labels": {"org.kbslurm.test": "yes"}},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer.getvalue())]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "size": len(config), "digest": digest(config)},
            "layers": [{"mediaType": LAYER, "size": len(packed), "digest": digest(packed)}],
        }
    ).encode()
    return Blobs(manifest=manifest, blobs={digest(config): config, digest(packed): packed})


@dataclass
class Registry:
    """Serves images by name and tag or digest, and takes what is pushed. `asked`: the paths that were asked for.
    `hangs`: blobs never come. `refuses`: a push gets this status. `garbles`: a pushed blob is kept with a byte changed,
    as by a registry whose disk fails: its manifest names the digest of what it really has."""

    images: dict[str, Blobs] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hangs: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    address: str = ""
    refuses: int = 0
    garbles: bool = False
    uploads: dict[str, bytes] = field(default_factory=dict)
    pushed: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, type and body for one path."""
        self.asked.append(path)
        if path in ("/v2", "/v2/"):
            return 200, "application/json", b"{}"
        found = re.fullmatch(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<wanted>[^/]+)", path)
        name, kind, wanted = found.groups() if found else ("", "", "")
        if kind == "manifests" and (name, wanted) in self.manifests:
            return 200, *self.manifests[name, wanted]
        if kind == "blobs" and wanted in self.pushed:
            return 200, "application/octet-stream", self.pushed[wanted]
        image = self.images.get(name)
        if image is None:
            return 404, "application/json", b'{"errors":[{"code":"NAME_UNKNOWN"}]}'
        if kind == "manifests" and wanted in ("latest", image.digest):
            return 200, MANIFEST, image.manifest
        if kind == "blobs" and wanted in image.blobs:
            if self.hangs.is_set():
                self.over.wait()
            return 200, "application/octet-stream", image.blobs[wanted]
        return 404, "application/json", b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}'

    def take(self, method: str, path: str, query: str, kind: str, body: bytes) -> tuple[int, dict[str, str]]:
        """Status and headers for one step of a push: an upload is opened, filled, closed with its digest,
        and named by a manifest."""
        self.asked.append(path)
        if self.refuses:
            return self.refuses, {}
        if method == "POST" and path.endswith("/blobs/uploads/"):
            return 202, {"Location": f"http://{self.address}{path}{len(self.asked)}"}
        if method == "PATCH" and "/blobs/uploads/" in path:
            self.uploads[path] = self.uploads.get(path, b"") + body
            return 202, {"Location": f"http://{self.address}{path}"}
        if method == "PUT" and "/blobs/uploads/" in path:
            body = self.uploads.pop(path, b"") + body
            told = parse_qs(query)["digest"][0]
            if digest(body) != told:
                return 400, {}
            kept = bytes([body[0] ^ 1]) + body[1:] if self.garbles and len(body) > 1000 else body
            self.pushed[digest(kept)] = kept
            self.renamed[told] = digest(kept)
            return 201, {"Location": path.replace(f"uploads/{path.rpartition('/')[2]}", f"blobs/{told}")}
        if method == "PUT" and "/manifests/" in path:
            name, _, tag = path.removeprefix("/v2/").partition("/manifests/")
            for old, new in self.renamed.items():
                body = body.replace(old.encode(), new.encode())
            for wanted in (tag, digest(body)):
                self.manifests[name, wanted] = (kind, body)
            return 201, {"Docker-Content-Digest": digest(body)}
        return 404, {}


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """The registry on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(body=True)

        def do_HEAD(self) -> None:
            self._send(body=False)

        def do_POST(self) -> None:
            self._take("POST")

        def do_PATCH(self) -> None:
            self._take("PATCH")

        def do_PUT(self) -> None:
            self._take("PUT")

        def _take(self, method: str) -> None:
            path, _, query = self.path.partition("?")
            body = self._body()
            status, headers = registry.take(method, path, query, self.headers.get("Content-Type", ""), body)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, *args: object) -> None:
            pass

        def _send(self, *, body: bool) -> None:
            status, kind, content = registry.answer(self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if "manifest" in kind:
                self.send_header("Docker-Content-Digest", digest(content))
            self.end_headers()
            if body:
                self.wfile.write(content)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was ended in mid-sentence is part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="registry", daemon=True)
    thread.start()
    registry.address = f"127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        registry.over.set()
        server.shutdown()
        server.server_close()
        thread.join(timeout=60)

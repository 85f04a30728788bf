"""A registry on loopback that serves one tiny image over plain HTTP: what an OCI client asks for when it pulls."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
    """Serves images by name and tag or digest. `asked`: the paths that were asked for. `hangs`: blobs never come."""

    images: dict[str, Blobs] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hangs: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, type and body for one path."""
        self.asked.append(path)
        if path in ("/v2", "/v2/"):
            return 200, "application/json", b"{}"
        name, _, rest = path.removeprefix("/v2/").partition("/")
        kind, _, wanted = rest.partition("/")
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


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """The registry on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(body=True)

        def do_HEAD(self) -> None:
            self._send(body=False)

        def log_message(self, *args: object) -> None:
            pass

        def _send(self, *, body: bool) -> None:
            status, kind, content = registry.answer(self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if kind == MANIFEST:
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

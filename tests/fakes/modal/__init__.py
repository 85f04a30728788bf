"""Modal on loopback: the calls that the real client makes of us, and containers that really run the deployed app.

What is deployed is a folder as `kbslurm modal deploy` writes it. Each call starts a process (`container.py`) that runs
the folder's `inside.py` on the payload, with the true harness where that is in the folder, and ends with its whole
tree. Results go back as the platform's own serialiser makes them. What goes wrong is told beforehand: `fail`, `lose`
and `spoil`, or `POST /faults` on the address for blobs. Startable by itself: `python -m tests.fakes.modal --help`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pickle
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from grpclib import GRPCError, Status
from grpclib.server import Server
from modal_proto import api_grpc, api_pb2

from tests.fakes.modal.deploying import DEPLOYING, function_id, ranked

CONTAINER = Path(__file__).with_name("container.py")
TOKEN = ("ak-test", "as-test")
Result = api_pb2.GenericResult
OBJECT_CAP, ASYNC_OBJECT_CAP = 2 << 20, 8 << 10  # what the real client takes unless the platform says otherwise
SYNC = api_pb2.FUNCTION_CALL_INVOCATION_TYPE_SYNC


@dataclass
class Call:
    """One call of a function, and its container while it runs."""

    id: str
    function: str
    payload: bytes
    cap: int
    by_blob: bool
    spoilt: str = ""
    input_id: str = field(default_factory=lambda: f"in-{secrets.token_hex(8)}")
    task: str = ""
    tmp: Path | None = None  # the container's /tmp, which goes with it
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    output: Any = None
    log: bytes = b""
    ended_at: float = 0.0  # when somebody ended it from outside
    is_preempted: bool = False
    release: threading.Event = field(default_factory=threading.Event)


class FakeModal:
    """The platform. `calls` is all that was ever spawned; `asked` counts the calls of the API by their name. `sandbox`:
    the command that each container is started with; Modal's is gVisor."""

    def __init__(
        self,
        app: Path,
        *,
        port: int = 0,
        object_cap: int | None = None,
        token: tuple[str, str] = TOKEN,
        sandbox: Sequence[str] = (),
    ) -> None:
        self.app = app
        self.sandbox = sandbox
        self.token = token
        self.object_cap = object_cap
        self.calls: dict[str, Call] = {}
        self.asked: Counter[str] = Counter()
        self.blobs: dict[str, bytes] = {}
        self.entries: dict[tuple[str, bytes], bytes] = {}
        self.dicts: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.stored: dict[str, bytes] = {}
        self.recipes: list[list[str]] = []
        self.functions: dict[str, Any] = {}
        self.published: Any = None
        self.held = False
        self._failures: dict[str, list[Status]] = {}
        self._lost: Counter[str] = Counter()
        self._spoilt: list[str] = []
        self._threads: list[threading.Thread] = []
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._port = port
        self._thread = threading.Thread(target=self._serve, name="fake modal", daemon=True)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _blobs_of(self))
        self._http.daemon_threads = True
        self._http_thread = threading.Thread(
            target=self._http.serve_forever, args=(0.02,), name="fake blobs", daemon=True
        )

    # ------------------------------------------------------------------------------------------------ for tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def blob_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def told(self) -> dict[str, Any]:
        """What is deployed."""
        return dict(json.loads((self.app / "told.json").read_text()))

    def fail(self, rpc: str, times: int = 1, status: str = "UNAVAILABLE") -> None:
        """The next so many calls of this name are answered by an error, and nothing is done."""
        self._failures[rpc] = [Status[status]] * times

    def lose(self, rpc: str, times: int = 1) -> None:
        """The next so many calls of this name are done, and their answer is lost."""
        self._lost[rpc] = times

    def spoil(self, how: str) -> None:
        """The next call's result is this instead of what its container says; see `_spoilt_result`."""
        self._spoilt.append(how)

    def end_from_outside(self) -> None:
        """Somebody ends all that runs in Modal's own dashboard."""
        for call in list(self.calls.values()):
            self._end(call)

    def preempt(self) -> None:
        """Take the container of all that runs away; each is started again with the same input, as Modal does."""
        for call in list(self.calls.values()):
            if call.output is None and call.process is not None:
                call.is_preempted = True
                end_tree(call.process)

    def let_go(self) -> None:
        """GPUs are there: what waited starts."""
        self.held = False
        for call in self.calls.values():
            call.release.set()

    def __enter__(self) -> FakeModal:
        self._thread.start()
        self._http_thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        for call in list(self.calls.values()):
            self._end(call)
        for thread in self._threads:
            thread.join(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._http.shutdown()
        self._http.server_close()
        self._http_thread.join(60)

    # --------------------------------------------------------------------------------------------- the platform

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = Server([_servicer(self)])
        self._loop.run_until_complete(server.start("127.0.0.1", self._port))
        assert server._server is not None and server._server.sockets
        self._port = server._server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(server.wait_closed())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def check(self, rpc: str, metadata: Mapping[str, Any]) -> None:
        """What stands before every answer: the token, and what was told to go wrong."""
        self.asked[rpc] += 1
        if (metadata.get("x-modal-token-id"), metadata.get("x-modal-token-secret")) != self.token:
            raise GRPCError(Status.UNAUTHENTICATED, "Token validation failed")
        if self._failures.get(rpc):
            raise GRPCError(self._failures[rpc].pop(), f"{rpc} was told to fail")

    def is_lost(self, rpc: str) -> bool:
        if self._lost[rpc] < 1:
            return False
        self._lost[rpc] -= 1
        return True

    def function_of(self, tag: str) -> dict[str, Any] | None:
        found = self.told()["functions"].get(tag) if (self.app / "told.json").is_file() else None
        return None if found is None else dict(found)

    def is_shut_off(self, function: str) -> bool:
        """Whether its containers have no network: they can't reach the store of blobs."""
        made = self.functions.get(function)
        return made is None or bool(made.block_network)

    def spawn(self, function: str, args: bytes, *, by_blob: bool, invocation: int) -> Call:
        (payload,), _ = pickle.loads(args)
        cap = self.object_cap or OBJECT_CAP
        call = Call(
            id=f"fc-{secrets.token_hex(8)}",
            function=function,
            payload=payload,
            cap=cap if invocation == SYNC else min(cap, ASYNC_OBJECT_CAP),
            by_blob=by_blob,
            spoilt=self._spoilt.pop(0) if self._spoilt else "",
        )
        self.calls[call.id] = call
        thread = threading.Thread(target=self._run, args=(call, self.held), daemon=True)
        self._threads.append(thread)
        thread.start()
        return call

    def _run(self, call: Call, held: bool) -> None:
        """The container's life. Its result is there when nothing of it runs any more."""
        if held:
            call.release.wait()
        if call.ended_at:
            return
        if call.spoilt == "never":
            call.release.wait()
            return
        if call.by_blob and self.is_shut_off(call.function):
            self._answer(call, _failure("the container can't fetch its input: its network is blocked"))
            return
        told = self.function_of(call.function) or {}
        task = f"ta-{secrets.token_hex(8)}"
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "KBSLURM_EVAL_LEVEL") if name in os.environ}
        environment |= {"MODAL_TASK_ID": task, "MODAL_IMAGE_ID": "im-loopback", "MODAL_IS_REMOTE": "1"}
        tmp = Path(tempfile.mkdtemp(prefix="kbmodal-"))
        tmp.chmod(0o1777)
        environment["TMPDIR"] = str(tmp)
        process = subprocess.Popen(
            [*self.sandbox, sys.executable, "-I", CONTAINER, self.app / "inside.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=self.app,
        )
        call.process, call.started_at, call.task, call.tmp = process, time.time(), task, tmp
        if call.ended_at:
            end_tree(process)
        try:
            with suppress(BrokenPipeError):
                said, call.log = process.communicate(call.payload, timeout=float(told.get("timeout_s", 600)))
            status = Result.GENERIC_STATUS_SUCCESS if process.returncode == 0 else Result.GENERIC_STATUS_FAILURE
        except subprocess.TimeoutExpired:
            end_tree(process)
            said, status = b"", Result.GENERIC_STATUS_TIMEOUT
        finally:
            end_tree(process)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            # A real container's files and its shared memory are its own, and go with it.
            shutil.rmtree(tmp, ignore_errors=True)
            shutil.rmtree(f"/dev/shm/{json.loads(zlib.decompress(call.payload))['name']}", ignore_errors=True)
        if call.ended_at:
            return
        if call.is_preempted:
            call.is_preempted = False
            self._run(call, False)
            return
        result = Result(status=status)
        if status == Result.GENERIC_STATUS_SUCCESS:
            result = self._filled(call, said)
        elif status == Result.GENERIC_STATUS_FAILURE:
            result.exception = "RuntimeError('the container ended')"
        if call.spoilt:
            result = self._spoilt_result(call.spoilt)
        self._answer(call, result)

    def _filled(self, call: Call, said: bytes) -> Any:
        """As the platform's own program in a container does: what is large goes to the store of blobs, by HTTP."""
        from modal._serialization import serialize

        data = serialize(said)
        if len(data) > call.cap and self.is_shut_off(call.function):
            return _failure("the container can't store its result: its network is blocked")
        result = Result(status=Result.GENERIC_STATUS_SUCCESS)
        self._put(result, data, call.cap)
        return result

    def _put(self, result: Any, data: bytes, cap: int = OBJECT_CAP) -> None:
        if len(data) <= cap:
            result.data = data
            return
        blob = f"bl-{secrets.token_hex(8)}"
        self.blobs[blob] = data
        result.data_blob_id = blob

    def _spoilt_result(self, how: str) -> Any:
        """What a container that was taken over, or the platform on a bad day, may answer."""
        result = Result(status=Result.GENERIC_STATUS_SUCCESS)
        match how:
            case "hostile":
                marker = self.app / "pwned"
                self._put(result, pickle.dumps(_Hostile(str(marker))))
            case "hostile exception":
                result.status = Result.GENERIC_STATUS_FAILURE
                result.exception = "ValueError('no')"
                result.data = result.serialized_tb = pickle.dumps(_Hostile(str(self.app / "pwned")))
            case "oversized":
                self._put(result, pickle.dumps(zlib.compress(b"x" * 70_000_000)))
            case "empty":
                pass
            case "text":
                self._put(result, pickle.dumps(b"not an envelope"))
            case _:
                result.status = Result.GenericStatus.Value(f"GENERIC_STATUS_{how}")
                result.exception = "it was told to fail"
        return result

    def _answer(self, call: Call, result: Any) -> None:
        call.output = api_pb2.FunctionGetOutputsItem(
            result=result,
            idx=0,
            input_id=call.input_id,
            data_format=api_pb2.DATA_FORMAT_PICKLE,
            task_id=call.task,
            input_started_at=call.started_at or time.time(),
            output_created_at=time.time(),
        )

    def _end(self, call: Call) -> None:
        """End a call from outside: nothing of it runs when this returns."""
        if call.output is not None:
            return
        call.ended_at = time.time()
        call.release.set()
        if call.process is not None:
            end_tree(call.process)
        self._answer(call, Result(status=Result.GENERIC_STATUS_TERMINATED))


def _failure(why: str) -> Any:
    return Result(status=Result.GENERIC_STATUS_FAILURE, exception=f"RuntimeError({why!r})")


class _Hostile:
    """Makes a file where it is unpickled."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a container: all below its first process, which orphans come to, and then that. It is stopped meanwhile.

    Who was killed isn't waited for before the first one is gone: the first process of a PID namespace stays until all
    in it have been collected, and who came to a stopped process is collected by nobody.
    """
    killed: set[psutil.Process] = set()
    try:
        root = psutil.Process(process.pid)
        root.suspend()
        while children := set(root.children(recursive=True)) - killed:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for child in children:
                    with suppress(psutil.Error):
                        child.send_signal(number)
            killed |= children
        root.kill()
    except psutil.Error:
        pass
    psutil.wait_procs(killed, timeout=10)


def _servicer(fake: FakeModal) -> Any:
    """The generated servicer of the API: what isn't answered here is UNIMPLEMENTED, and told by its name."""

    def missing(name: str) -> Any:
        async def answer(_self: Any, _stream: Any) -> None:
            raise GRPCError(Status.UNIMPLEMENTED, f"tests.fakes.modal has no {name}")

        return answer

    def answering(name: str, answer: Any) -> Any:
        async def told(_self: Any, stream: Any) -> None:
            request = await stream.recv_message()
            fake.check(name, stream.metadata)
            found = answer(fake, request)
            if fake.is_lost(name):
                raise GRPCError(Status.UNAVAILABLE, "the answer was lost on the way")
            await stream.send_message(found)

        return told

    base = api_grpc.ModalClientBase
    methods = {name: missing(name) for name in base.__abstractmethods__}
    methods |= {name: answering(name, answer) for name, answer in (ANSWERS | DEPLOYING).items()}
    return type("Servicer", (base,), methods)()


def _function_get(fake: FakeModal, request: Any) -> Any:
    found = fake.function_of(request.object_tag)
    if found is None or request.app_name != fake.told()["app"]:
        raise GRPCError(Status.NOT_FOUND, f"no function {request.object_tag} in {request.app_name}")
    function = fake.functions.get(request.object_tag) or api_pb2.Function(
        function_name=request.object_tag,
        timeout_secs=int(found["timeout_s"]),
        block_network=True,
        untrusted=True,
        single_use_containers=True,
    )
    return api_pb2.FunctionGetResponse(
        function_id=function_id(request.object_tag),
        handle_metadata=api_pb2.FunctionHandleMetadata(
            function_name=request.object_tag, max_object_size_bytes=fake.object_cap
        ),
        function=ranked(function),
    )


def _function_map(fake: FakeModal, request: Any) -> Any:
    given = request.pipelined_inputs[0].input
    args = fake.blobs[given.args_blob_id] if given.args_blob_id else given.args
    call = fake.spawn(
        bytes.fromhex(request.function_id.removeprefix("fu-")).decode(),
        args,
        by_blob=bool(given.args_blob_id),
        invocation=request.function_call_invocation_type,
    )
    return api_pb2.FunctionMapResponse(
        function_call_id=call.id,
        pipelined_inputs=[api_pb2.FunctionPutInputsResponseItem(idx=0, input_id=call.input_id)],
    )


def _outputs(fake: FakeModal, request: Any) -> Any:
    call = _call(fake, request.function_call_id)
    if call.output is None:
        return api_pb2.FunctionGetOutputsResponse(num_unfinished_inputs=1)
    return api_pb2.FunctionGetOutputsResponse(outputs=[call.output])


def _graph(fake: FakeModal, request: Any) -> Any:
    call = _call(fake, request.function_call_id)
    return api_pb2.FunctionGetCallGraphResponse(
        inputs=[
            api_pb2.InputCallGraphInfo(input_id=call.input_id, function_call_id=call.id, task_id=call.task),
        ],
        function_calls=[api_pb2.FunctionCallCallGraphInfo(function_call_id=call.id, function_name=call.function)],
    )


def _cancel(fake: FakeModal, request: Any) -> Any:
    from google.protobuf import empty_pb2

    fake._end(_call(fake, request.function_call_id))
    return empty_pb2.Empty()


def _call(fake: FakeModal, name: str) -> Call:
    if name not in fake.calls:
        raise GRPCError(Status.NOT_FOUND, f"no function call {name}")
    return fake.calls[name]


def _dict(fake: FakeModal, request: Any) -> Any:
    name = f"{request.environment_name}/{request.deployment_name}"
    found = fake.dicts.setdefault(name, f"di-{len(fake.dicts)}")
    return api_pb2.DictGetOrCreateResponse(dict_id=found)


def _dict_get(fake: FakeModal, request: Any) -> Any:
    value = fake.entries.get((request.dict_id, request.key))
    return api_pb2.DictGetResponse(found=value is not None, value=value)


def _dict_update(fake: FakeModal, request: Any) -> Any:
    created = False
    for entry in request.updates:
        key = (request.dict_id, entry.key)
        if key not in fake.entries or not request.if_not_exists:
            created |= key not in fake.entries
            fake.entries[key] = entry.value
    return api_pb2.DictUpdateResponse(created=created)


def _dict_pop(fake: FakeModal, request: Any) -> Any:
    value = fake.entries.pop((request.dict_id, request.key), None)
    return api_pb2.DictPopResponse(found=value is not None, value=value)


def _blob_create(fake: FakeModal, _request: Any) -> Any:
    blob = f"bl-{secrets.token_hex(8)}"
    url = f"{fake.blob_url}/{blob}"
    return api_pb2.BlobCreateResponse(blob_ids=[blob], upload_urls=api_pb2.UploadUrlList(items=[url]))


def _app(fake: FakeModal, request: Any) -> Any:
    there = (fake.app / "told.json").is_file() and fake.told()["app"] == request.name
    return api_pb2.AppGetByDeploymentNameResponse(app_id="ap-1" if there else "")


ANSWERS: dict[str, Any] = {
    "ClientHello": lambda _fake, _request: api_pb2.ClientHelloResponse(),
    "FunctionGet": _function_get,
    "FunctionMap": _function_map,
    "FunctionGetOutputs": _outputs,
    "FunctionGetCallGraph": _graph,
    "FunctionCallCancel": _cancel,
    "DictGetOrCreate": _dict,
    "DictGet": _dict_get,
    "DictUpdate": _dict_update,
    "DictPop": _dict_pop,
    "BlobCreate": _blob_create,
    "BlobGet": lambda fake, request: api_pb2.BlobGetResponse(download_url=f"{fake.blob_url}/{request.blob_id}"),
    "AppGetByDeploymentName": _app,
    "AppGetTags": lambda fake, _request: api_pb2.AppGetTagsResponse(tags=fake.told()["tags"]),
}


def _blobs_of(fake: FakeModal) -> type[BaseHTTPRequestHandler]:
    class Blobs(BaseHTTPRequestHandler):
        """PUT and GET of blobs, and POST /faults: {"fail": [rpc, times, status]}, {"lose": [rpc, times]} …"""

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            fake.blobs[self.path.strip("/")] = data
            self._say(200, b"", {"ETag": hashlib.md5(data).hexdigest()})

        def do_GET(self) -> None:
            data = fake.blobs.get(self.path.strip("/"))
            self._say(404 if data is None else 200, data or b"", {})

        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for what, arguments in told.items():
                if what not in ("fail", "lose", "spoil", "end_from_outside", "let_go", "preempt"):
                    self._say(400, b"no such fault", {})
                    return
                getattr(fake, what)(*arguments)
            self._say(200, b"", {})

        def _say(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # who wants no more of it hangs up
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Blobs

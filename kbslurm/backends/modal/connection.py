"""A connection to Modal through its real client, with the few calls that we need.

The client's own `FunctionCall.get` unpickles what a container sent, so results are requested one level below it,
through the client's generated stub; that level changes between releases, so `kbslurm[modal]` pins the client exactly.
Every call runs on our own event loop in one thread, so that the rest of the service stays synchronous.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from kbslurm.backends.modal.results import CBOR, PICKLE, RESULT_CAP
from kbslurm.errors import KbslurmError, Misconfigured

T = TypeVar("T")
API_URL = "https://api.modal.com"
CLIENT = "1.6.4"
CALL_S = 20.0  # per call, whatever the client does; blobs get three times as long
OBJECT_CAP = 2 << 20  # over this arguments and results go as blobs, unless the function says otherwise
RESULT_SHAPES = {0: PICKLE, 1: PICKLE, 4: CBOR}


class CallFailed(Exception):
    """A call failed. `definite`: the answer was no. Otherwise the outcome is unknown."""

    def __init__(self, said: str, *, status: str = "", definite: bool = False) -> None:
        self.said, self.status, self.definite = said, status, definite
        super().__init__(said)


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A deployed function. `object_cap`: how large its arguments and results may be without the store of blobs.
    `timeout_s` 0 and `shut_off` None: the platform didn't say."""

    function_id: str
    object_cap: int
    timeout_s: float
    shut_off: bool | None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Modal's view of one call. `status` is empty until it is over; meanwhile `began` says whether a container has
    it."""

    status: str = ""
    began: bool = False
    expired: bool = False
    task: str = ""
    exit_code: int | None = None
    data: bytes | None = None
    blob: str = ""
    shape: str = PICKLE
    started_at: float | None = None
    ended_at: float | None = None


# Errors that mean the server understood and did nothing.
DEFINITE = (
    "NOT_FOUND",
    "INVALID_ARGUMENT",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
    "OUT_OF_RANGE",
)


class Connection:
    """A connection that is opened on first use, and again in a forked process."""

    def __init__(
        self,
        token_id: str,
        token_secret: str,
        *,
        api_url: str = API_URL,
        environment: str = "",
        renew: Callable[[], tuple[str, str]] | None = None,
    ) -> None:
        check_client()
        self._renew = renew
        self._credentials = (token_id, token_secret)
        self._api_url, self._environment = api_url, environment
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Any = None

    # ------------------------------------------------------------------------------------------------- calls

    def hello(self) -> None:
        """Check that the tokens are accepted."""
        from google.protobuf import empty_pb2

        self._ask(lambda stub: stub.ClientHello(empty_pb2.Empty(), retry=None, timeout=CALL_S))

    def function(self, app: str, name: str) -> Deployed:
        """The deployed function with this name."""

        async def ask(stub: Any) -> Deployed:
            from modal_proto import api_pb2

            found = await stub.FunctionGet(
                api_pb2.FunctionGetRequest(app_name=app, object_tag=name, environment_name=self._environment),
                retry=_retry(),
            )
            told = [one.function for one in found.function.ranked_functions][:1]
            shut_off = [one.block_network and one.untrusted and one.single_use_containers for one in told]
            return Deployed(
                function_id=found.function_id,
                object_cap=found.handle_metadata.max_object_size_bytes or OBJECT_CAP,
                timeout_s=float(told[0].timeout_secs) if told else 0.0,
                shut_off=shut_off[0] if told else None,
            )

        return self._ask(ask)

    def app_tags(self, app: str) -> dict[str, str] | None:
        """The deployed app's description of itself; None if there is no such app."""

        async def ask(stub: Any) -> dict[str, str] | None:
            from modal_proto import api_pb2

            found = await stub.AppGetByDeploymentName(
                api_pb2.AppGetByDeploymentNameRequest(name=app, environment_name=self._environment), retry=_retry()
            )
            if not found.app_id:
                return None
            tags = await stub.AppGetTags(api_pb2.AppGetTagsRequest(app_id=found.app_id), retry=_retry())
            return dict(tags.tags)

        return self._ask(ask)

    def spawn(self, function: Deployed, payload: bytes) -> str:
        """Start it; returns the call's ID. Sent only once, since Modal might start a repeated one twice.

        As a synchronous call: an asynchronous one sends all over 8 KiB, results too, through the store of blobs, which
        a container without a network can't reach.
        """

        async def ask(stub: Any) -> str:
            from modal_proto import api_pb2

            # We make it and a container reads it: the only direction in which a pickle is harmless.
            args = pickle.dumps(((payload,), {}), protocol=4)
            item = api_pb2.FunctionPutInputsItem(
                input=api_pb2.FunctionInput(args=args, data_format=api_pb2.DATA_FORMAT_PICKLE), idx=0
            )
            request = api_pb2.FunctionMapRequest(
                function_id=function.function_id,
                function_call_type=api_pb2.FUNCTION_CALL_TYPE_UNARY,
                pipelined_inputs=[item],
                function_call_invocation_type=api_pb2.FUNCTION_CALL_INVOCATION_TYPE_SYNC,
            )
            found = await stub.FunctionMap(request, retry=None, timeout=CALL_S)
            if not found.pipelined_inputs:
                raise CallFailed("it accepted the call, but not the input: its queue seems to be full")
            return str(found.function_call_id)

        return self._ask(ask)

    def outcomes(self, calls: Sequence[str]) -> dict[str, Outcome | CallFailed]:
        """The state of each of these calls, queried concurrently. Results are never unpickled."""

        async def ask(stub: Any) -> dict[str, Outcome | CallFailed]:
            at_once = asyncio.Semaphore(8)

            async def one(call: str) -> Outcome | CallFailed:
                async with at_once:
                    try:
                        return await _outcome(stub, call)
                    except Exception as error:  # noqa: BLE001 - told by call: one that is unknown hides no other
                        return _trouble(error)

            return dict(zip(calls, await asyncio.gather(*map(one, calls)), strict=True))

        return self._ask(ask, limit_s=2 * CALL_S)

    def blob(self, blob: str) -> bytes:
        """A large result, read only up to the allowed size."""

        async def ask(stub: Any) -> bytes:
            from modal._utils.http_utils import ClientSessionRegistry
            from modal_proto import api_pb2

            found = await stub.BlobGet(api_pb2.BlobGetRequest(blob_id=blob), retry=_retry())
            data = bytearray()
            async with ClientSessionRegistry.get_session().get(found.download_url) as answer:
                if answer.status != 200:
                    raise CallFailed(f"the store for large results answered with status {answer.status}")
                async for chunk in answer.content.iter_chunked(1 << 20):
                    data += chunk
                    if len(data) > RESULT_CAP:
                        break
            return bytes(data)

        return self._ask(ask, limit_s=3 * CALL_S)

    def cancel(self, call: str) -> None:
        """End it, container and all."""

        async def ask(stub: Any) -> None:
            from modal_proto import api_pb2

            request = api_pb2.FunctionCallCancelRequest(function_call_id=call, terminate_containers=True)
            await stub.FunctionCallCancel(request, retry=_retry())

        self._ask(ask)

    # ------------------------------------------------------------------------------- a Dict of small texts

    def dict_id(self, name: str) -> str:
        """The ID of the named Dict, created if needed."""

        async def ask(stub: Any) -> str:
            from modal_proto import api_pb2

            found = await stub.DictGetOrCreate(
                api_pb2.DictGetOrCreateRequest(
                    deployment_name=name,
                    environment_name=self._environment,
                    object_creation_type=api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING,
                ),
                retry=_retry(),
            )
            return str(found.dict_id)

        return self._ask(ask)

    def entry(self, dict_id: str, key: str) -> bytes | None:
        """The value under this key."""

        async def ask(stub: Any) -> bytes | None:
            from modal_proto import api_pb2

            found = await stub.DictGet(api_pb2.DictGetRequest(dict_id=dict_id, key=key.encode()), retry=_retry())
            return bytes(found.value) if found.found else None

        return self._ask(ask)

    def write(self, dict_id: str, key: str, value: bytes, *, new: bool = False) -> bool:
        """Write an entry; with `new` only if there is none. Returns whether it was written."""

        async def ask(stub: Any) -> bool:
            from modal_proto import api_pb2

            found = await stub.DictUpdate(
                api_pb2.DictUpdateRequest(
                    dict_id=dict_id,
                    updates=[api_pb2.DictEntry(key=key.encode(), value=value)],
                    if_not_exists=new,
                ),
                retry=_retry(),
            )
            return bool(found.created) or not new

        return self._ask(ask)

    def remove(self, dict_id: str, key: str) -> None:
        """Remove an entry, if it is there."""

        async def ask(stub: Any) -> None:
            from modal_proto import api_pb2

            await stub.DictPop(api_pb2.DictPopRequest(dict_id=dict_id, key=key.encode()), retry=_retry())

        self._ask(ask)

    # ------------------------------------------------------------------------------------------- underneath

    def close(self) -> None:
        """Close the connection and thread. Running jobs keep running; the next call reconnects."""
        with self._lock:
            loop, thread, client = self._loop, self._thread, self._client
            self._loop = self._thread = self._client = None
            if loop is None or thread is None or self._pid != os.getpid():
                return
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(_closed(client), loop).result(CALL_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CALL_S)
            loop.close()

    def _ask(self, what: Callable[[Any], Coroutine[Any, Any, T]], *, limit_s: float = CALL_S + 2.0) -> T:
        async def asked() -> T:
            async with asyncio.timeout(limit_s):
                client = await self._opened()
                return await what(client._stub)

        try:
            return asyncio.run_coroutine_threadsafe(asked(), self._running_loop()).result()
        except CallFailed:
            raise
        except Exception as error:  # noqa: BLE001 - the client's errors are of many families; all end as this one
            trouble = _trouble(error)
            if trouble.status == "UNAUTHENTICATED":
                self._take_fresh_token()
            raise trouble from None

    def _take_fresh_token(self) -> None:
        """Ours was rejected: from the next call on use the one that holds by now, if somebody has rotated it."""
        try:
            fresh = self._credentials if self._renew is None else self._renew()
        except KbslurmError:
            return  # the rejection is what is told
        if fresh != self._credentials:
            old, self._client, self._credentials = self._client, None, fresh
            if old is not None:
                with suppress(Exception):
                    asyncio.run_coroutine_threadsafe(old.close(), self._running_loop()).result(CALL_S)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._pid, self._client = os.getpid(), None
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="modal", daemon=True)
                self._thread.start()
            return self._loop

    async def _opened(self) -> Any:
        if self._client is None:
            from modal.client import _Client
            from modal_proto import api_pb2

            client: Any = _Client(self._api_url, api_pb2.CLIENT_TYPE_CLIENT, self._credentials)
            try:
                await client._open()
            except BaseException:
                with suppress(Exception):
                    await client.close()
                raise
            self._client = client
        return self._client


async def _closed(client: Any) -> None:
    from modal._utils.http_utils import ClientSessionRegistry

    with suppress(Exception):
        await ClientSessionRegistry.close_session()
    if client is not None:
        await client.close()


async def _outcome(stub: Any, call: str) -> Outcome:
    from modal_proto import api_pb2

    answer = await stub.FunctionGetOutputs(
        api_pb2.FunctionGetOutputsRequest(
            function_call_id=call,
            timeout=0,
            last_entry_id="0-0",
            clear_on_success=False,
            requested_at=time.time(),
            start_idx=0,
            end_idx=0,
        ),
        retry=_retry(),
    )
    if not answer.outputs:
        if answer.num_unfinished_inputs == 0:
            return Outcome(expired=True)
        graph = await stub.FunctionGetCallGraph(
            api_pb2.FunctionGetCallGraphRequest(function_call_id=call), retry=_retry()
        )
        tasks = [one.task_id for one in graph.inputs if one.function_call_id == call and one.task_id]
        return Outcome(began=bool(tasks), task=tasks[0] if tasks else "")
    item = answer.outputs[0]
    result = item.result
    kept = result.WhichOneof("data_oneof")
    status = api_pb2.GenericResult.GenericStatus.Name(result.status).removeprefix("GENERIC_STATUS_")
    return Outcome(
        status=status,
        task=item.task_id,
        exit_code=result.exitcode or None,
        data=bytes(result.data) if kept == "data" else None,
        blob=result.data_blob_id if kept == "data_blob_id" else "",
        shape=RESULT_SHAPES.get(item.data_format, f"format {item.data_format}"),
        started_at=item.input_started_at or None,
        ended_at=item.output_created_at or None,
    )


def _retry() -> Any:
    """For idempotent calls: up to three retries, each with a timeout."""
    from modal._utils.grpc_utils import Retry

    return Retry(base_delay=0.1, max_retries=3, attempt_timeout=CALL_S / 2)


def _trouble(error: Exception) -> CallFailed:
    """Convert a client error to what we need to know about it."""
    if isinstance(error, CallFailed):
        return error
    status = getattr(getattr(error, "_grpc_status", None), "name", "")
    said = str(error) or type(error).__name__
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        said = "no answer came in time"
    return CallFailed(said, status=status, definite=status in DEFINITE)


def check_client() -> None:
    """Check for the supported client version, or say what to install."""
    fix = "Run: pip install 'kbslurm[modal]'"
    try:
        from importlib.metadata import version

        found = version("modal")
    except ImportError:
        raise Misconfigured("[modal] is configured, but Modal's client isn't installed", fix=fix) from None
    if found != CLIENT:
        raise Misconfigured(f"Modal's client is {found}, but kbslurm needs {CLIENT}", fix=fix)

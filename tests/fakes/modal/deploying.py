"""What `modal deploy` asks of the platform: files, an image, functions, and that all of it is published together."""

from __future__ import annotations

import secrets
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from google.protobuf import empty_pb2
from modal_proto import api_pb2

if TYPE_CHECKING:
    from tests.fakes.modal import FakeModal

BUILDER = "2025.06"


def _mount(fake: FakeModal, request: Any) -> Any:
    for file in request.files:
        fake.files[file.filename] = file.sha256_hex
    return api_pb2.MountGetOrCreateResponse(
        mount_id=f"mo-{secrets.token_hex(8)}",
        handle_metadata=api_pb2.MountHandleMetadata(content_checksum_sha256_hex="c" * 64),
    )


def _missing(fake: FakeModal, request: Any) -> Any:
    missing = [one for one in request.sha256_hex_hashes if one not in fake.stored]
    return api_pb2.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=missing)


def _put(fake: FakeModal, request: Any) -> Any:
    if request.WhichOneof("data_oneof") is not None:
        blob = request.data_blob_id
        fake.stored[request.sha256_hex] = fake.blobs[blob] if blob else request.data
    return api_pb2.MountPutFileResponse(exists=request.sha256_hex in fake.stored)


def _image(fake: FakeModal, request: Any) -> Any:
    fake.recipes.append(list(request.image.dockerfile_commands))
    return api_pb2.ImageGetOrCreateResponse(
        image_id=f"im-{len(fake.recipes)}",
        result=api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS),
        metadata=api_pb2.ImageMetadata(image_builder_version=BUILDER),
    )


def _function(fake: FakeModal, request: Any) -> Any:
    made = request.function_data.ranked_functions[0].function if request.HasField("function_data") else request.function
    fake.functions[made.function_name] = made
    return api_pb2.FunctionCreateResponse(
        function_id=function_id(made.function_name),
        function=made,
        function_data=ranked(made),
        handle_metadata=api_pb2.FunctionHandleMetadata(function_name=made.function_name),
    )


def function_id(name: str) -> str:
    """An id that says its name: no dash but the one is allowed in it."""
    return f"fu-{name.encode().hex()}"


def ranked(function: Any) -> Any:
    """A function as the platform tells of it."""
    one = api_pb2.FunctionData.RankedFunction(rank=0, function=function)
    return api_pb2.FunctionData(function_name=function.function_name, ranked_functions=[one])


def _publish(fake: FakeModal, request: Any) -> Any:
    """What a container finds below /root is what is there from now on."""
    fake.published = request
    for name, digest in fake.files.items():
        path = fake.app / PurePosixPath(name).relative_to("/root")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fake.stored[digest])
    return api_pb2.AppPublishResponse(url="https://modal.invalid/app", deployed_at=time.time())


DEPLOYING: dict[str, Any] = {
    "AppGetLayout": lambda _fake, _request: api_pb2.AppGetLayoutResponse(),
    "AppCreate": lambda _fake, _request: api_pb2.AppCreateResponse(app_id="ap-1"),
    "AppGetOrCreate": lambda _fake, _request: api_pb2.AppGetOrCreateResponse(app_id="ap-1"),
    "AppHeartbeat": lambda _fake, _request: empty_pb2.Empty(),
    "AppClientDisconnect": lambda _fake, _request: empty_pb2.Empty(),
    "AppPublish": _publish,
    "AppSetTags": lambda _fake, _request: empty_pb2.Empty(),
    "EnvironmentGetOrCreate": lambda _fake, request: api_pb2.EnvironmentGetOrCreateResponse(
        environment_id="en-1",
        metadata=api_pb2.EnvironmentMetadata(
            name=request.deployment_name or "main",
            settings=api_pb2.EnvironmentSettings(image_builder_version=BUILDER),
        ),
    ),
    "FunctionPrecreate": lambda _fake, request: api_pb2.FunctionPrecreateResponse(
        function_id=function_id(request.function_name),
        handle_metadata=api_pb2.FunctionHandleMetadata(function_name=request.function_name),
    ),
    "FunctionCreate": _function,
    "ImageGetOrCreate": _image,
    "MountGetOrCreate": _mount,
    "MountBatchedCheckExistence": _missing,
    "MountPutFile": _put,
}

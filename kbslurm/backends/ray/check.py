"""Whether runs on a Ray cluster would work: its API, version, token and workers, and the nodes' way back to us."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx

from kbslurm.backends.ray import calls, pool_check
from kbslurm.backends.ray.api import Api, mapping_of
from kbslurm.backends.ray.backend import RayBackend
from kbslurm.backends.ray.pool import cluster_file, digest_in
from kbslurm.client.trust import trusted
from kbslurm.config.sections.ray import RaySection
from kbslurm.domain.finding import Finding, caution, failed, passed, unseen
from kbslurm.errors import BackendTrouble

TESTED = "2.60"
OLDEST = (2, 52)  # the first with tokens
LOOPBACK = ("127.", "localhost", "[::1]")


def findings(
    backend: RayBackend, key: bytes, variables: tuple[str, str], section: RaySection | None = None
) -> Iterator[Finding]:
    """The checks, in order; those that depend on a failed one are left out. Nothing is started. `section`: the place's
    configuration, if it may describe a pool that Ray's autoscaler keeps."""
    yield from _cluster(backend, variables[0], section)
    yield from _images(backend)
    yield from _service(backend, key, variables[1])


def _cluster(backend: RayBackend, variable: str, section: RaySection | None) -> Iterator[Finding]:
    api = backend.api
    try:
        version = str(mapping_of(api.get("/api/version")).get("ray_version", ""))
        api.get("/api/jobs/")
    except BackendTrouble as error:
        if "token" in error.message:
            yield failed("token", error.message, f"Set {variable} to the cluster's token (ray get-auth-token there).")
        else:
            remedy = f"Check ray.{backend.name}.url and that the head is up: curl {api.url}/api/version"
            yield failed("reach", f"{api.url}: {error.message}", remedy)
        return
    if not version:
        yield failed("reach", f"{api.url} answers, but not like Ray", f"Set ray.{backend.name}.url to Ray's dashboard.")
        return
    yield passed("reach", f"{api.url} answers")
    yield _version(version)
    yield _token(api, variable)
    yield from _workers(backend, section)


def _version(text: str) -> Finding:
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
    if len(numbers) == 2 and numbers < OLDEST:
        least = ".".join(map(str, OLDEST))
        return failed(
            "version", f"Ray {text} has no tokens: anybody who reaches it runs what they like", f"Use {least} or newer."
        )
    if not text.startswith(f"{TESTED}."):
        return caution(
            "version", f"Ray {text}; kbslurm is tested with {TESTED}", "Try a test run before a competition."
        )
    return passed("version", f"Ray {text}")


def _token(api: Api, variable: str) -> Finding:
    """Whether Ray asks for it at all."""
    try:
        with httpx.Client(verify=trusted(api.url), timeout=10.0) as nobody:
            status = nobody.get(f"{api.url}/api/jobs/").status_code
    except httpx.HTTPError:
        status = 0
    if status == 200:
        return failed(
            "token",
            "Ray answers without a token: whoever reaches its port can run anything on its nodes, and read the run key",
            f"Start every node with RAY_AUTH_MODE=token, and set {variable}.",
        )
    return passed("token", "Ray accepts it, and nobody without one")


def _workers(backend: RayBackend, section: RaySection | None) -> Iterator[Finding]:
    pool = None if section is None else section.pool
    try:
        nodes = pool_check.nodes_in(backend.api.get(pool_check.NODES).data)
        status = None if pool is None else backend.api.get(pool_check.STATUS).data
    except BackendTrouble as error:
        yield unseen("workers", f"can't be seen: {error.message}", "Look at the dashboard's page of the cluster.")
        return
    if nodes is None:
        text = "can't be seen: Ray doesn't list its nodes"
        yield unseen("workers", text, "Look at the dashboard's page of the cluster.")
        return
    gpus = {gpu: {"GPU": asked.num_gpus, **asked.resources} for gpu, asked in backend.gpus.items()}
    for gpu, asked in backend.gpus.items():
        yield pool_check.gpu_finding(backend.name, gpu, gpus[gpu], asked.slots, pool, nodes)
    if section is not None and pool is not None:
        digest = digest_in(cluster_file(backend.name, section, pool))
        told = pool_check.autoscaler_in(status)
        yield from pool_check.findings(backend.name, gpus, pool, nodes, told, digest)


def _images(backend: RayBackend) -> Iterator[Finding]:
    """What runs on each GPU type are in. No node's disk is seen from here."""
    for gpu, asked in backend.gpus.items():
        image, python = asked.image, backend.nodes.python
        if image is None:
            yield passed("image", f"none is set: runs are in the harness's own cage, with {python}", where=gpu)
            continue
        pinned = ", pinned to its digest" if image.digest else ""
        cage = "; a node with neither uses the harness's own cage" if image.or_own_cage else ""
        programs = " || ".join(f"{program} --version" for program in image.programs)
        yield unseen(
            "image",
            f"{image.path}{pinned}, by {' or '.join(image.programs)}{cage}; whether workers have them can only be seen"
            " there",
            f"On a worker: test -r {image.path} && {{ {programs}; }}",
            where=gpu,
        )


def _service(backend: RayBackend, key: bytes, variable: str) -> Iterator[Finding]:
    """The way that a node goes, from here: with our key, for an attempt that doesn't exist."""
    url, name = backend.nodes.service_url, f"kb-check{secrets.token_hex(6)}"
    told = calls.mac(key, "kit", backend.name, name, "-", "")
    try:
        with httpx.Client(verify=trusted(url), timeout=20.0) as node:
            answer = node.get(f"{url}/nodes/{backend.name}/{name}/kit", headers={calls.WHO: "-", calls.MAC: told})
    except httpx.HTTPError as error:
        remedy = f"Start the service (kbslurm up), and set ray.{backend.name}.service_url to its address for the nodes."
        yield failed("service", f"{url} can't be reached from here ({type(error).__name__})", remedy)
        return
    if answer.status_code == 401:
        text = f"the service at {url} has another run key than this configuration"
        yield failed("key", text, f"Give both the same {variable}, and restart the service.")
    elif answer.status_code != 200 or answer.headers.get(calls.MAC) != calls.kit_mac(key, answer.content):
        text = f"{url} answers with status {answer.status_code}, but not like this service"
        yield failed(
            "service", text, f"Set ray.{backend.name}.service_url, and server.allowed_hosts if it has another name."
        )
    else:
        yield passed("key", f"the service at {url} has it too")
    host = urlsplit(url).netloc
    if host.startswith(LOOPBACK):
        text = f"{url} is this machine's own: only nodes on this machine reach it"
        yield caution("service", text, f"Set ray.{backend.name}.service_url to an address that the nodes reach.")
    elif url.startswith("http://"):
        text = f"{url} has no TLS: orders and results are sealed, but calls can be held up and sent on late"
        yield caution("service", text, "Put a proxy with TLS before it, or keep that network to yourself.")
    where, file = f"{url}/health", backend.nodes.key_file
    yield unseen(
        "nodes",
        "whether they reach the service and hold the key can only be seen there",
        f"On a worker: curl -fsS {where} && test -r {file} && {backend.nodes.python} -c 'import cryptography'",
    )

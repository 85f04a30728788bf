"""Images with the real Apptainer, through spython in its child process: build, pull, pin, sign, verify, time-outs."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm.domain.finding import Grade
from kbslurm.errors import BackendTrouble, Invalid
from kbslurm.images import apptainer, pins, recipes, verifying
from kbslurm.images.apptainer import Maker
from tests.fakes.registry import Blobs, Registry, image_of, serving

NOW = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
BASE = Path("/opt/kb/images/cpu")
RECIPE = """\
Bootstrap: localimage
From: {{ base }}

%arguments
    base=/opt/kb/images/cpu
    note=nothing

%post
    echo made > /etc/made

%test
    test "$(cat /etc/made)" = made
    python3 -I -c 'import json'

%labels
    note {{ note }}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on memory: an image there doesn't fill the node's disk."""
    made = Path("/tmp") / f"images-{secrets.token_hex(4)}"
    made.mkdir(mode=0o700)
    yield made
    subprocess.run(["unshare", "--user", "--map-root-user", "--map-auto", "rm", "-rf", str(made)], check=True)


@pytest.fixture
def maker(folder: Path) -> Maker:
    cache = {"APPTAINER_CACHEDIR": str(folder / ".cache"), "APPTAINER_KEYSDIR": str(folder / ".keys")}
    (folder / ".keys").mkdir(mode=0o700)
    return Maker(timeout_s=300, environ={**os.environ, **cache})


@pytest.fixture(scope="module")
def tiny() -> Blobs:
    return image_of({"hello": b"hello from the registry\n", "data": os.urandom(4096)})


@pytest.fixture
def registry(tiny: Blobs) -> Iterator[Registry]:
    with serving(Registry(images={"tiny": tiny})) as found:
        yield found


def pulled(folder: Path, maker: Maker, registry: Registry, tiny: Blobs, name: str = "tiny.sif") -> Path:
    """The registry's image as a SIF: the smallest there is."""
    plain = Maker(timeout_s=maker.timeout_s, environ=maker.environ, options=("--no-https",))
    apptainer.pull(f"docker://{registry.address}/tiny@{tiny.digest}", folder / name, plain, now=NOW)
    return folder / name


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name not in (".cache", ".keys")}


def test_an_image_is_built_tested_pinned_and_inspected(folder: Path, maker: Maker) -> None:
    (folder / "some.def").write_text(RECIPE)
    recipe = recipes.read_recipe(folder / "some.def")
    pin = apptainer.build(recipe, folder / "made", maker, now=NOW, arguments={"note": "yes"})
    assert pin.digest == pins.digest_of(folder / "made")
    assert pin.base == f"localimage://{BASE}@{pins.digest_of(BASE)}"
    assert "1." in pin.program
    assert (folder / "made" / "etc" / "made").read_text() == "made\n"
    assert apptainer.inspect(folder / "made", maker)["labels"]["note"] == "yes"
    assert [one.grade for one in verifying.verify(folder / "made", maker)] == [Grade.PASS]
    again = apptainer.build(recipe, folder / "made", maker, now=NOW)
    assert again.digest != pin.digest, "other arguments, other image: and nothing of the old one is left"
    assert left(folder) == {"some.def", "made", "digests.lock"}
    (folder / "made" / "etc" / "made").write_text("by somebody\n")
    assert [one.grade for one in verifying.verify(folder / "made", maker)] == [Grade.FAIL]


def test_a_build_that_fails_or_hangs_leaves_nothing(folder: Path, maker: Maker) -> None:
    mark = secrets.token_hex(8)
    for post, limit_s, said in (
        ("exit 3", 300.0, "couldn't be built"),
        (f"sleep 7777 # {mark}", 5.0, "longer than 5 s"),
    ):
        (folder / "bad.def").write_text(f"Bootstrap: localimage\nFrom: {BASE}\n%post\n    {post}\n")
        with pytest.raises(BackendTrouble, match=said):
            apptainer.build(
                recipes.read_recipe(folder / "bad.def"),
                folder / "bad",
                Maker(timeout_s=limit_s, environ=maker.environ),
                now=NOW,
            )
        assert left(folder) == {"bad.def"}
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(path)]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_an_image_is_pulled_by_its_digest(folder: Path, maker: Maker, registry: Registry, tiny: Blobs) -> None:
    image = pulled(folder, maker, registry, tiny)
    pin = pins.read_lock(folder / pins.LOCK)["tiny.sif"]
    assert pin.digest == pins.digest_of(image)
    assert pin.source.endswith(tiny.digest)
    assert any(tiny.digest in path for path in registry.asked)
    said = subprocess.run(
        ["apptainer", "--silent", "exec", "--containall", str(image), "/hello"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert said.returncode != 0, "it holds no program"
    assert apptainer.inspect(image, maker)["labels"]["org.label-schema.usage.singularity.deffile.bootstrap"] == "docker"


def test_a_pull_of_something_else_or_of_nothing_is_told(
    folder: Path, maker: Maker, registry: Registry, tiny: Blobs
) -> None:
    plain = Maker(timeout_s=60, environ=maker.environ, options=("--no-https",))
    for name in (f"tiny@sha256:{'0' * 64}", f"other@{tiny.digest}"):
        with pytest.raises(BackendTrouble, match="couldn't be pulled"):
            apptainer.pull(f"docker://{registry.address}/{name}", folder / "x.sif", plain, now=NOW)
    registry.hangs.set()
    slow = Maker(timeout_s=5, environ=maker.environ, options=("--no-https", "--disable-cache"))
    with pytest.raises(BackendTrouble, match="longer than 5 s"):
        apptainer.pull(f"docker://{registry.address}/tiny@{tiny.digest}", folder / "x.sif", slow, now=NOW)
    assert left(folder) == set()


def test_an_image_is_pushed_to_a_registry_and_verified_there(
    folder: Path, maker: Maker, registry: Registry, tiny: Blobs
) -> None:
    image = pulled(folder, maker, registry, tiny)
    digest = pins.digest_of(image)
    plain = Maker(timeout_s=60, environ={**maker.environ}, options=("--no-https",))
    address = f"oras://{registry.address}/class/tiny:2026-11"
    assert apptainer.push(image, address, plain) == digest
    again = apptainer.pull(address, folder / "again.sif", plain, now=NOW, unpinned=True)
    assert again.digest == digest
    assert left(folder) == {"tiny.sif", "again.sif", "digests.lock"}
    registry.pushed.clear()
    registry.garbles = True
    with pytest.raises(BackendTrouble, match=f"2026-12 gives sha256:.*, but {digest} was pushed"):
        apptainer.push(image, address.replace("-11", "-12"), plain)
    with pytest.raises(BackendTrouble, match="couldn't be pulled"):
        apptainer.push(image, address, plain)  # the manifest is still there, and what it names is gone
    registry.manifests.clear()
    registry.refuses = 403
    with pytest.raises(BackendTrouble, match=r"tiny\.sif couldn't be pushed to oras://"):
        apptainer.push(image, address, plain)
    with pytest.raises(Invalid, match="isn't an address to push to"):
        apptainer.push(image, f"docker://{registry.address}/tiny", plain)
    assert left(folder) == {"tiny.sif", "again.sif", "digests.lock"}


def test_signatures_are_checked(folder: Path, maker: Maker, registry: Registry, tiny: Blobs) -> None:
    image = pulled(folder, maker, registry, tiny)
    assert {one.name: one.grade for one in verifying.verify(image, maker)} == {
        "image": Grade.PASS,
        "signature": Grade.PASS,
    }
    key = (
        "--name=Tester",
        "--email=tester@example.edu",
        "--comment=",
        "--password=",
        "--bit-length=2048",
        "--push=false",
    )
    for command in (("key", "newpair", *key), ("sign", str(image))):
        subprocess.run(["apptainer", *command], env=dict(maker.environ), check=True, stdin=subprocess.DEVNULL)
    digest = pins.digest_of(image)

    signed = verifying.verify(image, maker, pinned=digest)[1]
    assert (signed.grade, "Tester" in signed.text) == (Grade.PASS, True)

    (folder / ".strangers").mkdir(mode=0o700)
    stranger = Maker(timeout_s=60, environ={**maker.environ, "APPTAINER_KEYSDIR": str(folder / ".strangers")})
    assert verifying.verify(image, stranger, pinned=digest)[1].grade is Grade.CAUTION

    other = folder / "other.pem"
    for words in ("genpkey -algorithm RSA -out {0}.key", "pkey -in {0}.key -pubout -out {0}"):
        subprocess.run(["openssl", *words.format(other).split()], check=True, capture_output=True)
    assert verifying.verify(image, maker, pinned=digest, key=other)[1].grade is Grade.FAIL

    forged = bytearray(image.read_bytes())
    place = forged.rindex(b"hsqs") + 200  # within the file system that was signed
    forged[place] ^= 0xFF
    image.write_bytes(forged)
    assert [one.grade for one in verifying.verify(image, maker, pinned=digest)] == [Grade.FAIL, Grade.FAIL]


def test_the_command_line_builds_pulls_lists_and_verifies(
    folder: Path, maker: Maker, registry: Registry, tiny: Blobs
) -> None:
    def kbslurm(*words: str) -> tuple[int, dict[str, object]]:
        done = subprocess.run(
            ["kbslurm", "image", *words, "--json"], env=dict(maker.environ), cwd=folder, capture_output=True, text=True
        )
        assert "Traceback" not in done.stderr, done.stderr
        told: dict[str, object] = json.loads(done.stdout)
        return done.returncode, told

    source = f"docker://{registry.address}/tiny@{tiny.digest}"
    code, told = kbslurm("pull", source, "--out", "tiny.sif", "--option=--no-https")
    assert (code, told["image"]) == (0, "tiny.sif")
    code, told = kbslurm("list", str(folder))
    assert [one["path"] for one in told["images"]] == [f"{folder}/tiny.sif"]  # type: ignore[attr-defined]
    assert {one["name"] for one in told["recipes"]} == {"cpu", "cuda", "rocm"}  # type: ignore[attr-defined]
    assert kbslurm("verify", "tiny.sif")[0] == 0
    code, told = kbslurm("verify", "tiny.sif", "--digest", "sha256:" + "0" * 64)
    assert (code, told["worst"]) == (1, "FAIL")
    code, told = kbslurm("push", f"oras://{registry.address}/class", "tiny", "--option=--no-https")
    short = pins.digest_of(folder / "tiny.sif").removeprefix("sha256:")[:12]
    assert [one["address"] for one in told["images"]] == [f"oras://{registry.address}/class/tiny:{short}"]  # type: ignore[attr-defined]
    assert code == 0
    code, told = kbslurm("pull", f"docker://{registry.address}/tiny:latest", "--out", "x.sif")
    assert code == 2
    code, told = kbslurm("pull", f"docker://{registry.address}/none@{tiny.digest}", "--out", "x.sif")
    assert code == 6
    assert "spython" not in json.dumps(told)

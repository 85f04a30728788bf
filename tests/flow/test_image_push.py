"""Images go to a site by rsync over a real sshd: whole and verified or not at all, and never over one that is open."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kbslurm.images import pins
from kbslurm.images.pins import Pin
from tests import sshd
from tests.command_line import CommandLine, Said
from tests.services import RSYNC, SSHD, need
from tests.sshd import Sshd

NOW = datetime(2026, 11, 28, 3, 0, tzinfo=UTC)
MEBIBYTE = 1 << 20
SITE = """\
name = "{name}"
{submit}
[paths]
shared_root = "{there}"

[gpus.H100]
request = "--gres=gpu:h100:1"
image = "cuda.sif"
{more}

[gpus.A100]
request = "--gres=gpu:a100:1"
image = "cuda.sif"
{more}
"""
FAR_TOOLS = "sh env mkdir cat df awk stat find sha256sum chmod ln mv rm touch true"


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    need(SSHD)
    need(RSYNC)
    with sshd.serving(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@dataclass
class Desk:
    """A folder with images and sites, and the commands typed there."""

    folder: Path
    login: Sshd
    env: dict[str, str] = field(default_factory=dict)

    @property
    def here(self) -> Path:
        return self.folder / "here"

    def images(self, name: str) -> Path:
        """Where that site has its images."""
        return self.folder / name / "images"

    def site(self, name: str, *, submit: str | None = None, there: str = "", more: str = "") -> None:
        """A site behind the login node, and in use."""
        text = SITE.format(
            name=name,
            submit=self.login.submit() if submit is None else submit,
            there=there or self.folder / name,
            more=more,
        )
        (self.folder / f"{name}.toml").write_text(text)
        used = sorted(str(file) for file in self.folder.glob("*.toml") if file.stem != "kbslurm")
        (self.folder / "kbslurm.toml").write_text(f"[sites]\nuse = {json.dumps(used)}\n")

    def image(self, content: bytes, name: str = "cuda.sif") -> str:
        """An image that was made here, with its pin; its digest."""
        self.here.mkdir(exist_ok=True)
        (self.here / name).write_bytes(content)
        digest = pins.digest_of(self.here / name)
        pins.pin(self.here / pins.LOCK, name, Pin(digest=digest, made_at=NOW, source="cuda.def", program="1.4.5"))
        return digest

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "kbslurm", "--config", str(self.folder / "kbslurm.toml"), "image", *words]

    def said(self, *words: str) -> tuple[int, str]:
        """Exit code and text, without a traceback."""
        done = self._typed(*words)
        return done.code, " ".join((done.out + done.err).split())

    def told(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = self._typed(*words, "--json")
        found: dict[str, Any] = done.json()
        return done.code, found

    def _typed(self, *words: str) -> Said:
        done = CommandLine(cwd=self.folder, env=self.env)(*self.argv(*words)[3:])
        assert "Traceback" not in done.err, done.err
        return done

    def push(self, *words: str) -> tuple[int, dict[str, Any]]:
        return self.told("push", *words, "--from", str(self.here))

    def listed(self, *words: str) -> dict[str, str]:
        """The state of each image by place and name."""
        _, told = self.told("list", *words)
        return {f"{row['place']}/{Path(row['path']).name}": row["state"] for row in told["images"]}


@pytest.fixture
def desk(tmp_path: Path, login: Sshd) -> Desk:
    return Desk(folder=tmp_path, login=login)


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_an_image_is_copied_once_verified_and_recorded_there(desk: Desk) -> None:
    desk.site("east")
    digest = desk.image(os.urandom(3 * MEBIBYTE))
    code, told = desk.push("east")
    (fact,) = told["images"]
    assert (code, told["failed"], fact["state"], fact["digest"]) == (0, 0, "copied", digest)
    assert (fact["for"], fact["pinned"], fact["bytes"]) == (["H100", "A100"], False, 3 * MEBIBYTE)
    there = desk.images("east")
    assert pins.digest_of(there / "cuda.sif") == digest
    assert pins.read_lock(there / pins.LOCK)["cuda.sif"] == pins.read_lock(desk.here / pins.LOCK)["cuda.sif"]
    assert hidden(there) == [] and (there / "cuda.sif").stat().st_mode & 0o777 == 0o644
    before = (there / "cuda.sif").stat()
    code, told = desk.push("east", "cuda")
    assert (code, told["images"][0]["state"]) == (0, "there")
    assert (there / "cuda.sif").stat() == before, "what is there isn't touched"
    assert desk.listed("--site", "east", str(desk.here)) == {"east/cuda.sif": "pinned"}
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 0 and f'image_digest = "{digest}" in the site\'s file pins it' in said, said


def test_no_shell_there_reads_the_name_of_an_image(desk: Desk) -> None:
    """As rsync before 3.2.4 would have it read."""
    desk.env["RSYNC_OLD_ARGS"] = "1"
    name = "cuda(1)&more;.sif"
    desk.site("east")
    (desk.folder / "east.toml").write_text((desk.folder / "east.toml").read_text().replace("cuda.sif", name))
    digest = desk.image(b"image" * 1000, name)
    code, told = desk.push("east")
    assert (code, told["images"][0]["state"]) == (0, "copied"), told
    assert pins.digest_of(desk.images("east") / name) == digest


def test_a_tag_is_a_file_of_its_own_so_that_nothing_is_replaced(desk: Desk) -> None:
    desk.site("east")
    old = desk.image(b"old" * 1000)
    assert desk.push("--all")[0] == 0
    new = desk.image(b"new" * 1000, "cuda-2026-11.sif")
    desk.site("east", more=f'image_tag = "2026-11"\nimage_digest = "{new}"')
    assert desk.listed("--all") == {"east/cuda-2026-11.sif": "missing", "east/cuda.sif": "unused"}
    assert desk.push("--all", "cuda")[0] == 0
    there = desk.images("east")
    assert (pins.digest_of(there / "cuda.sif"), pins.digest_of(there / "cuda-2026-11.sif")) == (old, new)
    assert desk.listed("--all", "--check") == {"east/cuda-2026-11.sif": "pinned", "east/cuda.sif": "unused"}


def test_an_open_image_keeps_what_it_was_when_another_takes_its_name(desk: Desk) -> None:
    desk.site("east")
    desk.image(b"old" * 1000)
    desk.push("east")
    there = desk.images("east")
    with (there / "cuda.sif").open("rb") as job:
        desk.image(b"new" * 2000)
        assert desk.listed("--all", str(desk.here)) == {"east/cuda.sif": "behind"}
        assert desk.push("east")[0] == 0
        assert job.read() == b"old" * 1000
    assert (there / "cuda.sif").read_bytes() == b"new" * 2000
    (kept,) = hidden(there)
    assert kept.startswith(".cuda.sif-was-") and (there / kept).read_bytes() == b"old" * 1000
    # It goes when no job can have it open any more, with the next image that is pushed
    long_ago = time.time() - 9 * 86_400
    os.utime(there / kept, (long_ago, long_ago))
    desk.image(b"newer" * 2000)
    assert desk.push("east")[0] == 0
    (now_kept,) = hidden(there)
    assert now_kept != kept and (there / now_kept).read_bytes() == b"new" * 2000


def test_a_copy_that_broke_off_goes_on_where_it_stopped(desk: Desk) -> None:
    desk.site("east")
    digest = desk.image(os.urandom(MEBIBYTE) * 300)
    there = desk.images("east")
    part = there / f".cuda.sif-{digest.removeprefix('sha256:')[:16]}.part"
    with subprocess.Popen(
        desk.argv("push", "east", "--from", str(desk.here)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        while child.poll() is None and not (part.exists() and part.stat().st_size > 8 * MEBIBYTE):
            time.sleep(0.001)
        for session in desk.login.sessions():  # the line is cut
            os.kill(session, signal.SIGKILL)
        assert child.stdout is not None
        said = " ".join(child.stdout.read().split())
    assert child.returncode == 6, said
    assert "broke off" in said and "goes on where this one stopped" in said and "Traceback" not in said
    begun = part.stat()
    assert MEBIBYTE < begun.st_size < 300 * MEBIBYTE, "else nothing was interrupted"
    assert not (there / "cuda.sif").exists(), "half an image has no name"
    code, told = desk.push("east")
    assert (code, told["images"][0]["state"]) == (0, "copied")
    assert (there / "cuda.sif").stat().st_ino == begun.st_ino, "the same file was continued"
    assert pins.digest_of(there / "cuda.sif") == digest and hidden(there) == []


def test_what_arrives_damaged_never_gets_the_images_name(desk: Desk) -> None:
    desk.site("east")
    digest = desk.image(b"right" * 1000)
    there = desk.images("east")
    there.mkdir(parents=True)
    part = there / f".cuda.sif-{digest.removeprefix('sha256:')[:16]}.part"
    part.write_bytes(b"wrong" * 1000)  # as long as the image, so rsync takes it for a finished copy
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 6 and "cuda.sif arrived damaged at 127.0.0.1:" in said and "Push it again" in said, said
    assert list(there.iterdir()) == []
    part.write_bytes(b"wrong")  # half as long: the beginning is another image's
    assert desk.push("east")[0] == 0
    assert pins.digest_of(there / "cuda.sif") == digest


def test_one_place_that_fails_keeps_no_other_from_its_image(desk: Desk) -> None:
    desk.site("closed", submit=desk.login.submit().replace(f"port = {desk.login.port}", "port = 1"))
    desk.site("east")
    desk.site("west", submit="")
    digest = desk.image(b"image" * 1000)
    code, told = desk.push("--all")
    states = {fact["place"]: fact["state"] for fact in told["images"]}
    assert (code, states) == (6, {"closed": "failed", "east": "copied", "west": "copied"}), told
    assert "ssh can't log in to 127.0.0.1" in told["images"][0]["why"]
    assert pins.digest_of(desk.images("west") / "cuda.sif") == digest, "a site on this machine: without ssh"
    code, said = desk.said("push", "--all", "--from", str(desk.here))
    assert code == 6 and said.count("is there already") == 2 and "ssh -i" in said, said
    code, told = desk.told("list", "--all", str(desk.here))
    states = {row["place"]: row["state"] for row in told["images"]}
    assert (code, states) == (6, {"closed": "unreachable", "east": "pinned", "west": "pinned"})
    code, said = desk.said("list", "--all")
    assert code == 6 and "unreachable" in said and "ssh can't log in" in said


def test_a_listing_knows_when_a_file_isnt_what_was_noted(desk: Desk) -> None:
    desk.site("east")
    digest = desk.image(b"image" * 1000)
    desk.site("east", more=f'image_digest = "{digest}"')
    desk.push("east")
    assert desk.listed("--all") == {"east/cuda.sif": "pinned"}
    there = desk.images("east") / "cuda.sif"
    there.write_bytes(b"other" * 1000)
    later = time.time() + 60
    os.utime(there, (later, later))
    assert desk.listed("--all") == {"east/cuda.sif": "unknown"}, "the note is older than the file"
    assert desk.listed("--all", "--check") == {"east/cuda.sif": "behind"}
    assert desk.push("east")[1]["images"][0]["state"] == "copied"
    assert desk.listed("--all", "--check") == {"east/cuda.sif": "pinned"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("push",), 2, "no place is named"),
        (("push", "nowhere"), 2, "there is no site 'nowhere'"),
        (("push", "east", "rocm"), 2, "there is no image 'rocm'"),
        (("push", "east", "--from", "nowhere"), 2, "there is no folder 'nowhere'"),
        (("push", "east", "--tag", "x"), 2, "--tag is for a registry"),
        (("push", "--all", "oras://registry.example.edu/x"), 2, "not to a registry"),
        (("push", "oras://registry.example.edu/x"), 2, "no image is named"),
        (("push", "oras://registry.example.edu/x", "rocm"), 2, "there is no image"),
        (("list", "--all", "--site", "east"), 2, "--all lists every site"),
        (("list", "nowhere"), 2, "there is no folder"),
    ],
)
def test_a_mistake_is_one_sentence(desk: Desk, words: tuple[str, ...], code: int, said: str) -> None:
    desk.site("east")
    found = desk.said(*words)
    assert found[0] == code and said in found[1] and "hint" in found[1], found


def test_only_the_image_that_is_wanted_goes(desk: Desk) -> None:
    desk.site("east")
    code, said = desk.said("push", "east", "--from", str(desk.folder))
    assert code == 2 and "kbslurm image build cuda --out" in said, said
    digest = desk.image(b"image" * 1000)
    desk.site("east", more=f'image_digest = "sha256:{"0" * 64}"')
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 2 and f"is {digest}, but east's file pins sha256:000" in said, said
    desk.site("east")
    (desk.here / "cuda.sif").write_bytes(b"by somebody")
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 2 and "digests.lock" in said and f"it was {digest} when it was made" in said, said
    (desk.here / "cuda.sif").unlink()
    (desk.here / "cuda.sif").mkdir()
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 2 and "isn't a SIF file" in said, said
    assert not desk.images("east").exists()
    text = (desk.folder / "east.toml").read_text()
    both = text.replace('image = "cuda.sif"', f'image = "cuda.sif"\nimage_digest = "sha256:{"1" * 64}"', 1)
    head, image, rest = both.rpartition('image = "cuda.sif"')
    (desk.folder / "east.toml").write_text(f'{head}{image}\nimage_digest = "sha256:{"2" * 64}"{rest}')
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 2 and "for H100 and to sha256:222" in said and "for A100" in said, said


def test_a_place_without_rsync_or_room_or_a_folder_is_told_apart(desk: Desk, tmp_path: Path) -> None:
    desk.image(b"image" * 1000)
    desk.site("east", there="/proc/kbslurm")
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 6 and "127.0.0.1:/proc/kbslurm/images can't be written to" in said, said
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in FAR_TOOLS.split():
        (tools / name).symlink_to(shutil.which(name) or name)
    with sshd.serving(tmp_path / "bare", more=f"SetEnv PATH={tools}") as bare:
        desk.site("east", submit=bare.submit())
        code, said = desk.said("push", "east", "--from", str(desk.here))
        assert code == 6 and "there is no rsync at 127.0.0.1" in said and "Install rsync" in said, said
    desk.site("east")
    for name in ("ssh", "python3"):
        if not (tools / name).exists():
            (tools / name).symlink_to(shutil.which(name) or name)
    desk.env["PATH"] = str(tools)
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 2 and "there is no rsync on this machine" in said.replace("'", ""), said


def test_a_login_that_greets_is_told_apart_from_one_that_is_clean(desk: Desk, tmp_path: Path) -> None:
    """What a shell says of its own accord is in the way of rsync, which says so; listing isn't disturbed."""
    digest = desk.image(b"image" * 1000)
    desk.site("east")
    assert desk.push("east")[0] == 0
    greets = 'ForceCommand echo Welcome to the cluster; eval "$SSH_ORIGINAL_COMMAND"'
    with sshd.serving(tmp_path / "greets", more=greets) as login:
        desk.site("east", submit=login.submit(), more=f'image_digest = "{digest}"')
        assert desk.listed("--all", "--check") == {"east/cuda.sif": "pinned"}
        desk.image(b"newer" * 1000)
        desk.site("east", submit=login.submit())
        code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 6 and "broke off: protocol version mismatch -- is your shell clean?" in said, said
    assert pins.digest_of(desk.images("east") / "cuda.sif") == digest


def test_a_directory_is_never_taken_for_a_place_to_put_an_image_in(desk: Desk) -> None:
    desk.site("east")
    desk.image(b"image" * 1000)
    (desk.images("east") / "cuda.sif").mkdir(parents=True)
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 6 and "cuda.sif is a directory, and a SIF can't take its place" in said, said
    assert list((desk.images("east") / "cuda.sif").iterdir()) == []


def test_a_lock_there_that_is_somebody_elses_is_left_alone(desk: Desk) -> None:
    desk.site("east")
    desk.image(b"image" * 1000)
    desk.images("east").mkdir(parents=True)
    (desk.images("east") / pins.LOCK).write_text("not = [ours")
    code, said = desk.said("push", "east", "--from", str(desk.here))
    assert code == 6 and "digests.lock isn't one of ours" in said and "Move that file away" in said, said
    assert (desk.images("east") / pins.LOCK).read_text() == "not = [ours"
    assert (desk.images("east") / "cuda.sif").exists()

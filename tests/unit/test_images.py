"""Recipes, digests and pins, without a container program: what Apptainer itself does is tried on the cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm.config import shared_folders
from kbslurm.domain.finding import Grade
from kbslurm.errors import Invalid, Misconfigured, NotFound
from kbslurm.images import apptainer, pins, recipes, verifying
from kbslurm.images.apptainer import Maker
from kbslurm.images.pins import Pin
from kbslurm_eval.shared.image_digest import UNREADABLE

NOW = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
DIGEST = "sha256:" + "0" * 64


def recipe(folder: Path, text: str) -> recipes.Recipe:
    file = folder / "some.def"
    file.write_text(text)
    return recipes.read_recipe(file)


# ------------------------------------------------------------------------------------------------------- what we ship


def test_every_shipped_recipe_is_whole_and_its_base_is_the_locks() -> None:
    folder = shared_folders.path("containers")
    bases = tomllib.loads((folder / pins.LOCK).read_text())["bases"]
    shipped = recipes.recipes_in(folder)
    assert [one.name for one in shipped] == ["cpu", "cuda", "rocm"] == sorted(bases)
    for one in shipped:
        assert one.pinned, one.name
        lock = bases[one.name]
        assert one.base == f"docker://{lock['from']}@{lock['digest']}"
        assert f"org.kbslurm.recipe {one.name}\n" in one.sections["labels"]
        assert {"post", "test", "environment", "labels"} <= set(one.sections)


def test_the_recipes_shell_is_shell(tmp_path: Path) -> None:
    for one in recipes.recipes_in(shared_folders.path("containers")):
        for section in ("post", "test", "environment"):
            script = tmp_path / f"{one.name}-{section}.sh"
            script.write_text(one.filled(one.sections[section]))
            assert os.system(f"sh -n {script}") == 0


# ---------------------------------------------------------------------------------------------------------- recipes


def test_a_recipe_is_read(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        "# says\nBootstrap: docker\nFrom: {{ base }}\n\n%arguments\n    base=a/b@" + DIGEST + "\n    note='x'\n"
        "%post\n    true {{ note }}\n",
    )
    assert found.base == f"docker://a/b@{DIGEST}"
    assert found.pinned == DIGEST
    assert found.arguments == {"base": f"a/b@{DIGEST}", "note": "x"}
    assert found.filled(found.sections["post"]).strip() == "true x"
    assert found.filled(found.sections["post"], {"note": "y"}).strip() == "true y"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("From: x\n", 1, "doesn't name its base"),
        ("Bootstrap: docker\nFrom x\n", 2, "neither"),
        ("Bootstrap: docker\nFrom: x\n%pots\n", 3, "%pots isn't a valid section"),
        ("Bootstrap: docker\nFrom: x\n%post\n  {{ version }}\n", 4, "version }} has no default"),
    ],
)
def test_a_fault_in_a_recipe_has_a_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        recipe(tmp_path, text)
    assert said in caught.value.message
    assert f"some.def:{line}:" in caught.value.message


def test_a_base_that_can_change_is_told_and_refused(tmp_path: Path) -> None:
    found = recipe(tmp_path, "Bootstrap: docker\nFrom: debian:trixie-slim\n%post\n true\n")
    assert found.pinned is None
    with pytest.raises(Misconfigured, match="isn't pinned"):
        apptainer.build(found, tmp_path / "x.sif", Maker(), now=NOW)
    with pytest.raises(Invalid, match="may refer to a different image tomorrow"):
        apptainer.pull("docker://127.0.0.1:1/tiny:latest", tmp_path / "x.sif", Maker(), now=NOW)
    with pytest.raises(Invalid, match="can't be pulled"):
        apptainer.pull("tiny", tmp_path / "x.sif", Maker(), now=NOW)


def test_an_argument_that_the_recipe_lacks_is_refused(tmp_path: Path) -> None:
    found = recipe(tmp_path, f"Bootstrap: docker\nFrom: a@{DIGEST}\n%arguments\n one=1\n")
    with pytest.raises(Invalid, match="has no argument two"):
        apptainer.build(found, tmp_path / "x.sif", Maker(), now=NOW, arguments={"two": "2"})


def test_without_a_container_program_the_error_says_where_to_go(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no container program") as caught:
        apptainer.version_of(Maker(environ={"PATH": str(tmp_path)}))
    assert "module" in (caught.value.hint or "")


# ---------------------------------------------------------------------------------------------------------- digests


def tree(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "tool").write_text("#!/bin/sh\n")
    (root / "bin" / "tool").chmod(0o755)
    (root / "bin" / "link").symlink_to("tool")
    (root / "empty").mkdir()
    return root


def test_a_directorys_digest_is_of_names_contents_kinds_and_nothing_else(tmp_path: Path) -> None:
    one, two = tree(tmp_path / "one"), tree(tmp_path / "two")
    os.utime(two / "bin" / "tool", (1, 1))
    before = pins.digest_of(one)
    assert before.startswith("tree:")
    assert pins.digest_of(two) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "bin" / "tool").write_text("#!/bin/sh\nexit\n"),
        lambda root: (root / "bin" / "tool").chmod(0o644),
        lambda root: (root / "bin" / "tool").rename(root / "bin" / "tools"),
        lambda root: (root / "empty").rmdir(),
        lambda root: (root / "more").touch(),
        lambda root: ((root / "bin" / "link").unlink(), (root / "bin" / "link").symlink_to("other")),
        lambda root: ((root / "bin" / "link").unlink(), (root / "bin" / "link").write_text("tool")),
        lambda root: os.mkfifo(root / "pipe"),
    ],
)
def test_a_directorys_digest_notices_any_change(tmp_path: Path, change: object) -> None:
    root = tree(tmp_path / "image")
    before = pins.digest_of(root)
    assert callable(change)
    change(root)
    assert pins.digest_of(root) != before


def test_a_files_digest_is_its_sha256_and_a_missing_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.sif").write_bytes(b"abc")
    assert pins.digest_of(tmp_path / "x.sif").startswith("sha256:ba7816bf")
    with pytest.raises(NotFound, match="no image"):
        pins.digest_of(tmp_path / "y.sif")


# -------------------------------------------------------------------------------------------------------------- pins


def test_a_lock_keeps_what_it_held_and_reads_back(tmp_path: Path) -> None:
    lock = tmp_path / pins.LOCK
    assert pins.read_lock(lock) == {}
    first = Pin(digest=DIGEST, made_at=NOW, source='odd "name"', base="docker://b", program="apptainer 1")
    pins.pin(lock, "a.sif", first)
    pins.pin(lock, "odd name", Pin(digest="tree:1", made_at=NOW, source="x"))
    assert pins.read_lock(lock)["a.sif"] == first
    assert set(pins.read_lock(lock)) == {"a.sif", "odd name"}
    assert [path.name for path in tmp_path.iterdir()] == [pins.LOCK]


def test_a_broken_lock_is_said_with_its_file(tmp_path: Path) -> None:
    (tmp_path / pins.LOCK).write_text("[images.x]\nnonsense = 1\n")
    with pytest.raises(Misconfigured, match=r"digests\.lock"):
        pins.read_lock(tmp_path / pins.LOCK)


def test_what_this_account_may_not_read_is_said_by_a_status_of_its_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "image").mkdir(mode=0o755)
    (tmp_path / "image" / "shadow").write_text("x")
    (tmp_path / "image" / "shadow").chmod(0)
    asked = (
        # as root, who alone may reach this Python
        "import os, sys\nfrom kbslurm_eval import run\nfrom kbslurm_eval.shared import image_digest\n"
        "if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(run.main(['--image-digest', 'image']))"
    )
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (UNREADABLE, ""), done.stderr
    assert done.stderr == "this account can't read image/shadow, so what the image is isn't known\n"


def test_verify_holds_an_image_to_its_pin_and_the_sites_goes_before_the_locks(tmp_path: Path) -> None:
    image = tmp_path / "x.sif"
    assert [one.grade for one in verifying.verify(image, None)] == [Grade.FAIL]
    image.write_bytes(b"abc")
    (loose,) = verifying.verify(image, None)
    assert loose.grade is Grade.CAUTION
    assert pins.digest_of(image) in loose.remedy
    pins.pin(pins.lock_beside(image), image.name, Pin(digest=pins.digest_of(image), made_at=NOW, source="x"))
    assert [one.grade for one in verifying.verify(image, None)] == [Grade.PASS]
    assert [one.grade for one in verifying.verify(image, None, pinned=DIGEST)] == [Grade.FAIL]
    image.write_bytes(b"abd")
    (broken,) = verifying.verify(image, None, where="H100")
    assert (broken.grade, broken.where) == (Grade.FAIL, "H100")
    assert "replaced" in broken.remedy

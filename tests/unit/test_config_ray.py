"""[ray.NAME]: several clusters, their secrets by name, and what is refused with file and line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kbslurm import wiring
from kbslurm.backends.ray.backend import RayBackend, RayImage
from kbslurm.cli.operator import bot_process
from kbslurm.config import display, secret_values, settings
from kbslurm.domain.secret_names import of_ray
from kbslurm.errors import Misconfigured
from kbslurm.observe import logs

RAY = """\
[ray.campus]
url = "http://head:8265/"
service_url = "https://kernels.example.edu"
gpus.H100 = { resources = { H100 = 1 }, slots = 8, memory_gb = 16 }
gpus.A100 = {}
"""
DIGEST = "sha256:" + "0f" * 32
KEY, TOKEN = "ab" * 32, "t0k3n-of-the-campus"
ENV = {"RAY_CAMPUS_KEY": KEY, "RAY_CAMPUS_TOKEN": TOKEN}


def written(folder: Path, text: str) -> Path:
    file = folder / "kbslurm.toml"
    file.write_text(text)
    return file


def test_a_cluster_is_a_place_in_a_few_lines(tmp_path: Path) -> None:
    written(tmp_path, RAY + '[ray.cloud-1]\nurl = "https://ray.example.org"\n')
    config = settings.load(env=ENV, cwd=tmp_path)
    assert [place.name for place in wiring.places(config)] == ["campus"], "the other one has no GPU type"
    place = wiring.ray_place(config, "campus")
    assert isinstance(place.backend, RayBackend)
    assert place.backend.capacity() == {"H100": 8, "A100": 4}
    assert (place.role, place.untrusted, place.ranked_min_isolation) == ("home", True, 2)
    assert place.backend.min_isolation == 2 and place.backend.api.url == "http://head:8265"
    assert place.backend.gpus["H100"].memory_bytes == 16 << 30
    assert wiring.slots(config) == {"H100": 8, "A100": 4} and wiring.slots_at(config, "campus", "H100") == 8
    assert [(offer.name, offer.gpus) for offer in wiring.offers(config)] == [("campus", ("H100", "A100"))]


def test_its_secrets_have_names_of_its_own_and_are_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_ray("cloud-1") == ("RAY_CLOUD_1_TOKEN", "RAY_CLOUD_1_KEY")
    (tmp_path / "key").write_text(KEY + "\n")
    written(tmp_path, RAY)
    config = settings.load(env={"RAY_CAMPUS_TOKEN": TOKEN, "RAY_CAMPUS_KEY_FILE": "key"}, cwd=tmp_path)
    assert wiring.ray_key(config, "campus") == bytes.fromhex(KEY)
    rows = {key: (value, origin) for key, value, origin in display.shown(config)}
    assert rows["RAY_CAMPUS_TOKEN"] == (secret_values.MASK, "$RAY_CAMPUS_TOKEN")
    assert rows["RAY_CAMPUS_KEY"] == (secret_values.MASK, "$RAY_CAMPUS_KEY_FILE")
    assert rows["ray.campus.url"] == ("http://head:8265", f"{tmp_path / 'kbslurm.toml'}:2")
    assert rows["ray.campus.lease_s"] == ("120", "default")
    monkeypatch.setenv("RAY_CAMPUS_TOKEN", TOKEN)
    assert logs.without_secrets(f"sent {TOKEN}") == "sent ***"
    monkeypatch.setenv("DISCORD_TOKEN", "x")
    monkeypatch.setenv("RAY_CAMPUS_KEY_FILE", "key")
    given = bot_process.environment(settings.load(cwd=tmp_path), bot_token="bot")
    assert not [name for name in given if name.startswith("RAY_CAMPUS")]


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        (
            "min_isolation = 1\n",
            ":6: ray.campus.min_isolation: below isolation level 2 a submission reaches",
            "for staff too",
        ),
        (
            "min_isolation = 0\nstaff_only = true\n",
            ":6: ray.campus.min_isolation: below isolation level 2",
            "for staff too",
        ),
        ("gpus.T4 = { num_gpus = 0 }\n", ":4: ray.campus.gpus: T4 asks Ray for nothing", "resources = "),
        (
            "gpus.T4 = { resources = { GPU = 1 } }\n",
            ":6: ray.campus.gpus.T4.resources: 'GPU' isn't a valid",
            "num_gpus",
        ),
        ("lease_s = 5\n", ":6: ray.campus.lease_s: 5.0 is too small", "at least 30"),
        ('key_file = "etc/key"\n', ":6: ray.campus.key_file: 'etc/key' isn't a valid path", "/etc/kbslurm/run-key"),
        ('python = "python3; true"\n', ":6: ray.campus.python: 'python3; true' isn't a valid Python", "python3"),
        (
            "[ray.campus.gpus.L4]\nnum_gpus = 0.5\n",
            ":7: ray.campus.gpus.L4.num_gpus: L4 asks for 0.5 GPUs, so runs would share one",
            "ranked = false in [ray.campus]",
        ),
        (
            'image = "cuda.sif"\n',
            ":6: ray.campus.image: 'cuda.sif' isn't a valid path of an image",
            "/opt/kbslurm/cuda",
        ),
        ('image = "/a:b.sif"\n', ":6: ray.campus.image: '/a:b.sif' isn't a valid path of an image", "whole path"),
        ('image_digest = "sha256:1"\n', ":6: ray.campus.image_digest: 'sha256:1' isn't the digest", "image verify"),
        (
            f'image_digest = "{DIGEST}"\n',
            ":6: ray.campus.image_digest: there is no image whose digest it could be",
            "Add image",
        ),
        (
            f'[ray.campus.gpus.L4]\nimage_digest = "{DIGEST}"\n',
            ":7: ray.campus.gpus.L4.image_digest: there is no image",
            "Add image",
        ),
        (
            'runtime = "none"\n[ray.campus.gpus.L4]\nimage = "/i.sif"\n',
            ':8: ray.campus.gpus.L4.image: runtime = "none" in [ray.campus] means that no image is ever used',
            "Remove image",
        ),
        ('runtime = "docker"\n', ":6: ray.campus.runtime: 'docker' isn't one of apptainer, singularity", ""),
        ("minimum = 1\n", ":6: ray.campus.minimum: unknown key", "min_isolation"),
        ('[ray.Cloud]\nurl = "http://x"\n', ": ray: 'Cloud' isn't a valid name of a place", "lower-case"),
        ("[ray.cloud]\n", ": ray.cloud.url: is missing", ""),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, said: str, fix: str) -> None:
    file = written(tmp_path, RAY + text)
    with pytest.raises(Misconfigured) as caught:
        settings.load(env=ENV, cwd=tmp_path)
    message = str(caught.value)
    assert message.startswith(str(file)) and said in message, message
    assert fix in f"{message} {caught.value.hint}"


def test_nodes_need_a_way_back_and_the_service_a_key(tmp_path: Path) -> None:
    text = RAY.replace('service_url = "https://kernels.example.edu"\n', "")
    written(tmp_path, text)
    with pytest.raises(Misconfigured, match="have to call this service"):
        settings.load(env=ENV, cwd=tmp_path)
    written(tmp_path, f'[server]\npublic_url = "https://k.example.edu"\n{text}')
    config = settings.load(env=ENV, cwd=tmp_path)
    backend = wiring.ray_place(config, "campus").backend
    assert isinstance(backend, RayBackend) and backend.nodes.service_url == "https://k.example.edu"
    for env in ({}, {"RAY_CAMPUS_KEY": "short"}):
        with pytest.raises(Misconfigured, match="RAY_CAMPUS_KEY isn't a 32-byte key") as caught:
            wiring.places(settings.load(env=env, cwd=tmp_path))
        assert caught.value.hint is not None and "/etc/kbslurm/run-key" in caught.value.hint


def images_of(folder: Path, text: str) -> dict[str, RayImage | None]:
    written(folder, text)
    backend = wiring.ray_place(settings.load(env=ENV, cwd=folder), "campus").backend
    assert isinstance(backend, RayBackend)
    return {gpu: asked.image for gpu, asked in backend.gpus.items()}


def test_an_image_is_the_places_or_a_gpu_types_own_and_only_auto_allows_the_own_cage(tmp_path: Path) -> None:
    assert images_of(tmp_path, RAY) == {"H100": None, "A100": None}
    images = f'image = "/opt/cuda.sif"\nimage_digest = "{DIGEST}"\n'
    own = '[ray.campus.gpus.MI300]\nimage = "/opt/rocm.sif"\nvendor = "amd"\n'
    pinned = RayImage(path="/opt/cuda.sif", programs=("apptainer",), digest=DIGEST)
    assert images_of(tmp_path, RAY + images + own) == {
        "H100": pinned,
        "A100": pinned,
        "MI300": RayImage(path="/opt/rocm.sif", programs=("apptainer",), vendor="amd"),
    }
    found = images_of(tmp_path, f'{RAY}{images}runtime = "auto"\n')["H100"]
    assert found == replace(pinned, programs=("apptainer", "singularity"), or_own_cage=True)
    only = images_of(tmp_path, f'{RAY}{images}runtime = "singularity"\n')["H100"]
    assert only == replace(pinned, programs=("singularity",))
    assert images_of(tmp_path, f'{RAY}runtime = "none"\n') == {"H100": None, "A100": None}

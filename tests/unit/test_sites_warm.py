"""[gpus.X.warm]: what a site's file may allow, and every bound with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm.config import shared_folders, sites
from kbslurm.domain.keepers import Warm
from kbslurm.errors import Misconfigured
from kbslurm.wiring import slurm_place

PLAIN = """\
name = "here"

[paths]
shared_root = "/shared/kb"

[gpus.H100]
request = "--gres=gpu:h100:1"
image = "cuda.sif"
memory = "64G"
count = 3

[gpus.H100.warm]
max = 2
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "here.toml"
    file.write_text(text)
    return file


def test_it_is_off_until_the_file_allows_it(tmp_path: Path) -> None:
    without = sites.load(written(tmp_path, PLAIN.partition("[gpus.H100.warm]")[0]))
    assert without.gpus["H100"].warm is None
    assert slurm_place(without).warm == {}
    none = sites.load(written(tmp_path, PLAIN.replace("max = 2", "max = 0")))
    assert slurm_place(none).warm == {}
    for site in sites.load_all(shared_folders.path("site-configs"), ["alliance", "bouchet", "bunya", "della"]):
        assert all(gpu.warm is None for gpu in site.gpus.values()), site.name


def test_one_line_allows_it_and_the_rest_has_defaults(tmp_path: Path) -> None:
    site = sites.load(written(tmp_path, PLAIN))
    assert site.gpus["H100"].warm == Warm(max=2, idle_s=300.0, life_s=14_400.0, hours=(), give_back=True)
    assert slurm_place(site).warm == {"H100": site.gpus["H100"].warm}


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("max = 2", 'idle = "5m"', 12, "is missing"),
        ("max = 2", "max = 6", 13, "6 warm workers would take all 6 jobs"),
        ("count = 3", "count = 3\nmax_open = 1", 14, "2 warm workers would take all 1 job that may be open"),
        ("max = 2", 'max = 2\nidle = "31m"', 14, "between 10 s and 30 min"),
        ("max = 2", 'max = 2\nidle = "1s"', 14, "between 10 s and 30 min"),
        ("max = 2", 'max = 2\nlife = "13h"', 14, "between twice its idle time and 12 h"),
        ("max = 2", 'max = 2\nlife = "9m"', 14, "between twice its idle time"),
        ("count = 3", 'count = 3\nmax_time = "1h"', 13, "and 60 min here"),
        ("max = 2", 'max = 2\nlife = "always"', 14, "isn't a valid duration"),
        ("max = 2", 'max = 2\nhours = ["always"]', 14, "isn't a period of the day"),
        ("max = 2", 'max = 2\nhours = ["25:00-26:00"]', 14, "isn't a time of the day"),
        ("max = 2", 'max = 2\nhours = ["\u0661\u0668:00-24:00"]', 14, "isn't a period of the day"),
        ("max = 2", 'max = 2\nhours = ["18:00-18:00"]', 14, "begins and ends at the same time"),
        ("max = 2", 'max = 2\nhours = ["som 18:00-20:00"]', 14, "isn't a day of the week"),
        ("max = 2", 'max = 2\nhours = ["18:00-20:00 Europe/Nowhere"]', 14, "isn't a time zone"),
        ("max = 2", "max = 2\ngive_back = false", 14, "only GPUs that are reserved for us"),
        ("max = 2", "max = 2\ngive_bak = true", 14, "unknown key"),
        ("max = 2", "max = true", 13, "isn't a whole number"),
        ('memory = "64G"\n', "", 11, "its memory must be given"),
        ("count = 3", 'count = 3\naccount = "{person.account}"', 13, "no person's own account"),
        ("count = 3", 'count = 3\nvendor = "amd"', 13, "whether an AMD device is clean"),
        ("[gpus.H100.warm]\nmax = 2", "warm = 2", 12, "must be a table"),
    ],
)
def test_each_bound_is_a_sentence_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    with pytest.raises(Misconfigured, match=said) as wrong:
        sites.load(written(tmp_path, PLAIN.replace(old, new)))
    assert wrong.value.line == line
    assert wrong.value.fix


def test_a_life_that_is_too_short_is_told_the_least(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured) as wrong:
        sites.load(written(tmp_path, PLAIN.replace("max = 2", 'max = 2\nlife = "9m"')))
    assert wrong.value.fix == 'Write life = "10m" or more, or a shorter idle.'


def test_a_life_in_which_no_run_could_start_and_end_is_refused(tmp_path: Path) -> None:
    slow = PLAIN.replace('name = "here"', 'name = "here"\nstart = "10m"')
    with pytest.raises(Misconfigured, match="could serve no run of a minute: runs may take 10 min to start") as wrong:
        sites.load(written(tmp_path, slow + 'life = "10m"\n'))
    assert (wrong.value.line, wrong.value.fix) == (15, 'Write life = "12m" or more, or a shorter start.')
    site = sites.load(written(tmp_path, slow + 'life = "12m"\n'))
    assert slurm_place(site).start_s == 600


def test_a_reservation_of_ours_may_be_kept(tmp_path: Path) -> None:
    text = PLAIN.replace("count = 3", 'count = 3\nreservation = "kernels"') + "give_back = false\n"
    warm = sites.load(written(tmp_path, text)).gpus["H100"].warm
    assert warm is not None
    assert not warm.give_back


def test_hours_may_name_days_and_a_zone(tmp_path: Path) -> None:
    text = PLAIN + 'hours = ["18:00-24:00", "sat,sun 08:00-02:00 Europe/Berlin", "fri-mon 0:00-6:30"]\n'
    warm = sites.load(written(tmp_path, text)).gpus["H100"].warm
    assert warm is not None
    assert len(warm.hours) == 3

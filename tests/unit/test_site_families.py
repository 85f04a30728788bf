"""A family of sites from one base: what is inherited, replaced and removed, and where each complaint points."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.config import shared_folders, site_families, sites
from kbslurm.errors import Misconfigured, NotFound
from tests.command_line import CommandLine

BASE = """\
abstract = true
max_time = "12h"
exports = { OMP_NUM_THREADS = "2", LANG = "C" }

[paths]
shared_root = "/shared/kb"
image_dir = "/shared/images"

[gpus.H100]
request = "--gres=gpu:h100:1"
image = "cuda.sif"
options = ["--comment=contest", "--ntasks-per-node=1"]
count = 3

[gpus.A100]
request = "--gres=gpu:a100:1"
image = "cuda.sif"
"""
HEIR = """\
extends = "base"
name = "heir"
"""


def family(folder: Path, **files: str) -> Path:
    """These files in a folder; the one of `heir`."""
    for name, text in {"base": BASE, "heir": HEIR, **files}.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / "heir.toml"


def test_an_heir_has_what_its_base_says_and_replaces_what_it_says_itself(tmp_path: Path) -> None:
    own = '[exports]\nLANG = "C.UTF-8"\n[gpus.H100]\ncount = 5\noptions = ["--comment=ours"]\n'
    site, found = sites.read(family(tmp_path, heir=HEIR + own))
    assert (site.name, site.max_time_s, str(site.paths.image_dir)) == ("heir", 43_200.0, "/shared/images")
    assert site.exports == {"OMP_NUM_THREADS": "2", "LANG": "C.UTF-8"}, "tables merge by key"
    assert site.gpus["H100"].options == ("--comment=ours",), "a list is replaced as a whole"
    assert (site.gpus["H100"].count, site.gpus["H100"].image, sorted(site.gpus)) == (5, "cuda.sif", ["A100", "H100"])
    assert [base.name for base in found.bases] == ["base.toml"]
    told = {
        ("max_time",): "base.toml:2",
        ("exports", "LANG"): "heir.toml:4",
        ("exports", "OMP_NUM_THREADS"): "base.toml:3",
        ("gpus", "H100", "count"): "heir.toml:6",
        ("gpus", "H100", "image"): "base.toml:11",
        ("gpus", "H100", "options"): "heir.toml:7",
        ("gpus", "A100"): "base.toml:15",
    }
    assert {where: str(found.spots[where]) for where in told} == told


def test_what_is_removed_is_gone_with_all_below_it_and_can_be_said_anew(tmp_path: Path) -> None:
    own = 'extends = "base"\nname = "heir"\nremove = ["gpus.A100", "max_time", "gpus.H100", "exports.LANG"]\n'
    again = '[gpus.H100]\nrequest = "--gpus=1"\nimage = "other.sif"\n'
    site, found = sites.read(family(tmp_path, heir=own + again))
    assert (site.max_time_s, sorted(site.gpus), dict(site.exports)) == (None, ["H100"], {"OMP_NUM_THREADS": "2"})
    assert (site.gpus["H100"].count, site.gpus["H100"].request) == (0, "--gpus=1"), "nothing of the removed one is left"
    assert not [where for where in found.spots if where[:2] == ("gpus", "A100")]
    odd = BASE + '\n[gpus."A.100"]\nrequest = "--gpus=1"\nimage = "cuda.sif"\n'
    there = family(tmp_path, base=odd, heir=HEIR.replace("name", "remove = ['gpus.\"A.100\"']\nname"))
    assert sorted(sites.load(there).gpus) == ["A100", "H100"]


def test_several_levels_each_see_the_one_above(tmp_path: Path) -> None:
    middle = 'extends = "base"\nname = "middle"\nremove = ["gpus.A100"]\n[gpus.H100]\ncount = 4\ncpus = 6\n'
    low = 'extends = "middle"\nname = "low"\n[gpus.H100]\ncount = 1\n'
    family(tmp_path, middle=middle, low=low)
    site, found = sites.read(tmp_path / "low.toml")
    assert (site.gpus["H100"].count, site.gpus["H100"].cpus, sorted(site.gpus)) == (1, 6, ["H100"])
    assert [base.stem for base in found.bases] == ["middle", "base"]
    assert str(found.spots["gpus", "H100", "cpus"]) == "middle.toml:6"
    assert sites.load(tmp_path / "middle.toml").gpus["H100"].count == 4, "a site can be a base as well"
    assert [file.stem for file in sites.files_in(tmp_path)] == ["heir", "low", "middle"]
    assert site_families.heirs(tmp_path / "base.toml") == ["heir", "middle"]


@pytest.mark.parametrize(
    ("files", "where", "said"),
    [
        ({"base": BASE.replace('"12h"', '"soon"')}, "base.toml:2: max_time", "valid duration"),
        ({"base": BASE.replace("count = 3", "cuont = 3")}, "base.toml:13: gpus.H100.cuont", "Did you mean count?"),
        ({"base": BASE + "[gpus.B200\n"}, "base.toml:18:", "not valid TOML"),
        ({"heir": HEIR + "[gpus.H100]\ncount = -1\n"}, "heir.toml:4: gpus.H100.count", "is negative"),
        ({"heir": HEIR + 'min_time = "13h"\n'}, "heir.toml:3: min_time", "at most 43200 s"),
        ({"heir": HEIR + 'paths = "x"\n'}, "heir.toml:3: paths", "must be a table"),
        ({"heir": HEIR + '[gpus.H100.warm]\nlife = "1h"\n'}, "heir.toml:3: gpus.H100.warm.max", "is missing"),
        ({"heir": 'extends = "base"\n'}, "heir.toml: name", "is missing"),
        ({"base": 'name = "base"\n' + BASE, "heir": 'extends = "base"\n'}, "heir.toml: name", "is missing"),
        ({"heir": 'extends = "bass"\nname = "heir"\n'}, "heir.toml:1: extends", "Did you mean base?"),
        ({"heir": 'extends = "../base"\nname = "heir"\n'}, "heir.toml:1: extends", "isn't the name of a file"),
        ({"heir": 'extends = "base.toml"\nname = "heir"\n'}, "heir.toml:1: extends", "without .toml"),
        ({"heir": 'extends = ["base"]\nname = "heir"\n'}, "heir.toml:1: extends", "isn't the name of a file"),
        ({"heir": 'name = "heir"\nextends = "heir"\n'}, "heir.toml:2: extends", "heir.toml → heir.toml"),
        ({"base": 'abstract = true\nextends = "heir"\n'}, "base.toml:2: extends", "heir.toml → base.toml → heir.toml"),
        ({"heir": HEIR + 'remove = ["gpus.A10"]\n'}, "heir.toml:3: remove", "gpus.A10 isn't in base.toml"),
        ({"heir": HEIR + 'remove = ["gpus.A10"]\n'}, "heir.toml:3: remove", "Did you mean gpus.A100?"),
        ({"heir": HEIR + 'remove = ["abstract"]\n'}, "heir.toml:3: remove", "abstract isn't in base.toml"),
        ({"heir": HEIR + 'remove = "max_time"\n'}, "heir.toml:3: remove", "must be a list of keys"),
        ({"heir": HEIR + 'remove = ["gpus."]\n'}, "heir.toml:3: remove", "isn't a key"),
        ({"heir": HEIR + 'remove = ["max_time", "max_time"]\n'}, "heir.toml:3: remove", "max_time isn't in base.toml"),
        ({"heir": 'name = "heir"\nremove = ["max_time"]\n'}, "heir.toml:2: remove", "extends no other"),
        ({"heir": 'name = "heir"\nabstract = "yes"\n'}, "heir.toml:2: abstract", "isn't true or false"),
        ({"heir": HEIR + "abstract = true\n"}, "heir.toml:3: abstract", "a base for other sites"),
        ({"heir": HEIR + "[paths]\nremove = []\n"}, "heir.toml:4: paths.remove", "unknown key"),
    ],
)
def test_a_complaint_names_the_file_and_line_where_the_key_stands(
    tmp_path: Path, files: dict[str, str], where: str, said: str
) -> None:
    with pytest.raises(Misconfigured) as wrong:
        sites.load(family(tmp_path, **files))
    assert wrong.value.message.startswith(f"{tmp_path}/{where}"), wrong.value.message
    assert said in f"{wrong.value.message} {wrong.value.hint}"
    assert wrong.value.hint


def test_a_file_that_is_nested_too_deeply_is_a_complaint_and_no_base(tmp_path: Path) -> None:
    family(tmp_path, deep="a = " + "[" * 100_000)
    assert [file.stem for file in sites.files_in(tmp_path)] == ["deep", "heir"]
    assert site_families.heirs(tmp_path / "base.toml") == ["heir"]
    with pytest.raises(Misconfigured, match="not valid TOML"):
        sites.read(tmp_path / "deep.toml")


def test_a_base_is_no_site_and_says_which_ones_there_are(tmp_path: Path) -> None:
    family(tmp_path)
    with pytest.raises(Misconfigured, match=r"base\.toml:1: abstract: this file is a base") as wrong:
        sites.load_all(tmp_path, ["base"])
    assert wrong.value.hint == "Name one that extends it: heir."
    with pytest.raises(NotFound) as missing:
        sites.load_all(tmp_path, ["nowhere"])
    assert "heir" in f"{missing.value.hint}" and "base" not in f"{missing.value.hint}"


plain = st.recursive(
    st.integers(0, 3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(st.sampled_from("abc"), plain, max_size=3)


def as_toml(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {inline(value)}\n" for key, value in table.items())


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {inline(one)}" for key, one in value.items()) + "}"
    return str(value)


def over(base: Any, own: Any) -> Any:
    """The rule in two lines."""
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return {**base, **{key: over(base.get(key), value) for key, value in own.items()}}


@given(base=tables, own=tables)
def test_whatever_the_tables_are_the_heirs_keys_win_and_every_key_has_its_file(
    tmp_path_factory: pytest.TempPathFactory, base: dict[str, Any], own: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("family")
    (folder / "base.toml").write_text(as_toml(base))
    (folder / "heir.toml").write_text('extends = "base"\n' + as_toml(own))
    found = site_families.read(folder / "heir.toml")
    assert found.data == over(base, own)

    def check(data: dict[str, Any], at: tuple[str, ...]) -> None:
        for key, value in data.items():
            where = (*at, key)
            told: Any = own
            for step in where:
                told = told.get(step) if isinstance(told, dict) else None
            assert found.spots[where].file.stem == ("base" if told is None else "heir"), where
            if isinstance(value, dict):
                check(value, where)

    check(dict(found.data), ())
    assert {where for where in found.spots if where[0] != "extends"} == set(walked(found.data))


def walked(data: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return []
    return [found for key, value in data.items() for found in ((*at, key), *walked(value, (*at, key)))]


def test_editors_know_families(tmp_path: Path) -> None:
    schema = json.loads((shared_folders.path("site-configs") / "schema.json").read_text())

    def faults(text: str) -> list[str]:
        found = jsonschema.Draft202012Validator(schema).iter_errors(tomllib.loads(text))
        return [error.message for error in found]

    for file in sorted(shared_folders.path("site-configs").glob("**/*.toml")):
        assert not faults(file.read_text()), file
    assert not faults(BASE) and not faults(HEIR)
    assert faults(HEIR + "remove = [1]\n") and faults(HEIR + "extend = 1\n") and faults('extends = "../x"\n')
    whole = BASE.replace("abstract = true", 'name = "here"')
    assert not faults(whole)
    for needed in ('name = "here"\n', 'shared_root = "/shared/kb"\n'):
        assert faults(whole.replace(needed, "")), needed
    assert faults('name = "x"\n[paths]\nshared_root = "/a"\n[gpus]\n'), "a site needs a GPU type"
    assert faults(whole + '[gpus.A100.warm]\nlife = "1h"\n') and not faults(HEIR + '[gpus.A100.warm]\nlife = "1h"\n')


def test_the_guides_own_example_is_a_family(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "site-admin.md").read_text()
    blocks = re.findall(r"`site-configs/([a-z-]+\.toml)`:\n\n```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in blocks] == ["region-base.toml", "us-east.toml"]
    for name, block in blocks:
        (tmp_path / name).write_text(block)
    site = sites.load(tmp_path / "us-east.toml")
    assert (sorted(site.gpus), site.gpus["H100"].count, site.gpus["H100"].account) == (["H100"], 2, "contest")
    assert (site.gpus["H100"].cpus, site.max_time_s) == (8, 43_200.0)


class TestCommands:
    def said(self, folder: Path, *words: str) -> tuple[int, str, str]:
        """The exit code, and what it says on either way out."""
        (folder / "kbslurm.toml").write_text(f'[sites]\ndir = "{folder}/sites"\n')
        done = CommandLine(cwd=folder)("--config", str(folder / "kbslurm.toml"), *words)
        assert "Traceback" not in done.err, done.err
        return done.code, done.out, done.err

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "sites").mkdir()
        family(tmp_path / "sites", second=HEIR.replace("heir", "second") + '[gpus.H100]\ncpus = 4\nimage="cuda.sif"\n')
        return tmp_path

    def test_every_site_and_gpu_type_is_checked_at_once(self, folder: Path) -> None:
        code, out, _ = self.said(folder, "site", "check", "--all")
        assert code == 0
        assert out.count("PASS") == 2 * 3 + 1 and "6 PASS, 1 CAUTION" in out, out
        assert "PASS    second H100: --gres=gpu:h100:1" in out and "extends base.toml" in out
        assert "second gpus.H100.image: says again what base.toml:11 says" in out
        code, out, _ = self.said(folder, "site", "check", "--all", "--json")
        told = json.loads(out)
        assert (code, told["worst"], [one["site"] for one in told["sites"]]) == (0, "CAUTION", ["heir", "second"])
        assert "#SBATCH --gres=gpu:a100:1" in told["sites"][0]["scripts"]["A100"]

    def test_one_mistake_in_the_base_is_told_once_per_site_and_the_others_are_checked_as_well(
        self, folder: Path
    ) -> None:
        (folder / "sites" / "base.toml").write_text(BASE.replace("--gres=gpu:a100:1", "gpu:a100:1"))
        (folder / "sites" / "alone.toml").write_text(
            BASE.replace("abstract = true", 'name = "alone"\ntemplate = "here.sbatch.j2"')
        )
        (folder / "sites" / "twin.toml").write_text(BASE.replace("abstract = true", 'name = "twin"'))
        (folder / "sites" / "twins.toml").write_text(BASE.replace("abstract = true", 'name = "twin"'))
        (folder / "sites" / "idle.toml").write_text(BASE)
        code, out, _ = self.said(folder, "site", "check", "--all", "--json")
        told = [(one["grade"], one["where"], one["text"]) for one in json.loads(out)["findings"]]
        assert code == 1
        failed = {where: text for grade, where, text in told if grade == "FAIL"}
        assert set(failed) == {"heir.toml", "second.toml", "alone.toml", "twin"}
        assert "base.toml:16: gpus.A100.request" in failed["heir.toml"]
        assert "here.sbatch.j2" in failed["alone.toml"]
        assert "twin.toml, twins.toml" in failed["twin"]
        assert ("CAUTION", "idle.toml", "no site that can be read extends it") in told
        assert ("PASS", "twin", "--gres=gpu:h100:1 --comment=contest") in [
            (grade, where, text.partition(" --ntasks-per")[0]) for grade, where, text in told
        ]

    def test_it_is_one_name_or_all(self, folder: Path) -> None:
        for words in (["--all", "heir"], []):
            code, _, err = self.said(folder, "site", "check", *words)
            assert (code, "kbslurm site check --all" in err) == (2, True), err
        (folder / "sites" / "base.toml").write_text("abstract = true\n")
        for file in ("heir", "second"):
            (folder / "sites" / f"{file}.toml").unlink()
        code, _, err = self.said(folder, "site", "check", "--all")
        assert (code, "has no cluster files" in err) == (2, True), err

    def test_a_setting_says_where_it_is_from(self, folder: Path) -> None:
        _, out, _ = self.said(folder, "site", "show", "second", "--json")
        told = json.loads(out)
        assert told["from"]["gpus.H100.cpus"] == "second.toml:4"
        assert told["from"]["max_time_s"] == "base.toml:2" and "start_s" not in told["from"]
        assert (told["max_time_s"], [Path(base).name for base in told["bases"]]) == (43_200.0, ["base.toml"])
        code, out, _ = self.said(folder, "site", "show", "second")
        assert code == 0
        lines = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.strip()}
        assert (lines["gpus.H100.name"], lines["start_s"]) == ("second.toml:3", "default")

    def test_a_base_is_not_listed_as_a_site(self, folder: Path) -> None:
        _, out, _ = self.said(folder, "site", "list", "--json")
        assert [(row["name"], row["bases"]) for row in json.loads(out)] == [("heir", ["base"]), ("second", ["base"])]

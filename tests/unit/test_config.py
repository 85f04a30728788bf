"""kbslurm.toml and the environment: what holds, where it came from, and where it is wrong."""

from __future__ import annotations

import dataclasses
import json
import platform
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kbslurm import wiring
from kbslurm.backends.github.backend import GithubBackend
from kbslurm.config import display, secret_values, settings, toml_file
from kbslurm.config.sections import kbslurm_toml
from kbslurm.config.sections.daemon import DaemonSection
from kbslurm.config.sections.server import ServerSection
from kbslurm.domain.placement import Overflow
from kbslurm.errors import Misconfigured

WHOLE = """\
# a competition
[server]
listen = "0.0.0.0:8000"
public_url = "https://kernels.example.edu/"

[daemon]
tick_s = 5
state_dir = "state"

[daemon.local]
slots = {H100 = 2, A100 = 1}

[sites]
use = [
  "one",  # the first
  "two",
]
"""


def written(folder: Path, text: str, name: str = "kbslurm.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_defaults_hold_without_a_file(tmp_path: Path) -> None:
    found = settings.load(env={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert found.file is None
    assert found.server == ServerSection()
    assert found.state_dir == tmp_path / ".local/state/kbslurm"
    assert found.database_url is None
    assert {origin for _, _, origin in display.shown(found)} == {"no kbslurm.toml found", "default"}


def test_a_file_says_what_holds_and_where_it_came_from(tmp_path: Path) -> None:
    file = written(tmp_path, WHOLE)
    found = settings.load(env={}, cwd=tmp_path)
    assert found.server.public_url == "https://kernels.example.edu"
    assert found.daemon.tick_s == 5.0
    assert found.daemon.poll_s == DaemonSection().poll_s
    assert found.state_dir == tmp_path / "state", "relative to the file"
    assert found.daemon.local.slots == {"H100": 2, "A100": 1}
    assert found.sites.use == ("one", "two")
    rows = {key: (value, origin) for key, value, origin in display.shown(found)}
    assert rows["daemon.local.slots"] == ("H100 = 2, A100 = 1", f"{file}:11")
    assert rows["sites.use"] == ("one, two", f"{file}:14")
    assert rows["daemon.poll_s"] == ("15", "default")


def test_a_hosts_own_slots_say_whose_they_are_where_others_may_be(tmp_path: Path) -> None:
    mine = f"local@{platform.node()}"
    named = written(tmp_path, "[daemon.local]\nname = 'local@box'\nslots = {H100 = 1}\n")
    shared = {"DATABASE_URL": "postgresql://h/d"}
    assert settings.load(None, {}, cwd=tmp_path / "none").local_name == "local"
    assert settings.load(None, shared, cwd=tmp_path / "none").local_name == mine
    assert settings.load(named, shared).local_name == settings.load(named, {}).local_name == "local@box"


def test_the_first_place_that_has_a_file_wins(tmp_path: Path) -> None:
    folders = {}
    for number, place in enumerate(["named", "variable", "here", "xdg/kbslurm", "home/.config/kbslurm"], start=1):
        folders[place] = tmp_path / place
        folders[place].mkdir(parents=True)
        written(folders[place], f"[daemon]\ntick_s = {number}\n")
    env = {
        "KBSLURM_CONFIG": str(folders["variable"] / "kbslurm.toml"),
        "XDG_CONFIG_HOME": str(tmp_path / "xdg"),
        "HOME": str(tmp_path / "home"),
    }
    here = folders["here"]
    assert settings.load(folders["named"] / "kbslurm.toml", env, cwd=here).daemon.tick_s == 1
    assert settings.load(None, env, cwd=here).daemon.tick_s == 2
    del env["KBSLURM_CONFIG"]
    assert settings.load(None, env, cwd=here).daemon.tick_s == 3
    assert settings.load(None, env, cwd=tmp_path).daemon.tick_s == 4
    del env["XDG_CONFIG_HOME"]
    assert settings.load(None, env, cwd=tmp_path).daemon.tick_s == 5


@pytest.mark.parametrize(
    ("text", "where", "hint"),
    [
        ("[daemon]\ntik_s = 1\n", ":2: daemon.tik_s: unknown key", "Did you mean tick_s?"),
        ("\n[deamon]\n", ":2: deamon: unknown key", "Did you mean daemon?"),
        ("[daemon]\n\ntick_s = 'soon'\n", ":3: daemon.tick_s: must be a number", None),
        ("[daemon]\ntick_s = true\n", ":2: daemon.tick_s: must be a number", None),
        (
            "[policy]\noverflow = 'always'\n",
            ":2: policy.overflow: 'always' isn't a valid overflow rule",
            'Write overflow = "never", "when_down", or { when_wait_over = "10m" }.',
        ),
        (
            "[policy]\n\noverflow = { when_wait_over = 10 }\n",
            ":3: policy.overflow: 10 isn't a valid duration",
            'Write "90s", "10m" or "2h".',
        ),
        (
            "[policy.places.modal]\ncost_per_gpu_hour = { H100 = -1.0 }\n",
            ":2: policy.places.modal.cost_per_gpu_hour: H100 has the price -1 per hour",
            "Write the price of one GPU-hour, 0 or more.",
        ),
        (
            "[policy.places.modal]\nrole = 'spare'\n",
            ":2: policy.places.modal.role: 'spare' isn't one of",
            "Known here: home, overflow.",
        ),
        ("[policy.budget]\nmonth = -1\n", ":2: policy.budget.month: -1.0 is too small", "Write at least 0."),
        (
            "[policy.budget]\nteams = { blue = -1 }\n",
            ":2: policy.budget.teams: team blue has the monthly budget -1",
            "Write 0 or more.",
        ),
        (
            "[policy.budget]\nteams = { 'a b' = 1 }\n",
            ":2: policy.budget.teams: 'a b' isn't a valid team name",
            "Use at most 64 letters a-z and digits, and . _ - after the first.",
        ),
        ("[daemon]\ntick_s = 0\n", ":2: daemon.tick_s: 0.0 is too small", "Write at least 0.05."),
        (
            "[daemon.local]\nslots = {H100 = 0}\n",
            ":2: daemon.local.slots: H100 has 0 slots",
            "Write at least 1, or leave it out.",
        ),
        (
            "[daemon.local]\nslots = ['H100']\n",
            ":2: daemon.local.slots: must be a table",
            "Write it as slots = { NAME = 1 }.",
        ),
        (
            "[daemon.local]\nname = 'my box'\n",
            ":2: daemon.local.name: 'my box' isn't a valid name",
            "Use letters and digits, and @ . _ - in between.",
        ),
        ("daemon = 3\n", ":1: daemon: must be a table", "Write [daemon] above its keys."),
        ("[sites]\nuse = 'one'\n", ":2: sites.use: must be a list", 'Write it as ["one", "two"].'),
        ("[sites]\nuse = [\n'one',\n2]\n", ":2: sites.use[1]: must be a string", None),
        (
            "[server]\nlisten = 'me'\n",
            ":2: server.listen: 'me' isn't a valid address to listen on",
            'Write "127.0.0.1:8000".',
        ),
        (
            "[server]\nmetrics = '127.0.0.1:9100'\n[daemon]\nmetrics = '127.0.0.1:9100'\n",
            ":4: daemon.metrics: 127.0.0.1:9100 is already used by server.metrics",
            "Give each its own port.",
        ),
        ("[server]\nmetrics = '127.0.0.1:8000'\n", ":2: server.metrics: 127.0.0.1", "Give each its own port."),
        ("[policy]\nranked_min_isolation = 4\n", ":2: policy.ranked_min_isolation: 4 is too large", "Write at most 3."),
        (
            "[discord]\ntoken = 'very-secret'\n",
            ":2: discord.token: unknown key",
            "Secrets don't belong here: set DISCORD_TOKEN or DISCORD_TOKEN_FILE in the environment.",
        ),
        ("[server]\nlisten = \n", ":2: not valid TOML", None),
        ("a = 1\na = 2\n", ":2: not valid TOML", None),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_key(tmp_path: Path, text: str, where: str, hint: str | None) -> None:
    file = written(tmp_path, text)
    with pytest.raises(Misconfigured) as caught:
        settings.load(env={}, cwd=tmp_path)
    assert str(caught.value).startswith(f"{file}{where}")
    assert "\n" not in caught.value.message
    assert "very-secret" not in caught.value.message
    assert caught.value.hint == hint


def test_a_named_file_must_be_there_and_be_text(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="doesn't exist"):
        settings.load(tmp_path / "none.toml", {}, cwd=tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Misconfigured, match="UTF-8"):
        settings.load(tmp_path / "bytes.toml", {}, cwd=tmp_path)


def test_secrets_come_from_the_environment_a_file_or_dotenv(tmp_path: Path) -> None:
    written(tmp_path, "# comment\nexport DISCORD_TOKEN='d t'\nGITHUB_TOKEN=lost # why\nMODAL_TOKEN_ID=\n", ".env")
    held = written(tmp_path, "postgresql://u:pw@h/db\n", "url")
    env = {"DATABASE_URL_FILE": str(held), "GITHUB_TOKEN": "g"}
    found = settings.load(env=env, cwd=tmp_path)
    assert found.database_url == "postgresql://u:pw@h/db"
    assert found.secret("DISCORD_TOKEN") == "d t"
    assert found.secret("GITHUB_TOKEN") == "g", "the environment goes before .env"
    assert found.secret("MODAL_TOKEN_ID") is None
    rows = {key: (value, origin) for key, value, origin in display.shown(found)}
    assert rows["DATABASE_URL"] == (f"postgresql://u:{secret_values.MASK}@h/db", "$DATABASE_URL_FILE")
    assert rows["DISCORD_TOKEN"] == (secret_values.MASK, f"{tmp_path / '.env'}:2")
    assert rows["GITHUB_TOKEN"] == (secret_values.MASK, "$GITHUB_TOKEN")
    assert rows["MODAL_TOKEN_ID"] == ("not set", "default")
    for text in (repr(found), str(found), f"{dataclasses.asdict(found)}"):
        assert "pw" not in text
        assert "d t" not in text


def test_a_secret_that_is_told_twice_or_not_at_all_is_refused(tmp_path: Path) -> None:
    held = written(tmp_path, "x", "url")
    with pytest.raises(Misconfigured, match="both DATABASE_URL and DATABASE_URL_FILE"):
        settings.load(env={"DATABASE_URL": "a", "DATABASE_URL_FILE": str(held)}, cwd=tmp_path)
    with pytest.raises(Misconfigured, match="can't be read"):
        settings.load(env={"GITHUB_TOKEN_FILE": str(tmp_path / "none")}, cwd=tmp_path)
    with pytest.raises(Misconfigured, match="empty"):
        settings.load(env={"GITHUB_TOKEN_FILE": str(written(tmp_path, " \n", "blank"))}, cwd=tmp_path)
    written(tmp_path, "\nhow are you\n", ".env")
    with pytest.raises(Misconfigured, match=r"\.env:2: .*NAME=value"):
        settings.load(env={}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://u:p@h:5/d", f"postgresql://u:{secret_values.MASK}@h:5/d"),
        ("postgresql://u@h/d?password=p&x=1", f"postgresql://u@h/d?password={secret_values.MASK}&x=1"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("host=h password=p", secret_values.MASK),
    ],
)
def test_a_shown_url_has_no_password(url: str, masked: str) -> None:
    assert secret_values.masked_url(url) == masked


def test_the_state_dir_can_be_named_by_the_environment(tmp_path: Path) -> None:
    written(tmp_path, WHOLE)
    found = settings.load(env={"KBSLURM_STATE_DIR": "elsewhere"}, cwd=tmp_path)
    assert found.state_dir == tmp_path / "elsewhere"
    assert found.origins["daemon.state_dir"] == "$KBSLURM_STATE_DIR"


def test_the_schema_lists_what_is_read() -> None:
    schema = kbslurm_toml.schema()
    assert json.loads(json.dumps(schema)) == schema
    places = {"github", "modal", "ray", "sites"}
    assert set(schema["properties"]) == {"server", "daemon", "policy", "discord", "oidc", *places}
    clusters = schema["properties"]["ray"]
    assert clusters["additionalProperties"]["required"] == ["url"]
    assert clusters["additionalProperties"]["properties"]["min_isolation"]["default"] == 2
    daemon = schema["properties"]["daemon"]["properties"]
    assert set(daemon) == {one.name for one in dataclasses.fields(DaemonSection)}
    assert daemon["tick_s"] == {
        "type": "number",
        "default": 30.0,
        "minimum": 0.05,
        "description": "Read the database at least this often, even without notifications.",
    }
    assert daemon["local"]["additionalProperties"] is False


def test_lines_are_found_in_every_way_to_write_toml() -> None:
    text = '''\
top = """a
[not.a.table]
x = 1
"""
"quoted key".'and more' = 1
[a.b]  # [c]
c = { d = "#", e = [1,
  2] }
f = 'x' # "
[[list]]
name = "one"
[list.inner]
deep = 1
[[list]]
name = """"two""""
last = 3'''
    file = toml_file.parsed(text, Path("x.toml"))
    assert {".".join(map(str, where)): line for where, line in file.lines.items()} == {
        "top": 1,
        "quoted key": 5,
        "quoted key.and more": 5,
        "a": 6,
        "a.b": 6,
        "a.b.c": 7,
        "a.b.f": 9,
        "list": 10,
        "list.0": 10,
        "list.0.name": 11,
        "list.0.inner": 12,
        "list.0.inner.deep": 13,
        "list.1": 14,
        "list.1.name": 15,
        "list.1.last": 16,
    }
    assert file.line(("a", "b", "c", "d")) == 7, "the nearest that has a line"
    assert toml_file.dotted(("list", 1, "in ner")) == 'list[1]."in ner"'


GITHUB = """\
[github]
repository = "example-university/kernel-runs"
gpus = { H100 = ["self-hosted", "h100"], CPU = ["ubuntu-latest"] }
slots = { H100 = 2 }
"""


@pytest.mark.parametrize("level", [0, 1])
def test_what_isnt_kept_apart_at_github_may_not_rank(tmp_path: Path, level: int) -> None:
    """The repository has one key for all reports: a submission that can take it there makes reports of any level."""
    file = written(tmp_path, f"{GITHUB}ranked_min_isolation = 2\nmin_isolation = {level}\n")
    with pytest.raises(Misconfigured) as caught:
        settings.load(env={}, cwd=tmp_path)
    assert str(caught.value).startswith(f"{file}:6: github.min_isolation: below isolation level 2 a submission can")
    assert caught.value.hint is not None and "ranked = false" in caught.value.hint
    env = {"GITHUB_TOKEN": "one", "KBSLURM_RUN_KEY": "ab" * 32}
    for allowed in ("ranked = false", "staff_only = true"):
        written(tmp_path, f"{GITHUB}min_isolation = {level}\n{allowed}\n")
        place = wiring.github_place(settings.load(env=env, cwd=tmp_path))
        assert isinstance(place.backend, GithubBackend) and place.backend.min_isolation == level
        assert (place.backend.ranked, place.untrusted) == (allowed != "ranked = false", allowed != "staff_only = true")
    written(tmp_path, "[github]\nmin_isolation = 0\n")  # signing on with GitHub alone
    assert settings.load(env={}, cwd=tmp_path).github.min_isolation == 0


def test_github_is_a_place_in_a_few_lines(tmp_path: Path) -> None:
    written(tmp_path, GITHUB)
    env = {"GITHUB_TOKEN": "one, two", "KBSLURM_RUN_KEY": "ab" * 32, "GITHUB_API_URL": "http://127.0.0.1:1/"}
    found = settings.load(env=env, cwd=tmp_path)
    place = wiring.github_place(found)
    assert place.backend.capacity() == {"H100": 2, "CPU": 4}
    assert place.untrusted and place.ranked_min_isolation == 2
    assert wiring.github_tokens(found) == ["one", "two"]
    assert found.github.api_url == "http://127.0.0.1:1"
    rows = {key: (value, origin) for key, value, origin in display.shown(found)}
    assert rows["github.api_url"] == ("http://127.0.0.1:1", "$GITHUB_API_URL")
    assert rows["KBSLURM_RUN_KEY"] == (secret_values.MASK, "$KBSLURM_RUN_KEY")
    assert [one.name for one in wiring.places(found)] == ["github"]
    assert wiring.slots(found) == {"H100": 2, "CPU": 4}
    assert wiring.places(settings.load(env={}, cwd=tmp_path / "nothing")) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('repository = "no slash"', "isn't a valid repository"),
        ('repository = "owner/.."', "isn't a valid repository"),
        ("gpus = { H100 = [] }", "H100 has no runner labels"),
        ('gpus = { H100 = ["a;b"] }', "H100 has no runner labels"),
        ('gpus = { "H 100" = ["x"] }', "isn't a valid GPU name"),
        ('branch = "-x"', "isn't a valid branch name"),
        ('token = "ghp"', "GITHUB_TOKEN"),
        ('run_key = "00"', "KBSLURM_RUN_KEY"),
    ],
)
def test_a_wrong_line_about_github_is_named(tmp_path: Path, line: str, said: str) -> None:
    written(tmp_path, f"[github]\n{line}\n")
    with pytest.raises(Misconfigured) as trouble:
        settings.load(env={}, cwd=tmp_path)
    assert trouble.value.line == 2
    assert said in f"{trouble.value.message} {trouble.value.hint}"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "without GITHUB_TOKEN"),
        ({"GITHUB_TOKEN": "ghp_…"}, "contains a character that isn't allowed in a token"),
        ({"GITHUB_TOKEN": "t"}, "KBSLURM_RUN_KEY isn't a 32-byte key"),
        ({"GITHUB_TOKEN": "t", "KBSLURM_RUN_KEY": "short"}, "KBSLURM_RUN_KEY isn't a 32-byte key"),
    ],
)
def test_github_without_its_secrets_says_what_is_missing(tmp_path: Path, env: dict[str, str], said: str) -> None:
    written(tmp_path, GITHUB)
    with pytest.raises(Misconfigured, match=said) as trouble:
        wiring.places(settings.load(env=env, cwd=tmp_path))
    assert trouble.value.hint


MODAL = """\
[modal]
packages = ["torch==2.9.1"]
[modal.gpus.H100]
slots = 2
[modal.gpus.CPU]
type = "none"
"""
MODAL_SECRETS = {"MODAL_TOKEN_ID": "ak-1", "MODAL_TOKEN_SECRET": "as-1"}


def test_modal_is_a_place_in_five_lines(tmp_path: Path) -> None:
    written(tmp_path, MODAL)
    found = settings.load(env={**MODAL_SECRETS, "MODAL_SERVER_URL": "http://127.0.0.1:1"}, cwd=tmp_path)
    (place,) = wiring.places(found)
    assert (place.name, place.untrusted, place.ranked_min_isolation) == ("modal", True, 2)
    assert place.backend.capacity() == wiring.slots(found) == {"H100": 2, "CPU": 4}
    assert place.widest == {"H100": 1, "CPU": 1}
    rows = {key: (value, origin) for key, value, origin in display.shown(found)}
    assert rows["modal.api_url"] == ("http://127.0.0.1:1", "$MODAL_SERVER_URL")
    assert rows["modal.gpus"][0].startswith("H100 = { slots = 2, ")
    assert rows["MODAL_TOKEN_SECRET"] == (secret_values.MASK, "$MODAL_TOKEN_SECRET")
    facts = wiring.modal_facts(found)
    assert {name: one["gpu"] for name, one in facts["functions"].items()} == {
        "judge-v2-H100": "H100!:1",
        "judge-v2-CPU": "",
    }
    assert facts["packages"] == ["torch==2.9.1"]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[modal]\napp = 'no slash/'\n", 2, "isn't a valid app name"),
        ("[modal]\npython = '3.10'\n", 2, "3.10"),
        ("[modal]\ntoken_secret = 'as'\n", 2, "MODAL_TOKEN_SECRET"),
        ("[modal.gpus.H100]\nslots = 0\n", 2, "Write at least 1"),
        ("[modal.gpus.H100]\ncpu = nan\n", 2, "must be a number"),
        ("[modal.gpus.H100]\ntype = 'a b'\n", 2, "no GPU type"),
        ("[modal.gpus.H100]\nslot = 1\n", 2, "Did you mean slots?"),
        ("[modal.gpus.'H 100']\nslots = 1\n", 1, "isn't a valid GPU name"),
    ],
)
def test_a_wrong_line_about_modal_is_named(tmp_path: Path, text: str, line: int, said: str) -> None:
    written(tmp_path, text)
    with pytest.raises(Misconfigured) as trouble:
        settings.load(env={}, cwd=tmp_path)
    assert (trouble.value.line, said in f"{trouble.value.message} {trouble.value.hint}") == (line, True)


def test_modal_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, MODAL)
    for name in MODAL_SECRETS:
        with pytest.raises(Misconfigured, match=f"{name} isn't set") as trouble:
            wiring.places(settings.load(env={**MODAL_SECRETS, name: ""}, cwd=tmp_path))
        assert f"{name}_FILE" in str(trouble.value.hint)
    found = settings.load(env=MODAL_SECRETS, cwd=tmp_path)

    def nowhere(name: str) -> str:
        raise PackageNotFoundError(name)

    for version, said in ((nowhere, "isn't installed"), (lambda _name: "9.9.9", "is 9.9.9")):
        monkeypatch.setattr("importlib.metadata.version", version)
        with pytest.raises(Misconfigured, match=said) as trouble:
            wiring.places(found)
        assert "kbslurm[modal]" in str(trouble.value.hint)


LISTED = 'overflow_boards = { Sort = ["box"] }\n'
OVERFLOW = """[daemon.local]
slots = { H100 = 1 }
name = "box"
[policy]
overflow = { when_wait_over = "10m" }
overflow_boards = { Sort = ["box"] }
[policy.places.box]
role = "overflow"
classes = { H100 = "H100 SXM" }
cost_per_gpu_hour = { H100 = 3.6 }
[policy.budget]
month = 10
boards = { Sort = 5 }
team = 2
teams = { Blue = 3 }
"""


def test_the_placement_policy_is_read_and_shown(tmp_path: Path) -> None:
    found = settings.load(written(tmp_path, OVERFLOW), {"HOME": str(tmp_path)})
    rules = wiring.rules(found)
    assert rules.overflow == Overflow(when="when_wait_over", after_s=600.0)
    assert (rules.boards, rules.budget.month, rules.budget.boards) == ({"sort": ("box",)}, 10.0, {"sort": 5.0})
    assert (rules.budget.team, rules.budget.teams) == (2.0, {"blue": 3.0})
    (place,) = wiring.places(found)
    assert (place.role, place.for_policy().class_of("H100")) == ("overflow", "H100 SXM")
    assert place.prices["H100"] == pytest.approx(0.001)
    rows = {key: value for key, value, _ in display.shown(found)}
    assert rows["policy.overflow"] == "when_wait_over 10 min"
    assert wiring.rules(settings.load(None, {}, cwd=tmp_path / "none")).overflow.when == "when_down"


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ("[policy.places.bocks]\nrole = 'home'\n", "kbslurm.toml:16: policy.places.bocks: there is no place 'bocks'"),
        (
            "[policy.overflow_boards]\nsort = ['modal']\n",
            "kbslurm.toml:17: policy.overflow_boards.sort: there is no place 'modal'",
        ),
    ],
)
def test_a_place_that_is_not_there_is_told_at_its_line(tmp_path: Path, wrong: str, where: str) -> None:
    text = OVERFLOW if "bocks" in wrong else OVERFLOW.replace(LISTED, "\n")
    with pytest.raises(Misconfigured) as caught:
        wiring.places(settings.load(written(tmp_path, text + wrong), {"HOME": str(tmp_path)}))
    assert caught.value.message.endswith(where)
    assert caught.value.hint == "Choose one of: box."


def test_discord_roles_are_numbers_and_give_what_there_is(tmp_path: Path) -> None:
    file = tmp_path / "kbslurm.toml"
    file.write_text('[discord]\nroles = { "123" = "host", "456" = "creator" }\n')
    assert settings.load(file, {}, cwd=tmp_path).discord.roles == {"123": "host", "456": "creator"}
    for line, said in (('"12x" = "host"', "isn't a role ID"), ('"123" = "owner"', "isn't one of host, creator")):
        file.write_text(f"[discord]\nroles = {{ {line} }}\n")
        with pytest.raises(Misconfigured, match=said):
            settings.load(file, {}, cwd=tmp_path)


@pytest.mark.parametrize(("line", "expected"), [("", 0.0), ("shadow = 0.05\n", 0.05), ("shadow = 1\n", 1.0)])
def test_shadows_are_ordered_by_themselves_only_where_the_hosts_say_so(
    tmp_path: Path, line: str, expected: float
) -> None:
    written(tmp_path, f"[policy]\n{line}")
    assert wiring.rules(settings.load(env={}, cwd=tmp_path)).shadow == expected


@pytest.mark.parametrize("value", ["1.01", "-0.1", "nan", "true", '"all"'])
def test_a_fraction_of_shadows_is_from_none_to_all(tmp_path: Path, value: str) -> None:
    written(tmp_path, f"[policy]\nshadow = {value}\n")
    with pytest.raises(Misconfigured) as trouble:
        settings.load(env={}, cwd=tmp_path)
    assert trouble.value.line == 2

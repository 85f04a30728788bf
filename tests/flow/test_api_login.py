"""Signing on with a browser, against real providers of ours on loopback; and every way in that must be shut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from kbslurm.api.context import Context
from kbslurm.api.providers import providers
from kbslurm.api.routes.sign_on import PROOF
from kbslurm.api.server import Serving, context_of
from kbslurm.api.sessions import SESSION
from kbslurm.config import settings
from kbslurm.store.postgres import PostgresStore
from kbslurm.store.views import Person
from tests.fakes import sign_on
from tests.flow.stage import HandClock
from tests.popcorn.served_api import serving

ALL = ("github", "discord", "oidc")


class SignOnStage:
    """The service with its providers, and browsers."""

    def __init__(self, context: Context, url: str, fake: sign_on.SignOn) -> None:
        self.context, self.url, self.fake = context, url, fake
        self.browsers: list[httpx.Client] = []

    def browser(self) -> httpx.Client:
        self.browsers.append(httpx.Client(base_url=self.url, timeout=60))
        return self.browsers[-1]

    def sign_on(self, browser: httpx.Client, provider: str, **query: str) -> httpx.Response:
        """Through the provider and back; the answer of our callback."""
        return browser.get(self.returning(browser, provider, **query))

    def returning(self, browser: httpx.Client, provider: str, **query: str) -> str:
        """The address that the provider sends the browser back to."""
        away = browser.get(f"/auth/login/{provider}", params=query, headers={"Referer": f"{self.url}/me"})
        assert away.status_code == 303, away.text
        back = browser.get(away.headers["location"])
        assert back.status_code == 302
        return back.headers["location"]

    def who(self, browser: httpx.Client) -> Person | None:
        secret = browser.cookies.get(SESSION)
        return self.context.store.tokens.person_of(secret, now=self.context.clock.now()) if secret else None


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[SignOnStage]:
    clock = HandClock()
    with sign_on.running(lambda: clock.now().timestamp()) as fake, PostgresStore(database_url) as store:
        file = tmp_path / "kbslurm.toml"
        file.write_text(
            f'[github]\nclient_id = "{sign_on.CLIENT}"\noauth_url = "{fake.url}"\noauth_api_url = "{fake.url}"\n'
            f'[discord]\nclient_id = "{sign_on.CLIENT}"\noauth_url = "{fake.url}"\n'
            f'[oidc]\nclient_id = "{sign_on.CLIENT}"\nissuer = "{fake.url}"\nname = "Example University"\n'
        )
        names = ("CLI_GITHUB_CLIENT_SECRET", "CLI_DISCORD_CLIENT_SECRET", "OIDC_CLIENT_SECRET")
        context = context_of(
            settings.load(file, dict.fromkeys(names, sign_on.SECRET), cwd=tmp_path), store, clock=clock
        )
        with serving(context, database_url) as found:
            stage = SignOnStage(context, found.url, fake)
            try:
                yield stage
            finally:
                for browser in stage.browsers:
                    browser.close()


@pytest.mark.parametrize("provider", ALL)
def test_whoever_comes_back_is_known_by_their_number_and_not_by_their_name(stage: SignOnStage, provider: str) -> None:
    assert [name for name, _ in providers(stage.context)] == ["oidc", "github", "discord"]
    browser = stage.browser()
    answer = stage.sign_on(browser, provider, next="/boards/transpose")
    assert (answer.status_code, answer.headers["location"]) == (303, "/boards/transpose")
    (session,) = [text for text in answer.headers.get_list("set-cookie") if text.startswith(SESSION)]
    assert "HttpOnly" in session and "SameSite=lax" in session and "Path=/" in session
    ada = stage.who(browser)
    assert ada is not None and ada.name == "ada" and ada.role == "participant"
    # The same number with another name is the same person; the same name with another number is somebody else.
    stage.fake.user = {"id": "501", "name": "renamed"}
    again = stage.browser()
    stage.sign_on(again, provider)
    assert stage.who(again) == ada
    stage.fake.user = {"id": "999", "name": "ada"}
    other = stage.browser()
    stage.sign_on(other, provider)
    impostor = stage.who(other)
    assert impostor is not None and impostor.id != ada.id and impostor.name != "ada"
    assert browser.post("/auth/logout", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert stage.who(browser) == ada
    kept = browser.cookies.get(SESSION)
    assert browser.post("/auth/logout").status_code == 200 and stage.who(browser) is None
    assert kept is not None and stage.context.store.tokens.person_of(kept) is None


@pytest.mark.parametrize("provider", ALL)
def test_a_state_is_good_once_for_its_browser_its_provider_and_ten_minutes(stage: SignOnStage, provider: str) -> None:
    browser = stage.browser()
    back = stage.returning(browser, provider)
    state = parse_qs(urlsplit(back).query)["state"][0]
    stranger = stage.browser()
    assert stranger.get(back).status_code == 403
    stranger.cookies.set(PROOF, "guessed")
    assert stranger.get(back).status_code == 403
    elsewhere = "github" if provider != "github" else "discord"
    for bad in (
        back.replace(f"/{provider}?", f"/{elsewhere}?"),
        back.replace("state=", "state=x"),
        back.replace(state[-8:], "00000000"),
        back.replace("state=", "was="),
    ):
        assert browser.get(bad).status_code == 403, bad
    assert browser.get(back).status_code == 303
    browser.cookies.set(PROOF, "again")
    assert browser.get(back).status_code == 403
    late = stage.browser()
    back = stage.returning(late, provider)
    clock = stage.context.clock
    assert isinstance(clock, HandClock)
    clock.go(601)
    assert late.get(back).status_code == 403
    assert stage.who(late) is None


def test_the_very_same_return_is_not_taken_twice(stage: SignOnStage) -> None:
    browser = stage.browser()
    away = browser.get("/auth/login/github")
    proof = browser.cookies.get(PROOF)
    back = browser.get(away.headers["location"]).headers["location"]
    assert browser.get(back).status_code == 303
    browser.cookies.set(PROOF, str(proof), path="/auth")
    answer = browser.get(back)
    assert answer.status_code == 403 and set(answer.json()) == {"detail"}


def test_no_page_of_others_is_gone_to_afterwards(stage: SignOnStage) -> None:
    for wanted in ("//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nSet-Cookie: x", "evil"):
        assert stage.sign_on(stage.browser(), "github", next=wanted).headers["location"] == "/"


@pytest.mark.parametrize(
    "spoil",
    [
        {"aud": "somebody-else"}, {"iss": "https://evil.example"}, {"nonce": "old"}, {"exp": 1}, {"sub": None},
        {"aud": [sign_on.CLIENT, "other"], "azp": "other"}, "foreign", "unsigned",
    ],
    ids=str,
)  # fmt: skip
def test_an_id_token_must_be_for_us_from_them_for_now(stage: SignOnStage, spoil: object) -> None:
    stage.fake.foreign_key, stage.fake.unsigned = spoil == "foreign", spoil == "unsigned"
    stage.fake.spoil = dict(spoil) if isinstance(spoil, dict) else {}
    browser = stage.browser()
    assert stage.sign_on(browser, "oidc").status_code == 403
    assert stage.who(browser) is None and stage.context.store.people.all() == []


def test_an_account_is_added_only_by_who_is_signed_on(stage: SignOnStage) -> None:
    ada = stage.browser()
    assert ada.get("/auth/login/github", params={"link": "true"}).status_code == 401
    stage.sign_on(ada, "discord")
    person = stage.who(ada)
    assert person is not None
    assert stage.sign_on(ada, "github", link="true").status_code == 303
    linked = stage.context.store.people.by_account("github", "501")
    assert linked is not None and linked.id == person.id
    # Eve has an account that is hers; Ada can't take it, and Eve's browser can't finish what Ada's began.
    stage.fake.user = {"id": "666", "name": "eve"}
    eve = stage.browser()
    stage.sign_on(eve, "github")
    assert stage.sign_on(ada, "github", link="true").status_code == 400
    back = stage.returning(ada, "discord", link="true")
    eve.cookies.set(PROOF, str(ada.cookies.get(PROOF)), path="/auth")
    assert eve.get(back).status_code == 403
    # A university's account is added like the others: hers once it is, nobody else's, and one of each university.
    assert stage.sign_on(ada, "oidc", link="true").status_code == 303
    again = stage.browser()
    stage.sign_on(again, "oidc")
    same = stage.who(again)
    assert same is not None and same.id == person.id
    other = stage.browser()
    stage.sign_on(other, "github")
    hers = stage.who(other)
    assert hers is not None and hers.id != person.id
    assert stage.sign_on(other, "oidc", link="true").status_code == 400
    stage.fake.user = {"id": "777", "name": "ada-too"}
    assert stage.sign_on(ada, "oidc", link="true").status_code == 400
    known = stage.context.store.people.by_account("github", "666")
    assert known is not None and known.name == "eve"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Referer": "https://evil.example/"},
        {"Sec-Fetch-Site": "same-site"},
        {"Referer": "https://evil.example/"},
        {"Referer": "http://["},
        {},
    ],
)
def test_another_sites_link_adds_no_account(stage: SignOnStage, headers: dict[str, str]) -> None:
    """Whoever follows it may be signed in at the provider as whom its author chose, who could then sign in as them."""
    ada = stage.browser()
    stage.sign_on(ada, "discord")
    answer = ada.get("/auth/login/github", params={"link": "true"}, headers=headers)
    assert answer.status_code == 403 and "Open /me" in answer.json()["detail"]
    for site in ("same-origin", "none"):
        sent = {"Sec-Fetch-Site": site}
        assert ada.get("/auth/login/github", params={"link": "true"}, headers=sent).status_code == 303


def test_a_refusal_a_ban_and_a_provider_that_is_not_there(
    stage: SignOnStage, database_url: str, tmp_path: Path
) -> None:
    stage.fake.refuses = True
    assert stage.sign_on(stage.browser(), "github").status_code == 403
    stage.fake.refuses = False
    browser = stage.browser()
    stage.sign_on(browser, "github")
    person = stage.who(browser)
    assert person is not None
    session = f"{SESSION}={stage.context.store.tokens.issue(person.id)}"
    kept = {"Cookie": session, "Sec-Fetch-Site": "same-origin"}
    assert stage.browser().get("/auth/login/oidc?link=true", headers=kept).status_code == 303
    stage.context.store.people.ban(person.id)
    assert stage.sign_on(stage.browser(), "github").status_code == 403
    assert stage.browser().get("/auth/login/oidc?link=true", headers=kept).status_code == 401
    bare = context_of(settings.load(None, {}, cwd=tmp_path / "none"), stage.context.store)
    with Serving(bare, host="127.0.0.1", port=0) as serving, httpx.Client(base_url=serving.url, timeout=60) as other:
        assert other.get("/auth/login/github").status_code == 404
        assert other.get("/auth/callback/oidc").status_code == 404

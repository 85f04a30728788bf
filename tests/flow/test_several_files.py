"""Submissions of several files through the service: sent as a folder and as a zip, kept as one text, shown file by
file, and judged from it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
import pytest

from kbslurm.client.http import Client
from kbslurm.domain.run import SubmissionId
from kbslurm_eval.shared import bundle
from tests.flow.stage import HandClock
from tests.popcorn.served_api import ServedApi, served

MAIN = b"#!POPCORN leaderboard transpose\n#!POPCORN gpu H100\nfrom parts.half import half\n\ncustom_kernel = half\n"
HALF = b"def half(data):\n    return data\n"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


def test_a_zip_is_accepted_by_its_own_popcorn_lines_and_shown_file_by_file(api: ServedApi) -> None:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("mine/main.py", MAIN)
        file.writestr("mine/parts/half.py", HALF)
    ada = api.store.people.ensure("ada")
    token = api.store.tokens.issue(ada.id, now=api.now)
    with Client(api.url, token=token) as client:
        number = client.submit_to_many(None, [], "test", "mine.zip", packed.getvalue()).submission_id
    view = api.store.submissions.get(SubmissionId(number))
    assert (view.file_name, view.board) == ("main.py", "transpose")
    assert view.source is not None
    assert bundle.files(view.source) == {"main.py": MAIN.decode(), "parts/half.py": HALF.decode()}
    with httpx.Client(base_url=api.url, headers={"Accept": "text/html"}, timeout=60) as browser:
        browser.post("/login", data={"token": token, "next": "/me"})
        page = browser.get(f"/s/{number}").text
    shown = re.findall(r'<span class="mono name">([^<]+)</span>.*?<code[^>]*>(.*?)</code>', page, re.DOTALL)
    texts = {name: re.sub(r'<a class="at".*?</a>|<[^>]+>', "", text) for name, text in shown}
    assert texts["main.py"].startswith("#!POPCORN leaderboard transpose")
    assert texts["parts/half.py"].startswith("def half(data):")
    assert "KBSLURM-FILES" not in page


@pytest.mark.parametrize(
    ("files", "status", "said"),
    [
        ({"../../main.py": MAIN}, 400, "points outside the zip"),
        ({"a.py": MAIN, "b.py": HALF}, 400, "isn't clear which of the files is called"),
        ({"main.py": MAIN, "lib.so": HALF}, 400, "lib.so must end in one of"),
        ({"main.py": b"x" * 1_000_001}, 413, "unpacks to 1,000,001 bytes"),
    ],
)
def test_a_zip_that_cant_be_taken_is_refused_in_a_sentence(
    api: ServedApi, files: dict[str, bytes], status: int, said: str
) -> None:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for path, data in files.items():
            file.writestr(path, data)
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    answer = httpx.post(
        f"{api.url}/submission/transpose/H100/test",
        files={"file": ("mine.zip", packed.getvalue())},
        headers={"X-Popcorn-Cli-Id": token},
        timeout=60,
    )
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    assert api.store.submissions.newest() == []

"""How much each call may send, and who may send it: the one table that every route is held to.

A body is read only up to its call's cap, and only after the headers have shown that the sender may make the call. The
call itself checks the right again, since it may end while the body arrives. Calls that aren't listed use no body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kbslurm.backends.ray.calls import RESULT_CAP
from kbslurm.domain.roster import BYTES_CAP
from kbslurm.domain.source import SOURCE_CAP
from kbslurm.problems.upload import PACKED_CAP, PACKED_HINT

NOTHING = 1024  # some clients send an empty JSON object with everything
FORM = 16_384
FIELDS = 32_768
LISTS = 131_072
FRAME = 16_384  # what multipart/form-data adds to a file
SOURCE = SOURCE_CAP + FRAME
TYPED = 2 * SOURCE_CAP + FRAME  # the same written in a browser, which sends two bytes for the end of a line
PROBLEM = PACKED_CAP + FRAME
ROSTER = BYTES_CAP + FRAME

Who = Literal["anyone", "browser", "person", "service", "creator", "helper", "host", "staff", "node"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """`cap`: the largest body, in bytes. `who` may send one; every call of a `person` that changes something is listed
    with that, so that a host who makes it for them is noted. A `helper` is a host, or has a role on a board; `staff`
    are so in a browser; a `node` proves by its place's run key which attempt it runs. `in_turn`: it uses a thread, so
    clients take turns; `submits`: it counts as a submission."""

    cap: int = NOTHING
    who: Who = "anyone"
    in_turn: bool = True
    submits: bool = False


TOO_LARGE: Mapping[int, tuple[str, str]] = {
    NOTHING: ("the body is too large: this call uses none", ""),
    SOURCE: (f"the upload is larger than {SOURCE_CAP:,} bytes", "Submit source text, not data or binaries."),
    TYPED: (f"the upload is larger than {SOURCE_CAP:,} bytes", "Submit source text, not data or binaries."),
    PROBLEM: (f"the upload is larger than {PACKED_CAP:,} bytes", PACKED_HINT),
}
UNLISTED = Call()
CALLS: Mapping[str, Call] = {
    # These use no thread, or wait for others on threads of their own.
    "GET /health": Call(in_turn=False),
    "GET /openapi.json": Call(in_turn=False),
    "GET /static/{name}": Call(in_turn=False),
    "GET /favicon.ico": Call(in_turn=False),
    "GET /auth/login/{provider}": Call(in_turn=False),
    "GET /auth/callback/{provider}": Call(in_turn=False),
    "POST /user/join": Call(cap=FIELDS, who="person"),
    "POST /user/invitation": Call(cap=FIELDS),
    "POST /user/questions": Call(cap=LISTS, who="person"),
    "POST /user/logout": Call(who="person"),
    "PUT /user/consent/{leaderboard}": Call(cap=FIELDS, who="person"),
    "PUT /user/nickname/{leaderboard}": Call(cap=FIELDS, who="person"),
    "POST /user/submissions/{submission_id}/cancel": Call(who="person"),
    "DELETE /user/submissions/{submission_id}": Call(who="person"),
    "POST /user/submissions": Call(cap=SOURCE, who="person", submits=True),
    "POST /profile": Call(cap=SOURCE, who="person", submits=True),
    "POST /submission/{leaderboard}/{gpu}/{mode}": Call(cap=SOURCE, who="person", submits=True),
    "POST /nodes/{place}/{name}/claim": Call(cap=FIELDS, who="node"),
    "POST /nodes/{place}/{name}/beat": Call(cap=FIELDS, who="node"),
    "POST /nodes/{place}/{name}/result": Call(cap=RESULT_CAP, who="node"),
    "POST /{leaderboard}/{gpu}/{mode}": Call(cap=SOURCE, who="person", submits=True),
    "POST /bot/people": Call(cap=FIELDS, who="service"),
    "POST /bot/link": Call(cap=FIELDS, who="service"),
    "POST /admin/people": Call(cap=FIELDS, who="host"),
    "POST /admin/link": Call(cap=FIELDS, who="host"),
    "POST /admin/invites": Call(cap=LISTS, who="host"),
    "POST /admin/leaderboards": Call(cap=FIELDS, who="host"),
    "POST /admin/leaderboards/upload": Call(cap=PROBLEM, who="creator"),
    "POST /admin/leaderboards/of-problem": Call(cap=LISTS, who="host"),
    "PATCH /admin/leaderboards/{leaderboard}": Call(cap=LISTS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/final": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/final-apply": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/final-forget": Call(cap=FIELDS, who="helper"),
    "POST /admin/submissions/{submission_id}/shadow": Call(cap=FIELDS, who="host"),
    "POST /admin/problems": Call(cap=PROBLEM, who="host"),
    "POST /admin/users": Call(cap=FIELDS, who="host"),
    "POST /admin/deletions": Call(who="host"),
    "DELETE /admin/users/{user_id}": Call(who="host"),
    "PUT /admin/users/{user_id}/role": Call(cap=FIELDS, who="host"),
    "PUT /admin/users/{user_id}/team": Call(cap=FIELDS, who="host"),
    "PUT /admin/users/{user_id}/cluster_account": Call(cap=FIELDS, who="host"),
    "POST /admin/users/{user_id}/accounts": Call(cap=FIELDS, who="host"),
    "POST /admin/users/{user_id}/tokens": Call(cap=FIELDS, who="host"),
    "POST /admin/leaderboards/{leaderboard}/visibility": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/extend": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/late": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/freeze": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/finalise": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/unfinalise": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/archive": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/grades": Call(cap=LISTS, who="helper"),
    "PUT /admin/leaderboards/{leaderboard}/code": Call(cap=FIELDS, who="helper"),
    "PUT /admin/leaderboards/{leaderboard}/quota": Call(cap=FIELDS, who="helper"),
    "PUT /admin/leaderboards/{leaderboard}/rate-limits": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/rejudge-preview": Call(cap=FIELDS, who="helper"),
    "POST /admin/leaderboards/{leaderboard}/rejudge-estimate": Call(cap=FIELDS, who="helper"),
    "POST /admin/courses/{course}/import": Call(cap=ROSTER, who="host"),
    "POST /admin/courses/{course}/invitations": Call(cap=LISTS, who="host"),
    "PUT /admin/courses/{course}/budgets": Call(cap=FIELDS, who="helper"),
    "PUT /admin/courses/{course}/people/{user_id}": Call(cap=FIELDS, who="helper"),
    "PUT /admin/leaderboards/{leaderboard}/roles/{user_id}": Call(cap=FIELDS, who="helper"),
    "POST /admin/questions/{question_id}/answer": Call(cap=LISTS, who="helper"),
    "POST /admin/questions/{question_id}/close": Call(who="helper"),
    "POST /admin/questions/{question_id}/rejudge": Call(cap=FIELDS, who="helper"),
    "POST /admin/warm": Call(cap=FIELDS, who="host"),
    "POST /admin/warm/drain": Call(cap=FIELDS, who="host"),
    "POST /admin/places/{place}/drain": Call(cap=FIELDS, who="host"),
    "POST /admin/places/{place}/resume": Call(cap=FIELDS, who="host"),
    "POST /admin/leaderboards/{leaderboard}/verify": Call(cap=LISTS, who="host"),
    "POST /admin/scripts": Call(cap=SOURCE, who="host"),
    "POST /admin/update-problems": Call(cap=FIELDS, who="host", in_turn=False),
    "POST /login": Call(cap=FORM),
    "POST /logout": Call(cap=FORM),
    "POST /join/{code}": Call(),
    "POST /staff/courses/{course}/import": Call(cap=ROSTER, who="staff"),
    "POST /staff/courses/{course}/{act}": Call(cap=FORM, who="browser"),
    "POST /me/link": Call(cap=FORM, who="browser"),
    "POST /problem/{leaderboard}/nickname": Call(cap=FORM, who="browser"),
    "POST /problem/{leaderboard}/submit": Call(cap=TYPED, who="browser", submits=True),
    "POST /problem/{leaderboard}/consent": Call(cap=FORM, who="browser"),
    "POST /s/{submission_id}/cancel": Call(cap=FORM, who="browser"),
    "POST /staff/triage": Call(cap=TYPED, who="staff", in_turn=False),
    "POST /staff/run": Call(cap=TYPED, who="staff"),
    "POST /staff/run/{script}/cancel": Call(cap=FORM, who="staff"),
    "POST /staff/problems": Call(cap=PROBLEM, who="staff"),
    "POST /staff/people/{person_id}/token": Call(cap=FORM, who="staff"),
    "POST /staff/boards/new": Call(cap=LISTS, who="staff"),
    "POST /staff/board/{leaderboard}/{act}": Call(cap=LISTS, who="browser"),
    "POST /questions": Call(cap=LISTS, who="browser"),
    "POST /staff/questions/{question_id}/{act}": Call(cap=LISTS, who="browser"),
    "POST /staff/{act}": Call(cap=FORM, who="browser"),
}


def too_large(cap: int) -> tuple[str, str]:
    """What to tell whoever sent more, and what to do instead."""
    return TOO_LARGE.get(cap, (f"the body is larger than {cap:,} bytes", ""))


def call_of(method: str, path: str) -> Call:
    """What holds for this route."""
    return CALLS.get(f"{method} {path}", UNLISTED)

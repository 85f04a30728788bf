"""Hosts' acts about courses: rosters, sections, teams, roles and invitations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import access, roster
from kbslurm.errors import Invalid, KbslurmError, NotFound, Refused

if TYPE_CHECKING:
    from kbslurm.domain.access import BoardRole
    from kbslurm.domain.roster import Change, CourseRole
    from kbslurm.store.roster import Enrolled
    from kbslurm.store.views import Person

MOST_DAYS = 366
DAYS = 14


class CourseActs(HostActs):
    """Courses. Whoever isn't staff acts here by a role on the course, which the API has looked at."""

    def courses(self) -> Sequence[Mapping[str, Any]]:
        """Every course: its people and boards."""
        return [
            {"course": one.name, "students": one.students, "helpers": one.helpers, "boards": list(one.boards)}
            for one in self.store.roster.courses()
        ]

    def roster(self, course: str) -> Mapping[str, Any]:
        """Everyone on a course's roster, with their personal data."""
        name = self.known_course(course)
        return {"course": name, "people": [told(one) for one in self.store.roster.of_course(name, everyone=True)]}

    def import_roster(
        self, course: str, data: bytes, *, preview: bool = False, remove: bool = False
    ) -> Mapping[str, Any]:
        """Bring a course's roster to what a CSV says, or say what that would change. Nobody leaves it without `remove`.
        A file with a wrong line changes nothing."""
        name = roster.course_name(course)
        sheet = roster.read(data)
        if sheet.problems:
            raise roster.refusal(sheet.problems)
        issuer = self.config.oidc.issuer
        if not issuer and any(row.subject for row in sheet.rows):
            raise Invalid(
                "the roster names accounts of a university's provider, and none is configured",
                hint="Leave the column out, or set issuer under [oidc] in kbslurm.toml.",
            )
        kept = self.store.roster
        if preview:
            plan = kept.plan(name, sheet.rows, remove=remove, issuer=issuer)
            if plan.problems:
                raise roster.refusal(plan.problems)
        else:
            plan = kept.take(name, sheet.rows, remove=remove, issuer=issuer, by=self.by, now=self.now)
        return {
            "course": name,
            "preview": preview,
            "platform": sheet.platform,
            "added": [_changed(one) for one in plan.of("add")],
            "changed": [_changed(one) for one in plan.of("change")],
            "removed": [_changed(one) for one in plan.of("remove")],
            "unchanged": len(plan.of("same")),
            "notes": [*sheet.notes, *plan.notes],
        }

    def place_on_roster(
        self,
        course: str,
        whom: str,
        *,
        section: str | None = None,
        team: str | None = None,
        role: CourseRole | None = None,
    ) -> Mapping[str, Any]:
        """Put somebody on a course's roster, or change their section, team or role there; an empty section or team is
        none."""
        name = roster.course_name(course)
        try:
            person = self.whom_in(name, whom)
        except NotFound as error:
            if not self.helper:
                raise
            # The same whether there is such a person elsewhere or not.
            raise Refused(f"only a host may put somebody new on the roster of {name}", hint=error.hint) from None
        found = self.store.roster.place(
            name,
            person.id,
            section=roster.section_name(section) if section else None,
            team=roster.team_name(team) if team else None,
            role=role,
            no_section=section == "",
            no_team=team == "",
            by=self.by,
            now=self.now,
        )
        return told(found)

    def drop_from_roster(self, course: str, whom: str) -> Mapping[str, Any]:
        """Take somebody off a course's roster; they and what they submitted stay."""
        name, person = self.known_course(course), self._on(course, whom)
        self.store.roster.drop(name, person.id, by=self.by, now=self.now)
        return {"status": "ok", "course": name, "person": person.name}

    def invite_roster(
        self, course: str, people: Sequence[str] = (), *, days: int = DAYS, again: bool = False
    ) -> Mapping[str, Any]:
        """A link for each of these, or for everyone on the roster, by which they sign in once. Whoever has signed in
        already gets one only `again` or when named. Earlier unused links of theirs end."""
        if not 1 <= days <= MOST_DAYS:
            raise Invalid(f"an invitation must last between 1 and {MOST_DAYS} days, not {days}")
        name = self.known_course(course)
        everyone = self.store.roster.of_course(name, everyone=True)
        named = {self._on(name, whom).id for whom in people}
        left: list[dict[str, Any]] = []
        chosen: list[Enrolled] = []
        for one in everyone:
            if named and one.person_id not in named:
                continue
            if (why := self._why_not_invited(one, again=again or bool(named))) is not None:
                left.append({"person": one.name, "why": why})
            else:
                chosen.append(one)
        until = self.now + timedelta(days=days)
        ids = [one.person_id for one in chosen]
        made = self.store.tokens.invite(ids, expires_at=until, by=self.by, course=name, now=self.now) if chosen else {}
        return {
            "course": name,
            "expires_at": until.isoformat(),
            "invitations": [
                {
                    "person_id": one.person_id,
                    "person": one.name,
                    "name": one.full_name or one.name,
                    "email": one.email,
                    "section": one.section,
                    "team": one.team,
                    "code": made[one.person_id],
                    "link": f"{self._address()}/join/{made[one.person_id]}",
                }
                for one in chosen
            ],
            "left_out": left,
        }

    def board_roles(self, board: str) -> Mapping[str, Any]:
        """Who helps on a board: by a role there, or on its course."""
        held = self.held(board)
        found = [
            {"person_id": person, "person": name, "role": role, "by": "board"}
            for person, name, role in self.store.roster.roles(held.id)
        ]
        if held.course is not None:
            found += [
                {"person_id": one.person_id, "person": one.name, "role": one.role, "by": "course"}
                for one in self.store.roster.of_course(held.course, everyone=True)
                if one.role != "student"
            ]
        return {"leaderboard": held.name, "course": held.course, "roles": found}

    def set_board_role(self, board: str, whom: str, role: BoardRole | None) -> Mapping[str, Any]:
        """Give somebody a role on a board; None takes it away."""
        held = self.held(board)
        person = self.whom_at([held], whom)
        self.store.roster.set_role_on(held.id, person.id, role, by=self.by, now=self.now)
        return {"status": "ok", "leaderboard": held.name, "person": person.name, "role": role}

    def _on(self, course: str, whom: str) -> Person:
        """The person on this roster, by what hosts call people, or by their e-mail address or student ID there."""
        name = self.known_course(course)
        person = self.whom_in(name, whom)
        if self.store.roster.find(name, person.id) is None:
            raise NotFound(f"person on the roster of {name}", person.name)
        return person

    def _why_not_invited(self, one: Enrolled, *, again: bool) -> str | None:
        if one.banned:
            return "banned"
        try:
            access.check_may_give(self.person, self.store.people.get(one.person_id).role)
        except KbslurmError:
            return "of staff: only an owner may make a link that signs them in"
        return None if again or not one.has_signed_in else "has signed in already"

    def _address(self) -> str:
        server = self.config.server
        return (server.public_url or f"http://{server.listen}").rstrip("/")


def told(one: Enrolled) -> dict[str, Any]:
    """Somebody on a roster, as whoever may read it sees them."""
    return {
        "person_id": one.person_id,
        "person": one.name,
        "name": one.full_name,
        "email": one.email,
        "student_id": one.student_id,
        "section": one.section,
        "team": one.team,
        "role": one.role,
        "has_signed_in": one.has_signed_in,
        "invited_until": None if one.invited_until is None else one.invited_until.isoformat(),
        "added_at": one.added_at.isoformat(),
        "columns": dict(one.extra),
    }


def _changed(one: Change) -> dict[str, Any]:
    row = one.row
    return {
        "line": None if row is None else row.line,
        "person": one.name,
        "person_id": one.person_id,
        "section": None if row is None else row.section,
        "team": None if row is None else row.team,
        "role": "student" if row is None or row.role is None else row.role,
        "differences": {what: list(pair) for what, pair in one.differences.items()},
    }

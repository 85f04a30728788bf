"""Hosts' acts about people: who takes part, with which rights, accounts and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.archiving import archive_told
from kbslurm.api.hosting.host_acts import HostActs, iso
from kbslurm.domain import access, contest
from kbslurm.errors import Invalid, Misconfigured, NotFound, Refused
from kbslurm.flow.cancel import cancel

if TYPE_CHECKING:
    from kbslurm.domain.access import Role
    from kbslurm.domain.run import PersonId
    from kbslurm.store.erasing import Erasure
    from kbslurm.store.people import Group, Known
    from kbslurm.store.views import Person


class PeopleActs(HostActs):
    """People. What would give somebody a person's rights, only those may do who have as many."""

    def add_user(self, name: str, role: Role = "participant") -> Mapping[str, Any]:
        """Add a person."""
        access.check_may_give(self.person, role)
        contest.within("name", name, contest.NOTE_CAP)
        return told(self.store.people.add(name, role, by=self.by, now=self.now))

    def users(self) -> Sequence[Mapping[str, Any]]:
        """Everybody."""
        return [told(one) for one in self.store.people.all()]

    def find_users(
        self, text: str = "", *, only: Group | None = None, limit: int = 50, offset: int = 0
    ) -> Mapping[str, Any]:
        """People by a part of their name, full name or e-mail address, or by a number; how many there are in all."""
        contest.within("text", text, contest.WHOM_CAP)
        found = self.store.people.search(text, only=only, limit=limit, offset=offset)
        return {"people": [known_told(one) for one in found], "of": self.store.people.count(text, only=only)}

    def known_user(self, whom: str) -> Mapping[str, Any]:
        """One person in the same way."""
        return known_told(self.store.people.known(self.whom(whom).id))

    def user(self, whom: str) -> Mapping[str, Any]:
        """One person."""
        return told(self.whom(whom))

    def set_role(self, whom: str, role: Role) -> Mapping[str, Any]:
        """Change a person's role. The last owner stays one."""
        person = self.whom(whom)
        access.check_may_give(self.person, role)
        access.check_may_give(self.person, person.role)
        return told(self.store.people.set_role(person.id, role, by=self.by, now=self.now))

    def set_team(self, whom: str, team: str | None) -> Mapping[str, Any]:
        """Set the team that they submit for from now on, or none."""
        contest.within("team", team or "", contest.NOTE_CAP)
        return told(self.store.people.set_team(self.whom(whom).id, team, by=self.by, now=self.now))

    def set_cluster_account(self, whom: str, account: str | None) -> Mapping[str, Any]:
        """Set the account that pays for their jobs on clusters that charge each person's own, or none."""
        person = self.whom(whom)
        return told(self.store.people.set_cluster_account(person.id, account, by=self.by, now=self.now))

    def ban(self, whom: str, reason: str = "") -> Mapping[str, Any]:
        """Ban a person: reject their submissions, cancel what is open of them, and hide them from every board."""
        person = self.whom(whom)
        access.check_may_ban(self.person, person)
        contest.within("reason", reason, contest.NOTE_CAP)
        anybody = self.person is None
        banned = self.store.people.ban(person.id, reason, by=self.by, now=self.now, last_owner_too=anybody)
        for submission in self.store.submissions.unfinished(person.id):  # there are no new ones
            cancel(self.store.submissions, submission, None, self.now)
        return told(banned)

    def unban(self, whom: str) -> Mapping[str, Any]:
        """Lift a ban."""
        person = self.whom(whom)
        access.check_may_ban(self.person, person)
        return told(self.store.people.unban(person.id, by=self.by, now=self.now))

    def delete_preview(self, whom: str) -> Mapping[str, Any]:
        """What deleting a person would erase, and what would stay."""
        return erasure_told(self.store.erasing.preview(self._deletable(whom).id))

    def delete_user(self, whom: str) -> Mapping[str, Any]:
        """Delete a person for good: what they did stays under a pseudonym. Their open runs are cancelled."""
        return self._deleted(self._deletable(whom).id)

    def deletions_due(self) -> Mapping[str, Any]:
        """Participants whose retention period is over."""
        days = self.config.policy.keep_people_days
        due = [] if days is None else self.store.erasing.due(self.now - timedelta(days=days))
        return {
            "keep_people_days": days,
            "due": [{"person_id": one.person_id, "name": one.name, "last_at": one.last_at.isoformat()} for one in due],
        }

    def delete_due(self) -> Mapping[str, Any]:
        """Delete them all."""
        if self.config.policy.keep_people_days is None:
            raise Invalid(
                "no retention period is configured", hint="Set keep_people_days under [policy] in kbslurm.toml."
            )
        return {"deleted": [self._deleted(one["person_id"]) for one in self.deletions_due()["due"]]}

    def _deletable(self, whom: str) -> Person:
        """The person, if this host may delete them; never whoever the service is run by."""
        person = self.whom(whom)
        access.check_may_give(self.person, person.role)
        owners = [one for one in self.store.people.all() if one.role == "owner" and one.banned_at is None]
        if [one.id for one in owners] == [person.id]:
            raise Refused(
                f"{person.name} is the site's only owner and can't be deleted",
                hint="Make somebody else an owner first: kbslurm user role NAME owner",
            )
        return person

    def _deleted(self, person: PersonId) -> Mapping[str, Any]:
        for submission in self.store.submissions.unfinished(person):
            cancel(self.store.submissions, submission, None, self.now)
        return erasure_told(self.store.erasing.erase(person, by=self.by, now=self.now))

    def link_token(self, whom: str, token: str) -> Mapping[str, Any]:
        """Link a pending token to a person. Once; then it is theirs until it is revoked."""
        person = self._theirs(whom)
        if not self.store.tokens.claim(token, person.id, now=self.now):
            raise Invalid("this token isn't waiting to be linked", hint="Get a new one: popcorn reregister discord")
        self.store.events.audit(self.by, "link", f"person:{person.id}", {"account": None}, now=self.now)
        return told(person)

    def link_account(self, whom: str, account: str) -> Mapping[str, Any]:
        """Link an account to a person: discord:ID, github:ID, or oidc:SUBJECT of the university's provider."""
        person = self._theirs(whom)
        contest.within("account", account, contest.ACCOUNT_CAP)
        provider, name = contest.account(account)
        if provider == "oidc":
            self.store.people.link_subject(person.id, self._issuer(), name)
        else:
            self.store.people.link_account(person.id, provider, name)
        self.store.events.audit(self.by, "link", f"person:{person.id}", {"account": account}, now=self.now)
        return told(self.store.people.get(person.id))

    def issue_token(
        self,
        whom: str,
        *,
        device: str = "",
        days: int | None = None,
        service: bool = False,
        gpu_s_per_day: float | None = None,
    ) -> Mapping[str, Any]:
        """A new token for a person, or for their programs, told only here."""
        person = self._theirs(whom)
        if gpu_s_per_day is not None and not service:
            raise Invalid("only a service token has a quota of its own", hint="A board's quota: kbslurm limit quota.")
        contest.within("device", device, contest.NOTE_CAP)
        expires_at = self.now + timedelta(days=days) if days else None
        issue = self.store.tokens.issue
        secret = issue(
            person.id,
            kind="service" if service else "cli",
            device=device,
            expires_at=expires_at,
            gpu_s_per_day=gpu_s_per_day,
            now=self.now,
        )
        said: dict[str, Any] = {"device": device}
        said |= {"service": True, "gpu_s_per_day": gpu_s_per_day} if service else {}
        self.store.events.audit(self.by, "token.issue", f"person:{person.id}", said, now=self.now)
        return {"person": person.name, "token": secret, "expires_at": iso(expires_at)}

    def tokens(self, whom: str) -> Sequence[Mapping[str, Any]]:
        """A person's tokens by device, without their secrets."""
        return [
            {
                "id": one.id,
                "person_id": one.person_id,
                "device": one.device,
                "kind": one.kind,
                "created_at": one.created_at.isoformat(),
                "expires_at": iso(one.expires_at),
                "revoked_at": iso(one.revoked_at),
                "used_at": iso(one.used_at),
                "gpu_s_per_day": one.gpu_s_per_day,
            }
            for one in self.store.tokens.of_person(self.whom(whom).id)
        ]

    def revoke_tokens(self, whom: str, token: int | None = None) -> Mapping[str, Any]:
        """Revoke one or all of a person's tokens."""
        person = self._theirs(whom)
        mine = [one.id for one in self.store.tokens.of_person(person.id) if one.revoked_at is None]
        if token is not None and token not in mine:
            raise NotFound(f"token of {person.name}", str(token), known=[str(one) for one in mine])
        ended = mine if token is None else [token]
        for one in ended:
            self.store.tokens.revoke(one, now=self.now)
        self.store.events.audit(self.by, "token.revoke", f"person:{person.id}", {"tokens": ended}, now=self.now)
        return {"person": person.name, "revoked": ended}

    def _theirs(self, whom: str) -> Person:
        """The person, if this host may handle what speaks for them."""
        person = self.whom(whom)
        if self.person is None or self.person.id != person.id:
            access.check_may_give(self.person, person.role)
        return person

    def _issuer(self) -> str:
        """The configured OpenID Connect provider."""
        issuer = self.config.oidc.issuer
        if not issuer:
            raise Misconfigured(
                "no OpenID Connect provider is configured", fix="Set issuer under [oidc] in kbslurm.toml."
            )
        return issuer


def erasure_told(one: Erasure) -> dict[str, Any]:
    """What deleting a person erases and keeps; `pseudonym` is None in a preview."""
    return {
        "person_id": one.person_id,
        "name": one.name,
        "pseudonym": one.pseudonym,
        "erased": dict(one.erased),
        "courses": list(one.courses),
        "open_runs": one.open_runs,
        "submissions": one.submissions,
        "audit_lines": one.audit_lines,
        "archives": [archive_told(found) for found in one.archives],
    }


def known_told(one: Known) -> dict[str, Any]:
    """A person in a list for hosts: with what they are known by, and what they have done."""
    return {
        **told(one.person),
        "email": one.email,
        "full_name": one.full_name,
        "courses": list(one.courses),
        "university": one.university,
        "submissions": one.submissions,
        "seen_at": iso(one.seen_at),
    }


def told(person: Person) -> dict[str, Any]:
    """A person as hosts see them."""
    return {
        "id": person.id,
        "name": person.name,
        "role": person.role,
        "banned_at": iso(person.banned_at),
        "ban_reason": person.ban_reason,
        "discord_id": person.discord_id,
        "github_id": person.github_id,
        "created_at": person.created_at.isoformat(),
        "team": person.team,
        "cluster_account": person.cluster_account,
    }

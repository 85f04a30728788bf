"""Hosts' calls about people as hosts see them: roles, teams, accounts and tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, hosting, hosting_in_person
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Whom
from kbslurm.contract.users import (
    AccountWanted,
    DeletedDue,
    DeletionsDue,
    NewClusterAccount,
    NewRole,
    NewTeam,
    NewUser,
    TokenIssued,
    TokensRevoked,
    TokensTold,
    TokenWanted,
    UserDeleted,
    Users,
    UserTold,
)


def add_users(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/users", responses=answers(Users, 401))
    def users(sender: Sender) -> Ascii:
        """Everybody."""
        return Ascii({"users": hosting(context, sender).users()})

    @router.post("/users", responses=answers(UserTold, *HOSTS_FAILURES, 403))
    def add(wanted: NewUser, sender: Sender) -> Ascii:
        """Add a person; staff and owners only by an owner."""
        host = hosting_in_person(context, sender, "a person can't be added")
        return Ascii(host.add_user(wanted.name, wanted.role))

    @router.get("/users/{user_id}", responses=answers(UserTold, *HOSTS_FAILURES))
    def user(user_id: Whom, sender: Sender) -> Ascii:
        """One person."""
        return Ascii(hosting(context, sender).user(user_id))

    @router.get("/users/{user_id}/deletion", responses=answers(UserDeleted, *HOSTS_FAILURES, 403))
    def deletion(user_id: Whom, sender: Sender) -> Ascii:
        """What deleting a person would erase, and what would stay under a pseudonym."""
        return Ascii(hosting_in_person(context, sender, "a person can't be deleted").delete_preview(user_id))

    @router.delete("/users/{user_id}", responses=answers(UserDeleted, *HOSTS_FAILURES, 403))
    def delete(user_id: Whom, sender: Sender) -> Ascii:
        """Delete a person for good; of staff only by an owner. Their open runs are cancelled."""
        return Ascii(hosting_in_person(context, sender, "a person can't be deleted").delete_user(user_id))

    @router.get("/deletions", responses=answers(DeletionsDue, 401))
    def due(sender: Sender) -> Ascii:
        """Participants whose retention period is over."""
        return Ascii(hosting(context, sender).deletions_due())

    @router.post("/deletions", responses=answers(DeletedDue, *HOSTS_FAILURES))
    def delete_due(sender: Sender) -> Ascii:
        """Delete them all."""
        return Ascii(hosting_in_person(context, sender, "people can't be deleted").delete_due())

    @router.put("/users/{user_id}/role", responses=answers(UserTold, *HOSTS_FAILURES, 403))
    def role(user_id: Whom, wanted: NewRole, sender: Sender) -> Ascii:
        """Change a person's role. Only owners give or take the rights of staff."""
        host = hosting_in_person(context, sender, "a role can't be changed")
        return Ascii(host.set_role(user_id, wanted.role))

    @router.put("/users/{user_id}/team", responses=answers(UserTold, *HOSTS_FAILURES))
    def team(user_id: Whom, wanted: NewTeam, sender: Sender) -> Ascii:
        """Set the team that a person submits for from now on; null: none. Earlier submissions stay with their team."""
        return Ascii(hosting(context, sender).set_team(user_id, wanted.team))

    @router.put("/users/{user_id}/cluster_account", responses=answers(UserTold, *HOSTS_FAILURES))
    def cluster_account(user_id: Whom, wanted: NewClusterAccount, sender: Sender) -> Ascii:
        """Set the account that pays for a person's jobs on clusters that charge each person's own; null: none."""
        return Ascii(hosting(context, sender).set_cluster_account(user_id, wanted.cluster_account))

    @router.post("/users/{user_id}/accounts", responses=answers(UserTold, *HOSTS_FAILURES, 403))
    def account(user_id: Whom, wanted: AccountWanted, sender: Sender) -> Ascii:
        """Link an account to a person: discord:ID, github:ID, or oidc:SUBJECT for single sign-on."""
        host = hosting_in_person(context, sender, "an account can't be linked for another person")
        return Ascii(host.link_account(user_id, wanted.account))


def add_tokens(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    path = "/users/{user_id}/tokens"

    @router.get(path, responses=answers(TokensTold, *HOSTS_FAILURES))
    def tokens(user_id: Whom, sender: Sender) -> Ascii:
        """A person's tokens by device, without their secrets."""
        return Ascii({"tokens": hosting(context, sender).tokens(user_id)})

    @router.post(path, responses=answers(TokenIssued, *HOSTS_FAILURES, 403))
    def issue(user_id: Whom, wanted: TokenWanted, sender: Sender) -> Ascii:
        """Issue a token for a person; its secret is told only here."""
        host = hosting_in_person(context, sender, "a token can't be issued for another person")
        return Ascii(host.issue_token(user_id, **wanted.model_dump()))

    @router.delete(path, responses=answers(TokensRevoked, *HOSTS_FAILURES, 403))
    def revoke(user_id: Whom, sender: Sender, token: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None) -> Ascii:
        """Revoke a person's tokens: all, or the one with this number."""
        host = hosting_in_person(context, sender, "tokens can't be revoked for another person")
        return Ascii(host.revoke_tokens(user_id, token))

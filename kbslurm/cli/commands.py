"""Every command by name: the function that it is, and the line that `--help` of its group lists it by.

The line repeats the first sentence of the function's docstring, so that a list of commands imports none of them
(a test compares the two).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Command(NamedTuple):
    """A command: `function` is module:name below kbslurm.cli."""

    function: str
    summary: str


class Group(NamedTuple):
    """Commands below a first word. `otherwise`: the one that is meant where the next word is no command."""

    summary: str
    commands: Mapping[str, Command | Group]
    otherwise: str | None = None


COMMANDS: Mapping[str, Command | Group] = {
    "api": Command(
        "operator.api:api",
        "Run the HTTP face alone: on another host than the daemon, or with one that is there already.",
    ),
    "audit": Command("host.audit:audit", "What hosts did, newest first."),
    "board": Group(
        "Leaderboards: list, show, create, edit, close, delete, extend.",
        {
            "list": Command("competitor.board_list:board_list", "The boards that there are."),
            "show": Command(
                "competitor.board_show:board_show",
                "The standings, one table per GPU type: rank, person, score with its interval, when.",
            ),
            "create": Command(
                "host.board_create:board_create",
                "Make a board, and from --reference FILE.py a problem version with it.",
            ),
            "edit": Command("host.board_edit:board_edit", "Change a board."),
            "close": Command(
                "host.board_close:board_close", "Take no more submissions to a board; what is there stays."
            ),
            "delete": Command("host.board_delete:board_delete", "Take a board away."),
            "extend": Command("host.board_extend:board_extend", "Let one person submit after the deadline."),
        },
        otherwise="show",
    ),
    "bot": Group(
        "The Discord bot: check its set-up, run it alone.",
        {
            "check": Command(
                "operator.bot:check",
                "Look at token, intents, servers, permissions and the service; each failure with its remedy.",
            ),
            "run": Command(
                "operator.bot:run",
                "Run the bot alone, on another host than the service; `kbslurm up` starts it by itself.",
            ),
        },
    ),
    "cancel": Command("competitor.cancel:cancel", "Take a submission back."),
    "config": Group(
        "The configuration: show, schema.",
        {
            "show": Command("operator.config:show_", "Every setting, its value and where it came from."),
            "schema": Command("operator.config:schema", "The JSON schema of kbslurm.toml, for editors."),
        },
    ),
    "db": Group(
        "The database: upgrade, check.",
        {
            "upgrade": Command("operator.db:upgrade", "Bring the schema to this version's."),
            "check": Command("operator.db:check", "Say how the schema stands: current, behind, empty or ahead."),
            "downgrade": Command("operator.db:downgrade", "Go back to an older schema."),
        },
    ),
    "demo": Command("operator.demo:demo", "Play a small competition here: no root, no Slurm, no GPU, no account."),
    "diff": Command(
        "competitor.diff:diff",
        "Two of your submissions side by side: changed lines, verdicts, scores, and each timed case.",
    ),
    "doctor": Command(
        "operator.doctor:doctor", "Check this installation, or a cluster: PASS, CAUTION or FAIL, each with its remedy."
    ),
    "export": Command(
        "host.export:export", "Every place of a board, each person's best per GPU type, with the scores unrounded."
    ),
    "final": Command("host.final:final", "Measure the leaders against each other in one job, or say how that stands."),
    "github": Group(
        "Runs on GitHub Actions.",
        {
            "check": Command(
                "operator.github:check", "Would a run go through? PASS, CAUTION or FAIL, each with its remedy."
            ),
            "install": Command("operator.github:install", "Put workflow and harness into a working copy."),
        },
    ),
    "history": Command(
        "competitor.history:history",
        "Your own submissions, newest first: when, which file, how each ended, the scores that rank.",
    ),
    "image": Group(
        "Images of jobs: build, pull, list, verify.",
        {
            "build": Command(
                "operator.image:build", "Build an image and pin its digest in the digests.lock beside it."
            ),
            "pull": Command(
                "operator.image:pull",
                "Fetch an image from a registry and pin its digest in the digests.lock beside it.",
            ),
            "list": Command(
                "operator.image:list_",
                "The recipes that there are, and the images of a folder or a site with their pins.",
            ),
            "verify": Command("operator.image:verify", "Hold images to their pins and signatures."),
        },
    ),
    "intake": Group(
        "Whether submissions are taken: start, stop, show.",
        {
            "start": Command("host.intake:start", "Take submissions again."),
            "stop": Command("host.intake:stop", "Take no submissions until started again; what was accepted goes on."),
            "show": Command("host.intake:show_", "Whether submissions are taken."),
        },
    ),
    "invite": Group(
        "Invitations to closed boards: make, list, revoke.",
        {
            "make": Command("host.invite:make", "New codes, one a line, each for one person: `popcorn join CODE`."),
            "list": Command("host.invite:list_", "The invitations to a board, and who took them up."),
            "revoke": Command("host.invite:revoke", "End an invitation, and the access of whoever took it up."),
        },
    ),
    "limit": Group(
        "How much a person may submit to a board: show, rate, quota.",
        {
            "show": Command("host.limit:show_", "A board's limits."),
            "rate": Command("host.limit:rate", "How often a person may submit to a board within an hour."),
            "quota": Command("host.limit:quota", "How much GPU time a person may use on a board within a day."),
        },
    ),
    "login": Command(
        "competitor.login:login", "Keep a token for a service: pasted, read from standard input, or new by --register."
    ),
    "logout": Command("competitor.logout:logout", "End this device's token at a service, and keep it no longer."),
    "modal": Group(
        "Runs at Modal: deploy, check.",
        {
            "check": Command(
                "operator.modal:check",
                "Token, app, harness and functions: PASS, CAUTION or FAIL, each with its remedy.",
            ),
            "deploy": Command(
                "operator.modal:deploy_",
                "Deploy the app that [modal] describes, with this installation's harness in it.",
            ),
        },
    ),
    "problem": Group(
        "Problems: add, verify, list, show.",
        {
            "add": Command("host.problem_add:problem_add", "Add a problem, or a new version of it."),
            "verify": Command(
                "host.problem_verify:problem_verify",
                "Judge submissions/{accepted,wrong_answer,crash,timeout,memory,cheat}/* and compare "
                "with their folders' names.",
            ),
            "list": Command("host.problem_list:problem_list", "The problems that there are, newest version first."),
            "show": Command(
                "host.problem_show:problem_show", "What a problem asks, how it is judged and what it allows."
            ),
            "sync": Command("host.problem_sync:problem_sync", "Make and update boards from a repository of problems."),
        },
    ),
    "profile": Command("competitor.profile:profile", "Show a profile's summary and its files, or fetch them."),
    "rejudge": Command("host.rejudge:rejudge", "Judge again."),
    "shadow": Group(
        "Measure submissions at another place, too: order, report.",
        {
            "order": Command(
                "operator.shadow:order", "Measure a submission once more at a place, whatever the rule for overflow."
            ),
            "report": Command(
                "operator.shadow:report",
                "How much longer the board's problem takes at other places, "
                "by what shadows of its submissions took there.",
            ),
        },
    ),
    "site": Group(
        "Clusters' files: init, check, list, show, schema.",
        {
            "init": Command("operator.site_init:site_init", "Write a cluster's first file from what Slurm shows here."),
            "check": Command(
                "operator.site:check", "Read a cluster's file and render a job for each of its GPU types."
            ),
            "list": Command("operator.site:list_", "The clusters whose files are here, and which of them are used."),
            "show": Command("operator.site:show_", "Everything that holds for a cluster, defaults included."),
            "schema": Command("operator.site:schema", "The JSON schema of a cluster's file, for editors."),
        },
    ),
    "stats": Command("host.stats:stats", "Submissions, people, verdicts, GPU time: counts."),
    "status": Command(
        "operator.status:status", "Queue by GPU type, backends, daemon, database, and what needs attention."
    ),
    "submit": Command("competitor.submit:submit", "Submit a kernel."),
    "triage": Command("host.triage:triage", "Look texts over with kernelguard: flags with evidence, never a verdict."),
    "try": Command("competitor.try_:try_", "Judge one file on this machine, as the competition would."),
    "up": Command("operator.up:up", "Run daemon, API and, with a DISCORD_TOKEN, the bot."),
    "usage": Command(
        "operator.usage:usage",
        "GPU-seconds and money of a month, by board, person, team, place or run; what is open counts at its most.",
    ),
    "user": Group(
        "People: add, list, role, team, link, token, ban, unban.",
        {
            "add": Command("host.user:add", "Add a person."),
            "list": Command("host.user:list_", "Everybody."),
            "role": Command("host.user:role", "Change what a person may do."),
            "team": Command(
                "host.user:team",
                "Put a person into a team, or out of it; what they submitted before stays with the team of then.",
            ),
            "ban": Command("host.user:ban", "Take no more submissions from a person, and leave them off the boards."),
            "unban": Command("host.user:unban", "Take submissions from a person again."),
            "link": Command(
                "host.user_link:user_link",
                "Give a person the token that `popcorn register` made, or the account that stands for them.",
            ),
            "token": Group(
                "Tokens: issue, list, revoke.",
                {
                    "issue": Command("host.user_token:issue", "A new token for a person."),
                    "list": Command("host.user_token:list_", "A person's tokens by device; what they are isn't kept."),
                    "revoke": Command("host.user_token:revoke", "End a token, or all of a person's."),
                },
            ),
        },
    ),
    "watch": Command("competitor.watch:watch", "Follow a submission to its verdict; ^C only stops the watching."),
    "whoami": Command(
        "competitor.whoami:whoami", "Who you are: at the service that $KBSLURM_URL names, else in the database."
    ),
    "why": Command(
        "competitor.why:why", "Why a run is where it is: what it waits for, or where it went and for which reason."
    ),
}

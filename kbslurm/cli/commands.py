"""Every command by name: its function, and the line that its group's `--help` shows for it.

The line repeats the first sentence of the function's docstring, so that listing commands imports none of them (a test
compares the two).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

Audience = Literal["competitor", "host", "operator"]
AUDIENCES: tuple[Audience, ...] = get_args(Audience)


class Command(NamedTuple):
    """A command: `function` is module:name below kbslurm.cli. `lists`, of one that lists things: where its JSON has the
    rows, if it isn't a list itself, and what names a row: `questions/id`, `board`."""

    function: str
    summary: str
    lists: str | None = None


class Group(NamedTuple):
    """Commands below a first word. `otherwise`: the command to use when the next word isn't one. `audience`: whose they
    are, unless it is that of the first one."""

    summary: str
    commands: Mapping[str, Command | Group]
    otherwise: str | None = None
    audience: Audience | None = None


def audience_of(listed: Command | Group) -> Audience:
    """Under which heading `kbslurm --help` lists it: that of the package its code is in."""
    if isinstance(listed, Group):
        return listed.audience or audience_of(next(iter(listed.commands.values())))
    package = listed.function.partition(".")[0]
    return next(one for one in AUDIENCES if one == package)


COMMANDS: Mapping[str, Command | Group] = {
    "api": Command(
        "operator.api:api",
        "Run only the HTTP API, on a different host than the daemon or next to a running one.",
    ),
    "ask": Command(
        "competitor.ask:ask",
        "Ask the hosts something, at a board or at one of your submissions; without a text, show the answers.",
    ),
    "archive": Group(
        "Archives of boards: write, verify.",
        {
            "write": Command(
                "host.archive:archive",
                "Archive a board: problem versions, submissions, verdicts, raw samples and standings, with pages that"
                " open from disk.",
            ),
            "verify": Command(
                "host.archive:verify",
                "Check an archive without a database: every file's digest, every score from its raw samples, the"
                " standings from the scores.",
            ),
        },
        otherwise="write",
    ),
    "audit": Command("host.audit:audit", "Show the audit log of hosts' actions, newest first.", lists="id"),
    "board": Group(
        "Leaderboards: list, show, create, edit, close, delete, times, names, role.",
        {
            "list": Command("competitor.board_list:board_list", "List the boards.", lists="board"),
            "show": Command(
                "competitor.board_show:board_show",
                "Show a board's standings, one table per GPU type: rank, person, score with its interval, time.",
            ),
            "announcements": Command(
                "competitor.board_announcements:board_announcements",
                "Show what hosts told everyone on a board, newest first.",
                lists="announcements/id",
            ),
            "create": Command(
                "host.board_create:board_create",
                "Create a board; with --reference FILE.py, also add its problem.",
            ),
            "edit": Command("host.board_edit:board_edit", "Change a board."),
            "close": Command(
                "host.board_close:board_close", "Stop accepting submissions to a board; its standings stay."
            ),
            "delete": Command("host.board_delete:board_delete", "Delete a board."),
            "times": Command(
                "host.board_times:board_times", "Show a board's deadline, late policy, extensions and freeze."
            ),
            "late": Command(
                "host.board_times:board_late",
                "Accept late submissions: they count for grades, less a penalty, and never in the standings.",
            ),
            "extend": Command("host.board_extend:board_extend", "Give one person or section a later deadline."),
            "freeze": Command(
                "host.board_times:board_freeze",
                "Freeze a board's standings: others see what was submitted until then; everyone still sees their own.",
            ),
            "finalise": Command(
                "host.board_finalise:board_finalise",
                "Make a board's standings final once it is over: run its finals, fix the result, announce it.",
            ),
            "unfreeze": Command("host.board_times:board_unfreeze", "Show a frozen board's standings in full again."),
            "code": Command(
                "host.board_code:board_code",
                "Say when a board's code is published: never, after the deadline, or by each author's consent.",
            ),
            "names": Command(
                "host.board_names:board_names",
                "Show who is who on a board with nicknames or pseudonyms, in both directions: don't hand it on.",
                lists="names/shown_as",
            ),
            "role": Command(
                "host.board_role:board_role",
                "Show who helps on a board, or give somebody a role there: owner, assistant, grader, observer or none.",
                lists="roles/person",
            ),
        },
        otherwise="show",
    ),
    "bot": Group(
        "The Discord bot: check its set-up, run it alone.",
        {
            "check": Command(
                "operator.bot:check",
                "Check the bot's token, intents, servers, permissions and service; each failure comes with its remedy.",
            ),
            "run": Command(
                "operator.bot:run",
                "Run only the bot, on a different host than the service; `kbslurm up` starts it automatically.",
            ),
        },
    ),
    "budget": Group(
        "Budgets in GPU-hours at home, of courses, sections and people: show, set, clear.",
        {
            "show": Command(
                "host.budget:show_",
                "Show courses' budgets in GPU-hours at home: what is used, what open runs may use, and what is left.",
            ),
            "set": Command(
                "host.budget:set_",
                "Set how many GPU-hours at home a course may use, or a section, a person, or each of them.",
            ),
            "clear": Command(
                "host.budget:clear", "Take a budget away: that of a course, or of a section, a person, or each of them."
            ),
        },
    ),
    "cancel": Command("competitor.cancel:cancel", "Cancel a submission."),
    "code": Command("competitor.code:code", "Show whose code a board publishes, read it, or agree that yours is."),
    "config": Group(
        "The configuration: show, schema.",
        {
            "show": Command(
                "operator.config:show_", "Show every setting, its value and where it came from.", lists="key"
            ),
            "schema": Command("operator.config:schema", "Print the JSON schema of kbslurm.toml, for editors."),
        },
    ),
    "context": Group(
        "The services that you have signed in to, by name: list, use, show, remove.",
        {
            "list": Command(
                "competitor.context:list_", "List the services that you have signed in to, by name.", lists="context"
            ),
            "use": Command(
                "competitor.context:use",
                "Use this service from now on, or with `database` the database that is configured here.",
            ),
            "show": Command("competitor.context:show_", "Show which service commands use here, and what names it."),
            "remove": Command(
                "competitor.context:remove",
                "Remove a context and its token from this machine; only `kbslurm logout` also revokes the token.",
            ),
        },
    ),
    "db": Group(
        "The database: upgrade, check.",
        {
            "upgrade": Command("operator.db:upgrade", "Upgrade the schema to this version."),
            "check": Command(
                "operator.db:check",
                "Check the database: the state of its schema, who leads, how late that is, and the last event.",
            ),
            "downgrade": Command("operator.db:downgrade", "Downgrade the schema."),
        },
    ),
    "demo": Command(
        "operator.demo:demo", "Run a small competition on this machine: no root, Slurm, GPU or account needed."
    ),
    "diff": Command(
        "competitor.diff:diff",
        "Compare two of your submissions: changed lines, verdicts, scores, and each timed case.",
    ),
    "doctor": Command(
        "operator.doctor:doctor", "Check this installation or a cluster: PASS, CAUTION or FAIL, each with its remedy."
    ),
    "export": Command(
        "host.export:export", "Export a board's standings: each person's best score per GPU type, unrounded."
    ),
    "final": Command(
        "host.final:final", "Measure a board's leaders against each other in one job, or show how that went."
    ),
    "github": Group(
        "Runs on GitHub Actions.",
        {
            "check": Command(
                "operator.github:check", "Check whether a run would work: PASS, CAUTION or FAIL, each with its remedy."
            ),
            "install": Command("operator.github:install", "Install the workflow and harness in a working copy."),
        },
    ),
    "grades": Group(
        "Grades of a board by a scheme: show, why.",
        {
            "show": Command(
                "host.grades:grades",
                "Grade a board: points for everybody on the roster, by a scheme, less what being late costs.",
            ),
            "why": Command(
                "host.grades:why",
                "Explain a person's grade: the submission that counts, its points, and what being late cost.",
            ),
        },
        otherwise="show",
    ),
    "history": Command(
        "competitor.history:history",
        "List your submissions, newest first: time, file, outcome, and the scores that rank.",
        lists="id",
    ),
    "image": Group(
        "Job images: build, pull, push, list, verify.",
        {
            "build": Command(
                "operator.image:build", "Build an image and pin its digest in the digests.lock next to it."
            ),
            "pull": Command(
                "operator.image:pull",
                "Pull an image from a registry and pin its digest in the digests.lock next to it.",
            ),
            "push": Command(
                "operator.image_push:push", "Copy images to a site, or to a registry, and verify their digests there."
            ),
            "list": Command(
                "operator.image_list:list_",
                "List the recipes, and a folder's or site's images with their pins.",
                lists="images/path",
            ),
            "verify": Command("operator.image:verify", "Verify images against their pins and signatures."),
        },
    ),
    "intake": Group(
        "Accept or pause submissions: start, stop, show.",
        {
            "start": Command("host.intake:start", "Accept submissions again."),
            "stop": Command(
                "host.intake:stop", "Pause submissions until they are started again; accepted ones still run."
            ),
            "show": Command("host.intake:show_", "Show whether submissions are accepted."),
        },
    ),
    "invite": Group(
        "Invitations to private boards: make, list, revoke.",
        {
            "make": Command(
                "host.invite:make",
                "Make invitation codes, one per line, each for one person: `kbslurm join CODE SERVICE`.",
            ),
            "list": Command("host.invite:list_", "List a board's invitations and who claimed them.", lists="code"),
            "revoke": Command(
                "host.invite:revoke", "Revoke an invitation, and the access of the person who claimed it."
            ),
        },
    ),
    "join": Command(
        "competitor.join:join",
        "Join a board or a course by an invitation; if you have no account there, you get one and are signed in.",
    ),
    "limit": Group(
        "Limits per person and board: show, rate, quota.",
        {
            "show": Command("host.limit:show_", "Show a board's limits."),
            "rate": Command("host.limit:rate", "Set how often a person may submit to a board per hour."),
            "quota": Command("host.limit:quota", "Set how much GPU time a person may use on a board per day."),
        },
    ),
    "login": Command(
        "competitor.login:login",
        "Sign in to a service with a token: pasted, read from standard input, or a new one from --register or"
        " --invitation.",
    ),
    "logout": Command("competitor.logout:logout", "Sign out of a service: revoke this device's token and remove it."),
    "logs": Command(
        "competitor.logs:logs",
        "Show a run's log by case, without that of hidden cases; without a number, say where the daemon's log is.",
    ),
    "mcp": Command(
        "competitor.agent:agent",
        "Serve tools for an agent: boards, problem, try, submit, status, profile, history.",
    ),
    "modal": Group(
        "Runs on Modal: deploy, check.",
        {
            "check": Command(
                "operator.modal:check",
                "Check the token, app, harness and functions: PASS, CAUTION or FAIL, each with its remedy.",
            ),
            "deploy": Command(
                "operator.modal:deploy_",
                "Deploy the app that [modal] describes, with this installation's harness.",
            ),
        },
    ),
    "nickname": Command("competitor.nickname:nickname", "Choose as whom others see you on a board that has nicknames."),
    "place": Group(
        "Places where runs go: list, show, check, drain, resume, logs, init, reload.",
        {
            "list": Command(
                "host.place:list_",
                "List the places: kind, GPUs in use, role, state, cost, last trouble.",
                lists="places/place",
            ),
            "show": Command(
                "operator.place_show:show_", "Show all settings of a place, with defaults and where each came from."
            ),
            "check": Command(
                "operator.place_check:check", "Check a place, or all: PASS, CAUTION or FAIL, each with its remedy."
            ),
            "drain": Command("host.place:drain", "Let nothing new go to a place; what is open there ends as usual."),
            "resume": Command("host.place:resume", "Let new runs go to a place again."),
            "logs": Command(
                "host.place:logs",
                "Show what the daemon's log says about a place, and the attempts that went wrong there.",
            ),
            "init": Group(
                "Write the configuration of a new place: slurm, local, github, modal, ray.",
                {
                    "slurm": Command("operator.place_init:slurm", "Write a cluster file from what Slurm reports here."),
                    "local": Command("operator.place_init:local", "Make this machine a place, in kbslurm.toml."),
                    "github": Command(
                        "operator.place_init:github", "Make a GitHub repository's runners a place, in kbslurm.toml."
                    ),
                    "modal": Command("operator.place_init:modal", "Make Modal a place, in kbslurm.toml."),
                    "ray": Command("operator.place_init_ray:ray", "Make a Ray cluster a place, in kbslurm.toml."),
                },
            ),
            "reload": Command(
                "host.place:reload",
                "Have the daemon take the changed configuration without losing anything, and show its answer.",
            ),
        },
        audience="operator",
    ),
    "problem": Group(
        "Problems: pull, add, import, verify, list, show.",
        {
            "pull": Command(
                "competitor.problem_pull:problem_pull",
                "Get a board's problem into a directory, to work on it and try submissions at home.",
            ),
            "add": Command("host.problem_add:problem_add", "Add a problem, or a new version of it."),
            "import": Command(
                "host.problem_import:problem_import",
                "Write the problems of another collection as directories for `problem add`.",
            ),
            "verify": Command(
                "host.problem_verify:problem_verify",
                "Judge submissions/{accepted,wrong_answer,crash,timeout,memory,cheat}/* and check their verdicts.",
            ),
            "list": Command("host.problem_list:problem_list", "List the problems, newest version first.", lists="name"),
            "show": Command(
                "host.problem_show:problem_show", "Show a problem: its task, how it is judged, and its limits."
            ),
            "sync": Command(
                "host.problem_sync:problem_sync", "Create and update boards from a repository of problems."
            ),
        },
    ),
    "profile": Command(
        "competitor.profile:profile",
        "Show what limits a profiled kernel, or download its files.",
    ),
    "question": Group(
        "Questions and appeals: list, show, answer, close, rejudge.",
        {
            "list": Command("host.question:list_", "List what people ask, open questions first.", lists="questions/id"),
            "show": Command("host.question:show_", "Show a question, its answer, and what came of an appeal."),
            "answer": Command(
                "host.question:answer",
                "Answer a question: its author alone, or everyone on the board as an announcement.",
            ),
            "close": Command("host.question:close", "Close a question that needs no answer."),
            "rejudge": Command(
                "host.question:rejudge",
                "Judge an appeal's submission again; the question notes what that changed.",
            ),
        },
        otherwise="show",
    ),
    "ray": Group(
        "Runs on Ray clusters: check, pool.",
        {
            "check": Command(
                "operator.ray:check",
                "Check the cluster, token, workers and the way back: PASS, CAUTION or FAIL, each with its remedy.",
            ),
            "pool": Command(
                "operator.ray_pool:pool",
                "Write the file from which Ray's launcher starts a place's cluster: kinds of workers, their bounds, the"
                " idle time.",
            ),
        },
    ),
    "rejudge": Command("host.rejudge:rejudge", "Judge a board's runs again."),
    "roster": Group(
        "A course's people: import, list, show, set, remove, invite, export.",
        {
            "import": Command(
                "host.roster_import:roster_import",
                "Bring a course's roster to what a CSV says.",
            ),
            "list": Command("host.roster:list_", "List a course's roster by section and name.", lists="people/person"),
            "show": Command("host.roster:show_", "Show one person of a roster, with the columns that came with them."),
            "set": Command(
                "host.roster:set_",
                "Put a person on a roster, or change their section, team or role; earlier submissions stay with the"
                " earlier team.",
            ),
            "remove": Command("host.roster:remove", "Take a person off a roster; they and what they submitted stay."),
            "invite": Command(
                "host.roster_invite:roster_invite",
                "Make a link for each person on a roster, by which they sign in once; an earlier unused link of theirs"
                " ends.",
            ),
            "export": Command(
                "host.roster:export",
                "Export a roster as a CSV that `roster import` takes again, with every column that came with it.",
            ),
        },
    ),
    "run": Command(
        "host.run:run",
        "Run a script on a GPU type of your choice, without a board: for hosts, within a budget of GPU-seconds a day.",
    ),
    "shadow": Group(
        "Measure submissions at another place as well: order, report.",
        {
            "order": Command(
                "operator.shadow:order", "Measure a submission again at another place, regardless of the overflow rule."
            ),
            "report": Command(
                "operator.shadow:report",
                "Compare the board's times at other places with those at home, based on shadow runs.",
            ),
        },
    ),
    "site": Group(
        "Cluster files: init, check, render, list, show, schema.",
        {
            "init": Command("operator.site_init:site_init", "Write a first cluster file from what Slurm reports here."),
            "check": Command(
                "operator.site_check:check", "Check a cluster file, or all, and render a job for each GPU type."
            ),
            "render": Command(
                "operator.site_render:render",
                "Print the job script that a GPU type's runs would have, with a comment on where each line comes from.",
            ),
            "list": Command(
                "operator.site:list_", "List the cluster files found here and which of them are in use.", lists="name"
            ),
            "show": Command("operator.site:show_", "Show all settings of a cluster, and where each comes from."),
            "schema": Command("operator.site:schema", "Print the JSON schema of a cluster file, for editors."),
        },
    ),
    "similar": Command(
        "host.similar:similar",
        "Find pairs of people with similar sources: flags to look at, never verdicts.",
    ),
    "stats": Command("host.stats:stats", "Count submissions, people, verdicts and GPU time."),
    "status": Command(
        "operator.status:status", "Show the queue by GPU type, backends, daemon, database, and what needs attention."
    ),
    "submission": Group(
        "Submissions, yours or those of your boards: list, show, code, diff.",
        {
            "list": Command(
                "host.submission:list_",
                "List submissions, newest first: those of the boards that you may grade, and your own.",
                lists="submissions/id",
            ),
            "show": Command("host.submission:show_", "Show a submission: its verdicts, and with --log its logs."),
            "code": Command(
                "host.submission:code", "Print the code of submissions, or write it into a folder as it was sent."
            ),
            "diff": Command(
                "competitor.diff:diff",
                "Compare two of your submissions: changed lines, verdicts, scores, and each timed case.",
            ),
        },
        otherwise="show",
        audience="competitor",
    ),
    "submit": Command("competitor.submit:submit", "Submit a kernel."),
    "tick": Command(
        "operator.tick:tick",
        "Do the daemon's work once and exit: for cron, scrontab or a timer, instead of kbslurm up.",
    ),
    "triage": Command("host.triage:triage", "Scan submissions with kernelguard: flags with evidence, never a verdict."),
    "try": Command("competitor.try_:try_", "Judge one submission on this machine, as the competition would."),
    "up": Command("operator.up:up", "Run the daemon, the API and, if DISCORD_TOKEN is set, the bot."),
    "usage": Command(
        "operator.usage:usage",
        "Show a month's GPU-seconds and cost by board, person, team, place or run; open runs count at their maximum.",
        lists="rows/name",
    ),
    "user": Group(
        "People: add, list, role, team, link, token, ban, unban, delete.",
        {
            "add": Command("host.user:add", "Add a person."),
            "list": Command("host.user:list_", "Everybody.", lists="name"),
            "role": Command("host.user:role", "Change a person's role."),
            "team": Command(
                "host.user:team",
                "Add a person to a team or remove them from it; earlier submissions stay with the earlier team.",
            ),
            "account": Command(
                "host.user:account",
                "Set the cluster account that pays for a person's jobs, where a cluster charges each person's own.",
            ),
            "delete": Command(
                "host.user_delete:user_delete",
                "Delete a person for good; what they did stays under a pseudonym.",
            ),
            "ban": Command("host.user:ban", "Ban a person: reject their submissions and hide them from the boards."),
            "unban": Command("host.user:unban", "Lift a person's ban."),
            "link": Command(
                "host.user_link:user_link",
                "Link a token that `popcorn register` made, or an account, to a person.",
            ),
            "token": Group(
                "Tokens: issue, list, revoke.",
                {
                    "issue": Command("host.user_token:issue", "Issue a new token for a person."),
                    "list": Command(
                        "host.user_token:list_",
                        "List a person's tokens by device; the tokens themselves aren't stored.",
                        lists="id",
                    ),
                    "revoke": Command("host.user_token:revoke", "Revoke one or all of a person's tokens."),
                },
            ),
        },
    ),
    "warm": Group(
        "Warm workers, which hold a GPU so that runs start at once: list, start, drain.",
        {
            "list": Command(
                "host.warm:list_",
                "List the warm workers, and what the sites allow and what was made of it.",
                lists="workers/id",
            ),
            "start": Command("host.warm:start", "Start warm workers, within what the site's file allows."),
            "drain": Command(
                "host.warm:drain", "Let warm workers go: each finishes its run, takes no other, and gives its GPU back."
            ),
        },
    ),
    "watch": Command("competitor.watch:watch", "Follow a submission to its verdict; ^C stops only the watching."),
    "whoami": Command(
        "competitor.whoami:whoami",
        "Show who you are signed in as: at the service in use and its context, else in the database.",
    ),
    "why": Command("competitor.why:why", "Explain a run's state: what it is waiting for, or where it ran and why."),
    "worklog": Command(
        "host.worklog:worklog",
        "Write what a person or team has submitted to a board: times, changed lines, verdicts, scores, profiles.",
    ),
}

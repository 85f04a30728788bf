"""The command tree of `kbslurm`. It imports no command: each is imported when it is used (`commands.py`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from kbslurm import __version__
from kbslurm.cli.chosen import Form, chosen
from kbslurm.cli.commands import AUDIENCES, COMMANDS, Audience, Command, Group, audience_of
from kbslurm.cli.stopped import Stopped
from kbslurm.errors import Invalid

HEADINGS: Mapping[Audience, str] = {
    "competitor": "For competitors",
    "host": "For hosts",
    "operator": "For operators",
}
COMPLETES = "_KBSLURM_COMPLETE"  # set while a shell asks what may follow
FORMS: tuple[Form, ...] = get_args(Form)
OUTPUT_HELP = "The answer as JSON, as CSV, or only the names, one a line."
# Free text, which one may take away.
MAY_BE_EMPTY = frozenset({"description", "reason", "device"})


class _Loading(MutableMapping[str, Any]):
    """A group's commands by name, each imported when it is looked up."""

    def __init__(self, listed: Mapping[str, Command | Group]) -> None:
        self._listed = listed
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _made(name, self._listed[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


class _Command(typer.core.TyperCommand):
    """A command that takes no empty value for an argument or option: `--deadline "$UNSET"` must not mean what leaving
    it out means. One that answers takes -o beside --json."""

    lists: str | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._note_form(args)
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        rest = super().parse_args(ctx, args)
        if ctx.resilient_parsing:  # a shell completes what isn't written yet
            return rest
        for one in self.params:
            values = given.get(one.name)
            if one.name not in MAY_BE_EMPTY and any(
                isinstance(value, str) and not value.strip(" \t\r\n,")
                for value in (values if isinstance(values, (list, tuple)) else [values])
            ):
                option = one.param_type_name == "option"
                raise Invalid(
                    f"{one.opts[0] if option else (one.metavar or one.name.upper()).strip('[].')} is empty",
                    hint="Give it a value, or leave the option out." if option else f"Run: {ctx.command_path} --help",
                )
        if chosen.form is not None:
            if ctx.params["as_json"] and chosen.form != "json":
                raise Invalid(f"--json and -o {chosen.form} don't go together", hint="Leave one of them out.")
            ctx.params["as_json"] = True
        return rest

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from kbslurm.cli.examples import EXAMPLES

        lines = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())
        if lines:
            with formatter.section("Examples"):
                formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in lines))

    def _note_form(self, args: list[str]) -> None:
        """What -o asks for, before anything is found wrong with the rest: an error has that form, too."""
        chosen.form, chosen.lists = None, self.lists or ""
        option = next((one for one in self.params if "--output" in one.opts), None)
        if option is None:
            return
        for word, following in pairwise([*args, ""]):
            for form in FORMS if self.lists else FORMS[:1]:
                if word in (f"-o{form}", f"--output={form}") or (word in option.opts and following == form):
                    chosen.form = form


class _LazyGroup(typer.core.TyperGroup):
    """A group that lists its commands from the table. A first word that isn't one of its commands goes to the command
    `otherwise`, if it has one."""

    def __init__(self, *, listed: Mapping[str, Command | Group], otherwise: str | None = None, **attributes: Any):
        super().__init__(**attributes)
        self._listed, self._otherwise = listed, otherwise
        self.commands = _Loading(listed)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._listed)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        longest = max(map(len, self._listed))
        for heading, listed in self.sections():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (
                            name.ljust(longest),
                            typer.core.TyperCommand(name, help=one.summary).get_short_help_str(
                                formatter.width - 6 - longest
                            ),
                        )
                        for name, one in listed
                    ]
                )

    def sections(self) -> Iterator[tuple[str, list[tuple[str, Command | Group]]]]:
        """The headings under which `--help` lists its commands, and which."""
        yield "Commands", list(self._listed.items())

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Its commands, without importing them, and what the command `otherwise` takes in their place."""
        from kbslurm.cli.completing import item

        found = [item(name, one.summary) for name, one in self._listed.items() if name.startswith(incomplete)]
        if incomplete.startswith("-"):
            options: list[Any] = [*self.get_params(ctx)]
            found += [item(text, one.help) for one in options for text in one.opts if text.startswith(incomplete)]
        elif self._otherwise:
            arguments = [one for one in self.commands[self._otherwise].params if one.param_type_name == "argument"]
            found += arguments[0].shell_complete(ctx, incomplete)
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if self._otherwise and args and not args[0].startswith("-") and args[0] not in self._listed:
            args = [self._otherwise, *args]
        return super().resolve_command(ctx, args)


class _Root(_LazyGroup):
    """`kbslurm` itself."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(listed=COMMANDS, **attributes)

    def sections(self) -> Iterator[tuple[str, list[tuple[str, Command | Group]]]]:
        for audience in AUDIENCES:
            yield HEADINGS[audience], [one for one in sorted(COMMANDS.items()) if audience_of(one[1]) == audience]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped from None


def _made(name: str, listed: Command | Group) -> Any:
    """The command or group itself."""
    if isinstance(listed, Group):
        return _LazyGroup(
            name=name,
            help=listed.summary,
            no_args_is_help=True,
            rich_markup_mode=None,
            listed=listed.commands,
            otherwise=listed.otherwise,
        )
    module, _, function = listed.function.partition(":")
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(name, cls=_Command)(getattr(import_module(f"kbslurm.cli.{module}"), function))
    command: Any = typer.main.get_command(one)
    command.lists = listed.lists
    taken = {option for parameter in command.params for option in parameter.opts}
    if any(parameter.name == "as_json" for parameter in command.params) and not taken & {"-o", "--output"}:
        command.params.append(_form_option(lists=listed.lists is not None))
    if os.environ.get(COMPLETES):
        from kbslurm.cli.completing import completer, kind_of

        for parameter in command.params:
            if (kind := kind_of(listed.function, parameter)) is not None:
                parameter._custom_shell_complete = completer(kind)
    return command


def _form_option(*, lists: bool) -> Any:
    """-o: of what lists things also as CSV, or only the names."""

    def as_list(
        form: Annotated[Form | None, typer.Option("-o", "--output", help=OUTPUT_HELP, expose_value=False)] = None,
    ) -> None: ...

    def as_object(
        form: Annotated[
            Literal["json"] | None, typer.Option("-o", "--output", help="The same as --json.", expose_value=False)
        ] = None,
    ) -> None: ...

    donor = typer.Typer(add_completion=False, rich_markup_mode=None)
    donor.command()(as_list if lists else as_object)
    made: Any = typer.main.get_command(donor)
    return made.params[0]


app = typer.Typer(
    name="kbslurm",
    cls=_Root,
    help="A GPU kernel competition on your own Slurm cluster.\n\n"
    "Alone it shows what is going on: the open boards, your submissions in flight, and what to do next.",
    no_args_is_help=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kbslurm {__version__}")
        raise typer.Exit


def _known_contexts(ctx: typer.Context, incomplete: str) -> list[str]:
    from kbslurm.cli.completing import complete

    return [one.value for one in complete("contexts", ctx, None, incomplete)]


@app.callback()
def before(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="The kbslurm.toml to use.", envvar="KBSLURM_CONFIG", show_envvar=True),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            help="The service to use, as `kbslurm context list` names it; `database`: none.",
            autocompletion=_known_contexts,
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Without a command: one JSON object instead of text.")
    ] = False,
) -> int | None:
    """Store the options given before the command's name; without a command, show what is going on."""
    chosen.config, chosen.context, chosen.form = config, context, None
    if ctx.invoked_subcommand is None:
        from kbslurm.cli.competitor.overview import overview

        return overview(as_json=as_json)
    if as_json:
        raise Invalid("--json stands behind the command", hint=f"Write: kbslurm {ctx.invoked_subcommand} … --json")
    return None

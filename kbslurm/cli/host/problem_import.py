"""`kbslurm problem import`: problems of other collections, written as directories of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.output import printing
from kbslurm.domain.amounts import counted
from kbslurm.errors import EXIT_OK, EXIT_REJECTED, Invalid

WAYS = "kernelbench, flashinfer-bench, reference-kernels or tritonbench"


def problem_import(
    collection: Annotated[str, typer.Argument(help=f"The collection's format: {WAYS}.")],
    repository: Annotated[
        str, typer.Argument(help="The collection: a directory, an https:// or file:/// URL, or OWNER/NAME on GitHub.")
    ],
    out: Annotated[Path, typer.Option(help="The folder for the problems' directories.")] = Path("problems"),
    only: Annotated[
        str | None, typer.Option(help="Only problems whose name or place contains this, or matches a pattern with *.")
    ] = None,
    branch: Annotated[str | None, typer.Option(help="A repository's branch, tag or commit.")] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Say what would be written, and write nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace what was changed since it was imported.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Write the problems of another collection as directories for `problem add`.

    Exit code 0: all were taken. 3: at least one wasn't; each comes with its reason. Importing again updates what an
    import wrote, and keeps what you changed.
    """
    from kbslurm.problems.importing import collections

    done: list[collections.Imported] = []
    with _root(repository, branch) as (root, commit):
        picked = collections.chosen(collection, root, only)
        with printing.progress(as_json) as tell:
            for number, found in enumerate(picked, 1):
                tell({"phase": f"{number} of {len(picked)}: {found.name}"})
                one = collections.imported(found, root, out, preview=preview, force=force)
                done.append(one)
                if not as_json and not one.taken:
                    printing.caution(f"{one.name}: {one.why}")
    counts = Counter(one.status for one in done)
    if as_json:
        printing.as_json({"collection": collection, "commit": commit, "preview": preview, "out": out,
                          "counts": counts, "problems": done})  # fmt: skip
    else:
        if preview and any(one.taken for one in done):
            printing.table(
                ("problem", "from", ""), [(one.name, one.origin, one.status) for one in done if one.taken], wrap=1
            )
        said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        at = f" at {commit[:12]}" if commit else ""
        printing.say(f"{collection}{at}: {counted(len(done), 'problem')}: {said}")
        if large := [one.name for one in done if one.taken and one.large_on_cpu]:
            printing.caution(
                f"No small sizes for the type cpu could be made for {counted(len(large), 'problem')}, so try and "
                f"verify run the whole sizes there: {', '.join(large)}. "
                f"Write `sizes: {{cpu: …}}` below `kbslurm:` in {'its' if len(large) == 1 else 'their'} task.yml."
            )
        if not preview and any(one.taken for one in done):
            printing.say(f"kbslurm problem add {printing.path(out)}/NAME stores one")
    return EXIT_OK if all(one.taken for one in done) else EXIT_REJECTED


@contextmanager
def _root(repository: str, branch: str | None) -> Iterator[tuple[Path, str]]:
    """The collection's folder and its commit: a directory as it is, or a repository at one commit."""
    from kbslurm.problems import sync

    place = Path(repository).expanduser()
    if place.is_dir() and branch is None:
        yield place.resolve(), sync.commit_of(place.resolve())
        return
    named = str(place.resolve()) if place.is_dir() else repository
    if sync.url_of(named) is None:
        raise Invalid(
            f"there is no directory {repository[:200]}",
            hint="Give a directory of this machine, an https:// or file:/// URL, or OWNER/NAME on GitHub.",
        )
    with sync.checkout(named, branch) as found:
        yield found

"""Whether a keeper lives: by what it says being new, by our clock alone."""

from __future__ import annotations

from pathlib import Path

from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder
from kbslurm.backends.slurm.warm.pulse import SILENT_S, Pulse
from kbslurm.domain.run import JobName


def test_it_beats_while_it_says_something_new_and_for_a_while_after(tmp_path: Path) -> None:
    now = [0.0]
    pulse, keeper = Pulse(lambda: now[0], 5.0), KeeperFolder(root=tmp_path, name="kbk-one")
    assert keeper.create() and not keeper.create()
    assert not pulse.beats(keeper)  # it never said anything
    keeper.beat.write_text("")  # and now it is about to
    assert pulse.beats(keeper)
    now[0] += SILENT_S + 4.9
    assert pulse.beats(keeper)
    now[0] += 0.2
    assert not pulse.beats(keeper)
    keeper.beat.write_text('{"beat":2}')
    assert pulse.beats(keeper)
    now[0] += 2 * SILENT_S
    assert not pulse.beats(keeper)
    assert Pulse(lambda: now[0], 5.0).beats(keeper)  # a process that knows nothing trusts what it finds, for a while


def test_many_others_dont_make_it_trust_a_silent_one_again(tmp_path: Path) -> None:
    now = [0.0]
    pulse, silent = Pulse(lambda: now[0], 0.0), KeeperFolder(root=tmp_path, name="kbk-silent")
    silent.create()
    silent.beat.write_text("1")
    assert pulse.beats(silent)
    for number in range(20):
        now[0] += SILENT_S / 10
        other = KeeperFolder(root=tmp_path, name=f"kbk-{number}")
        other.create()
        other.beat.write_text("1")
        assert pulse.beats(other)
    assert not pulse.beats(silent)


def test_of_a_mail_exactly_one_side_has_it(tmp_path: Path) -> None:
    keeper, name = KeeperFolder(root=tmp_path, name="kbk-one"), JobName("kb-one")
    keeper.create()
    assert keeper.where(name) is None
    keeper.post(name, 60)
    assert (keeper.where(name), (keeper.dir / "mail" / name).read_text()) == ("mail", "60\n")
    (keeper.dir / "mail" / name).rename(keeper.dir / "taken" / name)  # as the keeper does
    assert not keeper.take_back(name)
    keeper.post(name, 60)  # sent again: it is there already
    assert (keeper.where(name), list((keeper.dir / "mail").iterdir())) == ("taken", [])

"""Starting, loading and ending the launches of one run, and building what a submission needs before the first."""

from __future__ import annotations

import types

from kbslurm_eval.cage import seen_inside
from kbslurm_eval.cage.runners import CantStart
from kbslurm_eval.judge import builds, run_log
from kbslurm_eval.judge.launch import Allowance, Launch
from kbslurm_eval.judge.reference import ProblemTrouble, Reference
from kbslurm_eval.judge.replies import MESSAGE_CAP, Rejected, claimed, clean
from kbslurm_eval.judge.run_state import SECRET, RunState
from kbslurm_eval.shared.runner_link import Status
from kbslurm_eval.shared.wire import LOG_CAP, Manifest, PhaseName


class Launches:
    """The launches of one run: each is in the cage that was asked for, or the run ends."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._remarked = False

    def start(self, name: PhaseName, allowance: Allowance, built: builds.Built | None = None) -> Launch:
        """A runner in its cage, without the submission; CantStart if the isolation isn't sufficient."""
        try:
            launch = self._launch(allowance, built)
        except Rejected as trouble:  # the submission wasn't loaded yet
            raise CantStart(f"a runner ended before it had the submission: {trouble.said}") from None
        results = self._run.results
        results.launches += 1
        results.facts.update(launch.facts())
        level, notes = seen_inside.level_of(launch.seen, self._run.own, container=self._run.runners.container)
        level = min(level, self._run.runners.highest)
        if level < results.level:
            results.level = level
        results.notes += [n for n in notes if n not in results.notes]
        if level < self._run.least_level:
            self.end(name, launch)
            said = f"; {notes[0]}" if notes else ""
            raise CantStart(f"isolation level {level} was reached, {self._run.least_level} is needed here{said}")
        return launch

    def _launch(self, allowance: Allowance, built: builds.Built | None = None) -> Launch:
        if self._run.device is not None and self._run.device.needed:
            from kbslurm_eval.judge import device_launch

            return device_launch.DeviceLaunch(
                self._run.runners, allowance, self._run.heartbeat, built, run_device=self._run.device
            )
        is_plain = built is not None or self._run.loaded_reference is None  # a builder's, or a script's
        if is_plain or isinstance(self._run.reference, Reference):
            return Launch(self._run.runners, allowance, self._run.heartbeat, built)
        from kbslurm_eval.judge import ranks_launch

        return ranks_launch.RanksLaunch(
            self._run.runners,
            allowance,
            self._run.heartbeat,
            group=self._run.reference.group,
            devices=self._run.rank_devices,
        )

    def start_loaded(self, name: PhaseName, allowance: Allowance) -> Launch:
        """The same, with the submission loaded."""
        launch = self.start(name, allowance, self.built(name, self._run.manifest))
        try:
            self.hand_over(launch, self._run.manifest)
        except BaseException:
            self.end(name, launch)
            raise
        return launch

    def built(self, name: PhaseName, manifest: Manifest) -> builds.Built | None:
        """This source's build, if it needs one. The builder has ended when this returns."""
        of_run, reference = self._run.builds, self._run.reference
        if not isinstance(reference, Reference) or not of_run.wants(manifest):
            return None  # ranks compile for themselves
        if (done := of_run.done(manifest)) is not None:
            return done
        builder = self._builder(name, manifest)
        try:
            return of_run.build(manifest, builder, reference)
        except builds.BuildFailed as failed:
            raise Rejected(failed.verdict, f"while building: {clean(failed.said, MESSAGE_CAP)}") from None
        except builds.NoCompiler as lacking:
            raise CantStart(str(lacking)) from None
        except Rejected as fault:
            fault.said = f"while building: {fault.said}"
            raise
        finally:
            # compilers quote source lines, and a baseline's are for staff only
            self.end(name if manifest is self._run.manifest else "hidden", builder)

    def _builder(self, name: PhaseName, manifest: Manifest) -> Launch:
        limit_s = manifest.build.limit_s
        self._run.allowances.append(Allowance(left_s=limit_s, whole_s=limit_s))
        self._run.heartbeat.enter("build", 1)
        return self.start(name, self._run.allowances[-1], self._run.builds.empty(manifest))

    def compiled_reference(self) -> types.ModuleType | None:
        """The problem's own C++, for a problem that has its reference there."""
        from kbslurm_eval.judge.compiled_reference import reference_module

        adapter = self._run.manifest.build.adapter
        if not adapter:
            return None
        builder = self._builder("test", self._run.manifest)
        try:
            library = self._run.builds.reference(builder)
        except builds.NoCompiler as lacking:
            raise CantStart(str(lacking)) from None
        except Rejected as fault:
            raise ProblemTrouble(f"the problem's reference can't be built: {fault.said}") from None
        finally:
            self.end("hidden", builder)
        return reference_module(library, "reference", adapter)

    def hand_over(self, launch: Launch, manifest: Manifest) -> None:
        """Load the submission; Rejected if that fails."""
        try:
            reply = launch.load(manifest)
        except Rejected as fault:
            fault.said = f"while loading: {fault.said}"
            raise
        finally:
            launch.starts = False
        if reply.status != Status.OK:
            said = claimed(reply)
            said.said = f"while loading: {said.said}"
            raise said
        launch.come_to_rest()

    def to_blame(self, launch: Launch | None, trouble: ProblemTrouble) -> ProblemTrouble | Rejected:
        """The trouble of the problem's own code, or the verdict of the submission whose hoard of memory caused it."""
        found = None if launch is None else launch.hoard()
        return trouble if found is None else found

    def end(self, name: PhaseName, launch: Launch | None) -> None:
        """End it, and add what it wrote to its phase's log."""
        if launch is None:
            return
        launch.counted()
        text = launch.close()
        results = self._run.results
        if name in SECRET:
            text = run_log.without_repeats(clean(text, LOG_CAP), results.secret_log)
            results.secret_log = (results.secret_log + text)[:LOG_CAP]
        else:
            results.log.add(name, launch.wrote)
            self.remark(name, launch.remark())

    def remark(self, name: PhaseName, text: str) -> None:
        """Tell its author this of the calls that were made, if it is the first such remark."""
        if text and name not in SECRET and not self._remarked:
            self._remarked = True
            self._run.results.log.remark(name, f"[{name} phase: {text}]")

    def note(self, text: str) -> None:
        """A remark of the judge's at the end of what public phases wrote."""
        self._run.results.log.note(text)

"""The problem's own code, on the judge's side: inputs, the reference's answers, and the check of what a runner gave.

The problem's files never touch a disk: they are imported from their texts. A trouble here is the problem author's
and is told as one, never blamed on a submission.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import linecache
import math
import mmap
import random
import struct
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kbslurm_eval.device import cuda_on_cpu, driver
from kbslurm_eval.judge import answer_kinds, counted_work, first_wrong, output_checks, returned_answers
from kbslurm_eval.judge.buffers import BUFFERS
from kbslurm_eval.judge.check_mark import CheckMark
from kbslurm_eval.judge.check_memory import CheckMemory
from kbslurm_eval.judge.interrupts import INTERRUPTS, raise_noted
from kbslurm_eval.judge.kept_inputs import KeptInput
from kbslurm_eval.shared import claimed_layout, destinations, layouts, recorded, values
from kbslurm_eval.shared.wire import Manifest

if TYPE_CHECKING:
    from kbslurm_eval.judge.device_memory import Answered, DeviceMemory, Piece

LEAST_KEPT, KEPT_CAP = 1 << 20, 2 << 30  # inputs that are the same each time, by their size and all together
NULL_WHOLE_CAP = 4 << 20  # of larger inputs a null call writes no array
LEAST_OPEN = 64 << 20  # of an output whose problem has no answer of its own
SAID_BESIDE = 500  # what is kept of a check's own words beside a hint
HINTED_CAP = 256 << 20  # of the input of a wrong answer that is compared with the reference's for a hint
_DICE = random.SystemRandom()
MARGIN_S = 0.5  # a slow check isn't run as often
ANSWERS = ("ref_kernel", "reference", "ref")
NOTHING_TO_COMPARE = (
    "the reference's answers hold nothing at all, and without a check_implementation every submission would be right:"
    " is a `return` missing in it? (What it writes to its input isn't compared.)"
)


LOOKED_AT_AGAIN = 0.06  # of calls whose answer's layout is known, so many are looked at once more, by lot
# what a check takes beyond so many times its usual time, and so many seconds, is the answer's fault
DRAGS_TIMES, DRAGS_S = 10, 1.0
CHAINED_MOST = 20  # errors of which each came while another was handled


class ProblemTrouble(RuntimeError):
    """The problem's own code is faulty."""


class LackedMemory(ProblemTrouble):
    """It ran out of memory."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of a phase: its parameters as the problem wrote them, and how they are shown."""

    index: int
    params: Mapping[str, Any]
    apart: bool = False  # single numbers of its inputs stand among the arrays

    @property
    def spec(self) -> str:
        """`name: value; …`, as competitors know it."""
        return "; ".join(f"{k}: {v}" for k, v in self.params.items())


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One call's input, packed; the layout its output must have; and the reference's answer where it was needed."""

    case: Case
    packed: bytes | memoryview
    layout: layouts.Layout
    expected: Any
    exact: bool
    places: destinations.Places = field(default_factory=dict)
    kept: bool = False  # the same input is used again
    image: Piece | None = None  # what of it is on the device, in memory of the judge's
    away: int = 0  # how much that is
    ahead: bool = False  # what its arrays are can be told before a call; null calls then have nothing to make
    copied_size: int = 0  # the time of a call ends with a copy of at least so much of its answer; 0: with the answer
    names: returned_answers.Names = None  # the named tuples in the reference's answer
    seed: int | None = None  # what it was made with

    def hollow(self) -> Prepared:
        """What null calls of its kind need: of a large input not what its arrays contain, which takes no memory."""
        size = len(self.packed)
        if size <= NULL_WHOLE_CAP or _has_objects(values.tree(self.packed)):
            return replace(self, expected=None, image=None)
        start = struct.unpack_from("<QQ", self.packed, 0)[1]
        nothing = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        nothing[:start] = self.packed[:start]
        for at, number in values.single_numbers(self.packed):
            nothing[start + at : start + at + len(number)] = number
        return replace(self, packed=nothing, expected=None, image=None)

    @property
    def array_bytes(self) -> int:
        """What a call has to move at least, if it needs all of its input: its arrays once, and its output once."""
        start: int = struct.unpack_from("<QQ", self.packed, 0)[1]
        given_to_write = sum(size for _, size in self.places.values())
        there = 0 if self.image is None else self.image.held
        skipped = given_to_write + counted_work.gaps(self.packed)
        return max(0, len(self.packed) - start + there - skipped) + self.layout.least_bytes

    def operations(self, name: str) -> int:
        """How many this operation needs with these shapes; ProblemTrouble if they aren't its own."""
        try:
            return counted_work.operations(name, self.packed, self.layout.tree)
        except counted_work.DoesntFit as error:
            raise ProblemTrouble(f"`flops: shapes({name})`, for the case {self.case.spec!r}: {error}") from None

    @functools.cached_property
    def null_payload(self) -> destinations.Payload:
        """What a null call carries: the arrays of an input, and of large ones only where they are. What they contain
        is not looked at, and writing it takes longer than all that is measured."""
        arrays = None if self.ahead else values.pack(values.unpack(memoryview(self.packed)), arrays_only=True)
        found = self.payload(arrays)
        return found if len(self.packed) <= NULL_WHOLE_CAP else found.head()

    def payload(self, packed: bytes | None = None) -> destinations.Payload:
        """What goes through the link: this input, or another one that was packed of its arrays."""
        return destinations.placed(self.packed if packed is None else packed, self.places)


@dataclass(kw_only=True)
class Spent:
    """How long the problem's own code took so far."""

    generation_s: float = 0.0
    answers_s: float = 0.0
    checks_s: float = 0.0
    dragged_s: float = 0.0  # of checks, what was far beyond their time for the reference's own answer

    def since(self, before: Spent) -> Spent:
        """The same from an earlier moment on."""
        return Spent(
            generation_s=self.generation_s - before.generation_s,
            answers_s=self.answers_s - before.answers_s,
            checks_s=self.checks_s - before.checks_s,
            dragged_s=self.dragged_s - before.dragged_s,
        )


class Reference:
    """The problem's reference, loaded."""

    def __init__(
        self,
        manifest: Manifest,
        compiled: types.ModuleType | None = None,
        *,
        no_device: bool = False,
        keeps: bool = True,
        memory: DeviceMemory | None = None,
        mark: CheckMark | None = None,
        checkers: int = 1,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """With `no_device` the problem's own code doesn't use the device, which belongs to the submission alone. With
        `keeps` large inputs that are the same under every seed are made once. `memory`: the judge's on the device.
        `mark`: stands while an answer is looked at. `checkers`: so many processes check at the same time."""
        self._memory = memory
        self._mark = mark or CheckMark()
        self._memory_of_checks = CheckMemory(checkers)
        self._one_file = manifest.style == "one-file"
        self._open = manifest.config.get("outputs") == "check"
        self._layouts: dict[tuple[int, bytes], tuple[layouts.Layout, destinations.Places, returned_answers.Names]] = {}
        self._has_places = manifest.lang == "py" and compiled is None and not self._open
        self._moving: set[int] = set()
        self._around = around  # what the problem's own code runs in
        self._usual_check_s: dict[str, float] = {}
        self._cases = [*manifest.tests, *manifest.benchmarks, *manifest.hidden]
        self._answers_something: bool | None = None
        self._keeps = keeps
        self._inputs: dict[str, KeptInput] = {}
        self.spent = Spent()
        sys.meta_path.insert(0, _ProblemFiles(manifest.files))
        texts = [text for name, text in manifest.files.items() if not name.endswith(recorded.SUFFIX)]
        if cuda_on_cpu.wanted("cpu" if no_device else manifest.gpu, texts):
            cuda_on_cpu.install(no_device=no_device)
        self._compiled = compiled
        module = compiled or self._loaded(manifest.reference)
        self._generate = self._function(module, ("generate_input",))
        self._answer = None if self._open and not _defines(module, ANSWERS) else self._function(module, ANSWERS)
        self._tolerance: output_checks.Tolerance | None = None
        if _defines(module, ("check_implementation",)):
            self._check = self._function(module, ("check_implementation",))
        else:
            self._tolerance = output_checks.tolerance_of(module, manifest.config)
        self._takes, self._takes_any = _named_parameters(self._generate)
        self._files = manifest.files
        self._unseen = unseen_modules(manifest)

    @property
    def device(self) -> str:
        """The device that a problem is given; it should never hard-code one."""
        torch = sys.modules.get("torch")
        return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"

    @staticmethod
    def _loaded(file: str) -> types.ModuleType:
        try:
            return importlib.import_module(_module_name(file))
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the author's code
            raise ProblemTrouble(f"the problem's {file} can't be loaded: {_said(error)}") from None

    @staticmethod
    def _function(module: types.ModuleType, names: Sequence[str]) -> Callable[..., Any]:
        for name in names:
            if callable(found := getattr(module, name, None)):
                return found  # type: ignore[no-any-return]
        raise ProblemTrouble(f"the problem's {module.__name__}.py defines no {names[0]}")

    @property
    def answers(self) -> bool:
        """Whether the problem has an answer of its own, and not only a check."""
        return self._answer is not None

    def granted(self, prepared: Prepared, text: str) -> layouts.Layout | None:
        """The layout of an output that isn't of the reference's, where the problem's check is to decide."""
        if not self._open:
            return None
        if self.answers:
            return claimed_layout.granted(text, prepared.layout)
        return claimed_layout.granted(text, prepared.layout, cap=open_cap(prepared.packed), device=self.device)

    def in_that_form(self, told: layouts.Layout, like: layouts.Layout, prepared: Prepared) -> layouts.Layout | None:
        """The same of this call, for a submission that answered so when that was asked for."""
        cap = 0 if self.answers else open_cap(prepared.packed)
        return claimed_layout.in_that_form(told, like, prepared.layout, cap=cap)

    def input(self, case: Case, seed: int | None) -> Any:
        """What generate_input returns for this case. `seed`, unless None, replaces the case's own."""
        params: dict[str, Any] = {k: list(v) if isinstance(v, list) else v for k, v in case.params.items()}
        if "device" in self._takes:
            params.setdefault("device", self.device)
        if "recorded" in self._takes:
            params.setdefault("recorded", recorded.reader(self._files, self.device))
        if seed is not None and ("seed" in params or "seed" in self._takes):
            params["seed"] = seed
        if not self._takes_any and (strange := sorted(set(params) - self._takes)):
            raise ProblemTrouble(f"generate_input has no parameter {strange[0]!r}, which the case {case.spec!r} sets")
        own = params.get("seed", case.index)
        _seed_all(seed if seed is not None else own & 0x7FFFFFFF if isinstance(own, int) else case.index)
        began = time.perf_counter()
        try:
            with self._around():
                return self._generate(**params)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the author's code
            raise ProblemTrouble(f"generate_input failed for the case {case.spec!r}: {_said(error)}") from None
        finally:
            self.spent.generation_s += time.perf_counter() - began
            raise_noted()

    def answer(self, prepared: Prepared) -> Any:
        """The reference's answer to a fresh copy of this input; None where it has none."""
        return self._answered(self._copied(prepared.packed, prepared.image))

    def read(self, layout: layouts.Layout, out: bytes | bytearray | memoryview, there: Answered | None) -> Any:
        """The output of a call, or Misfit. `there`: what of it was on the device, where the layout says so."""
        if there is None and self._memory is not None:
            there = self._memory.answered(None)
        return layout.read(out, there)

    def _answered(self, data: Any) -> Any:
        if self._answer is None:
            return None
        began = time.perf_counter()
        try:
            with self._mark.lifted(), self._around():
                return self._answer(data)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the author's code
            raise _kind_of(error)(f"the reference failed: {_said(error)}") from None
        finally:
            self.spent.answers_s += time.perf_counter() - began
            raise_noted()

    def answer_again(self, prepared: Prepared) -> None:
        """Run the reference again on this input; its duration is the reference's pace."""
        self.answer(prepared)

    def close(self) -> None:
        """End what is still running. Python code runs here; compiled code has its own process."""
        if self._compiled is not None:
            self._compiled.__dict__["close"]()

    def prepare(self, case: Case, seed: int | None, *, exact: bool = False) -> Prepared:
        """Everything about a call that the judge must know beforehand."""
        try:
            packed, image, kept = self._packed(case, seed)
            away = 0 if image is None else image.size
            # the text before the blocks names every type and shape: the same text, the same layout, until one call
            # shows otherwise
            key = (case.index, values.text(packed))
            known = None if self._one_file or exact or case.index in self._moving else self._layouts.get(key)
            if known is not None and not (self.answers and _DICE.random() < LOOKED_AT_AGAIN):
                layout, places, names = known
                return Prepared(case=case, packed=packed, layout=layout, expected=None, exact=False, places=places,
                                kept=kept, image=image, away=away, names=names, seed=seed)  # fmt: skip
            data = self._copied(packed, image)
            expected = self._answered(data)
            layout = layouts.Layout.of(expected) if self.answers else claimed_layout.ANY
            names = returned_answers.names_in(expected)
            places = (
                destinations.found(packed, data, layout.tree, expected) if self._has_places and self.answers else {}
            )
        except values.Unsendable as error:
            raise ProblemTrouble(f"a value of the case {case.spec!r} can't be sent to the runner: {error}") from None
        known = self._layouts.get(key)
        if known is not None and self.answers and known[0] != layout:
            self._moving.add(case.index)  # whoever answers in the one that was assumed shows nothing otherwise
        if len(self._layouts) < 10_000:
            self._layouts[key] = layout, places, names
        return Prepared(
            case=case, packed=packed, layout=layout, expected=expected, exact=True, places=places, kept=kept,
            image=image, away=away, names=names, seed=seed,
        )  # fmt: skip

    def text(self, case: Case, seed: int | None) -> bytes:
        """The text of an input of this case, without an answer to it."""
        try:
            return values.text(self._packed(case, seed)[0])
        except values.Unsendable as error:
            raise ProblemTrouble(f"a value of the case {case.spec!r} can't be sent to the runner: {error}") from None

    def _packed(self, case: Case, seed: int | None) -> tuple[bytes | memoryview, Piece | None, bool]:
        """This case's input, packed, what of it is on the device, and whether it is the same each time: one that two
        seeds don't change is kept."""
        key = repr((sorted(case.params.items()), case.apart))
        seen = self._inputs.get(key)
        if seen is not None and seen.is_fixed and seed is not None:
            return seen.packed, seen.image, True
        packed, image = self._pack(self.input(case, seed), apart=case.apart)
        size = len(packed) + (0 if image is None else image.size)
        if not self._keeps or seed is None or size < LEAST_KEPT:
            return packed, image, False
        if seen is None:
            seen = self._inputs[key] = KeptInput()
        held = sum(one.size for one in self._inputs.values() if one is not seen)
        return packed, image, seen.look(packed, seed, room=held + size <= KEPT_CAP, image=image)

    def _pack(self, value: Any, *, apart: bool) -> tuple[memoryview, Piece | None]:
        if self._memory is None:
            return values.pack_into(value, BUFFERS.room, apart=apart, unseen=self._unseen), None
        image = self._memory.image()
        try:
            return values.pack_into(value, BUFFERS.room, image, apart=apart, unseen=self._unseen), image.filled()
        except driver.DriverError as error:
            raise ProblemTrouble(f"the device can't hold an input: {error}") from None

    def _copied(self, packed: bytes | memoryview, image: Piece | None, *, last: bool = False) -> Any:
        """The value in a fresh copy of these bytes; if they are used for the `last` time, in themselves."""
        mine = image if last or image is None else image.copy()
        here = None if self._memory is None else self._memory.arrays(mine)
        if last and type(packed) is memoryview:
            return values.unpack(packed, here=here)
        return values.unpack(BUFFERS.copy(packed), here=here)

    def layout_moved(self, prepared: Prepared) -> bool:
        """Whether the layout that was assumed for this input isn't the one that its own reference answer has."""
        if prepared.exact or not self.answers:
            return False
        moved = layouts.Layout.of(self.answer(prepared)) != prepared.layout
        if moved:
            self._moving.add(prepared.case.index)
        return moved

    def verify(self, prepared: Prepared) -> None:
        """ProblemTrouble unless the reference's answer passes its own check as a submission's would; without an answer
        nothing is asked."""
        if not self.answers:
            return
        expected = self.answer(prepared) if prepared.expected is None else prepared.expected
        if not self.has_check and self.answers_nothing(expected):
            raise ProblemTrouble(NOTHING_TO_COMPARE)
        lost = returned_answers.lost_class(expected)
        how = f", which comes back from a submission without its class {lost}" if lost else ""
        began = time.perf_counter()
        try:
            came = returned_answers.returned(expected)
            good, said = self._verdict(prepared, came, self.answer(prepared) if self._one_file else None)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the author's code
            raise _kind_of(error)(
                f"check_implementation failed on the reference's own answer{how}: {_said(error)}"
            ) from None
        usual_s = self._usual_check_s.get(prepared.case.spec, 0.0)
        self._usual_check_s[prepared.case.spec] = max(usual_s, time.perf_counter() - began)
        if not good:
            raise ProblemTrouble(
                f"the reference's own answer{how} fails its check for the case {prepared.case.spec!r}: {said}"
            )

    @property
    def has_check(self) -> bool:
        """Whether the problem has a check of its own."""
        return self._tolerance is None

    def usual_check_s(self, case: Case) -> float:
        """How long the check takes for the reference's own answer to this case; without end where nobody has seen."""
        return self._usual_check_s.get(case.spec, math.inf)

    def answers_nothing(self, expected: Any) -> bool:
        """Whether there is nothing in the reference's answers: in this one, and in those of all cases. One of no rows
        is as it should be where others have some."""
        if not output_checks.is_empty(expected) or not self._cases:
            return False
        if self._answers_something is None:
            made = (self.prepare(Case(index=n, params=one), None, exact=True) for n, one in enumerate(self._cases))
            self._answers_something = not all(output_checks.is_empty(one.expected) for one in made)
        return not self._answers_something

    def check(self, prepared: Prepared, output: Any, *, last: bool = False) -> tuple[bool, str]:
        """Whether the output is right, and what the check says about it. `last`: nobody needs the input any more, and
        the check, which may write to what it is given, gets it instead of a copy."""
        began, failed, lacked = time.perf_counter(), "", False
        good, said, finite, seen, top = False, "", True, None, None
        try:
            seen = self._seen(output) if self.answers else None
            top = output_checks.top_of_finite(seen) if self.answers else None
            finite = not self.answers or top is not None or output_checks.finite(seen)
            good, said = self._verdict(prepared, output, prepared.expected, last=last and finite and not prepared.kept)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the author's code, brought to this by an output
            failed, lacked = _said(error), isinstance(error, MemoryError)
            _let_go(error)
        finally:
            usual_s = self.usual_check_s(prepared.case)
            self.spent.dragged_s += max(0.0, time.perf_counter() - began - DRAGS_TIMES * usual_s - DRAGS_S)
        if failed:
            self._look_for_fault(prepared, lacked=lacked, last=last)
            return False, f"the check failed on this output: {failed}"
        right = functools.partial(self._right, prepared, last=last)
        if good and self._is_missing(output, right):
            return False, "the answer is empty, and the reference's isn't"
        if good and not self._has_numbers(prepared, output, right):
            return False, "there isn't a number wherever the reference's answer has one"
        if good and finite and self._is_far_too_large(seen, top, right):
            return False, "a number is larger by far than any of the reference's"
        if not good or finite:
            return good, said
        # comparisons with NaN are false, so many checks that look for errors find none
        expected = right()
        try:
            if output_checks.finite_where(self._seen(output), self._seen(expected)):
                return True, said
        except Exception:  # noqa: BLE001 - it isn't even made like the reference's
            pass
        return False, "a number isn't finite where the reference's are"

    def _look_for_fault(self, prepared: Prepared, *, lacked: bool, last: bool) -> None:
        """ProblemTrouble if a check that failed on an output fails on the reference's answer to the same input as well.
        What the output made it take is free again, and what it has written to its input isn't there. `lacked`: it
        failed for want of memory; if it didn't, that verifying it does is no fault of the problem's."""
        self._memory_of_checks.look_anew()
        try:
            again = self.prepare(prepared.case, prepared.seed, exact=True) if last else replace(prepared, expected=None)
            self.verify(again)
        except LackedMemory:
            if lacked:
                raise

    def _right(self, prepared: Prepared, *, last: bool) -> Any:
        """The reference's answer to an input to which a check may have written if it was used for the `last` time."""
        if prepared.expected is not None:
            return prepared.expected
        if last:
            return self.prepare(prepared.case, prepared.seed, exact=True).expected
        return self.answer(prepared)

    def _is_missing(self, output: Any, right: Callable[[], Any]) -> bool:
        """Whether there is nothing in an output where the reference has something: what is compared with each of no
        numbers agrees with all of them."""
        if not (self._open and self.answers) or not output_checks.is_empty(output):
            return False
        return not output_checks.is_empty(right())

    def _is_far_too_large(self, seen: Any, top: float | None, right: Callable[[], Any]) -> bool:
        """Whether a number is so large that a check which computes with it finds nothing wrong any more, and no number
        of the reference's is anywhere near it."""
        if not self.answers or not self.has_check:
            return False
        try:
            top = output_checks.largest(seen) if top is None else top
            if top < output_checks.FAR_TOO_LARGE:
                return False
            expected = self._seen(right())
            # where it has infinities (a mask), the largest finite number may stand for one
            return output_checks.finite(expected) and output_checks.largest(expected) * output_checks.BESIDE < top
        except ProblemTrouble:
            raise
        except Exception:  # noqa: BLE001 - of whatever library
            return False

    def _has_numbers(self, prepared: Prepared, output: Any, right: Callable[[], Any]) -> bool:
        """Whether an output whose layout the check was to judge has a number wherever the reference's answer has."""
        if not (self._open and self.answers) or answer_kinds.only_numbers(output):
            return True
        known = self._layouts.get((prepared.case.index, values.text(prepared.packed)))
        if known is not None and known[0] is prepared.layout and prepared.expected is None:
            return True  # it is the reference's own, type by type
        return answer_kinds.has_numbers(output, right())

    def _seen(self, value: Any) -> Any:
        """The value with its numbers where they can be looked at."""
        return value if self._memory is None else self._memory.seen(value)

    def _timed(self, check: Callable[..., Any], *given: Any) -> Any:
        began = time.perf_counter()
        try:
            with self._around(), self._memory_of_checks.bounded():
                return check(*given)
        finally:
            self.spent.checks_s += time.perf_counter() - began
            raise_noted()

    def explained(self, prepared: Prepared, output: Any, said: str) -> str:
        """What is wrong with an answer to a public test, for its author: what the check `said`, and, unless that names
        a place, where the answer first differs from the reference's."""
        own = self._tolerance is not None
        if not self.answers or (first_wrong.already_told(said) and not own) or len(prepared.packed) > HINTED_CAP:
            return said
        try:
            expected = self.answer(prepared) if prepared.expected is None else prepared.expected
            tolerance = self._tolerance or output_checks.Tolerance()
            found = first_wrong.told(self._seen(output), self._seen(expected), tolerance, prepared.packed, own=own)
        except INTERRUPTS:
            raise
        except BaseException:  # noqa: BLE001 - a hint; no verdict hangs on it
            return said
        return "; ".join(part for part in ("" if own and found else said[:SAID_BESIDE], found) if part)

    def margin(self, prepared: Prepared, output: Any, most: int = 64) -> int | None:
        """How many times as wrong a right answer might be, in powers of two, before the check takes it for wrong.

        0: it is the reference's own. `most`: as much at least. A slow check isn't asked to the end. None where that
        can't be said.
        """
        if not self.answers:
            return None
        try:
            expected = self.answer(prepared) if prepared.expected is None else prepared.expected
            if not output_checks.differs(output, expected):
                return 0
            factor, until = 1, time.monotonic() + MARGIN_S
            while (
                factor < most
                and time.monotonic() < until
                and output_checks.differs(far := output_checks.stretched(output, expected, 2.0 * factor), output)
            ):
                if not self._verdict(prepared, far, prepared.expected)[0]:
                    break
                factor *= 2
        except INTERRUPTS:
            raise
        except BaseException:  # noqa: BLE001 - a figure for the curious; no verdict hangs on it
            return None
        return factor

    def _norm_of_input(self, prepared: Prepared) -> float:
        """How large the input is; without end where that can't be told."""
        here = None if self._memory is None else self._memory.arrays(prepared.image)
        try:
            return output_checks.norm_of(values.unpack(memoryview(prepared.packed), here=here))
        except Exception:  # noqa: BLE001 - of whatever library
            return math.inf

    def _verdict(self, prepared: Prepared, output: Any, expected: Any, *, last: bool = False) -> tuple[bool, str]:
        _seed_all(_DICE.getrandbits(31))  # what a check draws must not follow from what the input was drawn by
        if self._tolerance is None and prepared.names is not None:
            output = returned_answers.named(output, prepared.names)
        if self._tolerance is not None:
            right = expected
            if right is None:
                right = self._answered(self._copied(prepared.packed, prepared.image, last=last))
            norm = functools.partial(self._norm_of_input, prepared)
            found = self._timed(output_checks.difference, output, right, self._tolerance, "the output", norm)
        elif self._one_file:
            found = self._timed(self._check, output, expected)
        else:
            given = self._copied(prepared.packed, prepared.image, last=last)
            found = self._timed(self._check, given, output)
        if isinstance(found, tuple) and len(found) == 2:
            return bool(found[0]), str(found[1] or "")
        if isinstance(found, str):
            return found == "", found
        if isinstance(found, bool) or type(found).__name__ in ("bool_", "bool", "Tensor"):
            return bool(found), ""
        raise ProblemTrouble(
            f"check_implementation returned a {type(found).__name__}; a bool, a str or (bool, str) was expected"
        )


def open_cap(packed: bytes | memoryview) -> int:
    """The most bytes of an answer to this input where the problem has none of its own."""
    return claimed_layout.FACTOR * len(packed) + LEAST_OPEN


def _has_objects(node: Any) -> bool:
    """Whether something is in this packed text that is made of its parts and may look at what they contain."""
    match node:
        case ["o", *_]:
            return True
        case ["l" | "t", inner]:
            return any(map(_has_objects, inner))
        case ["d", pairs]:
            return any(_has_objects(item) for _, item in pairs)
        case _:
            return False


def unseen_modules(manifest: Manifest) -> frozenset[str]:
    """The modules of the problem that a runner lacks: those of files that stay with the judge."""
    kept = set(manifest.files) - set(manifest.runner_files)
    return frozenset(_module_name(name) for name in kept if name.endswith(".py"))


def _defines(module: types.ModuleType, names: Sequence[str]) -> bool:
    return any(callable(getattr(module, name, None)) for name in names)


def derived_seed(secret: str, *parts: object) -> int:
    """A 31-bit seed that reveals nothing about any other."""
    told = "|".join(map(str, parts)).encode()
    return int.from_bytes(hmac.new(secret.encode(), told, hashlib.sha256).digest()[:8], "little") % ((1 << 31) - 1)


def _seed_all(seed: int) -> None:
    """Problems that draw from global generators get fresh values as well."""
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)


def _named_parameters(function: Callable[..., Any]) -> tuple[set[str], bool]:
    """The parameters it can be given by name, and whether it takes any other."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set(), True
    named = {p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named, any(p.kind is p.VAR_KEYWORD for p in found)


def _module_name(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def _kind_of(error: BaseException) -> type[ProblemTrouble]:
    return LackedMemory if isinstance(error, MemoryError) else ProblemTrouble


def _let_go(error: BaseException | None) -> None:
    """What the functions that it ended held is free, although somebody may still have it."""
    for _ in range(CHAINED_MOST):
        if error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__


def _said(error: BaseException) -> str:
    where = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("<problem>/"):
            where = f" ({trace.tb_frame.f_code.co_filename[10:]}, line {trace.tb_lineno})"
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        where = f" (line {error.lineno})"
    return f"{type(error).__name__}: {error}"[:1000] + where


class _ProblemFiles(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):  # type: ignore[misc]
    """Imports a problem's files from their texts."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {name.removeprefix("./"): text for name, text in files.items() if name.endswith(".py")}

    def _file(self, name: str) -> str | None:
        path = name.replace(".", "/")
        return next((f for f in (f"{path}.py", f"{path}/__init__.py") if f in self._files), None)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Ours, when a file of the problem has this name."""
        file = self._file(name)
        if file is not None:
            return importlib.util.spec_from_loader(name, self, is_package=file.endswith("/__init__.py"))
        if any(f.startswith(name.replace(".", "/") + "/") for f in self._files):
            return importlib.util.spec_from_loader(name, None, is_package=True)
        return None

    def get_filename(self, name: str) -> str:
        """A name that can't be a path of this machine."""
        file = self._file(name)
        if file is None:
            raise ImportError(name)
        text = self._files[file]
        linecache.cache[f"<problem>/{file}"] = (len(text), None, text.splitlines(keepends=True), f"<problem>/{file}")
        return f"<problem>/{file}"

    def get_data(self, path: Any) -> bytes:
        """The text of the file."""
        file = str(path).removeprefix("<problem>/")
        if file not in self._files:
            raise OSError(f"no such file in the problem: {file}")
        return self._files[file].encode()

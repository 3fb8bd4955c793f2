"""A native crash, a hang and an interrupt in a child are errors of the parent, never its end."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import onnxport
from onnxport.core.child_process import (
    Child,
    ChildBug,
    _environment,
    borrow,
    give_back,
    reuse_children,
)
from onnxport.core.child_server import Parent
from onnxport.core.errors import CannotConvertError, MachineError, Refusal

LEAKED: list[bytes] = []
SHARED = ("string",)  # a child that shares a module may be a copy of its parent
pytestmark = pytest.mark.usefixtures("kind_of_child")


class Served:
    """What the tests put into a child."""

    parent: Parent | None = None

    def double(self, value: int) -> int:
        return 2 * value

    def chatter(self) -> str:
        os.write(1, b"noise on stdout\n")
        os.write(2, b"noise on stderr\n")
        return "clean"

    def refuse(self) -> None:
        raise CannotConvertError("no", refusals=[Refusal("Loop", "decode", "carries a sequence")])

    def stumble(self) -> None:
        raise KeyError("unforeseen")

    def crash(self) -> None:
        os.write(2, b"fatal: the last thing it said\n")
        ctypes.string_at(0)

    def process(self) -> int:
        return os.getpid()

    def remember(self, value: int) -> list[int]:
        self.remembered = [*getattr(self, "remembered", []), value]
        return self.remembered

    def leak(self, size: int) -> None:
        LEAKED.append(b"x" * size)

    def consult(self) -> str:
        assert self.parent is not None
        self.parent.tell("half way")
        return f"heard {self.parent.word()}"

    def imported(self, module: str) -> bool:
        return module in sys.modules

    def hang(self) -> None:
        time.sleep(60)


def child(timeout: float = 60.0) -> Child:
    target = "tests.core.test_child_process:Served"
    return Child(target, purpose="the test's child", timeout=timeout, shares=SHARED)


def test_many_calls_reach_one_object_and_library_chatter_corrupts_nothing() -> None:
    with child() as running:
        assert running.call("double", 21) == 42
        assert running.call("chatter") == "clean"
        assert running.call("double", 2) == 4


def test_a_child_imports_modules_before_its_first_call_and_survives_a_missing_one(kind_of_child: str) -> None:
    target = "tests.core.test_child_process:Served"
    preload = ("surely_absent", "colorsys")
    with Child(target, purpose="the test's child", preload=preload, shares=SHARED) as running:
        assert running.call("imported", "colorsys")
    if kind_of_child == "interpreter":  # a copy has what other tests imported
        with child() as running:
            assert not running.call("imported", "colorsys")


def test_a_child_finds_the_package_and_none_of_its_rooms_as_a_module_of_its_own() -> None:
    package = Path(onnxport.__file__).parent
    places = _environment()["PYTHONPATH"].split(os.pathsep)
    assert str(package.parent) in places
    assert str(package) not in places


def test_an_error_of_ours_arrives_whole() -> None:
    with child() as running, pytest.raises(CannotConvertError) as caught:
        running.call("refuse")
    assert caught.value.refusals == (Refusal("Loop", "decode", "carries a sequence"),)
    assert caught.value.exit_code == 3


def test_an_unforeseen_error_is_a_bug_with_the_childs_traceback() -> None:
    with child() as running, pytest.raises(ChildBug, match="KeyError: 'unforeseen'"):
        running.call("stumble")


def test_a_segmentation_fault_is_a_machine_error_with_the_last_words() -> None:
    with child() as running, pytest.raises(MachineError, match=r"SIGSEGV.*the last thing it said"):
        running.call("crash")


def test_a_hang_ends_at_the_time_limit() -> None:
    started = time.monotonic()
    with child(timeout=1.0) as running, pytest.raises(MachineError, match="hung"):
        running.call("hang")
    assert time.monotonic() - started < 20


def test_leaving_by_an_error_ends_the_child_at_once() -> None:
    running = child()
    assert running.call("double", 1) == 2
    running.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert running._process.poll() is not None


def test_a_child_and_its_parent_can_talk_during_a_call() -> None:
    with child() as running:
        running.ask("consult")
        assert running.hear() == (False, "half way")
        running.reply("go on")
        assert running.hear() == (True, "heard go on")


def borrow_child() -> Child:
    return borrow("tests.core.test_child_process:Served", purpose="the test's child", shares=SHARED)


def test_what_is_given_back_serves_again_and_remembers_nothing() -> None:
    with reuse_children():
        first = borrow_child()
        assert first.call("remember", 1) == [1]
        process = first.call("process")
        give_back(first)
        second = borrow_child()
        assert second.call("process") == process
        assert second.call("remember", 2) == [2]
        second.ask("hang")  # what is torn from a call is not kept
        give_back(second)
        third = borrow_child()
        assert third.call("process") != process
        give_back(third)
    assert third._process.poll() is not None, "it outlived the block"
    fourth = borrow_child()
    fourth.call("process")
    give_back(fourth)
    assert fourth._process.poll() is not None, "nobody asked for it to be kept"


def test_a_child_in_which_memory_is_left_is_not_reused() -> None:
    with reuse_children():
        first = borrow_child()
        process = first.call("process")
        first.call("leak", 400 * 2**20)
        give_back(first)
        second = borrow_child()
        assert second.call("process") != process
        give_back(second)


def test_blocks_of_reuse_nest() -> None:
    with reuse_children():
        with reuse_children():
            first = borrow_child()
            process = first.call("process")
            give_back(first)
        second = borrow_child()
        assert second.call("process") == process, "the inner block ended it"
        give_back(second)
    assert second._process.poll() is not None


def test_a_reused_child_has_the_limits_of_its_borrower() -> None:
    with reuse_children():
        first = borrow_child()
        first.call("double", 1)
        first.memory = 1
        give_back(first)
        second = borrow(first.target, purpose="another task", timeout=1.0)
        assert second is first
        with pytest.raises(MachineError, match="another task hung: no answer within 1 s"):
            second.call("hang")
        give_back(second)


def test_threads_that_give_back_at_once_leave_no_child() -> None:
    """The second of a kind is closed, and the last block closes the first, whichever thread that is."""
    with reuse_children():
        lent = [borrow_child() for _ in range(4)]
        assert [each.call("double", 2) for each in lent] == [4] * 4
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(give_back, lent))
        with reuse_children():
            pass
        assert sum(each._process.poll() is None for each in lent) == 1
    assert all(each._process.poll() is not None for each in lent)

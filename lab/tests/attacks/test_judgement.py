"""The verdict protocol on made-up processes: every way to end, and what it must count as."""

from __future__ import annotations

import signal

import pytest

from freestone_lab.attacks.judgement import Outcome, Verdict, judge_attack, judge_twin
from freestone_lab.attacks.tables import percent
from freestone_lab.core.result import Peer

LIB = "/tmp/liballocator.so"
PEER = Peer("allocator", LIB)
OWNER = f"@@ OWNER {LIB}\n"
FAULT = OWNER + "@@ FAULT\n"
PAST = FAULT + "@@ PAST\n"
EFFECT = PAST + "@@ ATTACK_SUCCEEDED a live block was changed\n"
MESSAGE = "allocator: double free of 0x1000\n"


@pytest.mark.parametrize(
    "text, exit_code, verdict",
    [
        (PAST + "@@ NEUTRALISED\n", 0, "neutralised"),
        (FAULT + MESSAGE, -signal.SIGABRT, "reported"),
        (PAST + MESSAGE, -signal.SIGABRT, "reported"),
        (PAST + MESSAGE, -signal.SIGSEGV, "reported"),
        (FAULT + MESSAGE + "@@ PAST\n@@ NEUTRALISED\n", 0, "reported"),  # says so and goes on
        (FAULT, -signal.SIGSEGV, "trapped"),
        (FAULT, -signal.SIGBUS, "trapped"),
        (FAULT, -signal.SIGABRT, "trapped"),
        (PAST, -signal.SIGILL, "trapped"),  # a deliberate stop, wherever it comes
        (FAULT, 1, "trapped"),
        (PAST, -signal.SIGSEGV, "late"),  # a crash at some later place is luck, not detection
        (EFFECT, 10, "missed"),
        (EFFECT + MESSAGE, -signal.SIGABRT, "late"),
        (EFFECT, -signal.SIGSEGV, "late"),
        (FAULT + MESSAGE + "@@ PAST\n@@ ATTACK_SUCCEEDED overlap\n", 10, "late"),  # a warning did not stop it
        ("", -signal.SIGSEGV, "failed"),
        (MESSAGE, -signal.SIGABRT, "failed"),  # a crash before main, with a message, is no detection
        ("@@ OWNER /lib/x86_64-linux-gnu/libc.so.6\n@@ FAULT\n", -signal.SIGABRT, "failed"),
        (OWNER + MESSAGE, -signal.SIGABRT, "failed"),  # died before the misuse
        (OWNER + "@@ NOT_APPLICABLE free_sized is not provided\n", 0, "not_applicable"),
    ],
)
def test_attack_verdict(text: str, exit_code: int, verdict: Verdict) -> None:
    assert judge_attack(Outcome(exit_code, text), PEER).verdict == verdict


def test_hang_after_the_misuse_is_a_timeout_but_after_an_effect_a_miss() -> None:
    assert judge_attack(Outcome(-signal.SIGKILL, FAULT, timed_out=True), PEER).verdict == "timeout"
    assert judge_attack(Outcome(-signal.SIGKILL, EFFECT, timed_out=True), PEER).verdict == "missed"


@pytest.mark.parametrize(
    "text, exit_code, verdict",
    [
        (PAST + "@@ TWIN_OK\n", 0, None),
        (PAST + "@@ TWIN_OK\n", -signal.SIGSEGV, "false_alarm"),  # died at exit
        (PAST, 0, "false_alarm"),  # never said that its blocks were intact
        (FAULT + MESSAGE, -signal.SIGABRT, "false_alarm"),
        (EFFECT, 10, "false_alarm"),
        (OWNER + "@@ REFUSED an allocation\n", 4, "false_alarm"),
        ("", -signal.SIGABRT, "failed"),
        ("ERROR: ld.so: object cannot be preloaded\n@@ OWNER /usr/lib/libc.so.6\n@@ TWIN_OK\n", 0, "failed"),
        (OWNER + "@@ NOT_APPLICABLE free_sized is not provided\n", 0, "not_applicable"),
    ],
)
def test_twin_verdict(text: str, exit_code: int, verdict: Verdict | None) -> None:
    judged = judge_twin(Outcome(exit_code, text), PEER)
    assert (judged.verdict if judged else None) == verdict


def test_glibc_is_recognised_by_the_c_librarys_name() -> None:
    glibc = Peer("glibc", None, "libc")
    assert judge_twin(Outcome(0, "@@ OWNER /lib/x86_64-linux-gnu/libc.so.6\n@@ TWIN_OK\n"), glibc) is None
    other = judge_twin(Outcome(0, PAST + "@@ TWIN_OK\n"), glibc)
    assert other is not None and other.verdict == "failed" and LIB in other.detail


def test_message_amid_a_markers_line_is_kept_without_the_marker() -> None:
    outcome = Outcome(-signal.SIGABRT, FAULT + "half a line@@ PAST\nallocator: bad\x1b[0m\n")
    assert outcome.message == "half a line / allocator: bad[0m"
    assert "PAST" in outcome.markers


def test_share_is_100_percent_only_when_nothing_got_through() -> None:
    assert percent(1.0) == "100.0 %"
    assert percent(0.99999) == ">99.9 %"
    assert percent(0.0001) == "<0.1 %"
    assert percent(0.0) == "0.0 %"
    assert percent(0.123) == "12.3 %"

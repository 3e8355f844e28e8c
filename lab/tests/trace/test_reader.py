"""The reader: damaged traces give one clear error each, wherever the damage is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_tools import freestone
from trace_tools import with_right_checksums

from freestone_lab.core import paths
from freestone_lab.trace import layout, reader, recording, varints
from freestone_lab.trace.events import TraceError

BUILD = paths.build_dir()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of every kind of call, of about a thousand bytes."""
    program = BUILD / "trace_program"
    if not program.exists():
        pytest.skip("the recorder is not built")
    output = tmp_path_factory.mktemp("small") / "small.fst"
    line, env = recording.command_line(recording.Request(output, (str(program), "every-kind")))
    subprocess.run(line, env=env, check=True, capture_output=True)
    return output


def test_every_flipped_byte_is_found(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    damaged = tmp_path / "damaged.fst"
    for place in range(len(data)):
        damaged.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        with pytest.raises(TraceError, match=r"damaged\.fst: at byte \d+: \w"):
            reader.read(damaged)


def test_check_tells_a_damaged_trace_from_one_that_cannot_be_read(small: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged.fst").write_bytes(small.read_bytes()[:-1])
    assert freestone(tmp_path, "trace", "check", str(small)).returncode == 0
    assert freestone(tmp_path, "trace", "check", str(small), "damaged.fst").returncode == 1
    done = freestone(tmp_path, "trace", "check", "nosuch.fst", "damaged.fst")
    assert done.returncode == 2 and "nosuch.fst: cannot be read: No such file or directory" in done.stdout


def test_every_cut_is_found(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    damaged = tmp_path / "damaged.fst"
    for length in range(len(data)):
        damaged.write_bytes(data[:length])
        with pytest.raises(TraceError, match=r"damaged\.fst: at byte \d+: \w"):
            reader.read(damaged)
    damaged.write_bytes(data + b"x")
    with pytest.raises(TraceError, match="follow the end mark"):
        reader.read(damaged)


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.long)])
def test_damage_under_right_checksums_is_an_error_or_another_trace(small: Path, tmp_path: Path, step: int) -> None:
    data = small.read_bytes()
    damaged = tmp_path / "damaged.fst"
    for place in range(layout.HEADER.size, len(data), step):
        changed = bytearray(data)
        changed[place] ^= 0x15
        damaged.write_bytes(with_right_checksums(changed))
        try:
            reader.read(damaged)
        except TraceError as error:
            assert str(error).startswith(str(damaged))


def test_what_is_whole_of_a_cut_trace_can_be_read(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    cut = tmp_path / "cut.fst"
    cut.write_bytes(data[:-40])
    trace = reader.read(cut, partial=True)
    assert trace.events == reader.read(small).events and "cut short" in trace.cut


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        reader.read(tmp_path / "none.fst")


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4095, 4096, 4097, 100_001])
def test_the_checksum_is_crc32c_at_every_length(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    assert layout.crc32c(data) == crc ^ 0xFFFFFFFF
    assert layout.crc32c(b"123456789") == 0xE3069283


def test_varints_come_back() -> None:
    values = np.array([0, 1, 127, 128, 16383, 16384, 2**32 - 1, 2**32, 2**63, 2**64 - 1], dtype=np.uint64)
    assert varints.decode(varints.encode(values)).tolist() == values.tolist()
    signed = np.array([0, -1, 1, -(2**62), 2**62], dtype=np.int64)
    assert varints.unzigzag(varints.zigzag(signed)).tolist() == signed.tolist()
    for wrong in (b"\x80", b"\x01\x80", b"\x80" * 10 + b"\x01"):
        with pytest.raises(ValueError, match=r"cut|64 bits"):
            varints.decode(wrong)

"""Decoders: several threads may decode a type for the first time, and the process lives on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent
PROGRAM = """
import sys
import threading
import msgspec
from penstock.serdes.decoders import decoder

sys.setswitchinterval(1e-6)
FIELDS = [(f"field_{j}", int) for j in range(20)]
for i in range(200):
    inner = [msgspec.defstruct(f"Inner{i}_{k}", FIELDS) for k in range(5)]
    outer = msgspec.defstruct(f"Outer{i}", [(f"inner_{k}", kind) for k, kind in enumerate(inner)])
    data = msgspec.json.encode({f"inner_{k}": {name: 1 for name, _ in FIELDS} for k in range(5)})
    barrier = threading.Barrier(4)

    def decode():
        barrier.wait()
        decoder(outer).decode(data)

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_may_decode_a_type_for_the_first_time_at_once() -> None:
    # In a process of its own: what went wrong here was a segmentation fault.
    command = [sys.executable, "-c", PROGRAM]
    assert subprocess.run(command, timeout=60, env={"PYTHONPATH": str(ROOT.parent)}).returncode == 0


def test_every_decoder_is_made_in_the_one_safe_place() -> None:
    unsafe = re.compile(r"json\.decode\(|msgpack\.decode\(|\bDecoder\(|msgspec\.convert\(")
    found = [path for path in ROOT.rglob("*.py") if unsafe.search(path.read_text())]
    assert [path.relative_to(ROOT).as_posix() for path in found] == ["serdes/decoders.py"]

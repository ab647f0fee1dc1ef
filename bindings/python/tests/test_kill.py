"""A writer is killed several times: each acknowledged entry is found."""

import subprocess
import sys
import time
from pathlib import Path

import brooklet
from kill_writer import payload

WRITER = Path(__file__).with_name("kill_writer.py")


def check(path: Path, acknowledged: bytes) -> int:
    lines = acknowledged.split(b"\n")[:-1]  # A line without its end was cut by the kill.
    with brooklet.open(path) as store:
        for line in lines:
            key, seq, writer, write = line.split()
            found = list(store.read(key, int(seq), int(seq) + 1))
            assert found == [(int(seq), payload(int(writer), int(write)))], line
    return len(lines)


def test_kills(path: Path, tmp_path: Path) -> None:
    acknowledged = tmp_path / "acknowledged"
    checked = 0
    for round in range(4):
        with acknowledged.open("ab") as out:
            writer = subprocess.Popen([sys.executable, str(WRITER), str(path)], stdout=out, stderr=subprocess.PIPE)
            size = acknowledged.stat().st_size
            deadline = time.monotonic() + 120
            # It is killed in mid-flight: after some acknowledgements, at a time of no meaning.
            while acknowledged.stat().st_size < size + 20_000 and time.monotonic() < deadline:
                assert writer.poll() is None, writer.communicate()[1].decode()
                time.sleep(0.01 + round * 0.003)
            writer.kill()
            _, err = writer.communicate()
        data = acknowledged.read_bytes()
        if not data.endswith(b"\n"):
            acknowledged.write_bytes(data[: data.rfind(b"\n") + 1])
        found = check(path, acknowledged.read_bytes())
        assert found > checked, err.decode()
        checked = found

"""Starts the servers that the benchmarks compare, and reads what they cost. Standard library only."""

import functools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TICKS = os.sysconf("SC_CLK_TCK")

# What each is called in tables, and for Redis what it is told. A rewrite of the log would cost it more in the middle of a run.
REDIS = {
    "always": ("Redis, appendfsync always", "--appendonly yes --appendfsync always"),
    "everysec": ("Redis, appendfsync everysec", "--appendonly yes --appendfsync everysec"),
    "none": ("Redis, no AOF", "--appendonly no"),
}
NAMES = {"brooklet": "Brooklet, durable"} | {key: name for key, (name, _) in REDIS.items()}


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def stop(message):
    sys.exit(f"{sys.argv[0]}: {message}")


def check_directory(path):
    """What is measured must reach a disk."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        stop(f"{path} is on {kind}, where nothing is durable; name a directory on a disk with --dir")


@functools.cache
def brooklet():
    """The program. Not by cargo run: what cargo does first would count as the server's start."""
    if program := os.environ.get("BROOKLET_BIN"):
        return program
    say("cargo builds brooklet")
    command = ["cargo", "build", "--release", "--locked", "-p", "brooklet-cli", "--features", "full", "--message-format", "json"]
    built = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        stop("cargo could not build brooklet; build it otherwise and name it with BROOKLET_BIN")
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    return [message["executable"] for message in messages if message.get("executable")][-1]


class Server:
    """One server on a port and a directory of its own."""

    def __init__(self, kind, directory, rewrites=False):
        # What the one before left for the kernel to write must not slow this one.
        os.sync()
        self.kind, self.rewrites = kind, rewrites
        self.directory = tempfile.mkdtemp(prefix="brooklet-bench.", dir=directory)
        self.process = None

    def start(self, limit=120):
        """Seconds until the first PING is answered. `self.started` is the time from which they count."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        if self.kind == "brooklet":
            command = [brooklet(), "serve", os.path.join(self.directory, "bench.brooklet"), "--listen", f"127.0.0.1:{self.port}", "--http", ""]
        else:
            command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory, "--save", ""]
            command += shlex.split(REDIS[self.kind][1])
            if not self.rewrites:
                command += ["--auto-aof-rewrite-percentage", "0"]
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.started = time.monotonic()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while True:
            if self.process.poll() is not None or time.monotonic() - self.started > limit:
                with open(os.path.join(self.directory, "log")) as log:
                    say(log.read()[-2000:])
                self.remove()
                stop(f"{NAMES[self.kind]} did not start; above is the end of its log")
            try:
                if self.ask(b"PING") == b"+PONG":
                    return time.monotonic() - self.started
            except OSError:
                pass
            time.sleep(0.002)

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self, *words):
        """The first line of a command's reply."""
        with self.connect() as connection:
            connection.sendall(command_bytes(*words))
            return connection.makefile("rb").readline().rstrip(b"\r\n")

    def info(self, field):
        with self.connect() as connection:
            connection.sendall(command_bytes(b"INFO", b"memory"))
            reader = connection.makefile("rb")
            size = int(reader.readline()[1:])
            found = re.search(rf"^{field}:(\d+)", reader.read(size).decode(), re.M)
            return int(found[1]) if found else None

    def cpu(self):
        """Seconds that the process ran, in its own code and the kernel's."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def written(self):
        with open(f"/proc/{self.process.pid}/io") as io:
            return int(re.search(r"^write_bytes: (\d+)", io.read(), re.M)[1])

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"^VmRSS:\s+(\d+) kB", status.read(), re.M)[1]) * 1024

    def stored(self):
        """Bytes that its files take on the disk."""
        total = 0
        for root, _, files in os.walk(self.directory):
            total += sum(os.lstat(os.path.join(root, name)).st_blocks * 512 for name in files if name != "log")
        return total

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def remove(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def command_bytes(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def spread(values, form="{:,.0f}"):
    """The median, and from where to where the values go."""
    low, high = form.format(min(values)), form.format(max(values))
    return form.format(statistics.median(values)), f"{low}–{high}"

"""Fixtures: a small store, and programs in processes of their own."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import pytest

import brooklet

SMALL: Dict[str, Any] = {"ring_size": 4 << 20, "memory_budget": 16 << 20, "max_payload": 1 << 20}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.brooklet"


@pytest.fixture
def store(path: Path) -> Iterator[brooklet.Store]:
    with brooklet.open(path, **SMALL) as store:
        yield store


Program = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def program(path: Path) -> Iterator[Program]:
    """Starts a program in a process; `path` is its store."""
    started = []

    def start(code: str) -> "subprocess.Popen[str]":
        code = f"import brooklet, os, signal, sys, threading, time\npath = {str(path)!r}\n" + textwrap.dedent(code)
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()

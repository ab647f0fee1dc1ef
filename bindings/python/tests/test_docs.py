"""What the documents show is run: docstrings, the README's programs, the examples."""

import asyncio
import doctest
import re
import runpy
from pathlib import Path

import pytest

import brooklet
from conftest import SMALL

HERE = Path(__file__).resolve().parent.parent


def test_docstrings(path: Path) -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    found = finder.find(brooklet, module=False, globs={}, name="brooklet")
    for name in brooklet.__all__:
        if isinstance(value := getattr(brooklet, name), type) or callable(value):
            found += finder.find(value, name, module=False, globs={})
    found = [test for test in found if test.examples]
    for number, test in enumerate(found):
        with brooklet.open(path.with_name(f"store-{number}"), **SMALL) as store:
            where = path.with_name(f"path-{number}")
            test.globs = {"brooklet": brooklet, "asyncio": asyncio, "store": store, "path": where}
            runner.run(test)
    assert runner.summarize().failed == 0 and len(found) >= 5


def test_every_public_name_is_described() -> None:
    for name in brooklet.__all__:
        value = getattr(brooklet, name)
        if not isinstance(value, type):
            continue
        assert value.__doc__, name
        for member in [member for member in vars(value) if not member.startswith("_")]:
            assert getattr(value, member).__doc__ or not callable(getattr(value, member)), f"{name}.{member}"


@pytest.mark.parametrize("number", [0, 1])
def test_the_programs_of_the_readme(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.DOTALL)
    assert len(programs) == 2
    monkeypatch.chdir(tmp_path)
    exec(compile(programs[number], f"README.md, program {number}", "exec"), {"__name__": "__main__"})
    assert list(tmp_path.glob("*.brooklet"))


@pytest.mark.parametrize("example", sorted((HERE / "examples").glob("*.py")), ids=lambda example: example.stem)
def test_examples(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "from langgraph" in example.read_text():
        pytest.importorskip("langgraph.graph")
    monkeypatch.setattr("sys.argv", [str(example), str(tmp_path / "example.brooklet")])
    runpy.run_path(str(example), run_name="__main__")

"""Runs the tests of pycrdt-store, from its source distribution, with `BrookletYStore` among the stores.

    pycrdt_store.py DIRECTORY OF ITS TESTS

Its other tests are of SQLite: they read its tables and sizes. Trio is left out, because the store needs asyncio.
"""

import os
import re
import sys
from pathlib import Path

import pytest

STORE = '''
import tempfile

from brooklet.ystore import BrookletYStore


class MyBrookletYStore(BrookletYStore):
    store_path = str(Path(tempfile.mkdtemp()) / "store.brooklet")

    def __init__(self, *args, delete=False, **kwargs):
        super().__init__(*args, **kwargs)
        if delete:
            Path(self.store_path).unlink(missing_ok=True)
'''

folder = Path(sys.argv[1])
test = folder / "test_store.py"
text, count = re.subn(r"\((MyTempFileYStore, MySQLiteYStore)\)", r"(\1, MyBrookletYStore)", test.read_text())
assert count == 2, "the tests of all stores are others now"
mark = "pytestmark = pytest.mark.anyio\n"
assert mark in text
test.write_text(text.replace(mark, mark + STORE))
(folder / "conftest.py").write_text('import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n')
os.chdir(folder)
arguments = ["-q", "-k", "MyBrookletYStore", "-p", "no:cacheprovider", "--disable-warnings", "-rN", str(test.name)]
sys.exit(pytest.main(arguments))

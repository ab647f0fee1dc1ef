"""Appends to a log, commits to two logs at once, and reads a log back."""

import sys

import brooklet


def main(path: str) -> None:
    with brooklet.open(path) as store:
        first = store.append("doc/7", b"insert 'h' at 0")
        first.wait()

        commit = brooklet.Commit().expect_next("doc/7", first.seq + 1)
        commit.append("doc/7", b"insert 'i' at 1").append("feed", b"doc 7")
        try:
            store.commit(commit).wait()
        except brooklet.ConflictError as conflict:
            print(f"another writer was first: the next entry is {conflict.next}")

        for seq, payload in store.read("doc/7"):
            print(seq, payload.decode())
        store.snapshot("doc/7", b"hi").wait()
        print(store.bounds("doc/7"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "documents.brooklet")

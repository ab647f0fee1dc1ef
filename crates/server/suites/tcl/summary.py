#!/usr/bin/env python3
"""Tells how a run of Redis's own tests went: passed, failed, skipped by reason.

    summary.py [--whole] SKIPPED OUTPUT

--whole: every unit was run, so a line of SKIPPED that skipped nothing is an error.
"""

import collections
import re
import sys


def reasons(path):
    """[(line, reason)]: a line `## REASON` begins a group, the lines after it name tests, or match them after a /."""
    found, reason = [], "no reason"
    for line in open(path):
        line = line.rstrip("\n")
        if line.startswith("## "):
            reason = line[3:]
        elif line and not line.startswith("#"):
            found.append((line, reason))
    return found


def main():
    whole = sys.argv[1] == "--whole"
    skipped, output = sys.argv[1 + whole :]
    groups, used = reasons(skipped), set()
    passed, failed, skips, broken = 0, [], collections.Counter(), []
    unit = "?"
    for line in open(output, errors="replace"):
        line = re.sub(r"\x1b\[[0-9;]*m", "", line.rstrip("\n"))
        if line.startswith("== exit"):
            # 1 is said for failed tests, too.
            if line != "== exit 1":
                broken.append(f"{unit}: the runner ended with {line[8:]}")
        elif line.startswith("== "):
            unit = line[3:]
        elif line.startswith("[ok]"):
            passed += 1
        elif line.startswith("[err]"):
            failed.append(f"{unit}: {line[7:]}")
        elif line.startswith("[exception]"):
            broken.append(f"{unit}: {line[13:]}")
        elif line.startswith("[skip]: "):
            name = line[8:]
            for pattern, reason in groups:
                if pattern == name or pattern[0] == "/" and re.search(pattern[1:], name):
                    used.add(pattern)
                    skips[reason] += 1
                    break
            else:
                broken.append(f"{unit}: skipped for no reason that is known: {name}")
        elif line.startswith("[ignore]: "):
            reason = line.rsplit(": ", 1)[1]
            tag = re.match(r"(.*) denied", reason)
            skips["tagged " + tag[1] if tag else reason] += 1
    if whole:
        broken += [f"{skipped}: no test is named {line}" for line, _ in groups if line not in used]

    print()
    for line in failed:
        print("failed:", line)
    for line in broken:
        print("broken:", line)
    for reason, count in sorted(skips.items()):
        print(f"skipped: {count:4}  {reason}")
    print(f"{passed} passed, {len(failed) + len(broken)} failed, {sum(skips.values())} skipped")
    sys.exit(1 if failed or broken or not passed else 0)


main()

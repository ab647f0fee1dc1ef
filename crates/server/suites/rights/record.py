#!/usr/bin/env python3
"""Asks a server the cases, and prints its answers in the form of golden.txt.

    record.py HOST PORT CASES
"""

import itertools
import socket
import sys

CONTROLS = {"MULTI", "EXEC", "DISCARD", "WATCH", "QUIT", "RESET"}


class Client:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=20)
        self.file = self.socket.makefile("rb")

    def send(self, words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            parts.append(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()))
        self.socket.sendall(b"".join(parts))

    def ask(self, *words):
        self.send(words)
        return self.reply()

    def reply(self):
        """The reply as the tests of the server show it, and lists of such."""
        line = self.file.readline()[:-2].decode()
        kind, rest = line[:1], line[1:]
        if kind == "+":
            return rest
        if kind in "-:":
            return line
        if rest == "-1":
            return "nil"
        if kind == "$":
            return self.file.read(int(rest) + 2)[:-2].decode()
        return [self.reply() for _ in range(int(rest))]


def shown(reply):
    return "[" + " ".join(map(shown, reply)) + "]" if isinstance(reply, list) else reply


def expanded(request):
    parts = request.split("{}")
    for keys in itertools.product("rwbn", repeat=len(parts) - 1):
        yield "".join(part + key for part, key in zip(parts, keys + ("",)))


def sections(path):
    found = {}
    for line in open(path):
        line = line.rstrip("\n")
        if line.startswith("= "):
            lines = found.setdefault(line[2:], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


def queued(reply):
    if reply == "QUEUED":
        return "."
    if reply.startswith("-NOPERM this user has no permissions to run the '"):
        return "c"
    if reply == "-NOPERM this user has no permissions to access one of the keys used as arguments":
        return "k"
    if reply == "-NOPERM this user has no permissions to access one of the channels used as arguments":
        return "h"
    return "!"


def dry(reply, words):
    """One character: allowed, the command refused, or the place of the key or channel that is refused."""
    if reply == "OK":
        return "."
    if reply.startswith("This user has no permissions to run the '"):
        return "c"
    start = "This user has no permissions to access the"
    refused = [word for word in words if reply in (f"{start} '{word}' key", f"{start} '{word}' channel")]
    return str(words.index(refused[0])) if refused else "!"


def column(host, port, admin, rules, requests):
    """The answers to one user. The user begins the transaction before the rules are its own."""
    assert admin.ask("ACL", "SETUSER", "u", "reset", "on", "nopass", "+multi") == "OK"
    client = Client(host, port)
    assert client.ask("AUTH", "u", "u") == "OK" and client.ask("MULTI") == "OK"
    done = admin.ask("ACL", "SETUSER", "u", "reset", "on", "nopass", *rules)
    assert done == "OK", (rules, done)
    cells = []
    for request in requests:
        words = request.split(" ")
        in_queue = "-" if words[0] in CONTROLS else queued(client.ask(*words))
        cells.append((in_queue, dry(admin.ask("ACL", "DRYRUN", "u", *words), words)))
    assert admin.ask("ACL", "DELUSER", "u") == ":1"
    return cells


def categories(admin):
    """The categories of each command and subcommand."""
    of = {}
    for category in admin.ask("ACL", "CAT"):
        for name in admin.ask("ACL", "CAT", category):
            of.setdefault(name, []).append(category)
    return sorted((name, " ".join(sorted(all_of_it))) for name, all_of_it in of.items())


def word(text):
    return text[1:].replace("_", " ") if text.startswith("=") else text


def main():
    host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    cases = sections(path)
    admin = Client(host, port)
    print("= categories")
    for name, all_of_it in categories(admin):
        print(f"{name}\t{all_of_it}")
    for title, users, requests in [
        ("matrix", "users", "requests"),
        ("channel matrix", "channel users", "channel requests"),
    ]:
        requests = [one for request in cases[requests] for one in expanded(request)]
        columns = [column(host, port, admin, user.split(" ")[1:], requests) for user in cases[users]]
        print(f"\n= {title}")
        for request, *cells in zip(requests, *columns):
            print(request, "".join(cell[0] for cell in cells) + " " + "".join(cell[1] for cell in cells), sep="\t")
    print("\n= talk")
    clients = {"admin": admin, "ada": Client(host, port), "bob": Client(host, port)}
    for line in cases["talk"]:
        name, *words = line.split(" ")
        print(f"{line}\t{shown(clients[name].ask(*map(word, words)))}")


main()

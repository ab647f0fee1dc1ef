"""What a program written with redis-py counts on, told to the server at HOST:PORT and checked.

A test is a function `test_...`, which gets a client whose replies are bytes, on an empty server; it runs once for each
protocol. `run` beside this file starts it.
"""

import os
import sys
import threading
import time
import traceback

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST, PORT = os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"])
PASSWORD = os.environ.get("REDIS_PASSWORD")
BINARY = bytes(range(256)) + b"\r\n$5\r\n*-1\r\n"


def connect(like=None, **options):
    """A client with the settings of another one, unless told otherwise."""
    settings = dict(host=HOST, port=PORT, password=PASSWORD, socket_timeout=120, retry=Retry(NoBackoff(), 0))
    if like is not None:
        settings["protocol"] = like.connection_pool.connection_kwargs["protocol"]
    return redis.Redis(**(settings | options))


def equal(found, expected):
    assert found == expected, f"{found!r} where {expected!r} was expected"


def refused(kind, part, call, *args, **options):
    try:
        reply = call(*args, **options)
    except kind as error:
        assert part in str(error), f"the error {error!r} does not say {part!r}"
    else:
        raise AssertionError(f"{reply!r} where {kind.__name__} was expected")


def in_threads(*jobs):
    """Runs the jobs at once; their results, once all are done."""
    results, threads = [None] * len(jobs), []

    def run(at, job):
        try:
            results[at] = job()
        except BaseException as error:
            results[at] = error

    for at, job in enumerate(jobs):
        threads.append(threading.Thread(target=run, args=(at, job), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(150)
        assert not thread.is_alive(), "a thread still waits after 150 seconds"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def soon(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not within 60 seconds: {what}"
        time.sleep(0.01)


def pairs(reply):
    """XREAD and XREADGROUP answer a list of pairs by RESP2, a map by RESP3, where redis-py adds a list around the entries."""
    if isinstance(reply, dict):
        return {key: entries[0] if entries and isinstance(entries[0], list) else entries for key, entries in reply.items()}
    return {key: entries for key, entries in reply}


# Connections.


def test_handshake(r):
    protocol = r.connection_pool.connection_kwargs["protocol"]
    hello = r.execute_command("HELLO", protocol)
    if isinstance(hello, list):
        hello = dict(zip(hello[::2], hello[1::2]))
    hello = {key.decode() if isinstance(key, bytes) else key: value for key, value in hello.items()}
    equal(hello["proto"], protocol)
    assert {"server", "version", "id", "mode", "role"} <= hello.keys(), hello
    refused(redis.ResponseError, "NOPROTO", r.execute_command, "HELLO", 9)
    assert r.ping()


def test_names_and_library(r):
    one = connect(r, client_name="a-name", single_connection_client=True)
    assert one.client_getname() in ("a-name", b"a-name")
    info = one.client_info()
    equal(info["name"], "a-name")
    assert one.client_id() > 0
    # Redis says what library it is only from 7.2 on; refusing CLIENT SETINFO must not cost the connection.
    assert one.ping()


def test_pool(r):
    pool = redis.ConnectionPool(**(r.connection_pool.connection_kwargs | {"max_connections": 50}))

    def work(number):
        client = redis.Redis(connection_pool=pool)
        for at in range(50):
            client.rpush(f"list:{number}", at)
        return client.lrange(f"list:{number}", 0, -1)

    for result in in_threads(*(lambda number=number: work(number) for number in range(20))):
        equal(result, [b"%d" % at for at in range(50)])
    pool.disconnect()
    equal(r.dbsize(), 20)


def test_many_connections(r):
    clients = [connect(r, single_connection_client=True) for _ in range(200)]
    equal(sum(client.incr("counter") for client in clients), 200 * 201 // 2)
    for client in clients:
        client.close()


def test_one_database(r):
    equal(r.select(0), True)
    refused(redis.ResponseError, "", r.execute_command, "SELECT", "no-number")
    assert r.ping()


def test_password(r):
    if not PASSWORD:
        refused(redis.RedisError, "without any password", r.execute_command, "AUTH", "anything")
        assert r.ping()
        return
    refused(redis.AuthenticationError, "", connect(r, password=PASSWORD + "x").ping)
    refused(redis.AuthenticationError, "", connect(r, password=None).ping)
    assert connect(r, username="default").ping()


def test_unknown_commands_keep_the_connection(r):
    one = connect(r, single_connection_client=True)
    before = one.client_id()
    refused(redis.ResponseError, "unknown command", one.execute_command, "NOSUCHCOMMAND", "a", BINARY)
    refused(redis.ResponseError, "wrong number of arguments", one.execute_command, "GET")
    refused(redis.ResponseError, "wrong number of arguments", one.execute_command, "RPUSH", "a")
    refused(redis.ResponseError, "", one.execute_command, "CLIENT", "NOSUCHSUBCOMMAND")
    equal(one.client_id(), before)


def test_reset_and_quit(r):
    one = connect(r, single_connection_client=True)
    one.execute_command("MULTI")
    one.execute_command("SET", "a", "1")
    assert one.execute_command("RESET") in ("RESET", b"RESET")
    one.close()
    equal(r.get("a"), None)


def test_info(r):
    info = r.info()
    for field in ("redis_version", "uptime_in_seconds", "connected_clients", "used_memory"):
        assert field in info, f"INFO tells no {field}"
    # Libraries ask for the version and choose commands by it.
    assert int(str(info["redis_version"]).split(".")[0]) >= 7, info["redis_version"]
    assert "redis_version" in r.info("server")
    r.rpush("a", 1)
    equal(r.info("keyspace")["db0"]["keys"], 1)
    assert abs(r.time()[0] - time.time()) < 60


def test_commands_are_told(r):
    count = r.command_count()
    assert count > 80, count
    keys = r.command_getkeys("LMOVE", "a", "b", "LEFT", "RIGHT")
    equal([key.decode() if isinstance(key, bytes) else key for key in keys], ["a", "b"])
    assert "rpush" in repr(r.execute_command("COMMAND INFO", "rpush"))


# Values.


def test_strings(r):
    equal(r.set("a", "1"), True)
    equal(r.set("a", "2", nx=True), None)
    equal(r.set("b", "2", xx=True), None)
    equal(r.set("a", "3", get=True), b"1")
    equal(r.get("a"), b"3")
    equal(r.incrby("a", 4), 7)
    equal(r.decr("a"), 6)
    equal(r.incrbyfloat("a", 0.5), 6.5)
    refused(redis.ResponseError, "not an integer", r.incr, "a")
    equal(r.append("c", "abc"), 3)
    equal(r.setrange("c", 5, "z"), 6)
    equal(r.get("c"), b"abc\0\0z")
    equal(r.getrange("c", -1, -1), b"z")
    equal(r.mset({"d": 1, "e": 2}), True)
    equal(r.msetnx({"e": 1, "f": 2}), False)
    equal(r.mget("d", "e", "f"), [b"1", b"2", None])
    equal(r.getdel("d"), b"1")
    equal(r.exists("d", "e", "e"), 2)
    equal(r.strlen("c"), 6)


def test_hashes(r):
    equal(r.hset("h", mapping={"a": 1, "b": "two", "c": BINARY}), 3)
    equal(r.hset("h", "a", 2), 0)
    equal(r.hgetall("h"), {b"a": b"2", b"b": b"two", b"c": BINARY})
    equal(r.hmget("h", "a", "x"), [b"2", None])
    equal(r.hincrby("h", "a", 3), 5)
    equal(r.hsetnx("h", "a", 1), False)
    equal(sorted(r.hkeys("h")), [b"a", b"b", b"c"])
    equal(dict(r.hscan_iter("h")), r.hgetall("h"))
    equal(r.hdel("h", "a", "b", "x"), 2)
    equal(r.hlen("h"), 1)
    r.hdel("h", "c")
    equal(r.exists("h"), 0)


def test_lists(r):
    equal(r.rpush("l", "b", "c"), 2)
    equal(r.lpush("l", "a"), 3)
    equal(r.lrange("l", 0, -1), [b"a", b"b", b"c"])
    equal(r.linsert("l", "before", "b", "x"), 4)
    equal(r.lset("l", -1, "z"), True)
    equal(r.lpos("l", "z"), 3)
    equal(r.lrem("l", 0, "x"), 1)
    equal(r.ltrim("l", 1, -1), True)
    equal(r.lrange("l", 0, -1), [b"b", b"z"])
    equal(r.lmove("l", "m", "LEFT", "RIGHT"), b"b")
    equal(r.lmpop(2, "none", "m", direction="LEFT"), [b"m", [b"b"]])
    equal(r.lpop("l", 5), [b"z"])
    equal(r.lpop("l"), None)
    equal(r.exists("l", "m"), 0)
    equal(r.rpushx("l", "a"), 0)
    r.set("s", "1")
    refused(redis.ResponseError, "WRONGTYPE", r.rpush, "s", "a")
    refused(redis.ResponseError, "no such key", r.lset, "none", 0, "a")


def test_binary_keys_and_values(r):
    for key in (BINARY, b"\0", b" ", b"\xff\xfe", "schlüssel".encode(), b"a" * 512):
        r.rpush(key, BINARY, b"", b"\r\n")
        equal(r.lrange(key, 0, -1), [BINARY, b"", b"\r\n"])
        equal(r.type(key), b"list")
    assert BINARY in r.keys("*") and BINARY in list(r.scan_iter())
    equal(r.delete(BINARY), 1)
    equal(r.xrange("s"), [])
    r.xadd("s", {BINARY: BINARY, b"": b""})
    equal(r.xrange("s")[0][1], {BINARY: BINARY, b"": b""})


def test_big_values(r):
    for size in (4095, 4096, 65536, 1 << 20, 16 << 20):
        value = os.urandom(1024) * (size // 1024) + b"x" * (size % 1024)
        r.set("big", value)
        assert r.get("big") == value, f"{size} bytes came back otherwise"
        r.delete("list")
        r.rpush("list", value, "after")
        assert r.lindex("list", 0) == value, f"{size} bytes came back otherwise"
        equal(r.lindex("list", 1), b"after")


def test_many_arguments(r):
    values = [b"%d" % at for at in range(50_000)]
    equal(r.rpush("l", *values), len(values))
    equal(r.lrange("l", 0, -1), values)
    equal(r.lrange("l", 49_990, -1), values[-10:])
    r.ltrim("l", 49_000, -1)
    equal(r.llen("l"), 1000)


def test_decoded_replies(r):
    text = connect(r, decode_responses=True)
    text.rpush("l", "ä", "€", "😀")
    equal(text.lrange("l", 0, -1), ["ä", "€", "😀"])
    r.rpush("l", b"\xff")
    refused(UnicodeDecodeError, "utf-8", text.lrange, "l", 0, -1)
    # The reply was read to its end: the connection goes on.
    equal(text.lindex("l", 0), "ä")


def test_keys_and_expiry(r):
    r.rpush("l", 1)
    equal(r.ttl("l"), -1)
    equal(r.ttl("none"), -2)
    equal(r.expire("l", 100), True)
    assert 50 <= r.ttl("l") <= 100
    equal(r.expire("l", 200, gt=True), True)
    equal(r.expire("l", 100, gt=True), False)
    equal(r.persist("l"), True)
    equal(r.ttl("l"), -1)
    r.pexpire("l", 50)
    soon(lambda: not r.exists("l"), "the list is gone when its time is over")
    equal(r.rpush("l", "new"), 1)
    r.set("s", "x", px=50)
    soon(lambda: r.get("s") is None, "the string is gone when its time is over")
    r.set("a", "x", ex=100)
    equal(r.rename("a", "b"), True)
    assert r.ttl("b") > 50
    equal(r.copy("b", "c"), True)
    equal(r.renamenx("b", "c"), False)
    equal(sorted(r.keys()), [b"b", b"c", b"l"])
    equal(r.unlink("b", "c", "none"), 2)
    equal(r.flushdb(), True)
    equal(r.dbsize(), 0)


def test_scan_sees_all(r):
    pipe = r.pipeline(transaction=False)
    for at in range(5000):
        pipe.rpush(f"key:{at}", at)
    pipe.execute()
    equal(len(set(r.scan_iter(count=100))), 5000)
    equal(len(set(r.scan_iter(match="key:12*"))), 111)
    equal(len(set(r.scan_iter(_type="stream"))), 0)
    # What is there from the first call to the last is told, whatever comes and goes meanwhile.
    seen = set()
    for at, key in enumerate(r.scan_iter(count=50)):
        seen.add(key)
        if at % 10 == 0:
            r.rpush(f"new:{at}", 1)
            r.delete(f"new:{at - 50}")
    assert {b"key:%d" % at for at in range(5000)} <= seen, "a key that was there all along was not told"


# Pipelines and transactions.


def test_pipeline(r):
    pipe = r.pipeline(transaction=False)
    for at in range(10_000):
        pipe.rpush("l", at)
    equal(pipe.execute(), list(range(1, 10_001)))
    pipe.llen("l").get("l").llen("l")
    replies = pipe.execute(raise_on_error=False)
    assert replies[0] == replies[2] == 10_000 and isinstance(replies[1], redis.ResponseError), replies


def test_transaction(r):
    pipe = r.pipeline()
    pipe.rpush("l", 1).xadd("s", {"a": 1}, id="1-1").set("k", "v").hset("h", "f", 1).lrange("l", 0, -1)
    equal(pipe.execute(), [1, b"1-1", True, 1, [b"1"]])
    # An error while it runs undoes nothing, as in Redis.
    pipe.rpush("l", 2).incr("l").rpush("l", 3)
    replies = pipe.execute(raise_on_error=False)
    assert replies[0] == 2 and replies[2] == 3 and isinstance(replies[1], redis.ResponseError), replies
    # An error while it is told lets nothing happen.
    pipe.rpush("l", 4)
    pipe.execute_command("NOSUCHCOMMAND")
    refused(redis.ResponseError, "unknown command", pipe.execute)
    equal(r.llen("l"), 3)


def test_transaction_is_atomic(r):
    stop = threading.Event()

    def write():
        client = connect(r)
        for at in range(300):
            client.pipeline().rpush("a", at).rpush("b", at).xadd("s", {"at": at}).execute()
        stop.set()

    def watch():
        client = connect(r)
        while not stop.is_set():
            lengths = client.pipeline().llen("a").llen("b").xlen("s").execute()
            assert len(set(lengths)) == 1, f"half a transaction was seen: {lengths}"

    in_threads(write, watch, watch)


def test_watch(r):
    pipe = r.pipeline()
    pipe.watch("k")
    r.rpush("k", 1)
    pipe.multi()
    pipe.set("done", 1)
    refused(redis.WatchError, "", pipe.execute)
    equal(r.get("done"), None)
    # A key that is not touched lets it pass.
    pipe.watch("k")
    r.rpush("other", 1)
    pipe.multi()
    pipe.set("done", 1)
    equal(pipe.execute(), [True])
    pipe.watch("k")
    r.rpush("k", 1)
    pipe.unwatch()
    pipe.multi()
    pipe.set("done", 2)
    equal(pipe.execute(), [True])


def test_watch_loops(r):
    """Many who read, change and write back by WATCH lose no change."""

    def work():
        def add(pipe):
            last = pipe.lindex("l", -1)
            pipe.multi()
            pipe.rpush("l", int(last or 0) + 1)

        client = connect(r)
        for _ in range(30):
            client.transaction(add, "l")

    in_threads(*[work] * 6)
    equal(r.lrange("l", 0, -1), [b"%d" % at for at in range(1, 181)])


def test_watch_sees_expiry_and_deletion(r):
    for change in (lambda: r.delete("k"), lambda: r.expire("k", 0), lambda: r.rename("k", "z"), lambda: r.flushall()):
        r.set("k", 1)
        pipe = r.pipeline()
        pipe.watch("k")
        change()
        pipe.multi()
        pipe.set("done", 1)
        refused(redis.WatchError, "", pipe.execute)


# What waits.


def test_blocking_pops(r):
    def waits():
        return connect(r).blpop(["a", "b"], timeout=60)

    def pushes():
        soon(lambda: r.info("clients")["blocked_clients"] == 1, "a client is told to wait")
        r.rpush("b", "x", "y")

    popped, _ = in_threads(waits, pushes)
    assert tuple(popped) == (b"b", b"x"), popped
    equal(r.lrange("b", 0, -1), [b"y"])
    began = time.monotonic()
    equal(r.blpop(["none"], timeout=0.3), None)
    assert 0.25 < time.monotonic() - began < 30
    equal(tuple(r.brpop(["b"], timeout=1)), (b"b", b"y"))
    popped, _ = in_threads(lambda: connect(r).blmove("b", "c", 60, "RIGHT", "LEFT"), pushes)
    equal(popped, b"y")
    equal(r.lrange("c", 0, -1), [b"y"])
    equal(r.blmpop(1, 2, "none", "c", direction="LEFT"), [b"c", [b"y"]])


def test_who_waits_first_is_served_first(r):
    order = []
    lock = threading.Lock()

    def waits(number):
        popped = connect(r).blpop(["l"], timeout=60)[1]
        with lock:
            order.append((number, popped))

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=waits, args=(number,), daemon=True))
        threads[-1].start()
        soon(lambda: r.info("clients")["blocked_clients"] == number + 1, "one more waits")
    for at in range(5):
        r.rpush("l", at)
    for thread in threads:
        thread.join(60)
    equal(sorted(order), [(at, b"%d" % at) for at in range(5)])


def test_a_queue_gives_each_job_once(r):
    def consume():
        client, jobs = connect(r), []
        while (popped := client.blpop(["jobs"], timeout=60))[1] != b"end":
            jobs.append(int(popped[1]))
        return jobs

    def produce():
        client = connect(r)
        for at in range(500):
            client.rpush("jobs", at)
        client.rpush("jobs", *["end"] * 4)
        return []

    equal(sorted(job for jobs in in_threads(*[consume] * 4, produce) for job in jobs), list(range(500)))


def test_blocked_in_a_transaction_does_not_wait(r):
    began = time.monotonic()
    pipe = r.pipeline()
    pipe.blpop(["none"], timeout=60)
    pipe.llen("none")
    equal(pipe.execute(), [None, 0])
    assert time.monotonic() - began < 30


def test_a_client_that_goes_away_takes_nothing(r):
    gone = connect(r, socket_timeout=1)
    refused(redis.TimeoutError, "", gone.blpop, ["l"], timeout=0)
    gone.close()
    soon(lambda: r.info("clients")["blocked_clients"] == 0, "the server knows that the client is gone")
    r.rpush("l", "kept")
    equal(r.lrange("l", 0, -1), [b"kept"])


def test_unblock(r):
    waiting = connect(r, single_connection_client=True)
    number = waiting.client_id()

    def unblocks():
        soon(lambda: r.client_unblock(number), "the client waits")

    popped, _ = in_threads(lambda: waiting.blpop(["none"], timeout=60), unblocks)
    equal(popped, None)


# Streams.


def test_streams(r):
    equal(r.xadd("s", {"a": 1}, id="1-1"), b"1-1")
    equal(r.xadd("s", {"a": 2, "b": 3}, id="1-*"), b"1-2")
    refused(redis.ResponseError, "equal or smaller", r.xadd, "s", {"a": 1}, id="1-1")
    equal(r.xadd("none", {"a": 1}, nomkstream=True), None)
    equal(r.xlen("s"), 2)
    equal(r.xrange("s", "1-2"), [(b"1-2", {b"a": b"2", b"b": b"3"})])
    equal(r.xrevrange("s", count=1), [(b"1-2", {b"a": b"2", b"b": b"3"})])
    equal(pairs(r.xread({"s": "1-1"})), {b"s": [(b"1-2", {b"a": b"2", b"b": b"3"})]})
    equal(r.xdel("s", "1-1"), 1)
    last = r.xadd("s", {"a": 9}, maxlen=1, approximate=False)
    equal([entry[0] for entry in r.xrange("s")], [last])
    info = r.xinfo_stream("s")
    equal(info["length"], 1)
    equal(info["last-generated-id"], last)
    equal(r.xtrim("s", maxlen=0, approximate=False), 1)
    equal(r.xlen("s"), 0)
    equal(r.exists("s"), 1)


def test_xread_block(r):
    def waits():
        return connect(r).xread({"a": "$", "b": "$"}, block=60_000)

    def adds():
        soon(lambda: r.info("clients")["blocked_clients"] == 3, "three wait")
        r.xadd("b", {"k": "v"}, id="5-5")

    r.xadd("a", {"old": 1})
    for reply in in_threads(waits, waits, waits, adds)[:3]:
        equal(pairs(reply), {b"b": [(b"5-5", {b"k": b"v"})]})
    assert not r.xread({"a": "$"}, block=100)


def test_xread_follows_without_a_gap(r):
    def follow():
        client, last, seen = connect(r), "0", []
        while len(seen) < 500:
            for entry, fields in pairs(client.xread({"s": last}, block=60_000, count=7))[b"s"]:
                last = entry
                seen.append(int(fields[b"at"]))
        return seen

    def add():
        client = connect(r)
        for at in range(500):
            client.xadd("s", {"at": at})

    for seen in in_threads(follow, follow, add)[:2]:
        equal(seen, list(range(500)))


def test_groups(r):
    equal(r.xgroup_create("s", "g", mkstream=True), True)
    refused(redis.ResponseError, "BUSYGROUP", r.xgroup_create, "s", "g")
    refused(redis.ResponseError, "NOGROUP", r.xreadgroup, "none", "c", {"s": ">"})
    for at in range(1, 6):
        r.xadd("s", {"at": at}, id=f"{at}-0")
    first = pairs(r.xreadgroup("g", "one", {"s": ">"}, count=3))[b"s"]
    equal([entry[0] for entry in first], [b"1-0", b"2-0", b"3-0"])
    second = pairs(r.xreadgroup("g", "two", {"s": ">"}))[b"s"]
    equal([entry[0] for entry in second], [b"4-0", b"5-0"])
    pending = r.xpending("s", "g")
    equal((pending["pending"], pending["min"], pending["max"]), (5, b"1-0", b"5-0"))
    equal(r.xack("s", "g", "1-0", "4-0", "9-9"), 2)
    again = pairs(r.xreadgroup("g", "one", {"s": "0"}))[b"s"]
    equal([entry[0] for entry in again], [b"2-0", b"3-0"])
    claimed = r.xclaim("s", "g", "two", 0, ["2-0"])
    equal([entry[0] for entry in claimed], [b"2-0"])
    claimed = r.xautoclaim("s", "g", "three", 0)
    equal([entry[0] for entry in claimed[1]], [b"2-0", b"3-0", b"5-0"])
    told = r.xpending_range("s", "g", "-", "+", 10)
    equal({entry["consumer"] for entry in told}, {b"three"})
    group = r.xinfo_groups("s")[0]
    equal((group["name"], group["pending"], group["entries-read"], group["lag"]), (b"g", 3, 5, 0))
    equal({consumer["name"] for consumer in r.xinfo_consumers("s", "g")}, {b"one", b"two", b"three"})
    equal(r.xgroup_delconsumer("s", "g", "three"), 3)
    equal(r.xgroup_destroy("s", "g"), True)


def test_a_group_gives_each_entry_once(r):
    r.xgroup_create("s", "g", mkstream=True)
    added = threading.Event()

    def consume(name):
        client, seen = connect(r), []
        while True:
            last = added.is_set()
            reply = client.xreadgroup("g", name, {"s": ">"}, count=5, block=200)
            if not reply:
                if last:
                    return seen
                continue
            for entry, fields in pairs(reply)[b"s"]:
                seen.append(int(fields[b"at"]))
                client.xack("s", "g", entry)

    def add():
        client = connect(r)
        for at in range(400):
            client.xadd("s", {"at": at})
        added.set()
        return []

    seen = in_threads(*(lambda name=name: consume(name) for name in ("one", "two", "three")), add)
    equal(sorted(at for each in seen for at in each), list(range(400)))
    equal(r.xpending("s", "g")["pending"], 0)


def run(test, protocol):
    client = connect(protocol=protocol)
    try:
        client.flushall()
        test(client)
        return True
    except Exception:
        print(f"failed: {test.__name__} by RESP{protocol}")
        traceback.print_exc(limit=-3)
        return False
    finally:
        client.close()


def main():
    word = sys.argv[1] if sys.argv[1:] else ""
    tests = [test for name, test in globals().items() if name.startswith("test_") and word in name]
    results = [run(test, protocol) for protocol in (2, 3) for test in tests]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    main()

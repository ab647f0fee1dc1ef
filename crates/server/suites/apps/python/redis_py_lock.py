"""redis-py's Lock: its scripts release, extend and reacquire.

packages: redis==8.1.0
"""

import os

import redis

client = redis.Redis(host=os.environ["HOST"], port=int(os.environ["PORT"]))
client.flushall()
lock = client.lock("lock", timeout=10)
assert lock.acquire(blocking=False)
other = client.lock("lock", timeout=10)
assert not other.acquire(blocking=False)
lock.extend(100)
assert 50_000 < client.pttl("lock") <= 110_000
lock.reacquire()
assert client.pttl("lock") <= 10_000
lock.release()
assert other.acquire(blocking=True, blocking_timeout=1)
client.set("lock", "of somebody else")
try:
    other.release()
    raise SystemExit("a lock of somebody else was released")
except redis.exceptions.LockError:
    pass
assert client.get("lock") == b"of somebody else"
# Scripts are sent by their digest, and again as a text after the cache is emptied.
script = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
assert script(keys=["n"], args=[2]) == 2
client.script_flush()
assert script(keys=["n"], args=[2]) == 4
with client.pipeline(transaction=True) as pipe:
    script(keys=["n"], args=[1], client=pipe)
    pipe.get("n")
    assert pipe.execute() == [5, b"5"]
print("redis-py lock: passed")

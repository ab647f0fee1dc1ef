"""Scripts of the kind that lock libraries of the JVM send, run by redis-py; no JVM is run.

A lock is a hash with a counter for its owner, so that the owner may take it twice. It expires unless it is renewed.

packages: redis==8.1.0
"""

import os

import redis

LOCK = """local owner, free = ARGV[2], redis.call('exists', KEYS[1]) == 0
if not free and redis.call('hexists', KEYS[1], owner) == 0 then
  return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], owner, 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil"""
RENEW = """return redis.call('hexists', KEYS[1], ARGV[2]) == 1 and redis.call('pexpire', KEYS[1], ARGV[1]) or 0"""
UNLOCK = """if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 0
end
return redis.call('del', KEYS[1])"""
ACQUIRE = """local permits, wanted = tonumber(redis.call('get', KEYS[1]) or 0), tonumber(ARGV[1])
if permits < wanted then return 0 end
redis.call('decrby', KEYS[1], wanted)
return 1"""

client = redis.Redis(host=os.environ["HOST"], port=int(os.environ["PORT"]))
client.flushall()
lock, renew, unlock, acquire = map(client.register_script, (LOCK, RENEW, UNLOCK, ACQUIRE))
assert lock(keys=["l"], args=[30_000, "a:1"]) is None
assert lock(keys=["l"], args=[30_000, "a:1"]) is None, "a lock may be taken twice by its owner"
assert 0 < lock(keys=["l"], args=[30_000, "b:1"]) <= 30_000
assert renew(keys=["l"], args=[60_000, "a:1"]) == 1 and renew(keys=["l"], args=[60_000, "b:1"]) == 0
assert 30_000 < client.pttl("l") <= 60_000
assert unlock(keys=["l"], args=[30_000, "b:1"]) is None
assert unlock(keys=["l"], args=[30_000, "a:1"]) == 0
assert unlock(keys=["l"], args=[30_000, "a:1"]) == 1
assert client.exists("l") == 0
client.set("s", 2)
assert [acquire(keys=["s"], args=[1]) for _ in range(3)] == [1, 1, 0]
print("locks: passed")

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
# As Redisson does: who waits subscribes, the last unlock publishes by a command whose name is an argument, and leaves a
# latch, so that an unlock that is sent again finds its own answer.
NOTIFY = """local latch = redis.call('get', KEYS[3])
if latch ~= false then return tonumber(latch) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
else
  redis.call('del', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
  redis.call('set', KEYS[3], 1, 'px', ARGV[5])
  return 1
end"""
READ = """local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1)
  redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then
  local times = redis.call('hincrby', KEYS[1], ARGV[2], 1)
  local key = KEYS[2] .. ':' .. times
  redis.call('set', key, 1)
  redis.call('pexpire', key, ARGV[1])
  redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])"""
notify, read = map(client.register_script, (NOTIFY, READ))
for command in ("publish", "spublish"):
    waits = client.pubsub()
    (waits.subscribe if command == "publish" else waits.ssubscribe)("redisson_lock__channel:{l}")
    waits.get_message(timeout=60)
    assert lock(keys=["l"], args=[30_000, "a:1"]) is None and lock(keys=["l"], args=[30_000, "a:1"]) is None
    keys = ["l", "redisson_lock__channel:{l}", "redisson_unlock_latch:{l}:%s"]
    unlock_once = lambda number, owner: notify(
        keys=[*keys[:2], keys[2] % (command + number)], args=[0, 30_000, owner, command, 13_000]
    )
    assert unlock_once("1", "b:1") is None
    assert unlock_once("1", "a:1") == 0 and unlock_once("1", "a:1") == 0, "the second is the first, sent again"
    assert unlock_once("2", "a:1") == 1 and unlock_once("2", "a:1") == 1
    message = waits.get_message(timeout=60)
    assert message["data"] == b"0" and client.exists("l") == 0
    waits.close()
for owner, times in (("a:1", 2), ("b:1", 1)):
    for _ in range(times):
        assert read(keys=["rw", "{rw}:%s:timeout" % owner], args=[30_000, owner, owner + ":write"]) is None
assert client.hgetall("rw") == {b"mode": b"read", b"a:1": b"2", b"b:1": b"1"} and client.exists("{rw}:a:1:timeout:2")

client.set("s", 2)
assert [acquire(keys=["s"], args=[1]) for _ in range(3)] == [1, 1, 0]
print("locks: passed")

"""The texts of Redisson's lock, run by redis-py: no JVM is asked.  scripts_redisson.py PORT

The scripts are those that Redisson sends for RLock, RReadWriteLock's parts and RSemaphore, as its sources have them.
"""

import sys

import redis

LOCK = """if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
redis.call('hincrby', KEYS[1], ARGV[2], 1);
redis.call('pexpire', KEYS[1], ARGV[1]);
return nil; end;
return redis.call('pttl', KEYS[1]);"""
RENEW = """if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
redis.call('pexpire', KEYS[1], ARGV[1]); return 1; end; return 0;"""
UNLOCK = """if (redis.call('hexists', KEYS[1], ARGV[2]) == 0) then return nil; end;
local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1);
if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[1]); return 0;
else redis.call('del', KEYS[1]); return 1; end; return nil;"""
ACQUIRE = """local value = redis.call('get', KEYS[1]);
if (value ~= false and tonumber(value) >= tonumber(ARGV[1])) then
local val = redis.call('decrby', KEYS[1], ARGV[1]); return 1; end; return 0;"""

client = redis.Redis(port=int(sys.argv[1]))
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
print("redisson's scripts: passed")

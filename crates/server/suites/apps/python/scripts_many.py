"""What frameworks' scripts need of Lua: cjson, cmsgpack, bit and struct, over real keys.

packages: redis==8.1.0
"""

import os

import redis

client = redis.Redis(host=os.environ["HOST"], port=int(os.environ["PORT"]), decode_responses=True)
client.flushall()
SLIDING = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return {count <= tonumber(ARGV[2]) and 1 or 0, redis.call('PTTL', KEYS[1])}
"""
limit = client.register_script(SLIDING)
assert [limit(keys=["limit"], args=[10_000, 3])[0] for _ in range(5)] == [1, 1, 1, 0, 0]
JOB = """
local job = cjson.decode(ARGV[1])
job.attempts = (job.attempts or 0) + 1
job.packed = #cmsgpack.pack(job)
redis.call('HSET', KEYS[1], 'data', cjson.encode(job))
redis.call('RPUSH', KEYS[2], job.id)
redis.call('XADD', KEYS[3], '*', 'event', 'added', 'job', job.id)
return {cmsgpack.unpack(cmsgpack.pack(job)).attempts, bit.band(0xff, 0x0f), struct.unpack('>H', struct.pack('>H', 258))}
"""
add = client.register_script(JOB)
assert add(keys=["job:7", "queue", "events"], args=['{"id": "7", "data": [1, {"a": null}]}']) == [1, 15, 258, 3]
assert client.lrange("queue", 0, -1) == ["7"] and client.xlen("events") == 1
print("scripts of frameworks: passed")

"""django-redis: the cache, its locks, and keys by pattern.

packages: Django==5.2.19 django-redis==7.0.0
"""

import os

from django.conf import settings

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://{os.environ['HOST']}:{os.environ['PORT']}/1",
        }
    }
)
from django.core.cache import cache

cache.clear()
cache.set("a", {"nested": [1, 2]}, timeout=60)
assert cache.get("a") == {"nested": [1, 2]}
assert cache.add("a", 1) is False and cache.add("b", 5)
assert cache.incr("b", 3) == 8 and cache.decr("b") == 7
assert cache.get_many(["a", "b"])["b"] == 7
with cache.lock("lock", timeout=10):
    other = cache.lock("lock", timeout=10)
    assert not other.acquire(blocking=False)
assert cache.lock("lock", timeout=1).acquire(blocking=False)
assert cache.touch("a", 100) and cache.delete("a")
assert cache.delete_pattern("b*") == 1
# An integer that has no number of 64 bits is pickled; the increment is a script.
cache.set("n", 41)
assert cache.incr("n") == 42
print("django-redis: passed")

"""LlamaIndex's store of chats in Redis: messages added, read, one deleted, keys listed.

packages: llama-index-storage-chat-store-redis
"""

import os

from llama_index.core.llms import ChatMessage
from llama_index.storage.chat_store.redis import RedisChatStore

store = RedisChatStore(redis_url=f"redis://{os.environ['HOST']}:{os.environ['PORT']}/0", ttl=600)
for key in ("ada", "bob"):
    store.delete_messages(key)
store.set_messages("ada", [ChatMessage(role="user", content=f"question {n}") for n in range(20)])
store.add_message("ada", ChatMessage(role="assistant", content="answer"))
store.add_message("bob", ChatMessage(role="user", content="hello"))
assert [message.content for message in store.get_messages("ada")] == [f"question {n}" for n in range(20)] + ["answer"]
store.delete_message("ada", 3)
store.delete_last_message("ada")
assert len(store.get_messages("ada")) == 19
assert {"ada", "bob"} <= set(store.get_keys())
store.delete_messages("ada")
assert store.get_messages("ada") == []
store.delete_messages("bob")
print("llama-index: a chat of 21 messages is stored, read, and shortened")

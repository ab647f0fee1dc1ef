"""LangChain's history of a chat in Redis: written, read by another history, expired, cleared.

packages: langchain-community redis==8.1.0
"""

import os

from langchain_community.chat_message_histories import RedisChatMessageHistory

url = f"redis://{os.environ['HOST']}:{os.environ['PORT']}/0"


def history(session):
    return RedisChatMessageHistory(session, url=url, ttl=600)


writer = history("a chat")
writer.clear()
for turn in range(50):
    writer.add_user_message(f"question {turn}")
    writer.add_ai_message(f"answer {turn}")
history("another chat").add_user_message("hello")
texts = [message.content for message in history("a chat").messages]
assert texts == [f"{kind} {turn}" for turn in range(50) for kind in ("question", "answer")], texts[:4]
assert 0 < writer.redis_client.ttl(writer.key) <= 600
writer.clear()
assert history("a chat").messages == [] and len(history("another chat").messages) == 1
history("another chat").clear()
print("langchain: 100 messages of a chat are read in order, expire, and are cleared")

"""Examples for the API's page, with the reader's own host and a model that the reader may use."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """One example to copy."""

    id: str
    title: str
    words: str
    text: str


CURL = '''curl {base}/v1/chat/completions \\
  -H "Authorization: Bearer $PARLEY_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "{chat}", "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'
'''

OPENAI = '''import os

from openai import OpenAI

client = OpenAI(base_url="{base}/v1", api_key=os.environ["PARLEY_API_KEY"])
stream = client.chat.completions.create(
    model="{chat}",
    messages=[{{"role": "user", "content": "What is the capital of France?"}}],
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
'''

EMBEDDINGS = '''import os

from openai import OpenAI

client = OpenAI(base_url="{base}/v1", api_key=os.environ["PARLEY_API_KEY"])
vectors = client.embeddings.create(model="{embedding}", input=["A text.", "Another one."])
print(len(vectors.data), len(vectors.data[0].embedding))
'''

LANGCHAIN = '''import os

from langchain_openai import ChatOpenAI, OpenAIEmbeddings

key = os.environ["PARLEY_API_KEY"]
chat = ChatOpenAI(base_url="{base}/v1", api_key=key, model="{chat}")
print(chat.invoke("What is the capital of France?").content)

embeddings = OpenAIEmbeddings(
    base_url="{base}/v1", api_key=key, model="{embedding}", check_embedding_ctx_length=False
)
print(len(embeddings.embed_query("A text.")))
'''

RERANK = '''curl {base}/v1/rerank \\
  -H "Authorization: Bearer $PARLEY_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "{embedding}", "query": "capital of France",
       "documents": ["Paris is in France.", "Bananas are yellow."]}}'
'''


def examples(*, base: str, chat: str, embedding: str) -> list[Example]:
    """The examples for a site at `base`, such as https://chat.example.org."""
    found = [
        Example("curl", "curl", "Put a key into the variable PARLEY_API_KEY first. Add \"stream\": true to have the "
                                "reply as it is written.", CURL),
        Example("openai", "openai-python", "pip install openai", OPENAI),
        Example("embeddings", "Embeddings", "Up to 2,048 texts in one request; the order is kept.", EMBEDDINGS),
        Example("langchain", "LangChain", "pip install langchain-openai", LANGCHAIN),
        Example("rerank", "Rerank", "Also at /v2/rerank for Cohere's clients and at /rerank.", RERANK),
    ]
    return [Example(row.id, row.title, row.words, row.text.format(base=base, chat=chat, embedding=embedding))
            for row in found]

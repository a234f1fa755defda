"""The real `openai` client against the running site: chat, streams, tools, structured output, completions, vectors."""

import asyncio
import base64
import json
from typing import Any

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from tests.webapp.api.conftest import CHAT, EMBED, Program
from tests.webapp.serving.running_node import wait_for

pytestmark = pytest.mark.timeout(400)

WEATHER: dict[str, Any] = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
        "city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
ASK_WEATHER = [{"role": "user", "content": "What is the weather in Paris for 3 days?"}]


class Person(BaseModel):
    name: str
    age: int


def test_a_reply_comes_whole_with_usage_and_finish_reason(program: Program) -> None:
    reply = program.openai.chat.completions.create(**program.chat("What is the capital of France?", max_tokens=20))
    assert reply.choices[0].message.content == "The capital of France is Paris."
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None and reply.usage.total_tokens == (
        reply.usage.prompt_tokens + reply.usage.completion_tokens)
    assert reply.model == "smollm2:1" and reply.object == "chat.completion"


def test_a_stream_brings_the_role_first_one_id_and_the_text_of_the_whole_reply(program: Program) -> None:
    body = program.chat("Name three colours.", max_tokens=12)
    whole = program.openai.chat.completions.create(**body).choices[0].message.content
    chunks: list[ChatCompletionChunk] = list(program.openai.chat.completions.create(
        **body, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1] if chunk.choices[0].finish_reason] == ["length"]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 12


def test_the_asynchronous_client_streams_many_at_once(program: Program) -> None:
    async def ask(client: AsyncOpenAI, number: int) -> str:
        stream = await client.chat.completions.create(**program.chat(f"Count from {number}."), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def ask_all() -> list[str]:
        async with AsyncOpenAI(base_url=program.base_url, api_key=program.key, max_retries=0) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(8)))

    assert all(asyncio.run(ask_all()))


def test_the_raw_response_carries_the_request_id_that_the_client_gave(program: Program) -> None:
    raw = program.openai.chat.completions.with_raw_response.create(
        **program.chat(), extra_headers={"x-request-id": "my-own-id"})
    assert raw.headers["x-request-id"] == "my-own-id"
    from webapp.accounts.models import Usage
    from webapp.serving.models import Generation

    with program.site.database() as alias:  # the row is written right after the reply's last part is sent
        wait_for(lambda: Usage.objects.using(alias).filter(request_id="my-own-id").exists(), seconds=5, what="usage")
        row = Generation.objects.using(alias).get(request_id="my-own-id")
        used = Usage.objects.using(alias).get(request_id="my-own-id")
    reply = raw.parse()
    assert row.text == reply.choices[0].message.content
    assert reply.usage is not None
    assert (used.prompt_tokens, used.output_tokens) == (reply.usage.prompt_tokens, reply.usage.completion_tokens)


def test_the_same_seed_draws_the_same_replies_and_n_draws_different_ones(program: Program) -> None:
    body = program.chat("Tell me something.", temperature=1.0, seed=7, n=2)
    first, second = (program.openai.chat.completions.create(**body) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    assert texts[0] != texts[1]
    assert [choice.index for choice in first.choices] == [0, 1]
    alone = program.openai.chat.completions.create(**(body | {"n": 1}))
    assert alone.choices[0].message.content == texts[0]
    assert first.usage is not None and alone.usage is not None
    assert first.usage.prompt_tokens == alone.usage.prompt_tokens


def test_logprobs_name_tokens_bytes_and_the_likeliest_ones(program: Program) -> None:
    reply = program.openai.chat.completions.create(**program.chat(logprobs=True, top_logprobs=3)).choices[0]
    assert reply.logprobs is not None and reply.logprobs.content is not None
    scored = reply.logprobs.content
    assert b"".join(bytes(row.bytes or []) for row in scored).decode() == reply.message.content
    for row in scored:
        assert len(row.top_logprobs) == 3
        assert row.logprob == max(top.logprob for top in row.top_logprobs)  # greedy


def test_stop_bias_and_penalties_do_what_they_say(program: Program) -> None:
    create = program.openai.chat.completions.create
    stopped = create(**program.chat("What is the capital of France?", max_tokens=20, stop=[" of"])).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == ("The capital", "stop")
    token = program.post("tokenize", {"model": CHAT, "prompt": "The"}).json()["tokens"][0]
    banned = create(**program.chat("What is the capital of France?", logit_bias={str(token): -100})).choices[0]
    assert not (banned.message.content or "").startswith("The")
    extras = create(**program.chat(), extra_body={"min_p": 0.1, "top_k": 5, "repetition_penalty": 1.2})
    assert extras.choices[0].message.content


def test_structured_output_parses_into_the_callers_own_type(program: Program) -> None:
    reply = program.openai.chat.completions.parse(
        model=CHAT, messages=[{"role": "user", "content": "Ada is 36 years old. Give name and age."}],
        response_format=Person, max_tokens=60, temperature=0)
    assert reply.choices[0].message.parsed == Person(name="Ada", age=36)
    anything = program.openai.chat.completions.create(
        **program.chat("Describe Ada, who is 36.", max_tokens=200, response_format={"type": "json_object"}))
    if anything.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(anything.choices[0].message.content or ""), dict)


def test_a_tool_loop_runs_through_call_result_and_answer(program: Program) -> None:
    create = program.openai.chat.completions.create
    asked = create(model=CHAT, messages=ASK_WEATHER, tools=[WEATHER], tool_choice="required",  # type: ignore[call-overload]
                   parallel_tool_calls=False, max_tokens=80, temperature=0)
    message = asked.choices[0].message
    assert asked.choices[0].finish_reason == "tool_calls" and len(message.tool_calls) == 1
    arguments = json.loads(message.tool_calls[0].function.arguments)
    assert arguments == {"city": "Paris", "days": 3}
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Sunny, 24 degrees."}
    answer = create(model=CHAT, messages=[*ASK_WEATHER, message, result], tools=[WEATHER], tool_choice="none",
                    max_tokens=20, temperature=0)
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls


def test_parallel_and_named_calls_stream_with_arguments_that_parse(program: Program) -> None:
    for choice, most in (("required", 16), ({"type": "function", "function": {"name": "get_weather"}}, 1)):
        stream = program.openai.chat.completions.create(  # type: ignore[call-overload]
            model=CHAT, messages=ASK_WEATHER, tools=[WEATHER], tool_choice=choice, max_tokens=150, temperature=0,
            stream=True)
        calls = [call for chunk in stream for call in chunk.choices[0].delta.tool_calls or []]
        assert 1 <= len(calls) <= most
        assert [call.index for call in calls] == list(range(len(calls)))
        for call in calls:
            assert call.id and call.function.name == "get_weather"
            assert set(json.loads(call.function.arguments)) == {"city", "days"}


def test_with_tools_that_may_be_called_text_stays_text(program: Program) -> None:
    reply = program.openai.chat.completions.create(**program.chat("Say hi.", tools=[WEATHER])).choices[0]
    assert reply.message.content or reply.message.tool_calls


def test_completions_take_several_prompts_and_token_ids(program: Program) -> None:
    create = program.openai.completions.create
    both = create(model=CHAT, prompt=["Once upon", "The sky is"], max_tokens=4, temperature=0, logprobs=1)
    assert [choice.index for choice in both.choices] == [0, 1]
    ids = program.post("tokenize", {"model": CHAT, "prompt": "The sky is"}).json()["tokens"]
    alone = create(model=CHAT, prompt=ids, max_tokens=4, temperature=0)
    assert alone.choices[0].text == both.choices[1].text
    logprobs = both.choices[0].logprobs
    assert logprobs is not None and "".join(logprobs.tokens or []) == both.choices[0].text
    streamed = create(model=CHAT, prompt="The sky is", max_tokens=4, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == alone.choices[0].text


def test_models_are_listed_chat_first_and_found_by_every_name(program: Program) -> None:
    kinds = {model.id: model.model_dump()["kind"] for model in program.openai.models.list()}
    names = [name for name in kinds if name.partition(":")[0] in (CHAT, EMBED)]  # other tests have models of their own
    assert names[:2] == [CHAT, EMBED] and {"smollm2:1", "minilm:1"} <= set(names)
    bare = [kind for name, kind in kinds.items() if not {":", "@", "+"} & set(name)]
    assert bare == sorted(bare)  # chat before embedding before rerank
    for name in kinds:
        assert program.openai.models.retrieve(name).id == name


def test_errors_become_the_clients_own_exceptions(program: Program) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        program.openai.chat.completions.create(**program.chat() | {"model": "nothing"})
    assert missing.value.code == "model_not_found" and missing.value.param == "model"
    with pytest.raises(openai.BadRequestError) as wrong:
        program.openai.chat.completions.create(**program.chat(n=0))
    assert wrong.value.param == "n"
    with pytest.raises(openai.AuthenticationError):
        Program(program.site, "sk-parley-nobody").openai.models.list()


def test_embeddings_are_the_same_as_numbers_as_base64_and_from_token_ids(embedding: Program) -> None:
    texts = ["A short text.", "Ein anderer Text, etwas länger als der erste.", "x"]
    create = embedding.openai.embeddings.create
    by_default = create(model=EMBED, input=texts)  # the client asks for base64 and unpacks it
    as_numbers = create(model=EMBED, input=texts, encoding_format="float")
    assert [row.index for row in by_default.data] == [0, 1, 2]
    for one, other in zip(by_default.data, as_numbers.data, strict=True):
        np.testing.assert_array_equal(np.float32(one.embedding), np.float32(other.embedding))
    ids = [embedding.post("tokenize", {"model": EMBED, "prompt": text}).json()["tokens"] for text in texts]
    by_ids = create(model=EMBED, input=ids, encoding_format="float")
    np.testing.assert_allclose([row.embedding for row in by_ids.data], [row.embedding for row in as_numbers.data],
                               atol=1e-5)
    raw = embedding.post("v1/embeddings", {"model": EMBED, "input": texts[0], "encoding_format": "base64"}).json()
    unpacked = np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(unpacked, as_numbers.data[0].embedding, atol=1e-5)
    assert by_default.usage.prompt_tokens == sum(map(len, ids))

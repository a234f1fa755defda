"""Chat templates: the text that transformers renders, and templates that try to get out or never to end."""

import time
import tracemalloc
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from inference.text.chat_template import ChatTemplate, TemplateError, read_chat_template
from inference.text.template_sandbox import MAX_SECONDS
from tests.tiny_models import TEMPLATE, tiny_tokenizer, write_tiny_gguf, write_tiny_llama

NAMED = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Hi there \n"},
    {"role": "assistant", "content": "Hello! {{ 7 * 7 }} {% if %}"},
    {"role": "user", "content": "你好 🙂 <b>&amp;</b>"},
]

# In the manner of published templates, one for each feature that they use.
PUBLISHED_STYLE = {
    "chatml": TEMPLATE,
    "llama-3": (
        "{{- bos_token }}\n{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = "
        "messages[0]['content']|trim %}\n    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set "
        "system_message = '' %}\n{%- endif %}\n{{- '<|start|>system\\n\\n' + system_message }}\n{%- for message in "
        "messages %}\n    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}\n        {{- "
        "'<|start|>' + message['role'] + '\\n\\n' + message['content'] | trim }}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|start|>assistant\\n\\n' }}\n{%- endif %}\n"),
    "namespace": (
        "{%- set ns = namespace(last=-1, n=messages|length - 1) -%}{%- for message in messages[::-1] -%}"
        "{%- set index = (messages|length - 1) - loop.index0 -%}{%- if message.role == 'user' and ns.last < 0 -%}"
        "{%- set ns.last = index -%}{%- endif -%}{%- endfor -%}{{ ns.last }}/{{ ns.n }}"),
    "macro": ("{%- macro turn(message, depth=1) -%}[{{ message.role | upper }}{{ depth }}: {{ message.content }}]"
              "{%- endmacro -%}{%- for message in messages -%}{{ turn(message, depth=loop.index) }}{%- endfor -%}"),
    "loop controls": ("{% for message in messages %}{% if message.role == 'system' %}{% continue %}{% endif %}"
                      "{{ message.content }}{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}"),
    "generation": ("{% for message in messages %}{% if message.role == 'assistant' %}{% generation %}"
                   "{{ message.content }}{% endgeneration %}{% else %}{{ message.content }}{% endif %}{% endfor %}"),
    "tojson": "{{ messages | tojson }}\n{{ messages | tojson(indent=2) }}",
    "string methods": ("{% for message in messages %}{{ message.content.split(' ')[-1].strip().title() }}"
                       "{{ message.content.replace('i', 'I') }}{{ 'x' ~ loop.index ~ message.role }}{% endfor %}"),
    "filters": ("{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'equalto', "
                "'user') | list | length }}{{ (messages | rejectattr('role', 'equalto', 'user') | first).content }}"
                "{{ messages[0].content | replace('b', 'B') | default('none') }}{{ 'a\nb' | indent(4) }}"),
    "filtered loop": "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m }}{% else %}-{% endfor %}",
    "tools": "{% if tools is defined and tools %}{{ tools }}{% endif %}{{ tools is none }}{{ documents is none }}",
    "undefined": "{{ nothing }}{{ messages[0].nothing }}{% if nothing is defined %}x{% endif %}|",
    "arithmetic": "{{ 7 * 6 + 2 ** 3 - 9 % 4 }}{{ 'ab' * 3 }}{{ [1] + [2] }}{{ (1, 2) }}{{ 3 / 2 }}",
}


@pytest.fixture(scope="module")
def reference() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tiny_tokenizer(), **NAMED)


@pytest.mark.parametrize("style", PUBLISHED_STYLE)
@pytest.mark.parametrize("generation_prompt", [True, False])
def test_renders_what_transformers_renders(
    style: str, generation_prompt: bool, reference: PreTrainedTokenizerFast
) -> None:
    ours = ChatTemplate(PUBLISHED_STYLE[style], NAMED).render(CHAT, add_generation_prompt=generation_prompt)
    assert ours == reference.apply_chat_template(CHAT, chat_template=PUBLISHED_STYLE[style], tokenize=False,
                                                 add_generation_prompt=generation_prompt)


def test_renders_the_demo_models_template_as_transformers_does(
    demo_chat_path: Path, demo_reference: PreTrainedTokenizerFast
) -> None:
    template = ChatTemplate.from_path(demo_chat_path)
    for chat in (CHAT, CHAT[1:], CHAT[1:2], [{"role": "system", "content": ""}, CHAT[1]]):
        theirs = demo_reference.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        assert template.render(chat) == theirs


def test_a_refusal_carries_the_templates_own_words() -> None:
    template = ChatTemplate("{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
                            "{% endif %}{{ messages[0].content }}", {})
    with pytest.raises(TemplateError, match="^System role not supported$"):
        template.render(CHAT)
    assert template.render(CHAT[1:]) == CHAT[1]["content"]


def test_today_can_be_written() -> None:
    assert ChatTemplate("{{ strftime_now('%Y') }}", {}).render([]) == time.strftime("%Y")


BROKEN = {
    "{% for %}": "line 1 of the chat template",
    "\n\n{{ messages | nosuchfilter }}": "line 3 of the chat template: No filter named 'nosuchfilter'",
    "{{ messages[0].content.missing.deeper }}": "has no attribute 'missing'",
    "{{ 1 / 0 }}": "ZeroDivisionError",
    "{{ messages | first + 1 }}": "TypeError",
    "{% include 'x' %}": "no loader",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "RecursionError",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_broken_template_fails_in_words(source: str) -> None:
    with pytest.raises(TemplateError, match=BROKEN[source]):
        ChatTemplate(source, {}).render(CHAT)


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['__builtins__'] }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ self.__init__.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ ''|attr('__class__') }}",
    "{{ ('%s'|attr('format'))() }}",
    "{{ environment }}{{ tick.__self__ }}",
    "{{ messages | map(attribute='__class__') | list }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_no_template_reaches_python(source: str) -> None:
    try:
        text = ChatTemplate(source, {}).render(CHAT)
    except TemplateError:
        return
    assert "class" not in text and "object" not in text and "built-in" not in text


def doubling(statement: str, rounds: int = 60) -> str:
    return "{% set ns = namespace(x='ab') %}" + statement * rounds + "{{ ns.x }}"


BOMBS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops that write": "{% for a in range(99999) %}{% for b in range(99999) %}" + "x" * 99 + "{% endfor %}" * 2,
    "work in a loop's test": "{% for a in range(99999) if range(99999)|list|length > a + 99999 %}{% endfor %}",
    "work in a filter": "{% for a in range(99999) %}{{ range(99999)|map('string')|list|length }}{% endfor %}",
    "recursive macros": ("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}"),
    "recursive loops": "{% for a in [[0] * 99] * 99 recursive %}{{ loop([[[0] * 99] * 99] * 99) }}{% endfor %}",
    "a long range": "{% for a in range(10 ** 12) %}{% endfor %}",
    "repetition": "{{ 'x' * 10 ** 9 }}",
    "repetition by halves": "{{ 'x' * 1000 * 1000 * 1000 }}",
    "list repetition": "{{ ([0] * 1000000) * 1000 }}",
    "powers": "{{ 9 ** 9 ** 9 }}",
    "products": doubling("{% set ns.x = 999999 * 999999 * 999999 %}"),
    "doubling by +": doubling("{% set ns.x = ns.x + ns.x %}"),
    "doubling by ~": doubling("{% set ns.x = ns.x ~ ns.x %}"),
    "doubling by join": doubling("{% set ns.x = [ns.x, ns.x] | join %}"),
    "doubling by replace": doubling("{% set ns.x = ns.x.replace('ab', 'abab') %}"),
    "doubling by the replace filter": doubling("{% set ns.x = ns.x | replace('ab', 'abab') %}"),
    "doubling by set blocks": doubling("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
    "nested lists": doubling("{% set ns.x = [ns.x, ns.x] %}"),
    "nested lists as JSON": doubling("{% set ns.x = [ns.x, ns.x] %}") + "{{ ns.x | tojson }}",
    "padding by format": "{{ '{:>1000000000}'.format('x') }}",
    "padding by a given width": "{{ '{:{}}'.format('x', '1000000000') }}",
    "padding by %": "{{ '%1000000000d' % 1 }}",
    "padding by method": "{{ 'x'.center(10 ** 9) }}",
    "padding by filter": "{{ 'x' | indent(1000000000, true) }}",
    "a filter that pads": "{{ 'x' | center(1000000000) }}",
}


@pytest.mark.parametrize("case", BOMBS)
def test_no_template_runs_for_ever_or_fills_the_memory(case: str) -> None:
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(TemplateError):
            ChatTemplate(BOMBS[case], {}).render(CHAT)
        assert tracemalloc.get_traced_memory()[1] < 300_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 2 * MAX_SECONDS


def test_a_template_may_take_long_messages() -> None:
    chat = [{"role": "user", "content": "word " * 100_000}]
    assert len(ChatTemplate(TEMPLATE, NAMED).render(chat)) > 500_000


def test_where_a_template_is_read_from(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path)
    assert read_chat_template(tmp_path) == TEMPLATE
    (tmp_path / "chat_template.jinja").unlink()
    assert read_chat_template(tmp_path) is None
    with pytest.raises(TemplateError, match="this model has no chat template"):
        ChatTemplate.from_path(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "one"}')
    assert read_chat_template(tmp_path) == "one"
    (tmp_path / "tokenizer_config.json").write_text(
        '{"chat_template": [{"name": "tools", "template": "two"}, {"name": "default", "template": "three"}]}')
    assert read_chat_template(tmp_path) == "three"


def test_a_gguf_template_is_read_from_its_metadata(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf")
    assert read_chat_template(tmp_path / "m.gguf") == read_chat_template(tmp_path) == TEMPLATE

"""`model+adapter` over HTTP: PEFT's own tokens, under the full name, listed, counted, and the base untouched."""

from collections.abc import Iterator

import pytest
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from tests.inference.adapters.making import write_adapter
from tests.inference.families.cases import write_tiny_decoder
from tests.tiny_models import tiny_tokenizer
from tests.webapp.api.conftest import CHAT, Program, error_of
from tests.webapp.serving.running_node import wait_for

pytestmark = pytest.mark.timeout(400)

BASE, POET = "tinybase", "tinypoet"
PROMPT = [40, 41, 42, 90, 17, 60, 61, 62]
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def expected(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A base and its adapter are imported and loaded in float32; what each name's model writes, by transformers."""
    folder = tmp_path_factory.mktemp("adapter")
    model = write_tiny_decoder(folder / BASE, model_type="llama")
    write_adapter(folder / POET, model, seed=5)
    manage = program.site.manage
    manage("import_model", str(folder / BASE), "--name", BASE)
    manage("import_model", str(folder / POET), "--name", POET, "--parent", f"{BASE}:1")
    manage("deploy", BASE, "--mode", "float32", "--adapter", POET, "--wait")
    found = {BASE: greedy(model)}
    found[f"{BASE}+{POET}"] = greedy(PeftModel.from_pretrained(model, str(folder / POET)).eval())
    yield found
    manage("undeploy", BASE)


def greedy(model: PreTrainedModel) -> str:
    """The text of the reply to PROMPT."""
    ids = list(PROMPT)
    with torch.inference_mode():
        for _ in range(NEW_TOKENS):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return str(tiny_tokenizer().decode(ids[len(PROMPT):]))


def ask(program: Program, name: str) -> dict[str, object]:
    answer = program.post("v1/completions", {
        "model": name, "prompt": PROMPT, "max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True,
    }, headers={"x-request-id": "adapters"})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_each_name_answers_with_its_own_weights(program: Program, expected: dict[str, str]) -> None:
    from webapp.accounts.models import Usage

    assert len(set(expected.values())) == 2
    full = {BASE: f"{BASE}:1", f"{BASE}+{POET}": f"{BASE}:1+{POET}:1"}
    for _ in range(2):  # the second finds prefixes in the cache, of which none may be the other's
        for name, text in expected.items():
            answer = ask(program, name)
            assert (answer["model"], answer["choices"][0]["text"]) == (full[name], text)  # type: ignore[index]
    assert ask(program, f"{BASE}:1+{POET}:1")["choices"][0]["text"] == expected[f"{BASE}+{POET}"]  # type: ignore[index]

    def models_used() -> set[str]:
        with program.site.database() as alias:
            rows = Usage.objects.using(alias).filter(request_id="adapters")
            return set(rows.values_list("model", flat=True))

    wait_for(lambda: models_used() == set(full.values()), seconds=5, what="both are counted")


def test_adapters_are_listed_under_the_names_that_requests_take(program: Program, expected: dict[str, str]) -> None:
    rows = {row.id: row.model_dump() for row in program.openai.models.list()}
    for name in (f"{BASE}+{POET}", f"{BASE}:1+{POET}:1"):
        assert (rows[name]["version"], rows[name]["kind"], rows[name]["loaded"]) == (
            f"{BASE}:1+{POET}:1", "chat", True)
        assert program.openai.models.retrieve(name).model_dump() == rows[name]
    assert POET not in rows  # by itself it answers nothing


@pytest.mark.parametrize("name", [f"{BASE}+nothing", f"{BASE}:2+{POET}", f"{CHAT}+{POET}", f"{BASE}+{BASE}", "+", POET])
def test_names_that_lead_nowhere_are_refused(program: Program, expected: dict[str, str], name: str) -> None:
    answer = program.post("v1/completions", {"model": name, "prompt": PROMPT, "max_tokens": 1})
    assert answer.status_code in (400, 404) and error_of(answer)["param"] == "model", answer.text

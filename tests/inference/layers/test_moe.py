"""Mixtures of experts against transformers' own modules on the same random weights, and the counts of their choices."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.artifacts.checkpoint import Checkpoint
from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.decoder_spec import MoeSpec
from inference.experts.counts import ExpertCounts
from inference.layers.experts import grouped_linear
from inference.layers.moe import MoeMlp, dense_experts, route
from inference.layers.weights import WeightLoader
from inference.protocol import HEADER, Stats, Submit, decode_engine_frame, encode
from inference.spec import SamplingParams
from tests.inference.families.cases import CASES, write_tiny_decoder
from tests.inference.families.replies import load as load_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels

CPU = torch.device("cpu")
FAMILIES = ("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v2", "deepseek_v3")
LAYER = 2  # has experts in every case


def _case(family: str) -> dict[str, Any]:
    return next(case for case in CASES.values() if case["model_type"] == family)


def _loader(folder: Path) -> WeightLoader:
    source = ModelSource.open(folder)
    return WeightLoader(Checkpoint(source, source.decoder_spec()), device=CPU, dtype=torch.float32, mode="float32",
                        on_bytes=lambda done, total: None)


def _ours(folder: Path) -> MoeMlp:
    load = _loader(folder)
    return MoeMlp(ModelSource.open(folder).decoder_spec(), LAYER, load)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_of_experts_equals_the_reference_whatever_runs_it(family: str, tmp_path: Path) -> None:
    model = write_tiny_decoder(tmp_path, **_case(family))
    block = model.model.layers[LAYER].mlp
    x = torch.randn(37, model.config.hidden_size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = block(x[None])
    wanted = (wanted[0] if isinstance(wanted, tuple) else wanted)[0]
    ours, step = _ours(tmp_path), None
    assert wanted.abs().max() > 0.1  # not a comparison of zeros
    torch.testing.assert_close(ours(x, step), wanted, rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    spec = ModelSource.open(tmp_path).decoder_spec()
    ours.experts = dense_experts(spec, LAYER, _loader(tmp_path), range(ours.spec.num_experts))
    torch.testing.assert_close(ours(x, step), wanted, rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    torch.testing.assert_close(ours(x[:1], step), wanted[:1], rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_stacked_experts_are_those_of_published_names(family: str, tmp_path: Path) -> None:
    """transformers writes a tensor for each expert; a stack of them, as it holds in memory, is read too."""
    model = write_tiny_decoder(tmp_path, **_case(family))
    published = [value.clone() for value in _ours(tmp_path).experts.tensors]
    names = set(ModelSource.open(tmp_path).tensors)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()},
              tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert names != set(ModelSource.open(tmp_path).tensors)
    for wanted, ours in zip(published, _ours(tmp_path).experts.tensors, strict=True):
        assert torch.equal(ours, wanted)


def test_a_missing_or_misshapen_expert_is_refused_by_name(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, **_case("mixtral"))
    weights = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.block_sparse_moe.experts.3.w2.weight"
    without = {key: value for key, value in weights.items() if key != name}
    for changed, reason in ((without, f"tensor '{name}' is missing"),
                            (weights | {name: weights[name][1:].contiguous()}, f"tensor '{name}' has the shape"),
                            (weights | {name.replace(".3.", ".4."): weights[name] + 0}, "is not one of a mixtral")):
        save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ArtifactError, match=re.escape(reason)):
            _loader(tmp_path)


def test_the_layer_of_deepseek_v3_that_guesses_further_tokens_is_left_unread(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, **_case("deepseek_v3"))
    weights = load_file(tmp_path / "model.safetensors")
    further = {"model.layers.3.eh_proj.weight": torch.ones(64, 128), "model.layers.3.enorm.weight": torch.ones(64)}
    save_file(weights | further, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert "layers.0.kv_b.weight" in _loader(tmp_path)


@pytest.mark.parametrize("rows, inner", [(12, 30), (12, 32), (1, 32), (0, 32)])
def test_grouped_products_equal_a_product_for_each_row(rows: int, inner: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight = (torch.randn(*shape, generator=generator) for shape in ((rows, 24), (5, inner, 24)))
    expert = torch.randint(0, 5, (rows,), generator=generator).sort().values
    starts = torch.searchsorted(expert, torch.arange(6))
    wanted = torch.einsum("ri,roi->ro", x, weight[expert])
    torch.testing.assert_close(grouped_linear(x, weight, starts), wanted)


def test_only_the_best_groups_are_chosen_from_and_the_bias_weighs_nothing() -> None:
    spec = MoeSpec(num_experts=6, top_k=2, intermediate_size=1, score="sigmoid", groups=3, top_groups=1,
                   group_score_top=2, norm_top_k=True, scaling=2.0, correction_bias=True)
    logits = torch.tensor([[3.0, -9.0, 1.0, 0.9, -1.0, -1.0]])  # the best expert is alone in its group
    ids, weights = route(logits, spec, torch.zeros(6))
    assert sorted(ids[0].tolist()) == [2, 3]
    assert weights.sum().item() == pytest.approx(2.0)
    biased, unchanged = route(logits, spec, torch.tensor([0.0, 0, 0, 0, 1, 1]))
    assert sorted(biased[0].tolist()) == [4, 5]
    torch.testing.assert_close(unchanged, torch.tensor([[1.0, 1.0]]))  # equal scores, whatever the bias


def test_the_window_forgets_the_older_half() -> None:
    counts = ExpertCounts([3], 2, CPU, window=8)
    for expert in (0, 1, 0):
        counts.begin_step(4)
        counts.add(3, torch.full((4, 1), expert))
    load = counts.load()
    assert (load.layers, load.counts, load.tokens) == ([3], [[4, 4]], 8)


@pytest.mark.parametrize("family", ["qwen2_moe", "deepseek_v3"])
def test_counts_of_a_run_equal_a_recount_from_the_references_router_logits(family: str, tmp_path: Path) -> None:
    model = write_tiny_decoder(tmp_path, **_case(family))
    engine = load_model(tmp_path, speculation=False)  # wrong guesses are computed, and counted, too
    prompts = [[int(token) for token in np.random.default_rng(seed).integers(3, 250, 40)] for seed in range(3)]
    texts = {str(number): list(prompt) for number, prompt in enumerate(prompts)}
    params = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        engine.loop.submit(Submit(request_id=str(number), prompt_ids=prompt, params=params))
    while engine.loop.has_work:
        for delta in engine.loop.step().deltas:
            texts[delta.request_id] += delta.token_ids
    told = decode_engine_frame(encode(engine.loop.stats(experts=True))[HEADER.size:])  # as a client gets it
    assert isinstance(told, Stats)
    load = told.experts
    assert load is not None
    assert engine.loop.stats().experts is None
    assert load.tokens == sum(len(text) - 1 for text in texts.values())  # the last token of a reply isn't computed
    recount = np.zeros((len(load.layers), len(load.counts[0])), np.int64)
    for text in texts.values():
        for row, layer in enumerate(load.layers):
            recount[row] += _chosen(model, layer, text[:-1])
    assert load.counts == recount.tolist()


def _chosen(model: Any, layer: int, tokens: list[int]) -> np.ndarray:
    """Count the experts that the reference's own router chooses in a layer for these tokens."""
    seen: list[torch.Tensor] = []
    router = model.model.layers[layer].mlp.gate
    handle = router.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs[2]))
    with torch.no_grad():
        model(torch.tensor([tokens]))
    handle.remove()
    return np.bincount(seen[0].reshape(-1).numpy(), minlength=router.num_experts)

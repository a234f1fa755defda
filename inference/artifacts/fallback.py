"""Which causal models without a native family run through transformers' own code, and what is known of them here."""

from dataclasses import dataclass
from typing import Any

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.errors import ArtifactError
from inference.artifacts.families import FAMILIES


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CAUSAL = _names("""
    afmoe apertus apertus1p5_text arcee aria_text axk1 axk2 bailing_hybrid bamba beam biogpt bitnet bloom codegen
    cohere cohere2 cohere2_moe cohere_compass_text ctrl cwm dbrx deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4
    diffllama doge dory dots1 dots3_note_text ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe falcon falcon_h1
    falcon_mamba flex_olmo flint gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm glm4
    glm4_moe glm4_moe_lite glm_moe_dsa gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj
    granite granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense
    hunyuan_v1_moe hy_v3 hy_v4 hyperclovax inkling2_loop_text inkling2_text inkling_text internlm3 iquestcoder jais2
    jamba jetmoe kimi_linear kolibri1 laguna lara_mini lfm2 lfm2_moe lfm3 llama llama4_text longcat_flash mamba
    mamba2 mellum mimo_v2_flash minicpm3 minimax minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mixtral
    modernbert-decoder mpt nanochat nemotron nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt persimmon
    phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen4_exp_text
    sarvam_mla sarvam_moe seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma xglm youtu
    zamba zamba2 zaya
""")
"""model_types that transformers lists as causal language models of text, native ones included."""

_REASONS = {
    "is an encoder, which does not write text": """
        bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert reformer rembert roberta
        roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xmod""",
    "is an encoder with a decoder; only decoders are served": """
        bart bigbird_pegasus blenderbot blenderbot-small marian mbart mvp pegasus plbart prophetnet trocr whisper""",
    "reads or writes more than text; only text models are served": """
        dots3_note emu3 fuyu gemma3 gemma3n gemma4 gemma4_assistant gemma4_unified gemma4_unified_assistant git
        got_ocr2 llama4 mllama moshi moss_transcribe_diarize musicgen musicgen_melody phi4_multimodal qwen3_5
        qwen3_5_moe qwen4_exp""",
    "keeps its state in a way that can't be continued token by token here": "blt cpmant rwkv xlnet xlstm",
    "keeps the state of a text in its modules, so it can't serve several people": "recurrent_gemma",
}
REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""model_types that transformers lists as causal language models and that are refused, with the reason."""

_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
UNBOUNDED = 8192  # tokens that a model gets that names no longest context (recurrent ones, ALiBi)


@dataclass(frozen=True, kw_only=True)
class FallbackSpec:
    """What the engine must know of a model that transformers runs: sizes in elements, as DecoderSpec has them."""

    family: str
    vocab_size: int
    max_position: int
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    switch_length: None = None


def runs_natively(config: dict[str, Any]) -> bool:
    """Return whether a configuration is of a native family."""
    return config.get("model_type") in FAMILIES


def fallback_spec_from_config(
    config: dict[str, Any], generation_config: dict[str, Any], *, file: str = "config.json"
) -> FallbackSpec:
    """Return what is known of a model without a native family. Raises ArtifactError with the reason to refuse it."""
    reader, family = ConfigReader(config, file, generation_config), config.get("model_type")
    if config.get("auto_map"):
        reader.refuse("auto_map asks for the model's own Python code, which is never run")
    if not isinstance(family, str) or family not in CAUSAL:
        reason = REFUSED.get(str(family), "is not supported")
        reader.refuse(f"the architecture {str(family)[:60]!r} {reason}")
    if config.get("quantization_config"):
        raise ArtifactError(file, f"quantization_config: {family!r} runs through transformers, with plain weights only")
    if config.get("is_encoder_decoder"):
        reader.refuse("is_encoder_decoder: only decoders are served")
    vocab = reader.whole("vocab_size")
    return FallbackSpec(
        family=family, vocab_size=vocab,
        max_position=next((reader.whole(key) for key in _POSITIONS if reader.get(key) is not None), UNBOUNDED),
        bos_token_id=next(iter(reader.token_ids("bos_token_id", vocab)), None),
        eos_token_ids=reader.token_ids("eos_token_id", vocab),
    )  # fmt: skip

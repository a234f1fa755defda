"""Fixtures of the text tests: the demo model's tokenizer as transformers rebuilds it."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast


@pytest.fixture(scope="session")
def demo_reference(demo_chat_path: Path) -> PreTrainedTokenizerFast:
    """SmolLM2's tokenizer and chat template, read from the GGUF file by transformers."""
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(
        demo_chat_path.parent, gguf_file=demo_chat_path.name)
    return tokenizer

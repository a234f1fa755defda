"""The bytes that one token stands for, which may be part of a character."""

import functools

from inference.text.tokenizer import TextTokenizer

BYTE_TOKEN_CHARS = len("<0x00>")


def token_bytes(tokenizer: TextTokenizer, token_id: int) -> bytes:
    """Return the UTF-8 bytes that a token adds to a text; empty for an id that the tokenizer doesn't know."""
    token: str | None = tokenizer.backend.id_to_token(token_id)
    if token is None:
        return b""
    if token_id in tokenizer.special_ids:
        return token.encode()
    if "ByteLevel" in _decoder_name(tokenizer):
        table = _byte_level_table()
        if all(char in table for char in token):
            return bytes(table[char] for char in token)
        return token.encode()
    if len(token) == BYTE_TOKEN_CHARS and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode("utf-8", "replace")


def _decoder_name(tokenizer: TextTokenizer) -> str:
    return str(tokenizer.backend.decoder)


@functools.cache
def _byte_level_table() -> dict[str, int]:
    """Which byte each character of byte-level BPE stands for. Source: GPT-2's bytes_to_unicode."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in shown}
    hidden = [byte for byte in range(256) if byte not in table.values()]
    return table | {chr(256 + number): byte for number, byte in enumerate(hidden)}

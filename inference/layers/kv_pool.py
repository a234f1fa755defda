"""The paged KV cache of the CPU path: how many blocks fit, and the arrays that hold them."""

import numpy as np

from inference.decoder_spec import DecoderSpec
from inference.kernels.attention import VALUE_LANES
from inference.kernels.pool import Pool
from inference.kernels.vector import LANES
from inference.machine_memory import machine_memory, pool_bytes
from inference.spec import EngineConfig, SpecError


def padded_values(head_dim: int) -> int:
    """Return the stored size of a value vector: whole vectors of the attention kernel."""
    return -(-head_dim // VALUE_LANES) * VALUE_LANES


def block_bytes(spec: DecoderSpec, block_size: int) -> int:
    """Return the bytes of one block: keys and values of every layer in float32, padding included."""
    per_token = (spec.head_dim + padded_values(spec.head_dim)) * spec.num_kv_heads * 4
    return spec.num_layers * per_token * block_size


def count_blocks(config: EngineConfig, spec: DecoderSpec, max_model_len: int) -> int:
    """Return how many blocks the pool gets: kv_cache_bytes, or what the limits can use within free memory.

    Raises SpecError when a block has a size that the kernels can't use, or not one fits.
    """
    if config.block_size % LANES:
        raise SpecError("block_size", f"must be a multiple of {LANES} on the CPU")
    return blocks_that_fit(config, block_bytes(spec, config.block_size), max_model_len)


def blocks_that_fit(
    config: EngineConfig, size: int, max_model_len: int, *, block_size: int | None = None, free: int | None = None
) -> int:
    """Return how many blocks of `size` bytes the pool gets, as `count_blocks` says. Raises SpecError.

    block_size: tokens of a block, the config's if None. free: bytes of the device's free memory, the machine's if None.
    """
    block_size = block_size or config.block_size
    if config.kv_cache_bytes is not None:
        blocks = config.kv_cache_bytes // size
    else:
        wanted = config.max_num_seqs * -(-max_model_len // block_size)
        blocks = min(wanted, pool_bytes(machine_memory()[0] if free is None else free) // size)
    if blocks < 1:
        raise SpecError("kv_cache_bytes", f"too little for one block of {block_size} tokens, {size:,} bytes")
    return blocks


def make_pool(spec: DecoderSpec, *, num_blocks: int, block_size: int) -> Pool:
    """Return a pool whose memory is taken as blocks are first written."""
    head = (num_blocks, spec.num_layers, spec.num_kv_heads, block_size // LANES)
    keys = np.empty((*head, spec.head_dim, LANES), np.float32)
    values = np.empty((*head, LANES, padded_values(spec.head_dim)), np.float32)
    return Pool(keys=keys, values=values)

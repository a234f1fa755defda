"""Paged attention against its slow twin, through scattered blocks."""

import numpy as np
import pytest

from inference.decoder_spec import DecoderSpec, RopeSpec
from inference.kernels import twins
from inference.kernels.attention import attend
from inference.kernels.rowwise import write_kv
from inference.layers.kv_pool import make_pool, padded_values


def _spec(head_dim: int) -> DecoderSpec:
    return DecoderSpec(
        family="llama", vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=2, num_heads=6, num_kv_heads=2,
        head_dim=head_dim, max_position=512, rms_norm_eps=1e-5, rope=RopeSpec(), tie_word_embeddings=True,
    )  # fmt: skip


@pytest.mark.parametrize(("head_dim", "block_size"), [(64, 16), (40, 32)])
@pytest.mark.parametrize(("position", "queries", "group"), [(0, 1, 3), (99, 1, 3), (15, 8, 3), (64, 24, 1)])
def test_equals_the_slow_twin(head_dim: int, block_size: int, position: int, queries: int, group: int) -> None:
    rng = np.random.default_rng(position)
    pool = make_pool(_spec(head_dim), num_blocks=12, block_size=block_size)
    pool.keys[:], pool.values[:] = np.nan, np.nan  # what isn't written must not be read
    table = rng.permutation(12).astype(np.int32)
    for place in range(position + queries):
        slot = int(table[place // block_size]) * block_size + place % block_size
        key, value = rng.standard_normal((2, 2 * head_dim), np.float32)
        write_kv(key, value, slot, 1, pool.keys, pool.values)
    rows = queries * group
    query = rng.standard_normal((rows, head_dim), np.float32) * np.float32(head_dim**-0.5)
    scores, sums = np.empty((rows, 256), np.float32), np.empty((rows, padded_values(head_dim)), np.float32)
    attend(query, rows, group, position, table, 1, 1, pool.keys, pool.values, scores, sums)
    for row in range(rows):
        keys, values = twins.read_pool(pool, table, 1, 1, position + row // group + 1)
        np.testing.assert_allclose(sums[row, :head_dim], twins.attention(query[row], keys, values), atol=1e-5)

"""Reuse of computed prefixes: full blocks are found again under a chained hash of everything before them."""

from array import array
from hashlib import blake2b

from inference.engine.block_pool import BlockPool
from inference.engine.request import Request

KEY_BYTES = 16
LONG = b"\0long"  # what blocks of texts past the model's switch length have in their keys


def root_key(salt: bytes) -> bytes:
    """The parent of a request's first block. Requests with different salts never share a block."""
    return blake2b(salt, digest_size=KEY_BYTES, person=b"parley-root").digest()


def block_key(parent: bytes, token_ids: list[int]) -> bytes:
    """Key of a full block: a hash of its parent's key and its own tokens, so equal keys mean equal whole prefixes."""
    return blake2b(parent + array("i", token_ids).tobytes(), digest_size=KEY_BYTES, person=b"parley-block").digest()


class PrefixCache:
    """Finds and publishes the full blocks of requests in a BlockPool; nothing when it isn't enabled."""

    def __init__(self, pool: BlockPool, block_size: int, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._pool = pool
        self._block_size = block_size

    def match(self, request: Request) -> list[int]:
        """The longest run of blocks that already hold this request's first tokens; nothing is taken yet.

        At least the last token is left to compute, because its logits are what the request is for; and all of the
        prompt while its tokens are to be scored.
        """
        if request.scores_prompt or not self._enabled:
            return []
        usable = (len(request.token_ids) - 1) // self._block_size
        self._extend_keys(request, usable)
        blocks: list[int] = []
        for key in request.block_keys[:usable]:
            block = self._pool.find(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def publish(self, request: Request) -> None:
        """Make the request's blocks that are full and computed findable."""
        full = request.num_computed // self._block_size
        if full <= request.num_published or not self._enabled:
            return
        self._extend_keys(request, full)
        for index in range(request.num_published, full):
            self._pool.publish(request.block_table[index], request.block_keys[index])
        request.num_published = full

    def _extend_keys(self, request: Request, count: int) -> None:
        keys, size = request.block_keys, self._block_size
        for index in range(len(keys), count):
            parent = keys[-1] if keys else root_key(request.salt + LONG * request.past_switch)
            keys.append(block_key(parent, request.token_ids[index * size:(index + 1) * size]))

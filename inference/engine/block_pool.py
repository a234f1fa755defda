"""The KV cache's blocks: who holds each one, and which unused ones still carry a prefix worth keeping."""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable


class BlockPoolError(AssertionError):
    """The pool's books don't balance: a block was lost, held twice or freed twice."""


class BlockPool:
    """Fixed blocks with reference counts. Each block is in exactly one state: free, cached or held.

    held: one or more requests use it. cached: nobody uses it, but its key still leads to it; the least recently
    used cached block is taken when no free one is left. free: nothing worth keeping. Every operation is O(1).
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks: must be at least 1, not {num_blocks}")
        self.num_blocks = num_blocks
        self._references = [0] * num_blocks
        self._key_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._free: deque[int] = deque(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_available

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` could hand out now."""
        return len(self._free) + len(self._cached)

    def allocate(self) -> int:
        """Take a block for one holder: a free one, else the least recently used cached one, which loses its key."""
        if self._free:
            block = self._free.popleft()
        else:
            assert self._cached, "allocate was called with no block available"
            block, _ = self._cached.popitem(last=False)
            key = self._key_of[block]
            assert key is not None, f"cached block {block} has no key"
            del self._block_of[key]
            self._key_of[block] = None
        self._references[block] = 1
        return block

    def find(self, key: bytes) -> int | None:
        """The block, held or cached, whose content has this key."""
        return self._block_of.get(key)

    def is_cached(self, block: int) -> bool:
        return block in self._cached

    def share(self, block: int) -> None:
        """Add a holder to a held or cached block."""
        if self._references[block] == 0:
            del self._cached[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Take one holder away. The last one leaves the block cached if it has a key, else free."""
        count = self._references[block]
        assert count > 0, f"block {block} was released but nobody holds it"
        self._references[block] = count - 1
        if count == 1:
            if self._key_of[block] is None:
                self._free.append(block)
            else:
                self._cached[block] = None

    def publish(self, block: int, key: bytes) -> None:
        """Let others find this held, full block. When another block already has the key, that one stays the answer."""
        assert self._references[block] > 0, f"block {block} was published but nobody holds it"
        if key not in self._block_of and self._key_of[block] is None:
            self._block_of[key] = block
            self._key_of[block] = key

    def forget(self, block: int) -> None:
        """Let nobody find this held block any more, because its content can't be trusted."""
        key = self._key_of[block]
        if key is not None:
            del self._block_of[key]
            self._key_of[block] = None

    def check_integrity(self, tables: Iterable[Iterable[int]]) -> None:
        """Prove that free + cached + held are all blocks and that counts match the given tables.

        tables: the block table of every request that holds blocks. Raises BlockPoolError.
        """
        holders = Counter(block for table in tables for block in table)
        held = {block for block, count in enumerate(self._references) if count > 0}
        free, cached = set(self._free), set(self._cached)
        _check(len(free) == len(self._free), "a block is free twice")
        _check(not (free & cached or free & held or cached & held), "a block is in two states")
        _check(len(free) + len(cached) + len(held) == self.num_blocks, "a block was lost")
        _check(dict(holders) == {block: self._references[block] for block in held}, "reference counts are wrong")
        _check(all(self._key_of[block] is None for block in free), "a free block has a key")
        keyed = {key: block for block, key in enumerate(self._key_of) if key is not None}
        _check(keyed == self._block_of, "keys and blocks disagree")
        _check(all(self._key_of[block] is not None for block in cached), "a cached block has no key")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise BlockPoolError(message)

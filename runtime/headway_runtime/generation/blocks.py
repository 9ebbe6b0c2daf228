"""Which blocks of the cache are whose: `take`, `share`, `release`; `seal` what may be found again. Pure.

A block is in use (by one sequence or more, whose prompts begin alike), or kept (by nobody, but what it holds can still
be found by its key), or clean. Clean ones are taken first; then of the kept ones the one that has been there longest,
and sequences release their blocks from the end, so that beginnings outlive ends. Block 0 belongs to nobody: it fills
up the tables.
"""


class BlockPool:
    """`blocks` are those of the cache, block 0 among them."""

    def __init__(self, blocks: int) -> None:
        self.total = blocks - 1
        self._uses = [0] * blocks
        self._clean = list(range(blocks - 1, 0, -1))
        self._kept: dict[int, None] = {}  # the one to go first first
        self._keys: list[bytes | None] = [None] * blocks
        self._known: dict[bytes, int] = {}

    @property
    def available(self) -> int:
        """Blocks that `take` could give now."""
        return len(self._clean) + len(self._kept)

    @property
    def used(self) -> int:
        """Blocks in use."""
        return self.total - self.available

    def uses(self, block: int) -> int:
        """How many sequences have it."""
        return self._uses[block]

    def find(self, key: bytes) -> int | None:
        """The block with this key, in use or kept."""
        return self._known.get(key)

    def take(self) -> int:
        """A block with nothing in it that matters. There must be one: see `available`."""
        if self._clean:
            block = self._clean.pop()
        else:
            block = next(iter(self._kept))
            del self._kept[block]
            self._forget(block)
        self._uses[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more sequence has this block, which was found by its key."""
        if not self._uses[block]:
            del self._kept[block]
        self._uses[block] += 1

    def release(self, block: int) -> None:
        """One sequence less has it."""
        self._uses[block] -= 1
        assert self._uses[block] >= 0, f"block {block} was released more often than taken"
        if self._uses[block]:
            return
        if self._keys[block] is None:
            self._clean.append(block)
        else:
            self._kept[block] = None

    def seal(self, block: int, key: bytes) -> int:
        """The block is full and will not be written any more. Returns the one to go on with: an equal one is never
        kept twice.
        """
        known = self._known.get(key)
        if known is None:
            self._keys[block] = key
            self._known[key] = block
            return block
        if known != block:
            self.share(known)
            self.release(block)
        return known

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        if key is not None:
            del self._known[key]
            self._keys[block] = None

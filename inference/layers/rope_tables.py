"""The decoder's rotary tables on its device, and each token's part of them; longrope has two tables to choose from."""

import torch
from torch import Tensor

from inference.decoder_spec import DecoderSpec, RopeSpec
from inference.layers.rotary import rotary_tables

Table = tuple[Tensor, Tensor]  # cosine and sine, [positions, rotated / 2]


class RopeTables:
    """Tables of each rope of a spec for that many positions. nbytes: the memory that they hold."""

    def __init__(self, spec: DecoderSpec, positions: int, device: torch.device) -> None:
        head_dim = spec.mla.rope_head_dim if spec.mla else spec.head_dim
        self._ropes = spec.ropes
        self._tables = [_table(rope, head_dim, positions, device) for rope in spec.ropes]
        self._long = [_table(rope, head_dim, positions, device, long=True) if rope.kind == "longrope" else None
                      for rope in spec.ropes]
        tables = [table for table in (*self._tables, *self._long) if table is not None]
        self.nbytes = sum(part.nbytes for table in tables for part in table)

    def of(self, positions: Tensor, lengths: Tensor) -> tuple[Table, ...]:
        """Return cosine and sine of each rope for tokens at positions [tokens], [tokens, rotated / 2] each.

        lengths: [tokens], how long each token's whole text is so far, which longrope goes by.
        """
        return tuple(self._pick(index, positions, lengths) for index in range(len(self._tables)))

    def _pick(self, index: int, positions: Tensor, lengths: Tensor) -> Table:
        short, long = self._tables[index], self._long[index]
        cosine, sine = short[0][positions], short[1][positions]
        if long is None:
            return cosine, sine
        is_long = (lengths > self._ropes[index].original_max_position)[:, None]
        return torch.where(is_long, long[0][positions], cosine), torch.where(is_long, long[1][positions], sine)


def _table(rope: RopeSpec, head_dim: int, positions: int, device: torch.device, *, long: bool = False) -> Table:
    cosine, sine = rotary_tables(rope, head_dim, positions, long=long)
    return torch.from_numpy(cosine).to(device), torch.from_numpy(sine).to(device)

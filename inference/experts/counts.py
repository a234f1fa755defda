"""Counts which experts tokens were lately routed to, layer by layer, without waiting for the device."""

import torch
from torch import Tensor

from inference.protocol import ExpertLoad

WINDOW_TOKENS = 65_536
"""The most tokens that counts look back on, of each layer; at least half of them once so many were seen."""


class ExpertCounts:
    """Tokens routed to each expert of each layer with experts, over a window of the latest tokens.

    layers: indexes of the decoder's layers with experts. The window is two halves: counts go into the newer one, and
    when that is full it becomes the older one, which is forgotten.
    """

    def __init__(self, layers: list[int], num_experts: int, device: torch.device, *,
                 window: int = WINDOW_TOKENS) -> None:
        self.layers = layers
        self._row = {layer: row for row, layer in enumerate(layers)}
        self._newer, self._older = (torch.zeros(len(layers), num_experts, dtype=torch.int64, device=device)
                                    for _ in range(2))
        self._half = max(1, window // 2)
        self._newer_tokens = self._older_tokens = 0

    def forget(self) -> None:
        """Begin to count anew."""
        for half in (self._newer, self._older):
            half.zero_()
        self._newer_tokens = self._older_tokens = 0

    def begin_step(self, tokens: int) -> None:
        """Say that a step of so many tokens begins."""
        if self._newer_tokens >= self._half:
            self._newer, self._older = self._older.zero_(), self._newer
            self._newer_tokens, self._older_tokens = 0, self._newer_tokens
        self._newer_tokens += tokens

    def add(self, layer: int, ids: Tensor) -> None:
        """Count the experts of a layer's tokens, [tokens, k]."""
        flat = ids.reshape(-1)
        self._newer[self._row[layer]].index_add_(0, flat, torch.ones_like(flat))

    def load(self) -> ExpertLoad:
        """Return the counts of the window."""
        return ExpertLoad(layers=self.layers, counts=(self._newer + self._older).tolist(),
                          tokens=self._newer_tokens + self._older_tokens)

"""The decoder's parts in a model's weights, whatever its family calls them and however it fuses them."""

import numpy as np
import numpy.typing as npt

from inference.artifacts.check import check_decoder_weights
from inference.artifacts.families import stored_tensors
from inference.artifacts.parts import Stored
from inference.artifacts.source import ModelSource
from inference.decoder_spec import DecoderSpec


class Checkpoint:
    """Reads parts (inference.artifacts.parts: "layers.0.q.weight") out of a source whose tensors have been checked.

    Raises ArtifactError when a tensor is missing, extra, misshapen or of a type that can't be read.
    """

    def __init__(self, source: ModelSource, spec: DecoderSpec) -> None:
        check_decoder_weights(source, spec)
        self.spec = spec
        self._source = source
        self._places: dict[str, tuple[str, int, int]] = {}  # part → stored name, first row, rows
        self._stored = stored_tensors(spec, source.tensors)
        self._stack: tuple[str, npt.NDArray[np.float32]] | None = None  # the last stack of experts, as rows
        for name, stored in self._stored.items():
            row = 0
            for part, rows in stored.holds:
                self._places[part] = (name, row, rows)
                row += rows

    def __contains__(self, part: str) -> bool:
        return part in self._places

    @property
    def nbytes(self) -> int:
        """Bytes of all parts as they are stored."""
        return sum(self._source.tensors[name].nbytes for name in {name for name, _, _ in self._places.values()})

    def part_nbytes(self, part: str) -> int:
        """Return the bytes that a part takes as it is stored, about."""
        name, _, rows = self._places[part]
        return self._source.tensors[name].nbytes * rows // self._stored[name].rows

    def rows(self, part: str) -> int:
        """Return the size of a part's first axis."""
        return self._places[part][2]

    def read(self, part: str) -> npt.NDArray[np.float32]:
        """Return the values of a part, dequantised."""
        name, first, rows = self._places[part]
        return self._rows(name, self._stored[name])[first : first + rows]

    def _rows(self, name: str, stored: Stored) -> npt.NDArray[np.float32]:
        """Return a stored tensor as rows. The parts of a stack are read one after the other, so the last is kept."""
        if self._stack is not None and self._stack[0] == name:
            return self._stack[1]
        self._stack = None
        values = stored.as_rows(self._source.read_float32(name))
        if stored.lead > 1:
            self._stack = (name, values)
        return values

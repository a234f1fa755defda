"""Expert parallelism: the experts of a decoder spread over the processes of a group, and moved while it runs.

Every process runs the whole decoder on tokens of its own, but holds only the experts that a placement gives it. In each
layer with experts all processes exchange rows: a (token, expert) pair goes to a process that holds the expert and its
result comes back. So all processes of the group take the same number of steps, if need be with no tokens.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from inference.experts.placement import Placement, PlacementError
from inference.layers.experts import ExpertGroups, Experts
from inference.layers.moe import MoeMlp

Int64 = npt.NDArray[np.int64]


class ParallelExperts:
    """One layer's experts, held by all processes together; to its layer it looks like experts that are all here.

    local: the experts of this process's slots. slots: [processes, slots], the expert of each.
    """

    def __init__(self, local: Experts, slots: Int64, num_experts: int, group: dist.ProcessGroup) -> None:
        self.num_experts = num_experts
        self._local, self._group, self._rank = local, group, dist.get_rank(group)
        self._set_slots(slots)

    @property
    def tensors(self) -> list[Tensor]:
        return self._local.tensors

    def rows(self, x: Tensor, groups: ExpertGroups) -> Tensor:
        """Run rows [pairs, H], sorted as groups says, through their experts, wherever these are: [pairs, H].

        An expert's copies take its rows in turn.
        """
        turn = torch.arange(len(x), device=x.device) - groups.starts[groups.expert] + self._rank
        slot, order = self._copies[groups.expert, turn % self._num_copies[groups.expert]].sort(stable=True)
        sent = torch.bincount(slot, minlength=self._slots.size).view(self._slots.shape)  # [processes, slots]
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self._group)
        to, come = sent.sum(1).tolist(), received.sum(1).tolist()
        rows = self._exchange(x[order].contiguous(), come, to)
        back = self._exchange(self._run(rows, received), to, come)
        return torch.empty_like(back).index_copy_(0, order, back)

    def _run(self, rows: Tensor, received: Tensor) -> Tensor:
        """Run rows that came from each process in turn, each in the order of slots. received: [processes, slots]."""
        slots = torch.arange(received.shape[1], device=rows.device).repeat(len(received))
        held = torch.repeat_interleave(slots, received.view(-1))
        groups = ExpertGroups.of(held[:, None], received.shape[1])
        return self._local.rows(rows[groups.token], groups)[groups.places[:, 0]].contiguous()

    def _exchange(self, rows: Tensor, come: list[int], to: list[int]) -> Tensor:
        """Send so many of the rows to each process, in order, and return those that come, in order."""
        out = rows.new_empty(sum(come), rows.shape[1])
        dist.all_to_all_single(out, rows, output_split_sizes=come, input_split_sizes=to, group=self._group)
        return out

    def remap(self, slots: Int64) -> None:
        """Move experts between processes until each slot holds what slots, [processes, slots], says."""
        move_experts(self._local.tensors, old=self._slots, new=slots, group=self._group)
        self._set_slots(slots)

    def _set_slots(self, slots: Int64) -> None:
        """Note where the copies of each expert are, as numbers of slots over all processes."""
        self._slots = slots.copy()
        where = [np.flatnonzero(slots.reshape(-1) == expert) for expert in range(self.num_experts)]
        most = max(len(copies) for copies in where)
        device = self._local.tensors[0].device
        self._num_copies = torch.tensor([len(copies) for copies in where], device=device)
        self._copies = torch.from_numpy(np.stack([np.resize(copies, most) for copies in where])).to(device)


def move_experts(tensors: Sequence[Tensor], *, old: Int64, new: Int64, group: dist.ProcessGroup) -> None:
    """Bring what each slot holds from old to new, [processes, slots] both, in place.

    tensors: what this process's slots are kept in, each [slots, ...]. An expert that is here already is copied here;
    any other comes from a process that has it, different ones for different receivers.
    """
    rank = dist.get_rank(group)
    arriving: list[tuple[int, list[Tensor]]] = []  # slot, its new content
    transfers: list[dist.P2POp] = []
    for receiver, slot in zip(*np.nonzero(old != new), strict=True):
        expert = new[receiver, slot]
        holders = np.argwhere(old == expert)
        here = holders[holders[:, 0] == receiver]
        sender, source = here[0] if len(here) else holders[receiver % len(holders)]
        if receiver == rank:
            content = [tensor[source].clone() if sender == rank else torch.empty_like(tensor[slot])
                       for tensor in tensors]
            arriving.append((int(slot), content))
            if sender != rank:
                transfers += [dist.P2POp(dist.irecv, part, group=group, group_peer=int(sender)) for part in content]
        elif sender == rank:
            transfers += [dist.P2POp(dist.isend, tensor[source].contiguous(), group=group, group_peer=int(receiver))
                          for tensor in tensors]
    for work in dist.batch_isend_irecv(transfers) if transfers else []:
        work.wait()
    for slot, content in arriving:
        for tensor, part in zip(tensors, content, strict=True):
            tensor[slot] = part


class ExpertParallel:
    """The experts of a decoder's layers over a group's processes.

    layers: the decoder's layers with experts, in the order of the placement's. Raises PlacementError when the placement
    is for another number of processes.
    """

    def __init__(self, placement: Placement, layers: Sequence[int], group: dist.ProcessGroup) -> None:
        self._layers, self._group = list(layers), group
        self._placement = self._checked(placement)
        self._experts: list[ParallelExperts] = []

    def held(self, layer: int) -> list[int]:
        """Return the experts of a layer that this process holds, slot by slot: what its weights are loaded for."""
        row = self._layers.index(layer)
        return [int(expert) for expert in self._placement.slots[row, dist.get_rank(self._group)]]

    def join(self, mlps: Iterable[object]) -> None:
        """Make one of the processes' experts, in those MLPs that have experts, loaded as `held` says."""
        for mlp in mlps:
            if not isinstance(mlp, MoeMlp):
                continue
            slots = self._placement.slots[self._layers.index(mlp.index)]
            mlp.experts = ParallelExperts(mlp.experts, slots, mlp.spec.num_experts, self._group)
            self._experts.append(mlp.experts)

    def remap(self, placement: Placement) -> None:
        """Go on with another placement of as many slots. Every process of the group calls this between two steps.

        Raises PlacementError; then nothing was moved.
        """
        if placement.slots.shape != self._placement.slots.shape:
            raise PlacementError(f"a placement of {placement.slots.shape} layers, processes and slots can't replace "
                                 f"one of {self._placement.slots.shape}")
        for experts, slots in zip(self._experts, self._checked(placement).slots, strict=True):
            experts.remap(slots)
        self._placement = placement

    def _checked(self, placement: Placement) -> Placement:
        size = dist.get_world_size(self._group)
        if placement.num_devices != size:
            raise PlacementError(f"the placement is for {placement.num_devices} processes, and the group has {size}")
        if placement.num_layers != len(self._layers):
            raise PlacementError(f"the placement is for {placement.num_layers} layers, and {len(self._layers)} have "
                                 f"experts")
        return placement

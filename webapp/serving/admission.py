"""Whether a deployment may start loading on this machine: only what fits, with room made by unloading idle models."""

import logging
import time
from typing import Any

from django.conf import settings

from registry.fit import fit_if_known, held_bytes, idle_deployments
from registry.models import Deployment, DeploymentState, Node
from registry.services.holding import deployment_make_room, deployment_report_failed, deployment_report_plan
from webapp.serving.busy import deployment_is_busy
from webapp.serving.devices import devices as measured_devices

logger = logging.getLogger(__name__)
PATIENCE_SECONDS = 3.0


class RoomOnNode:
    """The memory of one machine's first device, as its node worker deals it out."""

    def __init__(self, *, name: str, holder: str) -> None:
        self._name, self._holder = name, holder
        self._refused_since: dict[int, float] = {}

    def devices(self) -> list[dict[str, Any]]:
        """Return the devices with no more memory than PARLEY_MODEL_MEMORY lets models take of the first one."""
        devices, budget = measured_devices(), settings.PARLEY_MODEL_MEMORY
        if budget:
            rows = Deployment.objects.filter(held_by=self._holder, state__in=[
                DeploymentState.LOADED, DeploymentState.LOADING, DeploymentState.UNLOADING])
            taken = sum(map(held_bytes, rows))
            first = devices[0]
            devices[0] = first | {"memory_bytes": min(budget, first["memory_bytes"]),
                                  "free_bytes": max(0, min(first["free_bytes"], budget - taken))}
        return devices

    def make_for(self, row: Deployment) -> bool:
        """Say whether there is room for it now. If not, unload an idle model for it, or report it failed with the plan.

        What the planner can't plan is left to the engine. Memory of what has just ended may take a moment to come back.
        """
        Node.objects.filter(name=self._name).update(devices=self.devices())
        node = Node.objects.get(name=self._name)
        idle = [other for other in idle_deployments(node) if other.pk != row.pk and not deployment_is_busy(other)]
        fit = fit_if_known(row, node, evictable=idle)
        refused_since = self._refused_since.pop(row.pk, time.monotonic())
        if fit is None:
            return True
        if fit.fits_now:
            deployment_report_plan(pk=row.pk, holder=self._holder,
                                   plan=fit.plan.to_dict() | {"needed_bytes": fit.needed})
            return True
        if fit.fits:
            logger.info("%s is unloaded to make room for %s", idle[0].version, row.version)
            deployment_make_room(pk=idle[0].pk, holder=self._holder,
                                 reason=f"Unloaded to make room for {row.version}.")
            return False
        if time.monotonic() - refused_since < PATIENCE_SECONDS:
            self._refused_since[row.pk] = refused_since
            return False
        refusal = fit.refusal(row, self._name)
        logger.error("%s", refusal.reason)
        deployment_report_failed(pk=row.pk, holder=self._holder, reason=refusal.reason)
        row.state = DeploymentState.FAILED
        return False

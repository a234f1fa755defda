"""Whether a deployment has work that its unloading has to wait for."""

import redis
from django.db.models.functions import Now

from registry.models import Deployment, DeploymentState
from webapp.serving.models import Generation, GenerationState
from webapp.serving.stats import engine_stats


def deployment_is_busy(deployment: Deployment) -> bool:
    """Say whether replies are being written, or texts embedded or scored, that no other machine would go on with.

    Where the version is loaded on another machine too, that one takes the replies over without a seam.
    """
    others = Deployment.objects.filter(version_id=deployment.version_id, state=DeploymentState.LOADED, wanted=True)
    if others.exclude(pk=deployment.pk).filter(held_until__gte=Now()).exists():
        return False
    running = Generation.objects.filter(version_id=deployment.version_id, state=GenerationState.RUNNING)
    if running.filter(lease_until__gte=Now()).exists():
        return True
    try:
        return any(stats.running or stats.waiting for stats in engine_stats(deployment.version_id))
    except redis.RedisError:
        return False

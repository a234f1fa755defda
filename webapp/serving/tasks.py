"""Celery tasks: they take ids, call a service and survive being run twice."""

from webapp.config.celery import app
from webapp.serving import model_worker, node
from webapp.serving.dispatch import RUN_TASK, WAKE_TASK


@app.task(name=RUN_TASK, acks_late=True, ignore_result=True)
def generation_run(pk: str) -> None:
    """See one generation through on this worker's engine; nothing happens when it is not queued any more."""
    model_worker.host().run(pk)


@app.task(name=WAKE_TASK, ignore_result=True)
def node_wake() -> None:
    """Look at the deployments now."""
    node.wake.set()

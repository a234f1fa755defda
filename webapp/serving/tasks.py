"""Celery tasks: they take ids, call a service and survive being run twice."""

from webapp.config.celery import app
from webapp.serving import model_worker, node
from webapp.serving.dispatch import IMPORT_TASK, RUN_TASK, WAKE_TASK
from webapp.serving.imports import import_see_through
from webapp.serving.pooled import POOLED_TASK


@app.task(name=RUN_TASK, acks_late=True, ignore_result=True)
def generation_run(pk: str) -> None:
    """See one generation through on this worker's engine; nothing happens when it is not queued any more."""
    model_worker.host().run(pk)


@app.task(name=POOLED_TASK, acks_late=True, ignore_result=True)
def pooled_run(job_id: str) -> None:
    """Embed or score what a job holds on this worker's engine; nothing happens when it is over."""
    model_worker.host().run_pooled(job_id)


@app.task(name=WAKE_TASK, ignore_result=True)
def node_wake() -> None:
    """Look at the deployments now."""
    node.wake.set()


@app.task(name=IMPORT_TASK, acks_late=True, ignore_result=True)
def import_run(pk: str) -> None:
    """Take a model in; nothing happens when somebody else does, or when it has ended."""
    import_see_through(pk)

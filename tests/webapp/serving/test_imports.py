"""Imports on a real node worker: found again when their worker is killed, without a trace where they are refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as live_settings

from registry.models import ImportJob, ImportState, Version, VersionState
from registry.services.import_jobs import import_create
from tests.tiny_models import write_tiny_llama
from tests.webapp.serving.running_node import RunningNode, wait_for
from webapp.serving.dispatch import import_dispatch

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@pytest.fixture
def importing_node(transactional_db: None, clean_redis: Any, redis_url: str, tmp_path: Path) -> Iterator[RunningNode]:
    node = RunningNode(redis_url=redis_url, log=tmp_path / "node.log", PARLEY_IMPORT_ROOTS=str(tmp_path))
    yield node
    node.stop()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_model_is_taken_in_by_the_node_even_when_its_worker_is_killed(
        importing_node: RunningNode, ada: "User", tmp_path: Path, settings: Any) -> None:
    ada.is_staff = True
    ada.save()
    settings.PARLEY_IMPORT_ROOTS = [tmp_path]
    broken = tmp_path / "broken"
    for folder in (tmp_path / "good", broken):
        folder.mkdir()
        write_tiny_llama(folder)
    (broken / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))

    def taken(name: str) -> ImportJob:
        job = import_create(by=ada, name=name, path=str(tmp_path / name))
        import_dispatch(job.pk)
        wait_for(lambda: ImportJob.objects.get(pk=job.pk).ended_at, seconds=60, what=f"{name} is taken in or refused")
        return ImportJob.objects.select_related("version").get(pk=job.pk)

    job = taken("good")
    assert (job.state, job.reason) == (ImportState.DONE, "")
    assert job.version is not None and job.version.state == VersionState.READY
    assert {row["outcome"] for row in job.checks["results"]} == {"pass"}
    job = taken("broken")
    assert job.state == ImportState.REFUSED and "config.json" in job.reason
    assert not list((live_settings.PARLEY_STAGING).glob("*/*.safetensors"))

    # Another of the same content under another name; its worker dies at once, and the next one finds it by its lease.
    job = import_create(by=ada, name="again", path=str(tmp_path / "good"))
    import_dispatch(job.pk)
    wait_for(lambda: ImportJob.objects.get(pk=job.pk).state == ImportState.RUNNING, seconds=30, every=0.005, what="run")
    importing_node.kill_alone()
    if ImportJob.objects.filter(pk=job.pk, state=ImportState.RUNNING).update(held_until="2020-01-01T00:00:00Z"):
        wait_for(lambda: ImportJob.objects.get(pk=job.pk).ended_at, seconds=60, what="it is taken up again")
    job.refresh_from_db()
    assert (job.state, job.attempt) in ((ImportState.DONE, 2), (ImportState.DONE, 1))
    assert Version.objects.filter(model__name="again", state=VersionState.READY).count() == 1
    assert not list((live_settings.PARLEY_STAGING).glob("*/*.safetensors"))

"""A real node worker loads, unloads and makes room: replies are finished first, and only what fits is loaded."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.db import connections

from registry.errors import LoadRefused
from registry.loads import version_load
from registry.models import Deployment, DeploymentState, Node
from registry.services.deployments import deployment_configure, deployment_load, deployment_unload
from registry.services.imports import version_import
from tests.inference.adapters.making import write_adapter
from tests.tiny_models import write_tiny_llama
from tests.webapp.serving.running_node import RunningNode, wait_for, wait_loaded
from webapp.serving.dispatch import node_wake
from webapp.serving.errors import VersionUnavailable
from webapp.serving.models import Generation
from webapp.serving.services import generation_create, generations_create

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from registry.models import Version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.django_db(transaction=True)]
MEMORY_FOR_ONE = 300 * 2**20  # a tiny model takes 190 MB of runtime and next to nothing more
QUESTION = [{"role": "user", "content": "Go on"}]


@pytest.fixture
def tiny(tmp_path: Path) -> "Version":
    return make_tiny(tmp_path, "tiny")


def make_tiny(tmp_path: Path, name: str) -> "Version":
    """A chat model that takes seconds to fill its context."""
    folder = tmp_path / name
    folder.mkdir()
    write_tiny_llama(folder, max_position_embeddings=16384)
    return version_import(path=folder, name=name)


@pytest.fixture
def small_node(transactional_db: None, clean_redis: Any, redis_url: str, tmp_path: Path,
               settings: Any) -> Iterator[RunningNode]:
    """A machine that has memory for one tiny model at a time."""
    settings.PARLEY_MODEL_MEMORY = MEMORY_FOR_ONE
    node = RunningNode(redis_url=redis_url, log=tmp_path / "node.log", PARLEY_MODEL_MEMORY=str(MEMORY_FOR_ONE))
    yield node
    node.stop()
    assert node.left_over() == []


def long_reply(owner: "User", version: "Version", tokens: int) -> Generation:
    asked = generation_create(owner=owner, version=version, messages=QUESTION,
                              sampling={"temperature": 0, "max_tokens": tokens, "ignore_eos": True})
    wait_for(lambda: Generation.objects.get(pk=asked.pk).output_count > 5, seconds=60, what="some text")
    return asked


def wait_unloaded(version: "Version") -> None:
    wait_for(lambda: version_load(version).state == "unloaded", seconds=30, what=f"{version} is unloaded")


def test_unloading_waits_for_replies_or_ends_them_with_a_reason(
        tiny: "Version", running_node: RunningNode, ada: "User") -> None:
    deployment = deployment_load(version=tiny)
    wait_loaded(tiny)
    deployment.refresh_from_db()
    node = Node.objects.get()
    assert node.devices[0]["kind"] == "cpu" and 0 < node.free_bytes <= node.memory_bytes and node.started_at
    assert deployment.facts["weights_bytes"] == deployment.plan["weights_bytes"]
    one_block = deployment.facts["kv_cache_bytes"] // deployment.facts["num_blocks"]
    assert 0 <= deployment.plan["kv_bytes"] - deployment.facts["kv_cache_bytes"] < one_block
    assert deployment.facts["resident_bytes"] > deployment.plan["weights_bytes"]

    drained = long_reply(ada, tiny, 4000)
    deployment_unload(deployment=deployment)
    node_wake()
    wait_for(lambda: version_load(tiny).state == "unloading", seconds=5, what="it is unloading")
    with pytest.raises(VersionUnavailable, match="is being unloaded"):
        generation_create(owner=ada, version=tiny, messages=QUESTION, sampling={"max_tokens": 5})
    wait_unloaded(tiny)
    drained.refresh_from_db()
    assert (drained.state, drained.finish_reason, drained.output_count) == ("done", "length", 4000)

    cut = long_reply(ada, tiny, 16000)  # picking it loads it again
    deployment_unload(deployment=deployment, force=True)
    node_wake()
    wait_unloaded(tiny)
    wait_for(lambda: Generation.objects.get(pk=cut.pk).ended, seconds=5, what="the reply ends")
    cut.refresh_from_db()
    assert cut.state == "failed" and "unloaded" in cut.error and 5 < cut.output_count < 16000 and cut.text
    assert not Deployment.objects.get().force_unload
    assert not running_node.children_named("run_version") and not list((settings.PARLEY_HOME / "run").glob("*.sock"))


def test_the_last_of_many_who_press_load_and_unload_wins_and_idle_models_are_unloaded(
        tiny: "Version", running_node: RunningNode) -> None:
    deployment = deployment_load(version=tiny)

    def press(number: int) -> None:
        for _ in range(5):
            if number % 2:
                deployment_load(version=tiny)
            else:
                deployment_unload(deployment=deployment)
            node_wake()
        connections.close_all()

    pressing = [threading.Thread(target=press, args=[number]) for number in range(4)]
    for thread in pressing:
        thread.start()
    for thread in pressing:
        thread.join()
    deployment_unload(deployment=deployment)
    wait_unloaded(tiny)
    deployment_load(version=tiny)
    wait_loaded(tiny)
    assert len(running_node.children_named("run_version")) == 1

    deployment_configure(deployment=deployment, by=None, settings={"idle_seconds": 1})
    wait_unloaded(tiny)
    deployment.refresh_from_db()
    assert (deployment.wanted, deployment.reason) == (False, "Unloaded after 1 seconds without work.")


def test_room_is_made_by_unloading_the_idle_and_what_never_fits_is_refused(
        tiny: "Version", small_node: RunningNode, demo_version: "Version", tmp_path: Path, ada: "User") -> None:
    other = make_tiny(tmp_path, "other")
    first = deployment_load(version=tiny)
    wait_loaded(tiny)
    with pytest.raises(LoadRefused, match="does not fit on tests: it needs at least") as refusal:
        deployment_load(version=demo_version)
    assert {"Weights", "KV cache of a token"} <= {line["name"] for line in refusal.value.lines}
    with pytest.raises(LoadRefused, match="does not fit"):
        deployment_load(version=other)  # the first was used just now
    Deployment.objects.filter(pk=first.pk).update(used_at="2020-01-01T00:00:00Z")
    deployment_load(version=other)
    wait_loaded(other)
    first.refresh_from_db()
    assert (first.state, first.wanted) == (DeploymentState.UNLOADED, False)
    assert first.reason == "Unloaded to make room for other:1."

    # What is wished past the check, as after a restart with less memory, fails once with the same words.
    Deployment.objects.create(version=demo_version, wanted=True)
    wait_for(lambda: version_load(demo_version).state == "failed", seconds=10, what="it is failed")
    assert "does not fit on tests" in version_load(demo_version).reason
    with pytest.raises(VersionUnavailable, match="does not fit"):
        generation_create(owner=ada, version=demo_version, messages=QUESTION, sampling={"max_tokens": 5})
    assert version_load(other).state == "loaded"


def test_an_adapter_is_loaded_beside_its_version_and_writes_otherwise(
        running_node: RunningNode, tmp_path: Path, ada: "User") -> None:
    base, poet = tmp_path / "tiny", tmp_path / "poet"
    base.mkdir()
    write_adapter(poet, write_tiny_llama(base), seed=1)
    (poet / "README.md").unlink(missing_ok=True)
    version = version_import(path=base, name="tiny")
    adapter = version_import(path=poet, name="poet", parent=version)
    assert adapter.model.kind == "adapter" and adapter.checks["outcome"] != "refuse"
    deployment_load(version=version, adapters=[adapter])
    wait_loaded(version)

    def written(with_adapter: "Version | None") -> str:
        rows = generations_create(owner=ada, version=version, prompts=[[1, 5, 9]], adapter=with_adapter,
                                  sampling={"temperature": 0, "max_tokens": 20, "ignore_eos": True})
        wait_for(lambda: Generation.objects.get(pk=rows[0].pk).ended, seconds=30, what="the reply")
        row = Generation.objects.get(pk=rows[0].pk)
        assert row.state == "done", row.error
        return str(row.output_ids)

    alone = written(None)
    assert written(adapter) != alone
    assert written(None) == alone
    other = version_import(path=poet, name="other", parent=version)
    with pytest.raises(VersionUnavailable, match="not deployed with the adapter other:1"):
        written(other)


def test_a_model_worker_that_is_killed_while_loading_is_tried_again_and_then_failed_with_the_reason(
        tiny: "Version", running_node: RunningNode) -> None:
    deployment_load(version=tiny)
    killed: set[int] = set()

    def kill_next() -> bool:
        for process in running_node.children_named("run_version"):
            if process.pid not in killed:
                killed.add(process.pid)
                process.kill()
        return version_load(tiny).state == "failed"

    wait_for(kill_next, seconds=60, what="it is failed")
    assert version_load(tiny).reason == "The model worker was killed by signal 9 while loading, 3 times in a row."
    assert len(killed) == 3
    deployment_load(version=tiny)
    wait_loaded(tiny)

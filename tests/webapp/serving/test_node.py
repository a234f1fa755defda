"""A real node worker: what is wished is loaded and unloaded; what can't be loaded says why, once."""

import time
from typing import TYPE_CHECKING, Any

import pytest

from registry.loads import version_load
from registry.models import Deployment, DeploymentState, Node
from registry.services.deployments import (
    deployment_load,
    deployment_unload,
)
from registry.services.holding import deployment_hold, deployment_release, deployment_report_loaded
from tests.webapp.serving.running_node import RunningNode, wait_for, wait_loaded
from webapp.serving.models import Generation
from webapp.serving.services import generation_create, generation_stop
from webapp.serving.stats import engine_stats

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from registry.models import Version


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.django_db(transaction=True)
def test_it_loads_on_demand_answers_stops_within_a_second_and_unloads(
        demo_version: "Version", running_node: RunningNode, ada: "User") -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    asked = generation_create(owner=ada, version=demo_version, messages=question,
                              sampling={"temperature": 0, "max_tokens": 30})
    wait_loaded(demo_version)
    wait_for(lambda: Generation.objects.get(pk=asked.pk).ended, seconds=30, what="the answer")
    assert "Paris" in Generation.objects.get(pk=asked.pk).text

    long = generation_create(owner=ada, version=demo_version, messages=question,
                             sampling={"temperature": 0, "max_tokens": 2000, "ignore_eos": True})
    wait_for(lambda: Generation.objects.get(pk=long.pk).output_count > 5, seconds=30, what="some text")
    generation_stop(generation=long, by=ada)
    wait_for(lambda: Generation.objects.get(pk=long.pk).state == "stopped", seconds=1, what="it is stopped")
    assert Generation.objects.get(pk=long.pk).text
    wait_for(lambda: [stats.running for stats in engine_stats(demo_version.pk)] == [0], seconds=5, what="it is idle")

    assert Node.objects.get().name == "tests"
    deployment = Deployment.objects.get()
    assert deployment.facts["mode"] == "int8"
    engine = running_node.engine_pid()
    deployment_unload(deployment=deployment)
    wait_for(lambda: version_load(demo_version).state == "unloaded", seconds=20, what="it is unloaded")
    assert engine not in {process.pid for process in running_node.left_over()}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.django_db(transaction=True)
def test_a_version_that_cannot_load_fails_once_with_the_reason_and_is_tried_again_when_asked(
        bare_version: "Version", running_node: RunningNode) -> None:
    deployment_load(version=bare_version)
    for tries in (1, 2):
        wait_for(lambda: version_load(bare_version).state == "failed", seconds=50, what="it is failed")
        time.sleep(2.5)  # two more rounds of the loop
        assert running_node.log_text().count(" starts") == tries
        load = version_load(bare_version)
        assert load.state == "failed" and "is missing" in load.reason
        if tries == 1:
            deployment_load(version=bare_version)


@pytest.mark.django_db
def test_one_node_at_a_time_holds_a_deployment(bare_version: "Version") -> None:
    pk = deployment_load(version=bare_version).pk
    assert deployment_hold(pk=pk, holder="a#1", replaces="a#")
    assert not deployment_hold(pk=pk, holder="b#1", replaces="b#")
    assert deployment_hold(pk=pk, holder="a#2", replaces="a#")  # the same node after a restart
    assert not deployment_report_loaded(pk=pk, holder="a#1", facts={})
    assert deployment_report_loaded(pk=pk, holder="a#2", facts={"mode": "int8"})
    deployment_release(pk=pk, holder="a#2")
    assert deployment_hold(pk=pk, holder="b#1", replaces="b#")


@pytest.mark.django_db
def test_a_failure_stays_until_somebody_asks_again(bare_version: "Version") -> None:
    deployment = deployment_load(version=bare_version)
    Deployment.objects.update(state=DeploymentState.FAILED, reason="too big", held_by="a#1")
    deployment_release(pk=deployment.pk, holder="a#1")
    assert (version_load(bare_version).state, version_load(bare_version).reason) == ("failed", "too big")
    assert not version_load(bare_version).wanted
    deployment_load(version=bare_version)
    assert (version_load(bare_version).state, version_load(bare_version).wanted) == ("loading", True)


@pytest.mark.django_db(transaction=True)
def test_a_second_node_worker_of_the_same_name_is_refused(settings: Any, tmp_path: Any) -> None:
    from webapp.serving.node import NodeAlreadyRuns, NodeLoop

    settings.PARLEY_HOME = tmp_path
    first = NodeLoop(name="one")
    with pytest.raises(NodeAlreadyRuns, match="PARLEY_NODE"):
        NodeLoop(name="one")
    first.close()
    NodeLoop(name="one").close()

"""Deployments as people wish them: settings that are checked, loading by use, and what a machine has no room for."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from inference.spec import SpecError
from registry.errors import ChangeRefused, LoadRefused, NotAllowed
from registry.models import AuditEntry, Deployment, DeploymentState, Kind, Version, VersionState
from registry.services.deployments import (
    deployment_configure,
    deployment_load,
    deployment_pick,
    deployment_remove,
    deployment_unload,
)
from registry.services.holding import (
    deployment_hold,
    deployment_report_loaded,
    deployments_idle_unload,
    deployments_wish_at_start,
    node_report,
)
from registry.services.imports import version_import
from tests.registry.making import make_version
from tests.tiny_models import write_tiny_llama

pytestmark = pytest.mark.django_db
GB = 10**9


@pytest.fixture
def tiny(tmp_path: Path) -> Version:
    folder = tmp_path / "llama"
    folder.mkdir()
    write_tiny_llama(folder)
    return version_import(path=folder, name="tiny")


def report(name: str = "here", *, free: int, kind: str = "cpu") -> None:
    node_report(name=name, devices=[{"name": "4 × CPU", "kind": kind, "index": 0, "memory_bytes": 8 * GB,
                                     "free_bytes": free}])


def loaded(version: Version, *, node: str = "here", **fields: object) -> Deployment:
    deployment = deployment_load(version=version)
    assert deployment_hold(pk=deployment.pk, holder=f"{node}#1", replaces=f"{node}#")
    deployment_report_loaded(pk=deployment.pk, holder=f"{node}#1", facts={"resident_bytes": 200_000_000})
    Deployment.objects.filter(pk=deployment.pk).update(**fields)
    deployment.refresh_from_db()
    return deployment


def test_settings_are_kept_changed_and_set_back_to_their_defaults() -> None:
    version = make_version(context_length=4096)
    first = deployment_load(version=version, settings={"mode": "float32", "max_model_len": 1024, "idle_seconds": 60})
    assert (first.mode, first.max_model_len, first.idle_seconds, first.wanted) == ("float32", 1024, 60, True)
    again = deployment_load(version=version, settings={"max_model_len": None})
    assert (again.pk, again.mode, again.max_model_len) == (first.pk, "float32", None)
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", "words"))
    assert actions[0] == ("load", "on any machine, mode float32, max_model_len 1024, idle_seconds 60")
    assert actions[1] == ("settings", "max_model_len default")
    deployment_configure(deployment=again, by=None, settings={"load_on_pick": False})
    assert not Deployment.objects.get().load_on_pick


@pytest.mark.parametrize("given, field", [
    ({"mode": "int3"}, "mode"), ({"mode": ""}, "mode"), ({"max_model_len": 5000}, "max_model_len"),
    ({"max_model_len": 1}, "max_model_len"), ({"max_num_seqs": 0}, "max_num_seqs"),
    ({"max_num_seqs": None}, "max_num_seqs"), ({"max_num_seqs": True}, "max_num_seqs"),
    ({"max_num_batched_tokens": 8}, "max_num_batched_tokens"), ({"kv_cache_bytes": -1}, "kv_cache_bytes"),
    ({"kv_cache_bytes": 2**60}, "kv_cache_bytes"), ({"idle_seconds": "soon"}, "idle_seconds"),
    ({"device": "abacus"}, "device"), ({"colour": "red"}, "colour"), ({"kv_dtype": "fp3"}, "kv_dtype")])
def test_impossible_settings_are_refused_by_name(given: dict[str, object], field: str) -> None:
    with pytest.raises(SpecError) as refusal:
        deployment_load(version=make_version(context_length=4096), settings=given)
    assert refusal.value.field == field
    assert not Deployment.objects.exists()


def test_only_ready_models_are_loaded_and_only_by_administrators() -> None:
    with pytest.raises(LoadRefused, match="tiny:1 is archived"):
        deployment_load(version=make_version(state=VersionState.ARCHIVED))
    base = make_version(number=2)
    adapter = make_version("poet", kind=Kind.ADAPTER, parent=base)
    with pytest.raises(LoadRefused, match="poet:1 is an adapter"):
        deployment_load(version=adapter)
    with pytest.raises(SpecError, match="poet:1 is not an adapter of other:1"):
        deployment_load(version=make_version("other"), adapters=[adapter])
    assert list(deployment_load(version=base, adapters=[adapter]).adapters.all()) == [adapter]
    ada = User.objects.create_user("ada")
    for call in (lambda: deployment_load(version=base, by=ada),
                 lambda: deployment_unload(deployment=Deployment.objects.get(version=base), by=ada)):
        with pytest.raises(NotAllowed):
            call()


def test_using_a_model_loads_it_where_its_policy_allows() -> None:
    version = make_version()
    deployment_pick(version=version)
    deployment = Deployment.objects.get()
    assert deployment.wanted
    deployment_unload(deployment=deployment)
    Deployment.objects.update(load_on_pick=False)
    with pytest.raises(LoadRefused, match="only an administrator may load it"):
        deployment_pick(version=version)
    Deployment.objects.update(load_on_pick=True, state=DeploymentState.UNLOADING)
    with pytest.raises(LoadRefused, match="being unloaded right now"):
        deployment_pick(version=version)
    Deployment.objects.update(state=DeploymentState.UNLOADED)
    deployment_pick(version=version)
    assert Deployment.objects.get().wanted
    with pytest.raises(LoadRefused, match="not deployed with the adapter poet:1"):
        deployment_pick(version=version, adapter=make_version("poet", kind=Kind.ADAPTER, parent=version))


def test_a_load_without_room_is_refused_with_the_arithmetic(tiny: Version) -> None:
    report(free=50_000_000)
    with pytest.raises(LoadRefused, match=r"tiny:1 does not fit on here: it needs at least [\d.]+") as refusal:
        deployment_load(version=tiny)
    assert all(line["formula"] and line["unit"] for line in refusal.value.lines)
    assert not Deployment.objects.exists() and not AuditEntry.objects.filter(action="load").exists()
    report("there", free=4 * GB)
    assert deployment_load(version=tiny).wanted
    with pytest.raises(LoadRefused, match="does not fit on here"):
        deployment_load(version=tiny, node="here")


def test_idle_models_count_as_room_unless_they_are_to_stay(tiny: Version) -> None:
    other = loaded(make_version("other"), used_at="2020-01-01T00:00:00Z")
    report(free=50_000_000)
    assert deployment_load(version=tiny).wanted
    Deployment.objects.filter(version=tiny).update(wanted=False)
    for changes in ({"load_at_start": True}, {"load_at_start": False, "used_at": None}):
        Deployment.objects.filter(pk=other.pk).update(**changes)
        with pytest.raises(LoadRefused):
            deployment_load(version=tiny)


def test_models_are_unloaded_after_their_idle_time_and_loaded_at_start() -> None:
    version = make_version()
    deployment = loaded(version, idle_seconds=60, load_at_start=True)
    assert deployments_idle_unload(holder="here#1") == []
    Deployment.objects.update(used_at="2020-01-01T00:00:00Z")
    assert deployments_idle_unload(holder="there#1") == []
    assert deployments_idle_unload(holder="here#1") == [deployment.pk]
    deployment.refresh_from_db()
    assert (deployment.wanted, deployment.reason) == (False, "Unloaded after 60 seconds without work.")
    assert deployments_wish_at_start(node="here") == 1
    assert Deployment.objects.get().wanted


def test_a_deployment_is_removed_once_nothing_of_it_is_held() -> None:
    deployment = loaded(make_version())
    with pytest.raises(ChangeRefused, match="Unload it first"):
        deployment_remove(deployment=deployment, by=None)
    Deployment.objects.update(state=DeploymentState.UNLOADED, wanted=False)
    deployment_remove(deployment=deployment, by=None)
    assert not Deployment.objects.exists()


def test_forcing_after_asking_ends_at_once() -> None:
    deployment = loaded(make_version())
    deployment_unload(deployment=deployment)
    deployment_unload(deployment=deployment, force=True)
    deployment.refresh_from_db()
    assert (deployment.wanted, deployment.force_unload) == (False, True)
    deployment_load(version=deployment.version)
    deployment.refresh_from_db()
    assert (deployment.wanted, deployment.force_unload) == (True, False)

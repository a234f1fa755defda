"""`manage.py deploy` and `undeploy`: what they wish, what they say, and when they exit with an error."""

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command

from registry.models import Deployment, DeploymentState
from registry.services.aliases import alias_set

if TYPE_CHECKING:
    from registry.models import Version

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


def test_a_version_is_wished_by_number_or_alias_with_its_settings(bare_version: "Version", clean_redis: object) -> None:
    assert run("deploy", "bare:1", "--max-model-len", "64", "--idle-seconds", "60", "--load-at-start") == (
        "bare:1 is to be loaded.\n")
    deployment = Deployment.objects.get()
    assert (deployment.max_model_len, deployment.idle_seconds, deployment.load_at_start, deployment.load_on_pick) == (
        64, 60, True, True)
    assert run("undeploy", "bare") == "bare:1 is to be unloaded.\n"
    alias_set(model=bare_version.model, name="production", version=bare_version, by=None)
    run("deploy", "bare@production", "--no-load-on-pick")
    deployment.refresh_from_db()
    assert (deployment.wanted, deployment.max_model_len, deployment.load_on_pick) == (True, 64, False)


@pytest.mark.parametrize("arguments, words", [
    (("deploy", "nobody"), "there is no ready version 'nobody'"), (("deploy", "bare:9"), "there is no ready version"),
    (("deploy", "bare", "--max-model-len", "1000"), "max_model_len: must be at most 100"),
    (("deploy", "bare", "--max-num-seqs", "0"), "max_num_seqs"), (("undeploy", "nobody"), "no ready version"),
    (("undeploy", "bare"), "bare:1 is not deployed"),
    (("deploy", "bare", "--wait", "--seconds", "0.1"), "bare:1 is not loaded after 0 s")])
def test_what_can_not_be_done_is_said(
        bare_version: "Version", clean_redis: object, arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        run(*arguments)


def test_waiting_says_why_a_load_failed(bare_version: "Version", clean_redis: object) -> None:
    run("deploy", "bare")
    Deployment.objects.update(state=DeploymentState.FAILED, reason="Too big.")
    from webapp.serving.waiting import WaitedInVain, loaded_wait

    with pytest.raises(WaitedInVain, match="bare:1 can't be loaded: Too big."):
        loaded_wait(bare_version, seconds=1, say=print)

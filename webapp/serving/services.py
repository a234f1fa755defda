"""Writes that people cause: ask for a generation, and stop one."""

import dataclasses
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models.functions import Now

from inference.choices import choice_params
from inference.spec import SamplingParams, SpecError
from inference.text.chat_template import TemplateError
from inference.text.prompt import PromptBuilder
from registry.errors import BlobMissing, LoadRefused
from registry.loads import VersionLoad, version_load
from registry.models import Version
from registry.selectors import version_folder
from registry.services.deployments import deployment_pick
from webapp.accounts.models import ApiKey
from webapp.serving.dispatch import generation_dispatch, node_wake, stop_announce
from webapp.serving.errors import GenerationRefused, PromptTooLong, VersionUnavailable
from webapp.serving.events import views_send_on_commit
from webapp.serving.models import Generation, GenerationState
from webapp.serving.selectors import generation_view

logger = logging.getLogger(__name__)
SEEDS = 2**63
FORGOTTEN_AFTER = timedelta(days=1)  # longer than anybody waits, for looking into what went wrong
FORGET_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The program's request that a generation answers; all empty for the chat page's.

    reply_to: the Redis channel on which somebody waits (serving.replies.ReplyHub.channel). pks: the ids that its
    generations get, so that they can be followed before there are any.
    """

    api_key: ApiKey | None = None
    endpoint: str = ""
    request_id: str = ""
    reply_to: str = ""
    pks: Sequence[UUID] = ()


def generation_create(*, owner: Any, version: Version, messages: list[dict[str, str]],
                      sampling: dict[str, Any]) -> Generation:
    """Queue a reply to `messages` ({"role", "content"}), and have the version loaded if it isn't.

    sampling: the fields of inference.spec.SamplingParams; a seed that is missing or None is drawn, and max_tokens is
    cut to the room that the prompt leaves. Raises GenerationRefused: PromptTooLong, VersionUnavailable, or code
    "template" or "sampling".
    """
    _usable_load(version)
    return generations_create(owner=owner, version=version, prompts=[_prompt_ids(version, messages)],
                              sampling=sampling)[0]


def generations_create(*, owner: Any, version: Version, prompts: Sequence[list[int]], sampling: dict[str, Any],
                       n: int = 1, adapter: Version | None = None, origin: Origin = Origin()) -> list[Generation]:
    """Queue n replies to each of these prompts (token ids): all of them or none, those of a prompt side by side.

    Reply i of a prompt has the seed that inference.choices gives it. Raises GenerationRefused as generation_create.
    """
    load = _usable_load(version)
    limit = load.limit or version.context_length
    seed = sampling.get("seed")
    seed = secrets.randbelow(SEEDS) if seed is None else seed
    rows: list[Generation] = []
    for prompt_ids in prompts:
        if len(prompt_ids) >= limit:
            raise PromptTooLong(prompt_tokens=len(prompt_ids), limit=limit)
        for choice, own in enumerate(_choices(sampling | {"seed": seed}, n, room=limit - len(prompt_ids))):
            rows.append(Generation(
                pk=origin.pks[len(rows)] if origin.pks else uuid4(), owner=owner, version=version, adapter=adapter,
                prompt_ids=prompt_ids, prompt_tokens=len(prompt_ids), params=dataclasses.asdict(own),
                counts_prompt=choice == 0, api_key=origin.api_key, endpoint=origin.endpoint,
                request_id=origin.request_id, reply_to=origin.reply_to))
    with transaction.atomic():
        if adapter or not load.wanted:
            _have_it_loaded(version, adapter)
        Generation.objects.bulk_create(rows)
        if not origin.reply_to:  # a page shows when it was asked for
            for row in rows:
                row.refresh_from_db(fields=["created_at", "queued_at"])
        transaction.on_commit(lambda: _dispatch(rows))
    return rows


def version_ensure_loading(*, version: Version) -> None:
    """Have a version loaded, for requests that have no row. Raises VersionUnavailable when it failed or may not."""
    if not _usable_load(version).wanted:
        _have_it_loaded(version)


def _usable_load(version: Version) -> VersionLoad:
    load = version_load(version)
    if load.state == "failed":
        raise VersionUnavailable(version=str(version), reason=load.reason)
    return load


def _have_it_loaded(version: Version, adapter: Version | None = None) -> None:
    try:
        deployment_pick(version=version, adapter=adapter)
    except LoadRefused as refusal:
        raise VersionUnavailable(version=str(version), reason=refusal.reason) from refusal
    transaction.on_commit(node_wake)


def _dispatch(rows: list[Generation]) -> None:
    for row in rows:
        generation_dispatch(pk=row.pk, version_pk=row.version_id)


def _prompt_ids(version: Version, messages: list[dict[str, str]]) -> list[int]:
    try:
        return PromptBuilder.from_path(version_folder(version)).chat_ids(messages)
    except TemplateError as error:
        raise GenerationRefused("template", f"{version} can't take this conversation: {error}", field="text") from error
    except BlobMissing as error:
        raise VersionUnavailable(version=str(version), reason=str(error)) from error


def _choices(sampling: dict[str, Any], n: int, *, room: int) -> list[SamplingParams]:
    """The sampling of n replies that have room for so many tokens. Raises GenerationRefused, naming the field."""
    fields = {name: value for name, value in sampling.items() if value is not None}
    fields["stop"] = tuple(fields.get("stop", ()))
    fields["stop_token_ids"] = tuple(fields.get("stop_token_ids", ()))
    try:
        wished = SamplingParams(**{"max_tokens": room, **fields})
        return choice_params(dataclasses.replace(wished, max_tokens=min(wished.max_tokens, room)), n)
    except SpecError as error:
        raise GenerationRefused("sampling", str(error), field=error.field) from error


def generation_stop(*, generation: Generation, by: Any) -> Generation:
    """End a generation and keep its text: a durable flag, of which the pump also hears at once. Ended ones stay so.

    by: the owner or an administrator. Raises Generation.DoesNotExist for anybody else.
    """
    if generation.owner_id != by.pk and not by.is_staff:
        raise Generation.DoesNotExist
    rows = Generation.objects.filter(pk=generation.pk)
    with transaction.atomic():
        rows.filter(state__in=[GenerationState.QUEUED, GenerationState.RUNNING]).update(stop_requested=True)
        ended = rows.filter(state=GenerationState.QUEUED).update(
            state=GenerationState.STOPPED, finish_reason="cancelled", ended_at=Now())
        generation = rows.select_related("version__model").get()
        if ended:
            views_send_on_commit([(generation.owner_id, generation_view(generation).to_dict())])
        elif generation.state == GenerationState.RUNNING:
            transaction.on_commit(lambda: stop_announce(pk=generation.pk, version_pk=generation.version_id))
    return generation


def generations_abandon(*, pks: Sequence[UUID], owner: Any) -> None:
    """Stop those of the owner's generations that haven't ended: nobody waits for them any more."""
    for row in Generation.objects.filter(pk__in=pks, owner=owner).only("id", "state", "owner_id", "version_id"):
        generation_stop(generation=row, by=owner)


def generations_forget() -> int:
    """Delete programs' generations that ended a day ago: their usage rows stay. Returns how many, at most a batch."""
    old = Generation.objects.exclude(reply_to="").filter(ended_at__lt=Now() - FORGOTTEN_AFTER)
    pks = list(old.values_list("pk", flat=True)[:FORGET_BATCH])
    Generation.objects.filter(pk__in=pks).delete()
    return len(pks)

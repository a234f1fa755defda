"""What the socket's frames ask of the database: one short synchronous call each, for the consumer's database thread."""

from collections.abc import Iterable
from uuid import UUID

from django.contrib.auth.models import User

from registry.loads import VersionLoad, version_loads
from webapp.chat import services
from webapp.chat.errors import SignedOut
from webapp.chat.frames import GenerationStop, GenerationWatch, MessageCreated, MessageRegenerate, MessageSend
from webapp.chat.page_data import message_data
from webapp.chat.selectors import conversation_for, generation_for, generations_for, message_for
from webapp.chat.watches import Row
from webapp.serving.models import Generation, GenerationState
from webapp.serving.selectors import generation_view
from webapp.serving.services import generation_stop


def send(viewer: User, frame: MessageSend) -> MessageCreated:
    _check_active(viewer)
    conversation = conversation_for(viewer=viewer, pk=frame.conversation)
    parent = message_for(viewer=viewer, pk=frame.parent) if frame.parent else None
    return _created(services.message_send(conversation=conversation, parent=parent, text=frame.text, by=viewer))


def regenerate(viewer: User, frame: MessageRegenerate) -> MessageCreated:
    _check_active(viewer)
    message = message_for(viewer=viewer, pk=frame.message)
    return _created(services.message_regenerate(message=message, by=viewer))


def stop(viewer: User, frame: GenerationStop) -> Row:
    """Stop the generation and return it as it stands then."""
    found = generation_for(viewer=viewer, pk=frame.generation)
    return _row(generation_stop(generation=found, by=viewer))


def row(viewer: User, frame: GenerationWatch) -> Row:
    return _row(generation_for(viewer=viewer, pk=frame.generation))


def rows(viewer: User, generations: Iterable[str]) -> dict[str, Row]:
    """Return the generations by id, as far as the viewer may see them."""
    found = generations_for(viewer=viewer, pks=[UUID(generation) for generation in generations])
    loads = version_loads(generation.version for generation in found if generation.state == GenerationState.QUEUED)
    return {str(generation.pk): _row(generation, load=loads.get(generation.version_id)) for generation in found}


def _check_active(viewer: User) -> None:
    """A socket outlives the request that checked its user, and an account may be closed meanwhile."""
    if not User.objects.filter(pk=viewer.pk, is_active=True).exists():
        raise SignedOut


def _row(generation: Generation, *, load: VersionLoad | None = None) -> Row:
    return Row(text=generation.text, index=generation.output_count, ended=generation.ended,
               view=generation_view(generation, load=load).to_dict())


def _created(exchange: services.Exchange) -> MessageCreated:
    user_message = exchange.user_message
    return MessageCreated(conversation=str(exchange.conversation.pk),
                          user_message=message_data(user_message) if user_message else None,
                          reply=message_data(exchange.reply))

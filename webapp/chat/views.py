"""The chat pages and what their browser code asks for over HTTP."""

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from webapp.chat import services
from webapp.chat.forms import CreateForm, RenameForm, SettingsForm
from webapp.chat.models import Conversation
from webapp.chat.page_data import conversation_data, messages_data, models_data, page_data, settings_data
from webapp.chat.selectors import conversation_for, conversations_for


class SignedIn(HttpRequest):
    """A request that `login_required` or `signed_in_json` has let through."""

    user: User


View = Callable[..., HttpResponseBase]


def signed_in_json(view: View) -> View:
    """Answer 401 in JSON where nobody is signed in: a redirect to a page is no use to a script."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return JsonResponse({"errors": {"__all__": ["Sign in first."]}}, status=401)
        return view(request, *args, **kwargs)

    return checked


@login_required
@require_safe
def home(request: SignedIn) -> HttpResponseBase:
    """Go to the conversation used last, or show an empty page; `/?new` always shows an empty page."""
    newest = None if "new" in request.GET else conversations_for(viewer=request.user).first()
    return redirect("chat:conversation", newest.pk) if newest else _page(request, None)


@login_required
@require_safe
def conversation(request: SignedIn, pk: uuid.UUID) -> HttpResponse:
    return _page(request, _conversation(request, pk))


@signed_in_json
@require_POST
def create(request: SignedIn) -> JsonResponse:
    form = CreateForm(request.POST, viewer=request.user)
    if not form.is_valid():
        return _refused(form)
    made = services.conversation_create(owner=request.user, version=form.cleaned_data["version"],
                                        alias=form.cleaned_data["alias"])
    return JsonResponse({"id": str(made.pk), "url": reverse("chat:conversation", args=[made.pk])}, status=201)


@signed_in_json
@require_POST
def rename(request: SignedIn, pk: uuid.UUID) -> JsonResponse:
    found = _conversation(request, pk)
    form = RenameForm(request.POST)
    if not form.is_valid():
        return _refused(form)
    return _changed(services.conversation_rename(conversation=found, title=form.cleaned_data["title"]))


@signed_in_json
@require_POST
def delete(request: SignedIn, pk: uuid.UUID) -> JsonResponse:
    return _changed(services.conversation_delete(conversation=_conversation(request, pk), by=request.user))


@signed_in_json
@require_POST
def restore(request: SignedIn, pk: uuid.UUID) -> JsonResponse:
    return _changed(services.conversation_restore(conversation=_conversation(request, pk, deleted=True)))


@signed_in_json
@require_POST
def configure(request: SignedIn, pk: uuid.UUID) -> JsonResponse:
    found = _conversation(request, pk)
    form = SettingsForm(request.POST, viewer=request.user)
    if not form.is_valid():
        return _refused(form)
    return JsonResponse({"settings": settings_data(
        services.conversation_configure(conversation=found, settings=form.cleaned_data))})


@signed_in_json
@require_safe
def messages(request: SignedIn, pk: uuid.UUID) -> JsonResponse:
    """Give a script what the page would come with, so that it can open a conversation in place."""
    found = _conversation(request, pk)
    return JsonResponse({"conversation": conversation_data(found), "messages": messages_data(found)})


@signed_in_json
@require_safe
def models(request: SignedIn) -> JsonResponse:
    return JsonResponse({"models": models_data(viewer=request.user)})


def _conversation(request: SignedIn, pk: uuid.UUID, *, deleted: bool = False) -> Conversation:
    try:
        return conversation_for(viewer=request.user, pk=pk, deleted=deleted)
    except Conversation.DoesNotExist:
        raise Http404("There is no such conversation.") from None


def _page(request: SignedIn, shown: Conversation | None) -> HttpResponse:
    return render(request, "chat/page.html", {
        "conversations": list(conversations_for(viewer=request.user)),
        "conversation": shown,
        "page_data": page_data(viewer=request.user, conversation=shown),
    })


def _changed(found: Conversation) -> JsonResponse:
    return JsonResponse({"conversation": conversation_data(found)})


def _refused(form: forms.BaseForm) -> JsonResponse:
    return JsonResponse({"errors": form.errors}, status=400)

"""The pages of API keys and usage: a person's own."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.forms import KeyForm
from webapp.accounts.models import ApiKey
from webapp.accounts.selectors import USAGE_DAYS, api_key_for, api_keys_for, limits_for, usage_by_day, usage_latest
from webapp.accounts.services import KeyRefused, NewKey, api_key_create, api_key_revoke


class SignedIn(HttpRequest):
    """A request that `login_required` has let through."""

    user: User


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def keys(request: SignedIn) -> HttpResponse:
    """Show the person's keys; a POST makes one and shows it, this one time."""
    if request.method != "POST":
        return _keys_page(request, KeyForm(is_staff=request.user.is_staff))
    form = KeyForm(request.POST, is_staff=request.user.is_staff)
    if not form.is_valid():
        return _keys_page(request, form, status=400)
    try:
        made = api_key_create(owner=request.user, **form.cleaned_data)
    except KeyRefused as error:
        form.add_error(error.field, str(error))
        return _keys_page(request, form, status=400)
    return _keys_page(request, KeyForm(is_staff=request.user.is_staff), made=made)


@login_required
@require_POST
def key_revoke(request: SignedIn, pk: int) -> HttpResponse:
    try:
        key = api_key_for(viewer=request.user, pk=pk)
    except ApiKey.DoesNotExist:
        raise Http404("There is no such key.") from None
    api_key_revoke(key=key)
    messages.success(request, f"The key “{key.name}” is revoked.")
    return redirect("accounts:keys")


@login_required
@never_cache
@require_safe
def usage(request: SignedIn) -> HttpResponse:
    """Show what the person used of each model, by day, and the latest requests."""
    return render(request, "accounts/usage.html", {
        "section": "usage", "days": usage_by_day(viewer=request.user), "latest": usage_latest(viewer=request.user),
        "limits": limits_for(user=request.user), "span": USAGE_DAYS})


def _keys_page(request: SignedIn, form: KeyForm, *, made: NewKey | None = None, status: int = 200) -> HttpResponse:
    context: dict[str, Any] = {"section": "keys", "form": form, "made": made,
                               "keys": list(api_keys_for(viewer=request.user))}
    return render(request, "accounts/keys.html", context, status=status)

"""What the chat pages accept, with errors by field."""

from typing import Any

from django import forms
from django.contrib.auth.models import User

from registry.selectors import versions_for
from webapp.chat.models import Conversation

MAX_SYSTEM_PROMPT = 100_000


class CreateForm(forms.Form):
    """A new conversation, with the version to use where one is named."""

    def __init__(self, *args: Any, viewer: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["version"] = forms.ModelChoiceField(versions_for(viewer=viewer, kind="chat"), required=False)
        self.fields["alias"] = forms.CharField(required=False, max_length=64)


class RenameForm(forms.ModelForm):  # type: ignore[type-arg]
    title = forms.CharField(max_length=200)

    class Meta:
        model = Conversation
        fields = ["title"]


class SettingsForm(forms.ModelForm):  # type: ignore[type-arg]
    """Some or all of a conversation's settings: a field that isn't sent keeps its value."""

    system_prompt = forms.CharField(required=False, strip=False, max_length=MAX_SYSTEM_PROMPT)

    class Meta:
        model = Conversation
        fields = ["version", "alias", "system_prompt", "temperature", "top_p", "top_k", "max_tokens", "seed"]

    def __init__(self, *args: Any, viewer: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["version"] = forms.ModelChoiceField(versions_for(viewer=viewer, kind="chat"))
        self.unknown = set(self.data) - set(self.fields) - {"csrfmiddlewaretoken"}
        follows = {"alias"} if "version" in self.data else set()  # a version that is chosen by itself has no alias
        for name in set(self.fields) - set(self.data) - follows:
            del self.fields[name]

    def clean(self) -> dict[str, Any]:
        if self.unknown:
            raise forms.ValidationError(f"Unknown settings: {', '.join(sorted(self.unknown))}.")
        return super().clean() or {}

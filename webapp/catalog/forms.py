"""What the registry's pages accept, with errors in words that name the field."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.auth.models import Group

from registry import overview, plans


class ModelForm(forms.Form):
    """About a model, and who may use it."""

    description = forms.CharField(required=False, max_length=5000)
    tags = forms.CharField(required=False, max_length=500)
    access = forms.ChoiceField(choices=overview.ACCESS)
    groups = forms.ModelMultipleChoiceField(Group.objects.all(), required=False)


class VersionForm(forms.Form):
    """What people write about a version."""

    notes = forms.CharField(required=False, max_length=10_000)
    tags = forms.CharField(required=False, max_length=500)
    licence = forms.CharField(required=False, max_length=200)


class AliasForm(forms.Form):
    """An alias and the number of the version that it is to point at."""

    alias = forms.CharField(max_length=64)
    version = forms.IntegerField(min_value=1, max_value=10**9)

    @staticmethod
    def data_of(posted: Mapping[str, str]) -> Mapping[str, str]:
        """Return alias and version also where a button carries both, as `production:3`."""
        if "move" not in posted:
            return posted
        alias, _, version = posted["move"].rpartition(":")
        return {"alias": alias, "version": version}


class CompareForm(forms.Form):
    """The numbers of two versions of one model."""

    to = forms.IntegerField(min_value=1, max_value=10**9)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["from"] = forms.IntegerField(min_value=1, max_value=10**9)  # a word of Python's own


class SettingsForm(forms.Form):
    """How a version is to be loaded; what is left empty keeps to the engine's or the model's own."""

    place = forms.CharField(required=False, max_length=128)
    device = forms.ChoiceField(choices=plans.DEVICE_KINDS, required=False)
    mode = forms.ChoiceField(choices=[(mode, mode) for mode in plans.MODES], required=False)
    adapters: Any = forms.ModelMultipleChoiceField(queryset=None, required=False)
    max_model_len = forms.IntegerField(required=False, min_value=2, max_value=2**31 - 1, label="Context")
    max_num_seqs = forms.IntegerField(required=False, min_value=1, max_value=4096, label="Requests at once")
    kv_cache_bytes = forms.IntegerField(required=False, min_value=1, max_value=2**50, label="KV budget")
    idle_seconds = forms.IntegerField(required=False, min_value=1, max_value=10 * 365 * 86400, label="Idle time")
    load_at_start = forms.BooleanField(required=False)
    load_on_pick = forms.BooleanField(required=False)

    def __init__(self, *args: Any, adapters: Any, **kwargs: Any) -> None:
        """adapters: a query set of the LoRA adapters that may be loaded beside the version."""
        super().__init__(*args, **kwargs)
        self.fields["adapters"].queryset = adapters  # type: ignore[attr-defined]

    def settings(self, *, policies: bool) -> dict[str, Any]:
        """Return what is set, as `deployment_load` takes it. policies: also when it loads and unloads by itself."""
        fields = self.cleaned_data
        found = {name: fields[name] for name in ("device", "max_model_len", "kv_cache_bytes")}
        found |= {name: fields[name] for name in ("mode", "max_num_seqs") if fields[name]}
        if policies:
            found |= {name: fields[name] for name in ("idle_seconds", "load_at_start", "load_on_pick")}
        return found


class ImportForm(forms.Form):
    """A model to take in from the server's own disk."""

    name = forms.CharField(max_length=64)
    path = forms.CharField(max_length=500)
    kind = forms.ChoiceField(choices=[("", "As its files say"), *overview.KINDS], required=False)
    parent = forms.CharField(required=False, max_length=80)


def first_error(form: forms.BaseForm) -> str:
    """Return the first thing that is wrong with a form, beginning with the field's name."""
    for field, errors in form.errors.items():
        label = str(form.fields[field].label or field) if field in form.fields else ""
        return f"{label[:1].upper()}{label[1:]}: {errors[0]}" if label else str(errors[0])
    return "The form could not be read."

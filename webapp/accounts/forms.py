"""What the pages of API keys accept, with errors by field."""

from django import forms

from webapp.accounts.models import Scope
from webapp.accounts.services import MAX_NAME


class KeyForm(forms.Form):
    """A new key. An administrator may choose the scope `admin` too."""

    name = forms.CharField(max_length=MAX_NAME)
    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, initial=[Scope.CHAT, Scope.EMBED])

    def __init__(self, *args: object, is_staff: bool, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        field = self.fields["scopes"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [choice for choice in Scope.choices if is_staff or choice[0] != Scope.ADMIN]

"""Aliases: moved and moved back with one call, and what they may point at."""

import pytest
from django.contrib.auth.models import User

from registry.errors import ChangeRefused, NotAllowed
from registry.models import Alias, AuditEntry, VersionState
from registry.services.aliases import alias_back, alias_remove, alias_set
from tests.registry.making import make_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return User.objects.create_user("root", is_staff=True)


def test_an_alias_is_moved_and_moved_back(admin: User) -> None:
    one, two = make_version(number=1), make_version(number=2)
    alias = alias_set(model=one.model, name="production", version=one, by=admin)
    assert (alias.version, alias.previous) == (one, None)
    alias = alias_set(model=one.model, name="production", version=two, by=admin)
    assert (alias.version, alias.previous, alias.moved_by) == (two, one, admin)
    alias = alias_back(alias=alias, by=admin)
    assert (alias.version, alias.previous) == (one, two)
    assert alias_back(alias=alias, by=admin).version == two
    words = list(AuditEntry.objects.order_by("pk").values_list("actor", "words"))
    assert words == [("root", "@production → tiny:1"), ("root", "@production: tiny:1 → tiny:2"),
                     ("root", "@production: tiny:2 → tiny:1 (back)"), ("root", "@production: tiny:1 → tiny:2 (back)")]


def test_pointing_it_where_it_points_changes_nothing(admin: User) -> None:
    one, two = make_version(number=1), make_version(number=2)
    alias_set(model=one.model, name="canary", version=one, by=admin)
    alias_set(model=one.model, name="canary", version=two, by=admin)
    assert alias_set(model=one.model, name="canary", version=two, by=admin).previous == one
    assert AuditEntry.objects.count() == 2


@pytest.mark.parametrize("name", ["", "Production", "a b", "a/b", "..", "a" * 300, "@x", "a:b"])
def test_bad_names_are_refused(admin: User, name: str) -> None:
    version = make_version()
    with pytest.raises(ChangeRefused, match="is not allowed"):
        alias_set(model=version.model, name=name, version=version, by=admin)


def test_it_points_at_ready_versions_of_its_own_model_only(admin: User) -> None:
    version, other = make_version("a"), make_version("b")
    with pytest.raises(ChangeRefused, match="b:1 is not a version of a"):
        alias_set(model=version.model, name="production", version=other, by=admin)
    archived = make_version("a", 2, state=VersionState.ARCHIVED)
    with pytest.raises(ChangeRefused, match="a:2 is archived"):
        alias_set(model=version.model, name="production", version=archived, by=admin)
    assert not Alias.objects.exists()


def test_it_is_not_moved_back_where_nothing_was(admin: User) -> None:
    version = make_version()
    alias = alias_set(model=version.model, name="production", version=version, by=admin)
    with pytest.raises(ChangeRefused, match="was never moved"):
        alias_back(alias=alias, by=admin)


def test_only_administrators_move_and_remove() -> None:
    version, ada = make_version(), User.objects.create_user("ada")
    alias = alias_set(model=version.model, name="production", version=version, by=None)
    for call in (lambda: alias_set(model=version.model, name="x", version=version, by=ada),
                 lambda: alias_back(alias=alias, by=ada), lambda: alias_remove(alias=alias, by=ada)):
        with pytest.raises(NotAllowed):
            call()
    alias_remove(alias=alias, by=None)
    assert not Alias.objects.exists()

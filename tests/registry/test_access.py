"""Who may use which model, and what references name: one place for listing and for use."""

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.test.utils import CaptureQueriesContext

from registry.errors import ChangeRefused, NotAllowed
from registry.models import Access, Kind, Version, VersionState
from registry.selectors import models_for, version_by_name, version_resolve, versions_for
from registry.services.aliases import alias_set
from registry.services.catalog import model_access_set
from tests.registry.making import make_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada")


def test_models_are_for_everyone_for_groups_or_for_administrators(ada: User) -> None:
    open_, grouped, hidden = make_version("open"), make_version("grouped"), make_version("hidden")
    team = Group.objects.create(name="team")
    model_access_set(model=grouped.model, by=None, access=Access.GROUPS, groups=[team])
    model_access_set(model=hidden.model, by=None, access=Access.ADMINISTRATORS)
    admin = User.objects.create_user("root", is_staff=True)
    assert list(versions_for(viewer=ada)) == [open_]
    assert [model.name for model in models_for(viewer=ada)] == ["open"]
    for version in (grouped, hidden):
        with pytest.raises(Version.DoesNotExist):
            versions_for(viewer=ada).get(pk=version.pk)
        with pytest.raises(Version.DoesNotExist):
            version_resolve(reference=str(version), user=ada)
    ada.groups.add(team, Group.objects.create(name="other"))
    assert [str(version) for version in versions_for(viewer=ada)] == ["grouped:1", "open:1"]
    assert version_resolve(reference="grouped", user=ada).version == grouped
    assert versions_for(viewer=admin).count() == 3
    assert not versions_for(viewer=AnonymousUser()).exists()
    ada.is_active = False
    assert not versions_for(viewer=ada).exists()


def test_access_is_changed_by_administrators_and_checked(ada: User) -> None:
    model = make_version().model
    with pytest.raises(NotAllowed):
        model_access_set(model=model, by=ada, access=Access.EVERYONE)
    with pytest.raises(ChangeRefused, match="access"):
        model_access_set(model=model, by=None, access="nobody")
    with pytest.raises(ChangeRefused, match="at least one group"):
        model_access_set(model=model, by=None, access=Access.GROUPS)


def test_the_list_costs_one_query_however_many_there_are(ada: User, django_assert_num_queries: object) -> None:
    from django.db import connection

    for name in "abcdef":
        for number in range(1, 4):
            make_version(name, number)
    with CaptureQueriesContext(connection) as queries:
        assert len([str(version) for version in versions_for(viewer=ada)]) == 18
    assert len(queries) == 1


def test_references_name_versions_aliases_and_the_newest(ada: User) -> None:
    one, two = make_version("m", 1), make_version("m", 2)
    make_version("m", 3, state=VersionState.VERIFIED)
    assert version_resolve(reference="m", user=ada).version == two
    assert version_resolve(reference="m:1", user=ada).version == one
    alias_set(model=one.model, name="canary", version=two, by=None)
    found = version_resolve(reference="m@canary", user=ada)
    assert (found.version, found.alias) == (two, "canary")
    alias_set(model=one.model, name="production", version=one, by=None)
    found = version_resolve(reference="m", user=ada)
    assert (found.version, found.alias) == (one, "production")
    assert version_by_name("m@canary") == two
    for reference in ("", ":", "@", "+", "m@", "m@other", "m:", "m:3", "m:x", "m:1@canary", "m@canary:1", "m+m",
                      "x@production", "m:" + "9" * 99, "m+", "M", "m\0", "m:１"):
        with pytest.raises(Version.DoesNotExist):
            version_resolve(reference=reference, user=ada)


def test_a_reference_may_name_an_adapter_of_the_version(ada: User) -> None:
    one, two = make_version("m", 1), make_version("m", 2)
    poet = make_version("poet", 1, kind=Kind.ADAPTER, parent=one)
    poet_two = make_version("poet", 2, kind=Kind.ADAPTER, parent=two)
    for reference, version, adapter in (("m+poet", two, poet_two), ("m:1+poet:1", one, poet), ("m+poet:1", one, poet)):
        found = version_resolve(reference=reference, user=ada)
        assert (found.version, found.adapter) == (version, adapter)
    with pytest.raises(Version.DoesNotExist, match="poet:2 is not an adapter of m:1"):
        version_resolve(reference="m:1+poet", user=ada)
    model_access_set(model=poet.model, by=None, access=Access.ADMINISTRATORS)
    with pytest.raises(Version.DoesNotExist):
        version_resolve(reference="m+poet", user=ada)


def test_a_kind_narrows_what_a_reference_may_name(ada: User) -> None:
    make_version("e", kind=Kind.EMBEDDING)
    assert version_resolve(reference="e", user=ada, kind="embedding").version.model.name == "e"
    with pytest.raises(Version.DoesNotExist):
        version_resolve(reference="e", user=ada, kind="chat")

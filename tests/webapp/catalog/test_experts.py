"""Expert loads on their way from an engine's counts to the page."""

from typing import Any

import pytest
from django.test import Client

from inference.protocol import ExpertLoad, Stats
from registry.models import Model
from webapp.catalog.experts import expert_heat
from webapp.catalog.page_data import version_context
from webapp.catalog.rates import Rates
from webapp.serving.stats import engine_stats, engine_stats_publish


def stats(experts: ExpertLoad | None) -> Stats:
    return Stats(running=0, waiting=0, free_blocks=1, cached_blocks=0, held_blocks=0, total_blocks=1, steps=1,
                 prompt_tokens=1, output_tokens=1, preemptions=0, experts=experts)


def test_the_loads_of_all_engines_are_added_and_uneven_layers_are_told(clean_redis: Any) -> None:
    engine_stats_publish(version_pk=7, engine="a", stats=stats(ExpertLoad(layers=[1, 3], tokens=4, counts=[
        [4, 2, 1, 1], [2, 2, 2, 2]])))
    engine_stats_publish(version_pk=7, engine="b", stats=stats(ExpertLoad(layers=[1, 3], tokens=2, counts=[
        [4, 0, 0, 0], [1, 1, 1, 1]])))
    heat = expert_heat(7)
    assert heat is not None
    assert (heat.tokens, heat.counts) == (6, [[8, 2, 1, 1], [3, 3, 3, 3]])
    first, second = heat.lines
    assert (first.layer, first.busiest, first.share, first.idle) == (1, 0, 8 / 12, 0)
    assert first.uneven == pytest.approx(8 / 3)
    assert second.uneven == pytest.approx(1)


def test_experts_travel_apart_from_the_counts_of_each_second(clean_redis: Any) -> None:
    engine_stats_publish(version_pk=7, engine="a", stats=stats(ExpertLoad(layers=[0], tokens=1, counts=[[1, 0]])))
    assert [found.experts for found in engine_stats(7)] == [None]
    engine_stats_publish(version_pk=8, engine="a", stats=stats(None))
    assert expert_heat(8) is None
    engine_stats_publish(version_pk=8, engine="a", stats=stats(ExpertLoad(layers=[0], tokens=0, counts=[[0, 0]])))
    assert expert_heat(8) is None


@pytest.mark.django_db
def test_the_page_of_a_mixture_draws_them(admin_page: Client, administrator: Any, paper: Model,
                                          clean_redis: Any) -> None:
    version = paper.versions.get(number=1)
    engine_stats_publish(version_pk=version.pk, engine="a", stats=stats(
        ExpertLoad(layers=[0], tokens=3, counts=[[3, 0]])))
    context = version_context(administrator, {"name": "paper", "number": "1"}, Rates())
    assert context["heat"].counts == [[3, 0]]

"""Counts of what was served, per model, in Prometheus' form under the names that vLLM's dashboards know.

The processes that serve add to hashes in Redis, so any web process can answer a scrape with the counts of all.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import redis
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from inference.protocol import Stats
from registry.models import Deployment
from webapp.serving.dispatch import queue_length
from webapp.serving.models import Generation
from webapp.serving.pooled import PooledRequest
from webapp.serving.stats import engine_stats
from webapp.serving.streams import stream_client

logger = logging.getLogger(__name__)
LABEL = "model_name"
SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
           160.0, 640.0)
COUNTERS = {
    "prompt_tokens": ("vllm:prompt_tokens", "Prompt tokens of requests that ended."),
    "generation_tokens": ("vllm:generation_tokens", "Tokens written."),
    "cached_tokens": ("vllm:prefix_cache_hits", "Prompt tokens taken from the prefix cache."),
    "queried_tokens": ("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache."),
}
HISTOGRAMS = {
    "ttft": ("vllm:time_to_first_token_seconds", "From being asked for to the first token."),
    "tpot": ("vllm:request_time_per_output_token_seconds", "Mean time of a request's tokens after the first."),
    "e2e": ("vllm:e2e_request_latency_seconds", "From being asked for to the end."),
    "queue": ("vllm:request_queue_time_seconds", "In the engine, until first scheduled."),
    "prefill": ("vllm:request_prefill_time_seconds", "From first scheduled to the first token."),
    "decode": ("vllm:request_decode_time_seconds", "From the first to the last token."),
}
GAUGES = {
    "running": ("vllm:num_requests_running", "Requests in the engine's batches."),
    "waiting": ("vllm:num_requests_waiting", "Requests in the queue and waiting in the engine."),
    "kv": ("vllm:kv_cache_usage_perc", "Share of KV blocks that requests hold, 0 to 1."),
}

Increments = dict[str, int | float]


def metrics_key(version_pk: int) -> str:
    return f"metrics:{version_pk}"


def generations_observe(rows: Iterable[Generation]) -> None:
    """Count generations that have ended. What can't be counted is logged and forgotten."""
    _add((row.version_id, _of_generation(row)) for row in rows)


def pooled_observe(requests: Sequence[PooledRequest], *, seconds: Sequence[float]) -> None:
    """Count answered requests to embed or score, which took so many seconds each."""
    _add((row.version, {"prompt_tokens": row.tokens, "success:stop": 1, **_observed("e2e", took)})
         for row, took in zip(requests, seconds, strict=True))


def _of_generation(row: Generation) -> Increments:
    found: Increments = {
        "prompt_tokens": row.prompt_tokens, "generation_tokens": row.output_count, "cached_tokens": row.cached_tokens,
        "queried_tokens": row.prompt_tokens, f"success:{row.finish_reason or row.state}": 1}
    if row.ended_at is not None:
        found |= _observed("e2e", (row.ended_at - row.created_at).total_seconds())
    if row.first_token_at is not None:
        found |= _observed("ttft", (row.first_token_at - row.created_at).total_seconds())
        if row.ended_at is not None and row.output_count > 1:
            found |= _observed("tpot", (row.ended_at - row.first_token_at).total_seconds() / (row.output_count - 1))
    for name in ("queue", "prefill", "decode"):
        if (value := row.timings.get(f"{name}_s")) is not None:
            found |= _observed(name, value)
    return found


def _observed(name: str, seconds: float) -> Increments:
    value = max(0.0, seconds)
    return {f"{name}:{bisect_left(SECONDS, value)}": 1, f"{name}:sum": value}


def _add(rows: Iterable[tuple[int, Increments]]) -> None:
    try:
        with stream_client().pipeline(transaction=False) as pipe:
            for version_pk, found in rows:
                for name, value in found.items():
                    pipe.hincrbyfloat(metrics_key(version_pk), name, float(value))
            pipe.execute()
    except redis.RedisError as error:
        logger.warning("requests were not counted: %s", error)


def metrics_text() -> bytes:
    """Everything, in Prometheus' text form. Raises redis.RedisError."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector())
    return generate_latest(registry)


class _Collector:
    """Reads Redis and the tables once a scrape."""

    def collect(self) -> Iterator[Metric]:
        names = _names()
        saved: dict[int, Any] = {pk: stream_client().hgetall(metrics_key(pk)) for pk in names}
        yield from _counters(names, saved)
        yield from _histograms(names, saved)
        yield from _gauges(names)


def _names() -> dict[int, str]:
    """The name of each version that is or was deployed."""
    rows = Deployment.objects.select_related("version__model").order_by("version")
    return {row.version_id: str(row.version) for row in rows}


def _counters(names: dict[int, str], saved: dict[int, dict[str, str]]) -> Iterator[Metric]:
    for field, (name, words) in COUNTERS.items():
        family = CounterMetricFamily(name, words, labels=[LABEL])
        for pk, model in names.items():
            family.add_metric([model], float(saved[pk].get(field, 0)))
        yield family
    ended = CounterMetricFamily("vllm:request_success", "Requests that ended, by reason.",
                                labels=[LABEL, "finished_reason"])
    for pk, model in names.items():
        for field, value in sorted(saved[pk].items()):
            if field.startswith("success:"):
                ended.add_metric([model, field.partition(":")[2]], float(value))
    yield ended


def _histograms(names: dict[int, str], saved: dict[int, dict[str, str]]) -> Iterator[Metric]:
    for field, (name, words) in HISTOGRAMS.items():
        family = HistogramMetricFamily(name, words, labels=[LABEL])
        for pk, model in names.items():
            total, buckets = 0.0, []
            for number, bound in enumerate([*map(str, SECONDS), "+Inf"]):
                total += float(saved[pk].get(f"{field}:{number}", 0))
                buckets.append((bound, total))
            family.add_metric([model], buckets=buckets, sum_value=float(saved[pk].get(f"{field}:sum", 0)))
        yield family


def _gauges(names: dict[int, str]) -> Iterator[Metric]:
    families = {field: GaugeMetricFamily(name, words, labels=[LABEL]) for field, (name, words) in GAUGES.items()}
    preempted = CounterMetricFamily("vllm:num_preemptions", "Requests whose blocks were taken for others, since the "
                                                            "engine's start.", labels=[LABEL])
    for pk, model in names.items():
        engines = engine_stats(pk)
        families["running"].add_metric([model], sum(stats.running for stats in engines))
        families["waiting"].add_metric([model], sum(stats.waiting for stats in engines) + queue_length(pk))
        families["kv"].add_metric([model], _kv_usage(engines))
        preempted.add_metric([model], sum(stats.preemptions for stats in engines))
    yield from families.values()
    yield preempted


def _kv_usage(engines: Sequence[Stats]) -> float:
    blocks = sum(stats.total_blocks for stats in engines)
    return sum(stats.held_blocks for stats in engines) / blocks if blocks else 0.0

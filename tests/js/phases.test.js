import assert from "node:assert/strict";
import { test } from "node:test";

import { endingOf, formatRate, formatSeconds, isEnded, loadProgress, modelStateWords, phaseOf, statsOf } from "../../static/js/chat/phases.js";

const view = (more) => ({ state: "done", queue_position: null, prompt_tokens: 0, prefill_done: 0, cached_tokens: 0, output_tokens: 0,
  ttft_s: null, tokens_per_s: null, finish_reason: "", error: "", load: null, ...more });
const words = (more) => statsOf(view(more)).map((fact) => fact.words);

test("a queued reply says where it stands in line", () => {
  assert.equal(phaseOf(view({ state: "queued", queue_position: 3 })).words, "Queued: number 3 in line");
  assert.equal(phaseOf(view({ state: "queued", queue_position: 1 })).words, "Queued: next in line");
  assert.equal(phaseOf(view({ state: "queued" })).words, "Queued");
});

test("a loading model shows its phase and how far it is", () => {
  const phase = phaseOf(view({ state: "loading", load: { phase: "reading", done: 387, total: 1000 } }));
  assert.equal(phase.words, "Loading the model: reading the weights, 38 %");
  assert.equal(phase.fraction, 0.387);
});

test("a loading phase of one step shows no percentage", () => {
  assert.deepEqual(loadProgress({ phase: "warming", done: 0, total: 1 }), { words: "Loading the model: warming up", fraction: null });
  assert.deepEqual(loadProgress(null), { words: "Loading the model", fraction: null });
});

test("the prompt's progress counts cached tokens as read", () => {
  const phase = phaseOf(view({ state: "prefill", prompt_tokens: 2048, cached_tokens: 1024, prefill_done: 0 }));
  assert.equal(phase.words, "Reading the prompt: 1,024 of 2,048 tokens");
  assert.equal(phase.fraction, 0.5);
});

test("an ended reply has no phase", () => {
  for (const state of ["done", "stopped", "failed"]) {
    assert.equal(phaseOf(view({ state })), null);
    assert.ok(isEnded({ state }));
  }
  assert.ok(!isEnded({ state: "decoding" }));
});

test("a finished reply lists its times and tokens", () => {
  const facts = words({ ttft_s: 0.4213, tokens_per_s: 98.4, prompt_tokens: 1024, cached_tokens: 960, output_tokens: 128, finish_reason: "stop" });
  assert.deepEqual(facts, ["421 ms to first token", "98 tokens/s", "1,024 in (960 cached)", "128 out"]);
});

test("a running reply lists only what is measured so far", () => {
  assert.deepEqual(words({ state: "decoding", ttft_s: 1.5, prompt_tokens: 10, output_tokens: 3 }), ["1.50 s to first token"]);
});

test("an unusual end is named and an ordinary one is not", () => {
  assert.equal(endingOf(view({ finish_reason: "length" })), "stopped at the token limit");
  assert.equal(endingOf(view({ state: "stopped" })), "stopped by you");
  assert.equal(endingOf(view({ finish_reason: "stop" })), "");
});

test("times and rates keep three figures at most", () => {
  assert.deepEqual([0.0042, 0.5, 1.234, 24.31].map(formatSeconds), ["4 ms", "500 ms", "1.23 s", "24.3 s"]);
  assert.deepEqual([0.41, 98.6].map(formatRate), ["0.4 tokens/s", "99 tokens/s"]);
});

test("a model's state says what to expect of it", () => {
  assert.equal(modelStateWords({ state: "failed", reason: "config.json is missing" }), "Failed: config.json is missing");
  assert.equal(modelStateWords({ state: "unloaded" }), "Not loaded: your first message loads it");
  assert.equal(modelStateWords({ state: "loading", load: { phase: "packing", done: 1, total: 4 } }), "Loading: packing the weights, 25 %");
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { Generations } from "../../static/js/chat/generations.js";

const view = (state, index, more) => ({ id: "g", state, index, ...more });

function running({ index = 0, text = "" } = {}) {
  const generations = new Generations();
  const gaps = [];
  generations.addEventListener("gap", ({ detail }) => gaps.push(detail));
  generations.put(view("decoding", index), text, "c");
  return { generations, gaps, entry: () => generations.get("g") };
}

const delta = (first, last, text) => ({ generation: "g", first, last, text });

test("deltas that follow on are appended in order", () => {
  const { generations, gaps, entry } = running();
  generations.applyDeltas([delta(1, 1, "Pa"), delta(2, 3, "ris")]);
  assert.equal(entry().text, "Paris");
  assert.equal(entry().index, 3);
  assert.deepEqual(gaps, []);
});

test("a page's text is continued from the index that it reaches to", () => {
  const { generations, entry } = running({ index: 2, text: "Par" });
  generations.applyDeltas([delta(3, 3, "is")]);
  assert.equal(entry().text, "Paris");
});

test("a delta that was seen already changes nothing", () => {
  const { generations, gaps, entry } = running();
  generations.applyDeltas([delta(1, 2, "Paris"), delta(1, 2, "Paris"), delta(2, 2, "is")]);
  assert.equal(entry().text, "Paris");
  assert.deepEqual(gaps, []);
});

test("a missing part is asked for once, from the last index held", () => {
  const { generations, gaps, entry } = running();
  generations.applyDeltas([delta(1, 1, "a"), delta(3, 3, "c"), delta(4, 4, "d")]);
  assert.equal(entry().text, "a");
  assert.deepEqual(gaps, [{ id: "g", after: 1 }]);
  generations.applyDeltas([delta(2, 4, "bcd"), delta(5, 5, "e")]);
  assert.equal(entry().text, "abcde");
});

test("a delta that overlaps what is held is asked for again, not cut", () => {
  const { generations, gaps, entry } = running();
  generations.applyDeltas([delta(1, 2, "ab"), delta(2, 3, "bc")]);
  assert.equal(entry().text, "ab");
  assert.deepEqual(gaps, [{ id: "g", after: 2 }]);
});

test("a lost answer is asked for again on a new connection", () => {
  const { generations, gaps } = running();
  generations.applyDeltas([delta(3, 3, "c")]);
  generations.forgetAsked();
  generations.applyDeltas([delta(4, 4, "d")]);
  assert.equal(gaps.length, 2);
});

test("a snapshot replaces what is shown", () => {
  const { generations, entry } = running({ index: 2, text: "Lyon" });
  generations.applySnapshot({ generation: "g", index: 4, text: "Paris is", view: view("decoding", 4) });
  assert.deepEqual([entry().text, entry().index], ["Paris is", 4]);
});

test("an end that comes before its last text waits for it", () => {
  const { generations, gaps, entry } = running();
  generations.applyDeltas([delta(1, 1, "a")]);
  generations.applyView(view("done", 3));
  assert.equal(entry().view.state, "decoding");
  assert.deepEqual(gaps, [{ id: "g", after: 1 }]);
  generations.applySnapshot({ generation: "g", index: 3, text: "abc", view: view("done", 3) });
  assert.deepEqual([entry().view.state, entry().text], ["done", "abc"]);
});

test("a late view does not bring an ended reply back", () => {
  const { generations, entry } = running();
  generations.applyView(view("stopped", 0));
  generations.applyView(view("decoding", 0));
  assert.equal(entry().view.state, "stopped");
});

test("a page that is older than the socket does not take text back", () => {
  const { generations, entry } = running();
  generations.applyDeltas([delta(1, 5, "Paris")]);
  generations.put(view("decoding", 2), "Pa", "c");
  assert.equal(entry().text, "Paris");
});

test("two replies stream at once, each into its own text", () => {
  const { generations } = running();
  generations.put({ id: "h", state: "decoding", index: 0 }, "", "d");
  generations.applyDeltas([delta(1, 1, "a"), { generation: "h", first: 1, last: 1, text: "x" }, delta(2, 2, "b")]);
  assert.deepEqual([generations.get("g").text, generations.get("h").text], ["ab", "x"]);
  assert.deepEqual(generations.unfinished().map(({ id, after }) => [id, after]), [["g", 2], ["h", 1]]);
  generations.applyView(view("done", 2));
  assert.ok(!generations.runningIn("c"));
  assert.ok(generations.runningIn("d"));
});

test("frames about an unknown reply are left alone", () => {
  const { generations, gaps } = running();
  generations.applyDeltas([{ generation: "?", first: 1, last: 1, text: "x" }]);
  generations.applyView({ id: "?", state: "done", index: 1 });
  generations.applySnapshot({ generation: "?", index: 1, text: "x", view: null });
  assert.deepEqual(gaps, []);
  assert.equal(generations.get("?"), undefined);
});

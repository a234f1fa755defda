import assert from "node:assert/strict";
import { test } from "node:test";

import { Store } from "../../static/js/chat/store.js";

const message = (id, parent, role = "user") => ({ id, parent, role, text: id, generation: null });

function branched() {
  const store = new Store();
  store.put({ id: "c", title: "t" }, [message("q1", null), message("a1", "q1", "assistant"), message("a2", "q1", "assistant"), message("q2", "a1")]);
  return store;
}

const shown = (store) => store.path("c").map(({ message: { id }, position, count }) => `${id} ${position}/${count}`);

test("the newest sibling is shown first", () => {
  assert.deepEqual(shown(branched()), ["q1 1/1", "a2 2/2"]);
});

test("stepping to a sibling shows the branch below it", () => {
  const store = branched();
  store.step("c", "a2", -1);
  assert.deepEqual(shown(store), ["q1 1/1", "a1 1/2", "q2 1/1"]);
  assert.equal(store.leaf("c").id, "q2");
});

test("a step past the last sibling stays where it is", () => {
  const store = branched();
  store.step("c", "a2", 1);
  assert.deepEqual(shown(store), ["q1 1/1", "a2 2/2"]);
});

test("a new reply is shown even where an older sibling was chosen", () => {
  const store = branched();
  store.step("c", "a2", -1);
  store.add("c", message("a3", "q1", "assistant"));
  assert.deepEqual(shown(store), ["q1 1/1", "a3 3/3"]);
});

test("reading a conversation again neither doubles messages nor forgets the chosen branch", () => {
  const store = branched();
  store.step("c", "a2", -1);
  store.put({ id: "c", title: "t" }, [message("q1", null), message("a1", "q1", "assistant"), message("a2", "q1", "assistant"), message("q2", "a1")]);
  assert.deepEqual(shown(store), ["q1 1/1", "a1 1/2", "q2 1/1"]);
});

test("a conversation that is not loaded has no path and no leaf", () => {
  const store = new Store();
  assert.deepEqual(store.path("?"), []);
  assert.equal(store.leaf(null), null);
});

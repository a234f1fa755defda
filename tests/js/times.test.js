import assert from "node:assert/strict";
import { test } from "node:test";

import { dayGroup } from "../../static/js/chat/times.js";

const now = new Date(2026, 10, 29, 0, 30);

test("days are counted from midnight, not in 24 hours", () => {
  assert.equal(dayGroup(new Date(2026, 10, 29, 0, 5), now), "Today");
  assert.equal(dayGroup(new Date(2026, 10, 28, 23, 59), now), "Yesterday");
  assert.equal(dayGroup(new Date(2026, 10, 27, 23, 59), now), "Earlier");
});

test("a time a little in the future, from a clock that differs, is today", () => {
  assert.equal(dayGroup(new Date(2026, 10, 30, 0, 1), now), "Today");
});

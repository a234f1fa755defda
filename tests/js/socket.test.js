import assert from "node:assert/strict";
import { test } from "node:test";

import { pauseBefore } from "../../static/js/chat/socket.js";

test("pauses between attempts double up to a limit", () => {
  const pauses = [0, 1, 2, 10].map((attempt) => pauseBefore(attempt, () => 0));
  assert.deepEqual(pauses, [500, 1000, 2000, 15000]);
});

test("jitter takes at most a quarter off a pause", () => {
  assert.equal(pauseBefore(1, () => 1), 750);
});

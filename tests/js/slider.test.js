import assert from "node:assert/strict";
import { test } from "node:test";

import { STEPS, positionOf, valueAt } from "../../static/js/catalog/slider.js";

test("a slider goes from the lowest to the highest value, the middle at their geometric mean", () => {
  assert.equal(valueAt(0, 16, 8192), 16);
  assert.equal(valueAt(STEPS, 16, 8192), 8192);
  assert.equal(valueAt(STEPS / 2, 16, 16384), 512);
});

test("a value's position gives nearly that value back", () => {
  for (const value of [16, 100, 2048, 8191]) {
    const again = valueAt(positionOf(value, 16, 8192), 16, 8192);
    assert.ok(Math.abs(again - value) / value < 0.04, `${value} became ${again}`);
  }
});

test("a value outside of the bounds is at the nearer end", () => {
  assert.equal(positionOf(1, 16, 8192), 0);
  assert.equal(positionOf(99999, 16, 8192), STEPS);
  assert.equal(positionOf(5, 16, 16), STEPS);
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { chunksOf, filesOf, formatSize, pathOf, pauseBefore, progressOf, proposedName } from "../../static/js/catalog/upload_plan.js";

test("the chosen folder is the model, so its own name is no part of a path", () => {
  assert.equal(pathOf({ name: "config.json", webkitRelativePath: "my-model/1_Pooling/config.json" }), "1_Pooling/config.json");
  assert.equal(pathOf({ name: "model.gguf", webkitRelativePath: "" }), "model.gguf");
});

test("hidden files are left out and the rest comes in a fixed order, so that a second choice is the same upload", () => {
  const chosen = [{ name: "b", size: 2 }, { name: ".DS_Store", size: 9 }, { name: "x", webkitRelativePath: "m/.git/x", size: 1 }, { name: "a", size: 1 }];
  assert.deepEqual(filesOf(chosen).map(({ path, size }) => [path, size]), [["a", 1], ["b", 2]]);
});

test("chunks cover a file once, the last one is what is left, and an empty file has none", () => {
  assert.deepEqual([...chunksOf(10, 4)], [{ chunk: 0, start: 0, end: 4 }, { chunk: 1, start: 4, end: 8 }, { chunk: 2, start: 8, end: 10 }]);
  assert.equal([...chunksOf(8, 4)].length, 2);
  assert.deepEqual([...chunksOf(0, 4)], []);
});

test("pauses between tries grow and stop growing", () => {
  assert.deepEqual([0, 1, 2, 3].map(pauseBefore), [1, 2, 4, 8]);
  assert.equal(pauseBefore(20), 30);
});

test("progress is over all files", () => {
  assert.deepEqual(progressOf([{ size: 3_000_000 }, { size: 1_000_000 }], [1_000_000, 0]), { done: 1_000_000, total: 4_000_000, words: "1.00 MB of 4.00 MB are there" });
  assert.equal(formatSize(999), "999 B");
  assert.equal(formatSize(90_900_000_000), "90.9 GB");
});

test("a name is proposed from the folder or the file, in the characters that names have", () => {
  assert.equal(proposedName([{ name: "SmolLM2-135M-Instruct.Q4_1.gguf" }]), "smollm2-135m-instruct.q4_1");
  assert.equal(proposedName([{ name: "config.json", webkitRelativePath: "All MiniLM (L6)/config.json" }]), "all-minilm-l6");
  assert.equal(proposedName([{ name: "___" }]), "");
  assert.equal(proposedName([]), "");
});

// Reads the files of an upload once, computes every digest on the way, and sends the chunks that the server lacks.

import { sha256 } from "../../vendor/noble-hashes/sha2.js";
import { UploadError, chunksOf, pauseBefore } from "./upload_plan.js";

// In: {files: [{path, file}], plan: the server's answer to "begin", token: CSRF}. Out: {type: "progress", file, done},
// {type: "waiting", words, seconds}, {type: "done", sha256: {path: digest}}, {type: "failed", message}.
self.addEventListener("message", async ({ data }) => {
  try {
    self.postMessage({ type: "done", sha256: await sendAll(data) });
  } catch (error) {
    self.postMessage({ type: "failed", message: error.message });
  }
});

async function sendAll({ files, plan, token }) {
  const digests = {};
  const byPath = new Map(files.map(({ path, file }) => [path, file]));
  for (const [number, { path, size }] of plan.files.entries()) {
    const missing = new Set(plan.missing[number] ?? []);
    const whole = sha256.create();
    for (const { chunk, start, end } of chunksOf(size, plan.chunk_bytes)) {
      const bytes = await read(byPath.get(path), path, start, end);
      whole.update(bytes);
      if (missing.has(chunk)) await send(`${plan.url}${number}/${chunk}/`, bytes, token);
      self.postMessage({ type: "progress", file: number, done: end });
    }
    digests[path] = hex(whole.digest());
  }
  return digests;
}

async function read(file, path, start, end) {
  try {
    return new Uint8Array(await file.slice(start, end).arrayBuffer());
  } catch {
    throw new UploadError(`${path} can't be read any more. Choose it again.`);
  }
}

// Send one chunk; a lost line and a refusal that says so are tried again, for as long as it takes.
async function send(url, bytes, token) {
  const headers = { "Content-Type": "application/octet-stream", "X-Chunk-SHA256": await digest(bytes), "X-CSRFToken": token };
  for (let attempt = 0; ; attempt++) {
    const response = await fetch(url, { method: "POST", credentials: "same-origin", redirect: "manual", headers, body: bytes }).catch(() => null);
    if (response?.ok) return;
    const body = (await response?.json().catch(() => null)) ?? {};
    const words = body.errors?.__all__?.[0];
    const again = !response || body.retry || response.status >= 500;
    if (!again) throw new UploadError(words ?? `The server did not take a part of the upload (error ${response.status}).`);
    const seconds = pauseBefore(attempt);
    self.postMessage({ type: "waiting", words: words ?? "The server can't be reached.", seconds });
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

// WebCrypto is faster, but there is none on a site that is served over plain HTTP.
async function digest(bytes) {
  return hex(self.crypto?.subtle ? new Uint8Array(await self.crypto.subtle.digest("SHA-256", bytes)) : sha256(bytes));
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

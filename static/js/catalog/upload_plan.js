// What an upload consists of: paths inside the model, chunks of files, pauses between tries, and how far it is. Pure.

const LONGEST_PAUSE_S = 30;

export class UploadError extends Error {}

// The path of a chosen file inside the model: a chosen folder is the model itself, so its name is left away.
export function pathOf({ name, webkitRelativePath }) {
  return webkitRelativePath ? webkitRelativePath.split("/").slice(1).join("/") : name;
}

// Hidden files, such as a desktop's .DS_Store, belong to the computer and not to the model.
export function filesOf(chosen) {
  const files = Array.from(chosen, (file) => ({ path: pathOf(file), size: file.size, file }));
  return files.filter(({ path }) => !path.split("/").some((part) => part.startsWith("."))).sort((a, b) => (a.path < b.path ? -1 : 1));
}

export function* chunksOf(size, chunkBytes) {
  for (let chunk = 0, start = 0; start < size; chunk++, start += chunkBytes) {
    yield { chunk, start, end: Math.min(size, start + chunkBytes) };
  }
}

// Seconds to wait after try n, from 0.
export function pauseBefore(attempt) {
  return Math.min(LONGEST_PAUSE_S, 2 ** attempt);
}

export function formatSize(bytes) {
  for (const [unit, step] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= step) return `${(bytes / step).toPrecision(3)} ${unit}`;
  }
  return `${bytes} B`;
}

// How far an upload is → {done, total, words}; `read` has the bytes that were read of each file.
export function progressOf(files, read) {
  const total = files.reduce((sum, file) => sum + file.size, 0);
  const done = read.reduce((sum, bytes) => sum + bytes, 0);
  return { done, total, words: `${formatSize(done)} of ${formatSize(total)} are there` };
}

// A name to propose for the model, from what was chosen: lower case, and only characters that names have.
export function proposedName(chosen) {
  const first = chosen[0];
  const source = first?.webkitRelativePath ? first.webkitRelativePath.split("/")[0] : (first?.name ?? "");
  const stem = source.toLowerCase().replace(/\.(gguf|zip|tar|tgz|tar\.gz|safetensors)$/, "");
  return stem.replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, "").slice(0, 64);
}

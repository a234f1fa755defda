// The register page: which source is shown, and the upload from this computer with its progress, pauses and resuming.

import { element } from "../chat/dom.js";
import { filesOf, formatSize, progressOf, proposedName } from "./upload_plan.js";

const form = document.getElementById("register");
const urls = JSON.parse(document.getElementById("upload-urls").textContent);
const workerUrl = document.getElementById("upload-script").dataset.worker;
const part = (id) => document.getElementById(id);
const token = () => form.elements.csrfmiddlewaretoken.value;

let files = []; // [{path, size, file}]
let read = []; // bytes read of each file
let rows = []; // {bar, words} on the page, for each file
let worker = null;

function showSource() {
  const source = form.elements.source.value;
  for (const field of form.querySelectorAll("[data-source]")) field.hidden = field.dataset.source !== source;
}

function choose(chosen) {
  if (worker || !chosen.length) return;
  files = filesOf(chosen);
  if (!form.elements.name.value) form.elements.name.value = proposedName(chosen);
  read = files.map(() => 0);
  rows = files.map(({ size }) => ({
    bar: element("progress", { class: "bar", max: String(Math.max(size, 1)), value: "0", "aria-hidden": "true" }),
    words: element("span", { class: "quiet" }, formatSize(size)),
  }));
  part("upload-list").replaceChildren(...files.map(({ path }, i) => element("li", { class: "upload-file" }, element("span", { class: "wrap" }, path), rows[i].words, rows[i].bar)));
  part("upload-state").hidden = files.length === 0;
  part("upload-start").disabled = files.length === 0;
  say(`${files.length} ${files.length === 1 ? "file" : "files"}, ${formatSize(files.reduce((sum, file) => sum + file.size, 0))}`);
  refuse("");
}

function say(words) {
  part("upload-words").textContent = words;
}

function refuse(words) {
  part("upload-error").textContent = words;
  part("upload-error").hidden = !words;
}

function setBusy(busy) {
  part("upload-start").disabled = busy;
  part("upload-pause").hidden = !busy;
  for (const name of ["name", "kind", "parent"]) form.elements[name].readOnly = busy;
  for (const input of [part("files"), part("folder"), ...form.querySelectorAll("[name=source]")]) input.disabled = busy;
}

// Send JSON and return the answer's. Throws an Error with the server's words.
async function post(url, body) {
  const response = await fetch(url, {
    method: "POST", credentials: "same-origin", redirect: "manual", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-CSRFToken": token(), Accept: "application/json" },
  }).catch(() => null);
  if (!response) throw new Error("The server can't be reached. Try again; what has arrived is kept.");
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.errors?.__all__?.[0] ?? `The server could not do this (error ${response.status}).`);
  return answer;
}

async function start() {
  refuse("");
  if (!form.elements.name.reportValidity()) return;
  setBusy(true);
  try {
    const plan = await post(urls.begin, { name: form.elements.name.value.trim(), files: files.map(({ path, size }) => ({ path, size })) });
    if (plan.done) say(`${formatSize(plan.done)} are there already; going on with the rest`);
    send(plan);
  } catch (error) {
    refuse(error.message);
    setBusy(false);
  }
}

function send(plan) {
  worker = new Worker(workerUrl, { type: "module" });
  worker.addEventListener("message", ({ data }) => received(data, plan));
  worker.addEventListener("error", () => stop("The upload could not be started in this browser."));
  worker.postMessage({ files: files.map(({ path, file }) => ({ path, file })), plan, token: token() });
}

async function received(message, plan) {
  if (message.type === "progress") showProgress(message);
  else if (message.type === "waiting") say(`${message.words} Trying again in ${message.seconds} s.`);
  else if (message.type === "failed") stop(message.message);
  else if (message.type === "done") {
    say("Everything has arrived; the checks begin");
    try {
      const { kind, parent } = form.elements;
      const { url } = await post(`${plan.url}finish/`, { sha256: message.sha256, kind: kind.value, parent: parent.value });
      window.removeEventListener("beforeunload", warn);
      location.assign(url);
    } catch (error) {
      stop(error.message);
    }
  }
}

function showProgress({ file, done }) {
  read[file] = done;
  rows[file].bar.value = done;
  rows[file].words.textContent = `${formatSize(done)} of ${formatSize(files[file].size)}`;
  const { done: bytes, total, words } = progressOf(files, read);
  part("upload-bar").value = total ? bytes / total : 1;
  say(words);
}

// End the worker; what has arrived is kept for a week, and the same files go on from there.
function stop(words) {
  worker?.terminate();
  worker = null;
  setBusy(false);
  refuse(words);
}

function warn(event) {
  if (worker) event.preventDefault();
}

form.addEventListener("change", (event) => {
  if (event.target.name === "source") showSource();
  if (event.target.type === "file") choose(event.target.files);
});
form.addEventListener("submit", (event) => {
  if (form.elements.source.value !== "upload") return;
  event.preventDefault();
  if (files.length && !worker) start();
});
part("upload-start").addEventListener("click", start);
part("upload-pause").addEventListener("click", () => {
  stop("");
  say("Paused. Press the button to go on.");
});
for (const button of document.querySelectorAll("[data-resume]")) {
  button.addEventListener("click", () => {
    form.elements.source.value = "upload";
    form.elements.name.value = button.dataset.resume;
    showSource();
    say("Choose the same files again; what has arrived is not sent twice.");
    part("upload-state").hidden = false;
    part("files").focus();
  });
}
const drop = part("drop");
for (const [type, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  drop.addEventListener(type, (event) => {
    event.preventDefault();
    drop.dataset.over = String(over);
    if (type === "drop") choose(event.dataTransfer.files);
  });
}
window.addEventListener("beforeunload", warn);
showSource();

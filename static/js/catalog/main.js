// Starts a page of the registry: keeps its parts up to date over the socket, and asks before anything is lost.

import { ChatSocket as Socket } from "../chat/socket.js";
import { Idiomorph } from "../../vendor/idiomorph/idiomorph.esm.js";

const SHOWN_AFTER_MS = 2000; // a line that comes back at once is not worth a word

const data = document.getElementById("live-data");
if (data) follow(JSON.parse(data.textContent));
askBeforeLoss();
include();
document.documentElement.dataset.ready = "true";

function follow({ page, args, socket: path }) {
  const socket = new Socket(`${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}${path}`);
  socket.addEventListener("open", () => socket.send({ type: "watch", page, args }));
  socket.addEventListener("frame", ({ detail: frame }) => {
    if (frame.type === "parts") for (const [name, html] of Object.entries(frame.parts)) update(name, html);
    if (frame.type === "gone") location.reload(); // says in words that it is not there any more
  });
  sayWhenDown(socket);
  socket.connect();
}

function update(name, html) {
  const part = document.querySelector(`[data-part="${name}"]`);
  if (!part) return;
  Idiomorph.morph(part, html, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: { beforeAttributeUpdated: keepsOpen } });
  include();
  part.dispatchEvent(new CustomEvent("updated", { bubbles: true }));
}

// What the reader has unfolded stays unfolded.
function keepsOpen(name, node) {
  return !(name === "open" && node.tagName === "DETAILS");
}

// Fill elements that name an address with what is there: something too costly to render again every second.
async function include() {
  for (const place of document.querySelectorAll("[data-include]:not([data-included])")) {
    place.dataset.included = "true";
    const response = await fetch(place.dataset.include, { credentials: "same-origin" }).catch(() => null);
    if (response?.ok && !response.redirected) Idiomorph.morph(place, await response.text(), { morphStyle: "innerHTML" });
  }
}

function sayWhenDown(socket) {
  const words = document.getElementById("line-down");
  let timer = null;
  socket.addEventListener("status", ({ detail: { state } }) => {
    if (state === "open") {
      clearTimeout(timer);
      timer = null;
      words.hidden = true;
    } else if (state === "signed-out") {
      words.textContent = "You are signed out. Reload the page to sign in.";
      words.hidden = false;
    } else {
      timer ??= setTimeout(() => {
        words.textContent = "The line to the server is down; what you see may be old. Trying again…";
        words.hidden = false;
      }, SHOWN_AFTER_MS);
    }
  });
}

// A button or form with data-confirm="…" acts only after a yes; data-confirm-yes is what the yes says.
function askBeforeLoss() {
  const dialog = document.getElementById("confirm");
  let asked = null;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-confirm]");
    if (!button || asked === button) return;
    event.preventDefault();
    dialog.querySelector("#confirm-text").textContent = button.dataset.confirm;
    dialog.querySelector('[value="yes"]').textContent = button.dataset.confirmYes ?? button.textContent.trim();
    dialog.returnValue = "";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      button.focus();
      if (dialog.returnValue !== "yes") return;
      asked = button;
      button.click();
      asked = null;
    }, { once: true });
  });
}

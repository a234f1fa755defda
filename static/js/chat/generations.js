// Keeps the text of every reply in step with the server's token stream; asks to watch again where a part is missing.

import { isEnded } from "./phases.js";

const MOST_FINAL_ASKS = 5; // a final view is held back until its text is whole, but never for ever

// Emits "change" {id, what: "text" | "view"} and "gap" {id, after}.
export class Generations extends EventTarget {
  #entries = new Map();

  get(id) {
    return this.#entries.get(id);
  }

  // Take a reply as a page or an event gave it; `text` reaches to the view's index.
  put(view, text, conversation) {
    const known = this.#entries.get(view.id);
    if (known && !isEnded(view) && known.index >= view.index) return known; // the socket was faster
    const entry = known ?? { id: view.id, conversation, asked: false, finalAsks: 0 };
    Object.assign(entry, { view, text: text ?? "", index: view.index });
    this.#entries.set(view.id, entry);
    if (known) this.#changed(entry, "text");
    if (known) this.#changed(entry, "view");
    return entry;
  }

  // Every unfinished generation with the last index held, for a socket that has just opened.
  unfinished() {
    return [...this.#entries.values()].filter((entry) => !isEnded(entry.view)).map(({ id, index, conversation }) => ({ id, after: index, conversation }));
  }

  runningIn(conversation) {
    return [...this.#entries.values()].some((entry) => entry.conversation === conversation && !isEnded(entry.view));
  }

  // The socket is new: nothing that was asked for will be answered any more.
  forgetAsked() {
    for (const entry of this.#entries.values()) entry.asked = false;
  }

  applyDeltas(deltas) {
    for (const delta of deltas) this.#applyDelta(delta);
  }

  #applyDelta({ generation, first, last, text }) {
    const entry = this.#entries.get(generation);
    if (!entry || last <= entry.index) return; // unknown, or seen already
    if (first !== entry.index + 1) {
      this.#ask(entry); // a part is missing, or overlaps and can't be cut: the server sends the rest
      return;
    }
    Object.assign(entry, { text: entry.text + text, index: last, asked: false });
    this.#changed(entry, "text");
  }

  applySnapshot({ generation, index, text, view }) {
    const entry = this.#entries.get(generation);
    if (!entry) return;
    Object.assign(entry, { index, text, asked: false });
    this.#changed(entry, "text");
    if (view) this.applyView(view);
  }

  applyView(view) {
    const entry = this.#entries.get(view.id);
    if (!entry) return;
    if (isEnded(view) && view.index !== entry.index && entry.finalAsks < MOST_FINAL_ASKS) {
      entry.finalAsks += 1;
      this.#ask(entry);
      return;
    }
    if (isEnded(entry.view) && !isEnded(view)) return; // late
    entry.view = view;
    this.#changed(entry, "view");
  }

  #ask(entry) {
    if (entry.asked) return;
    entry.asked = true;
    this.dispatchEvent(new CustomEvent("gap", { detail: { id: entry.id, after: entry.index } }));
  }

  #changed(entry, what) {
    this.dispatchEvent(new CustomEvent("change", { detail: { id: entry.id, what } }));
  }
}

// One message on the page. A question is plain text; a reply is markdown with its phase, its figures and its actions.

import { copyFrom, element, icon, iconButton } from "./dom.js";
import { isEnded, phaseOf, statsOf } from "./phases.js";
import { ReplyRenderer } from "./reply_renderer.js";
import { clockTime } from "./times.js";

// actions: {step(message, ±1), regenerate(message), edit(message)}
export class MessageView {
  #message;
  #actions;
  #siblings = element("span", { class: "siblings", hidden: true });
  #renderer = null;
  #parts = {};
  element;

  constructor(message, { md, actions }) {
    this.#message = message;
    this.#actions = actions;
    this.element = element("article", { class: `message message-${message.role}`, "data-testid": "message", "data-role": message.role,
      "data-message-id": message.id, "data-generation": message.generation });
    if (message.role === "user") this.#buildQuestion();
    else this.#buildReply(md);
  }

  #buildQuestion() {
    const { text, created_at: createdAt } = this.#message;
    const copy = iconButton("copy", "Copy message", { onclick: () => copyFrom(copy, text) });
    const edit = iconButton("pencil", "Edit and send again", { onclick: () => this.#actions.edit(this.#message), "data-testid": "edit" });
    const when = createdAt ? new Date(createdAt) : new Date();
    const time = element("time", { datetime: when.toISOString(), title: when.toLocaleString() }, clockTime(when));
    this.element.setAttribute("aria-label", "Your message");
    this.element.rawText = text;
    this.element.append(
      element("div", { class: "question" }, text),
      element("div", { class: "message-actions" }, this.#siblings, time, edit, copy),
    );
  }

  #buildReply(md) {
    const parts = this.#parts;
    parts.text = element("div", { class: "reply-text prose", "data-testid": "reply-text" });
    parts.words = element("span");
    parts.bar = element("progress", { class: "bar", max: "1", hidden: true, "aria-label": "Progress" });
    parts.phase = element("div", { class: "reply-phase", "data-testid": "reply-phase" },
      element("span", { class: "pulse", "aria-hidden": "true" }), parts.words, parts.bar);
    parts.error = element("div", { class: "reply-error", "data-testid": "error-note", role: "alert", hidden: true });
    parts.stats = element("span", { class: "reply-stats", "data-testid": "reply-stats" });
    parts.copy = iconButton("copy", "Copy reply", { onclick: () => copyFrom(parts.copy, this.element.rawText), "data-testid": "copy-reply" });
    parts.again = iconButton("refresh", "Regenerate", { onclick: () => this.#actions.regenerate(this.#message), "data-testid": "regenerate" });
    parts.model = element("span", { class: "reply-model" });
    const footer = element("div", { class: "message-actions" }, parts.phase, this.#siblings, parts.copy, parts.again, parts.stats);
    this.element.append(parts.model, parts.text, parts.error, footer);
    this.#renderer = new ReplyRenderer(md, parts.text);
  }

  // ‹ 2/3 ›, shown where a message has siblings.
  showSiblings(position, count) {
    this.#siblings.hidden = count < 2;
    if (count < 2) return;
    const previous = iconButton("left", "Previous version", { "data-testid": "sibling-prev", disabled: position === 1,
      onclick: () => this.#actions.step(this.#message, -1) });
    const next = iconButton("right", "Next version", { "data-testid": "sibling-next", disabled: position === count,
      onclick: () => this.#actions.step(this.#message, 1) });
    const label = element("span", { class: "sibling-count", "aria-label": `Version ${position} of ${count}` }, `${position}/${count}`);
    this.#siblings.replaceChildren(previous, label, next);
  }

  // Bring a reply up to date with its generation's entry; `whole` draws at once.
  showText(entry, { whole = false } = {}) {
    this.element.rawText = entry.text;
    if (whole || isEnded(entry.view)) this.#renderer.finish(entry.text);
    else this.#renderer.update(entry.text);
  }

  showView(entry) {
    const { view } = entry;
    const parts = this.#parts;
    const ended = isEnded(view);
    this.element.dataset.state = view.state;
    this.element.setAttribute("aria-busy", String(!ended));
    this.element.setAttribute("aria-label", view.model ? `Reply from ${view.model}` : "Reply");
    parts.model.textContent = view.model ?? "";
    this.#showPhase(phaseOf(view));
    parts.copy.hidden = parts.again.hidden = !ended;
    parts.stats.replaceChildren(...statsOf(view).map(({ key, words, title }) => element("span", { title, "data-stat": key }, words)));
    this.#showError(view);
    if (ended) this.showText(entry);
  }

  #showPhase(phase) {
    const { phase: line, words, bar } = this.#parts;
    line.hidden = phase === null;
    if (phase === null) return;
    if (words.textContent !== phase.words) words.textContent = phase.words;
    bar.hidden = phase.fraction === null;
    bar.value = phase.fraction ?? 0;
  }

  #showError(view) {
    const { error } = this.#parts;
    error.hidden = view.state !== "failed";
    if (error.hidden) return;
    const retry = element("button", { type: "button", class: "button small", onclick: () => this.#actions.regenerate(this.#message) }, "Retry");
    error.replaceChildren(icon("alert"), element("span", {}, view.error || "The reply failed, and the server gave no reason."), retry);
  }
}

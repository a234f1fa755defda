// The sidebar's list of conversations: grouped by day, filtered, renamed in place, deleted with a way back.

import { element, iconButton } from "./dom.js";
import { dayGroup } from "./times.js";

const UNTITLED = "New conversation";

// actions: {open(id), rename(id, title), remove(id)}
export class ConversationList {
  #root;
  #filter;
  #actions;
  #items = new Map(); // id → {id, title, updatedAt, running}
  #current = null;
  #renaming = null;

  constructor({ root, filter, actions }) {
    this.#root = root;
    this.#filter = filter;
    this.#actions = actions;
    for (const row of root.querySelectorAll("[data-conversation]")) {
      const { conversation: id, updated } = row.dataset;
      this.#items.set(id, { id, title: row.textContent.trim(), updatedAt: new Date(updated), running: false });
    }
    filter.addEventListener("input", () => this.#draw());
    this.#draw();
  }

  has(id) {
    return this.#items.has(id);
  }

  title(id) {
    return this.#items.get(id)?.title ?? "";
  }

  select(id) {
    this.#current = id;
    this.#draw();
  }

  put(id, { title, touched = false } = {}) {
    const item = this.#items.get(id) ?? { id, title: "", updatedAt: new Date(), running: false };
    if (title !== undefined) item.title = title;
    if (touched) item.updatedAt = new Date();
    this.#items.set(id, item);
    this.#draw();
  }

  remove(id) {
    const item = this.#items.get(id);
    this.#items.delete(id);
    this.#draw();
    return item;
  }

  restore(item) {
    this.#items.set(item.id, item);
    this.#draw();
  }

  setRunning(id, running) {
    const item = this.#items.get(id);
    if (!item || item.running === running) return;
    item.running = running;
    this.#draw();
  }

  // The conversation after (else before) this one, in the order shown.
  neighbour(id) {
    const order = this.#sorted().map((item) => item.id);
    const at = order.indexOf(id);
    return order[at + 1] ?? order[at - 1] ?? null;
  }

  #sorted() {
    return [...this.#items.values()].sort((a, b) => b.updatedAt - a.updatedAt);
  }

  #draw() {
    if (this.#renaming) return; // drawn when the name is settled
    const wanted = this.#filter.value.trim().toLocaleLowerCase();
    const shown = this.#sorted().filter((item) => (item.title || UNTITLED).toLocaleLowerCase().includes(wanted));
    const focused = document.activeElement?.closest?.("[data-conversation]")?.dataset.conversation;
    this.#root.replaceChildren(...this.#groups(shown));
    if (!shown.length) this.#root.append(this.#empty(wanted));
    if (focused) this.#root.querySelector(`[data-conversation="${focused}"] a`)?.focus();
  }

  #groups(items) {
    const groups = new Map();
    for (const item of items) {
      const name = dayGroup(item.updatedAt);
      groups.set(name, [...(groups.get(name) ?? []), item]);
    }
    return [...groups].map(([name, members]) => element("section", { class: "list-group", "aria-label": name },
      element("h3", { class: "list-heading" }, name),
      element("ul", {}, ...members.map((item) => this.#row(item)))));
  }

  #empty(wanted) {
    const words = wanted ? `Nothing is called “${wanted}”.` : "Your conversations will be listed here.";
    return element("p", { class: "list-empty" }, words);
  }

  #row(item) {
    const title = item.title || UNTITLED;
    const current = item.id === this.#current;
    const link = element("a", { href: `/c/${item.id}/`, class: "list-link", title, "aria-current": current ? "page" : null, onclick: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
      event.preventDefault();
      this.#actions.open(item.id);
    } }, item.running && runningDot(), element("span", { class: "list-title" }, title));
    const row = element("li", { class: "list-item", "data-testid": "conversation-item", "data-conversation": item.id, "data-running": String(item.running) }, link,
      element("span", { class: "list-actions" },
        iconButton("pencil", `Rename ${title}`, { "data-testid": "rename", onclick: () => this.#rename(item, row) }),
        iconButton("trash", `Delete ${title}`, { "data-testid": "delete", onclick: () => this.#actions.remove(item.id) })));
    return row;
  }

  #rename(item, row) {
    const input = element("input", { class: "list-rename", "aria-label": "New name", maxlength: "200", "data-testid": "rename-input" });
    input.value = item.title;
    let settled = false;
    const settle = (save) => {
      if (settled) return;
      settled = true;
      this.#renaming = null;
      const title = input.value.trim();
      if (save && title && title !== item.title) this.#actions.rename(item.id, title);
      this.#draw();
      this.#root.querySelector(`[data-conversation="${item.id}"] a`)?.focus();
    };
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") settle(true);
      if (event.key === "Escape") settle(false);
      if (event.key === "Enter" || event.key === "Escape") event.stopPropagation();
    });
    input.addEventListener("blur", () => settle(true));
    this.#renaming = item.id;
    row.replaceChildren(input);
    input.select();
  }
}

function runningDot() {
  return element("span", { class: "running-dot", role: "img", "aria-label": "Reply in progress" });
}


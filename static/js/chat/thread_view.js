// The open conversation's branch of messages, and a scroll position that follows new text only for a reader who is at the end.

import { isEnded } from "./phases.js";
import { MessageView } from "./message_view.js";

const NEAR_THE_END_PX = 64;

export class ThreadView {
  #list;
  #scroller;
  #jump;
  #md;
  #store;
  #generations;
  #actions;
  #views = new Map(); // message id → MessageView
  #conversation = null;
  #following = true;
  #lastTop = 0;

  constructor({ list, scroller, jump, md, store, generations, actions }) {
    this.#list = list;
    this.#scroller = scroller;
    this.#jump = jump;
    this.#md = md;
    this.#store = store;
    this.#generations = generations;
    this.#actions = actions;
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    new ResizeObserver(() => this.#grown()).observe(list);
    new ResizeObserver(() => this.#grown()).observe(scroller);
    jump.addEventListener("click", () => this.toEnd());
    generations.addEventListener("change", ({ detail }) => this.#generationChanged(detail));
    store.addEventListener("change", ({ detail }) => {
      if (detail.id === this.#conversation) this.#sync();
    });
  }

  open(conversation) {
    this.#conversation = conversation;
    this.#views.clear();
    this.#list.replaceChildren();
    this.#sync();
    this.toEnd();
  }

  toEnd() {
    this.#following = true;
    this.#jump.hidden = true;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  // Make the list show the branch that the store says, keeping the elements that stay.
  #sync() {
    const path = this.#conversation ? this.#store.path(this.#conversation) : [];
    const shown = new Set(path.map(({ message }) => message.id));
    for (const [id, view] of this.#views) {
      if (shown.has(id)) continue;
      view.element.remove();
      this.#views.delete(id);
    }
    path.forEach(({ message, position, count }, index) => {
      const view = this.#views.get(message.id) ?? this.#create(message);
      view.showSiblings(position, count);
      if (this.#list.children[index] !== view.element) this.#list.insertBefore(view.element, this.#list.children[index] ?? null);
    });
    this.#list.dataset.empty = String(path.length === 0);
  }

  #create(message) {
    const view = new MessageView(message, { md: this.#md, actions: this.#actions });
    this.#views.set(message.id, view);
    const entry = message.generation && this.#generations.get(message.generation);
    if (entry) {
      view.showView(entry);
      if (!isEnded(entry.view)) view.showText(entry, { whole: true });
    }
    return view;
  }

  #generationChanged({ id, what }) {
    const entry = this.#generations.get(id);
    for (const message of this.#views.keys()) {
      if (this.#store.get(this.#conversation)?.messages.get(message)?.generation !== id) continue;
      if (what === "text") this.#views.get(message).showText(entry);
      else this.#views.get(message).showView(entry);
    }
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_THE_END_PX;
    if (atEnd) this.#following = true;
    else if (scrollTop < this.#lastTop) this.#following = false; // only the reader scrolls up
    this.#lastTop = scrollTop;
    this.#jump.hidden = atEnd;
  }

  #grown() {
    if (this.#following) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    else this.#scrolled();
  }
}

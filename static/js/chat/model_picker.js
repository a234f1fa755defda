// The button that names the conversation's model, and the list behind it: which versions there are and whether each is loaded.

import { element, icon } from "./dom.js";
import { formatCount, loadProgress, modelStateWords } from "./phases.js";

const POLL_MS = 1500;

// load: () → Promise of {models}. Emits "models" when they were read and "pick" {model}.
export class ModelPicker extends EventTarget {
  #button;
  #list;
  #load;
  #models = [];
  #picked = null;
  #timer = null;
  #watching = false; // somebody else wants fresh states, for example a reply that waits for its model

  constructor({ button, list, load, models }) {
    super();
    this.#button = button;
    this.#list = list;
    this.#load = load;
    this.#models = models;
    button.addEventListener("click", () => (this.isOpen ? this.close() : this.open()));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown") return;
      event.preventDefault();
      this.open();
    });
    list.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("pointerdown", (event) => {
      if (this.isOpen && !list.contains(event.target) && !button.contains(event.target)) this.close({ focus: false });
    });
    this.#draw();
    this.#plan();
  }

  get isOpen() {
    return !this.#list.hidden;
  }

  get models() {
    return this.#models;
  }

  get picked() {
    return this.#models.find((model) => model.name === this.#picked) ?? null;
  }

  // name: of a version or of an alias, as `smollm2:1` and `smollm2@production`.
  pick(name) {
    this.#picked = name;
    this.#draw();
  }

  watch(watching) {
    if (this.#watching === watching) return;
    this.#watching = watching;
    this.#plan(0);
  }

  open() {
    this.#list.hidden = false;
    this.#button.setAttribute("aria-expanded", "true");
    this.#draw();
    (this.#list.querySelector('[aria-selected="true"]') ?? this.#list.querySelector('[role="option"]'))?.focus();
    this.#plan(0);
  }

  close({ focus = true } = {}) {
    this.#list.hidden = true;
    this.#button.setAttribute("aria-expanded", "false");
    if (focus) this.#button.focus();
  }

  #plan(delay = POLL_MS) {
    clearTimeout(this.#timer);
    const changing = this.#models.some((model) => model.state === "loading" || model.state === "unloading");
    if (this.isOpen || changing || this.#watching || delay === 0) this.#timer = setTimeout(() => this.#poll(), delay);
  }

  async #poll() {
    try {
      const { models } = await this.#load();
      const changed = JSON.stringify(models) !== JSON.stringify(this.#models);
      this.#models = models;
      if (changed) this.#draw(); // an option that stays the same stays under the pointer
      this.dispatchEvent(new Event("models"));
    } catch {
      // the last known states stay; the connection notice says that the server is away
    }
    this.#plan();
  }

  #draw() {
    const model = this.picked;
    const label = this.#button.querySelector("[data-part=label]");
    label.textContent = model?.name ?? (this.#models.length ? "Choose a model" : "No models");
    this.#button.dataset.state = model?.state ?? "none";
    this.#button.setAttribute("aria-label", model ? `Model ${model.name}, ${modelStateWords(model)}` : label.textContent);
    if (this.isOpen) this.#drawOptions();
  }

  #drawOptions() {
    const focused = document.activeElement?.dataset?.name;
    const options = this.#models.map((model) => this.#option(model));
    this.#list.replaceChildren(...(options.length ? options : [element("p", { class: "menu-note" }, "No chat model is registered.")]));
    if (focused) this.#list.querySelector(`[data-name="${focused}"]`)?.focus();
  }

  #option(model) {
    const selected = model.name === this.#picked;
    const progress = model.state === "loading" ? loadProgress(model.load).fraction : null;
    const bar = progress === null ? null : element("progress", { class: "bar", max: "1", value: String(progress), "aria-label": "Loading" });
    return element("div", { class: "model-option", role: "option", tabindex: "-1", "aria-selected": String(selected), "data-testid": "model-option",
      "data-version": String(model.version), "data-name": model.name, "data-state": model.state, onclick: () => this.#choose(model) },
    element("span", { class: "state-dot", "aria-hidden": "true" }),
    element("span", { class: "model-name" }, model.name),
    model.context_length && element("span", { class: "model-context" }, `${formatCount(model.context_length)} tokens`),
    element("span", { class: "model-state" }, modelStateWords(model)),
    bar,
    selected && icon("check"));
  }

  #choose(model) {
    this.pick(model.name);
    this.close();
    this.dispatchEvent(new CustomEvent("pick", { detail: { model } }));
  }

  #key(event) {
    const options = [...this.#list.querySelectorAll('[role="option"]')];
    const at = options.indexOf(document.activeElement);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: options.length - 1 };
    if (event.key in moves) options.at(Math.max(0, Math.min(options.length - 1, moves[event.key])))?.focus();
    else if (event.key === "Enter" || event.key === " ") document.activeElement.click();
    else if (event.key === "Tab") this.close({ focus: false });
    else if (event.key === "Escape") this.close();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  }
}

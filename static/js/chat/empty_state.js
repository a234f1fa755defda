// What an empty conversation shows: which model will answer and some ways to begin, or how to get a first model.

import { modelStateWords } from "./phases.js";

export class EmptyState {
  #root;
  #isStaff;

  constructor({ root, isStaff, write }) {
    this.#root = root;
    this.#isStaff = isStaff;
    root.addEventListener("click", (event) => {
      const starter = event.target.closest("[data-starter]");
      if (starter) write(starter.dataset.starter);
    });
  }

  show({ visible, models, model }) {
    this.#root.hidden = !visible;
    const part = (name) => this.#root.querySelector(`[data-part="${name}"]`);
    part("ready").hidden = models.length === 0;
    part("no-model-staff").hidden = models.length > 0 || !this.#isStaff;
    part("no-model").hidden = models.length > 0 || this.#isStaff;
    const line = part("model");
    line.textContent = model ? `${model.name} · ${modelStateWords(model)}` : "";
    line.dataset.state = model?.state ?? "";
  }
}

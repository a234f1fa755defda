// The side panel with a conversation's system prompt and sampling settings: checked by the server, errors beside their fields.

import { element } from "./dom.js";

export const DEFAULTS = { system_prompt: "", temperature: 0, top_p: 0.95, top_k: 0, max_tokens: 1024, seed: null };
const FIELDS = Object.keys(DEFAULTS);

// Settings as they were given → form-encoded fields; an empty seed means a new one for every reply.
export function toFields(settings) {
  return Object.fromEntries(FIELDS.map((name) => [name, settings[name] ?? ""]).map(([name, value]) => [name, String(value)]));
}

// save: (fields) → Promise of the settings as stored; rejects with {errors} for fields that won't do.
export class SettingsPanel {
  #panel;
  #form;
  #button;
  #status;
  #save;
  #stored = DEFAULTS;

  constructor({ panel, button, save }) {
    this.#panel = panel;
    this.#form = panel.querySelector("form");
    this.#button = button;
    this.#status = panel.querySelector("[data-part=status]");
    this.#save = save;
    button.addEventListener("click", () => (this.isOpen ? this.close() : this.open()));
    panel.querySelector("[data-part=close]").addEventListener("click", () => this.close());
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#form.addEventListener("input", (event) => this.#edited(event.target));
    this.#form.addEventListener("click", (event) => this.#preset(event.target.closest("[data-preset]")));
  }

  get isOpen() {
    return !this.#panel.hidden;
  }

  open() {
    this.#panel.hidden = false;
    this.#button.setAttribute("aria-expanded", "true");
    this.#form.elements.system_prompt.focus();
  }

  close() {
    this.#panel.hidden = true;
    this.#button.setAttribute("aria-expanded", "false");
    this.#button.focus();
  }

  show(settings) {
    this.#stored = { ...DEFAULTS, ...settings };
    for (const [name, value] of Object.entries(toFields(this.#stored))) this.#set(name, value);
    this.#clearErrors();
    this.#say("");
  }

  #set(name, value) {
    this.#form.elements[name].value = value;
    const slider = this.#form.querySelector(`[data-slider="${name}"]`);
    if (slider) slider.value = value;
  }

  #values() {
    return Object.fromEntries(FIELDS.map((name) => [name, this.#form.elements[name].value]));
  }

  #edited(target) {
    if (target.dataset.slider) this.#form.elements[target.dataset.slider].value = target.value;
    else this.#set(target.name, target.value);
    const stored = toFields(this.#stored);
    const changed = FIELDS.some((name) => this.#form.elements[name].value !== stored[name]);
    this.#say(changed ? "Unsaved changes" : "", changed ? "changed" : "");
  }

  #preset(button) {
    if (!button) return;
    this.#set("temperature", button.dataset.temperature);
    this.#set("top_p", button.dataset.topP);
    this.#edited(this.#form.elements.temperature);
  }

  async #submit() {
    this.#clearErrors();
    this.#say("Saving…", "saving");
    try {
      this.show(await this.#save(this.#values()));
      this.#say("Saved", "saved");
    } catch (error) {
      this.#showErrors(error.errors ?? {}, error.message);
    }
  }

  #showErrors(errors, message) {
    let first = null;
    for (const [name, words] of Object.entries(errors)) {
      const field = this.#form.elements[name];
      if (!field) continue;
      field.setAttribute("aria-invalid", "true");
      const note = element("p", { class: "field-error", role: "alert", id: `error-${name}`, "data-testid": "error-note" }, words.join(" "));
      field.setAttribute("aria-errormessage", note.id);
      field.closest(".field").append(note);
      first ??= field;
    }
    this.#say(first ? "Not saved: see the marked fields" : message, "failed");
    first?.focus();
  }

  #clearErrors() {
    for (const note of this.#form.querySelectorAll(".field-error")) note.remove();
    for (const name of FIELDS) this.#form.elements[name].removeAttribute("aria-invalid");
  }

  #say(words, state = "") {
    this.#status.textContent = words;
    this.#status.dataset.state = state;
    this.#form.dataset.state = state;
  }
}

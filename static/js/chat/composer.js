// Where the reader writes: grows with the text, keeps a draft per conversation, sends on Enter, shows why it can't.

import { recall, remember } from "./remembered.js";

const NEW = "new";

const draftKey = (conversation) => `draft.${conversation}`;

// actions: {send(text, edited message | null) → Promise of the conversation's id, stop()}
export class Composer {
  #form;
  #area;
  #send;
  #stop;
  #note;
  #banner;
  #actions;
  #conversation = NEW;
  #edited = null;
  #sending = false;
  #running = false;
  #blocked = ""; // why nothing can be sent, in words; empty when it can
  #blockedShown = true;
  #usable = true;

  constructor({ form, actions }) {
    const part = (name) => form.querySelector(`[data-part="${name}"]`);
    this.#form = form;
    this.#area = part("text");
    this.#send = part("send");
    this.#stop = part("stop");
    this.#note = part("note");
    this.#banner = part("editing");
    this.#actions = actions;
    this.#area.addEventListener("input", () => this.#written());
    this.#area.addEventListener("keydown", (event) => this.#key(event));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.#stop.addEventListener("click", () => actions.stop());
    part("cancel-edit").addEventListener("click", () => this.cancelEdit());
  }

  get editing() {
    return this.#edited !== null;
  }

  focus() {
    this.#area.focus({ preventScroll: true });
  }

  // Change to a conversation's draft; null is the one that does not exist yet.
  open(conversation) {
    this.#edited = null;
    this.#banner.hidden = true;
    this.#conversation = conversation ?? NEW;
    this.#setText(recall(draftKey(this.#conversation)));
    this.showError("");
  }

  // Put a text there to begin with.
  write(text) {
    this.#setText(text);
    remember(draftKey(this.#conversation), text);
    this.focus();
  }

  // A new conversation got its id: what is being written belongs to it.
  moveDraft(conversation) {
    remember(draftKey(this.#conversation), "");
    this.#conversation = conversation;
    remember(draftKey(conversation), this.#area.value);
  }

  edit(message) {
    this.#edited = message;
    this.#banner.hidden = false;
    this.#setText(message.text);
    this.focus();
  }

  cancelEdit() {
    this.#edited = null;
    this.#banner.hidden = true;
    this.#setText(recall(draftKey(this.#conversation)));
    this.focus();
  }

  setRunning(running) {
    this.#running = running;
    this.#refresh();
  }

  // reason: why sending is impossible, or empty. usable: whether writing ahead makes sense. shown: whether to say why.
  setBlocked(reason, { usable = true, shown = true } = {}) {
    this.#blocked = reason;
    this.#blockedShown = shown;
    this.#usable = usable;
    this.#refresh();
  }

  showError(words) {
    this.#note.textContent = words;
    this.#note.hidden = !words;
    this.#area.setAttribute("aria-invalid", String(Boolean(words)));
  }

  // A message whose answer was lost with the line turned out to have arrived.
  forget(text) {
    if (this.#area.value.trim() !== text.trim()) return;
    this.#setText("");
    remember(draftKey(this.#conversation), "");
    this.showError("");
  }

  async submit() {
    const text = this.#area.value;
    if (!text.trim() || this.#sending || this.#running || this.#blocked) return;
    this.#sending = true;
    this.showError("");
    this.#refresh();
    try {
      this.#sent(await this.#actions.send(text, this.#edited), text);
    } catch (error) {
      this.showError(error.message);
    } finally {
      this.#sending = false;
      this.#refresh();
    }
  }

  // The reader may have gone to another conversation meanwhile, or written on.
  #sent(conversation, text) {
    remember(draftKey(conversation), "");
    if (this.#conversation !== conversation) return;
    this.#edited = null;
    this.#banner.hidden = true;
    if (this.#area.value === text) this.#setText("");
    else remember(draftKey(conversation), this.#area.value);
  }

  #key(event) {
    const composing = event.isComposing || event.keyCode === 229; // Safari ends composition before this keydown
    if (event.key !== "Enter" || event.shiftKey || event.altKey || composing) return;
    event.preventDefault();
    this.submit();
  }

  #written() {
    if (!this.#edited) remember(draftKey(this.#conversation), this.#area.value);
    this.#fit();
    this.#refresh();
  }

  #setText(text) {
    this.#area.value = text;
    this.#fit();
    this.#refresh();
  }

  #fit() {
    this.#area.style.height = "auto";
    this.#area.style.height = `${this.#area.scrollHeight}px`;
  }

  #refresh() {
    const empty = !this.#area.value.trim();
    this.#stop.hidden = !this.#running;
    this.#send.hidden = this.#running;
    this.#send.disabled = empty || this.#sending || Boolean(this.#blocked);
    this.#area.disabled = !this.#usable;
    this.#form.dataset.sending = String(this.#sending);
    const reason = this.#form.querySelector('[data-part="blocked"]');
    reason.textContent = this.#blocked;
    reason.hidden = !this.#blocked || !this.#blockedShown;
  }
}

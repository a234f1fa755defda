// Which conversation is open, and everything that changes one: open, new, rename, delete, restore, settings.

import * as api from "./api.js";
import { DEFAULTS } from "./settings_panel.js";
import { showToast } from "./toast.js";

// Emits "open" {id | null}, "loaded" {id} and "settings". `current` is null for the one not created yet.
export class Conversations extends EventTarget {
  #store;
  #generations;
  #list;
  #unsaved; // settings of the conversation that is not created yet
  #saving = null; // the settings on their way to the server
  current = null;

  constructor({ store, generations, list, model }) {
    super();
    this.#store = store;
    this.#generations = generations;
    this.#list = list;
    this.#unsaved = unsaved(model ?? {});
    window.addEventListener("popstate", () => this.#followAddress());
  }

  get settings() {
    return this.#store.get(this.current)?.settings ?? this.#unsaved;
  }

  // Take a conversation as the page or a call gave it; its replies become known to the generations.
  take(conversation, messages) {
    const plain = messages?.map((message) => {
      if (message.generation) this.#generations.put(message.generation, message.text, conversation.id);
      return { ...message, generation: message.generation?.id ?? null };
    });
    this.#store.put(conversation, plain);
    if (conversation.title !== undefined && this.#list.has(conversation.id)) this.#list.put(conversation.id, { title: conversation.title });
  }

  // Show what the page came with.
  start(conversation, messages) {
    if (conversation) this.take(conversation, messages);
    this.#show(conversation?.id ?? null);
  }

  async open(id, { push = true } = {}) {
    if (push && id !== this.current) history.pushState(null, "", api.conversationUrl(id));
    this.#show(id);
    await this.refresh(id);
  }

  // Read a conversation again; used on opening it and after the line was down.
  async refresh(id = this.current) {
    if (!id) return;
    const isNew = !this.#store.get(id);
    try {
      const { conversation, messages } = await api.loadMessages(id);
      this.take(conversation ?? { id }, messages);
      if (isNew && this.current === id) this.#show(id);
      this.dispatchEvent(new CustomEvent("loaded", { detail: { id } }));
    } catch (error) {
      if (this.current !== id) return;
      showToast(error.message, { tone: "error" });
      if (error.status === 404) this.openNew({ push: true });
    }
  }

  openNew({ push = true } = {}) {
    if (push && this.current !== null) history.pushState(null, "", "/?new");
    this.#show(null);
  }

  #show(id) {
    this.current = id;
    this.#list.select(id);
    this.dispatchEvent(new CustomEvent("open", { detail: { id } }));
  }

  #followAddress() {
    const id = /^\/c\/([0-9a-f-]{36})\/$/.exec(location.pathname)?.[1];
    if (id) this.open(id, { push: false });
    else this.openNew({ push: false });
  }

  // Give the open conversation its row in the database, with the settings that were chosen so far.
  async create() {
    const chosen = { ...this.#unsaved };
    const { id, url } = await api.createConversation(chosen);
    const changed = Object.keys(DEFAULTS).filter((name) => chosen[name] !== DEFAULTS[name]);
    const fields = Object.fromEntries(changed.map((name) => [name, chosen[name] ?? ""]));
    const settings = changed.length ? (await api.saveSettings(id, fields)).settings : chosen;
    this.take({ id, title: "", settings }, []);
    this.#unsaved = unsaved({ ...chosen, name: chosen.model });
    this.#list.put(id, { title: "", touched: true });
    history.replaceState(null, "", url);
    this.current = id;
    this.#list.select(id);
    return id;
  }

  // What was chosen just before a message counts for its reply. A refusal is told where it was chosen.
  async settled() {
    await this.#saving?.catch(() => {});
  }

  // shown: what a conversation that is not created yet shows of these fields.
  async saveSettings(fields, shown = {}) {
    const id = this.current;
    const saved = id ? api.saveSettings(id, fields) : null;
    this.#saving = saved;
    if (id) this.#store.get(id).settings = (await saved).settings;
    else Object.assign(this.#unsaved, typed(fields), shown);
    this.dispatchEvent(new Event("settings"));
    return this.settings;
  }

  async rename(id, title) {
    const before = this.#list.title(id);
    this.#list.put(id, { title });
    try {
      await api.renameConversation(id, title);
      if (this.#store.get(id)) this.#store.put({ id, title });
    } catch (error) {
      this.#list.put(id, { title: before });
      showToast(`Not renamed. ${error.message}`, { tone: "error" });
    }
  }

  async remove(id) {
    const next = this.#list.neighbour(id);
    const item = this.#list.remove(id);
    if (this.current === id) this.#leave(next);
    try {
      await api.deleteConversation(id);
      showToast(`“${item.title || "New conversation"}” was deleted.`, { action: { label: "Undo", testId: "undo", run: () => this.#restore(item) } });
    } catch (error) {
      this.#list.restore(item);
      showToast(`Not deleted. ${error.message}`, { tone: "error" });
    }
  }

  async #restore(item) {
    try {
      await api.restoreConversation(item.id);
      this.#list.restore(item);
      await this.open(item.id);
    } catch (error) {
      showToast(`Not restored. ${error.message}`, { tone: "error" });
    }
  }

  // Another page changed a conversation.
  changed({ id, title, deleted }) {
    if (!deleted) {
      this.#list.put(id, { title });
      if (this.#store.get(id)) this.#store.put({ id, title });
    } else if (this.#list.has(id)) {
      const next = this.#list.neighbour(id);
      this.#list.remove(id);
      if (this.current === id) this.#leave(next);
    }
  }

  #leave(next) {
    if (next) this.open(next);
    else this.openNew();
  }
}

// Form fields → the types that the server would give back.
function unsaved({ version = null, alias = "", name = "" }) {
  return { ...DEFAULTS, version, alias, model: name };
}

function typed(fields) {
  const number = (text) => (text === "" ? null : Number(text));
  return Object.fromEntries(Object.entries(fields).map(([name, text]) => [name, ["system_prompt", "alias"].includes(name) ? text : number(text)]));
}

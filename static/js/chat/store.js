// Holds the conversations that this page has open: their settings and their trees of messages.

// A message: {id, parent, role, text, created_at, generation: id | null}. Siblings share a parent; a regenerated reply is one.
export class Store extends EventTarget {
  #conversations = new Map();

  get(id) {
    return this.#conversations.get(id);
  }

  all() {
    return [...this.#conversations.values()];
  }

  // Take a conversation and, when given, all its messages, oldest first.
  put({ id, title, settings }, messages) {
    const known = this.#conversations.get(id);
    const conversation = known ?? { id, title: "", settings: null, messages: new Map(), children: new Map(), chosen: new Map() };
    if (title !== undefined) conversation.title = title;
    if (settings) conversation.settings = settings;
    this.#conversations.set(id, conversation);
    for (const message of messages ?? []) this.#insert(conversation, message);
    this.#changed(id);
    return conversation;
  }

  drop(id) {
    this.#conversations.delete(id);
  }

  add(id, ...messages) {
    const conversation = this.#conversations.get(id);
    if (!conversation) return;
    for (const message of messages) {
      this.#insert(conversation, message);
      conversation.chosen.set(message.parent ?? null, message.id); // what has just been written is what is shown
    }
    this.#changed(id);
  }

  #insert(conversation, message) {
    const parent = message.parent ?? null;
    if (!conversation.messages.has(message.id)) {
      const siblings = conversation.children.get(parent) ?? [];
      siblings.push(message.id);
      conversation.children.set(parent, siblings);
    }
    conversation.messages.set(message.id, message);
  }

  // Show another sibling; `step` is -1 or 1.
  step(id, messageId, step) {
    const conversation = this.#conversations.get(id);
    const message = conversation?.messages.get(messageId);
    if (!message) return;
    const parent = message.parent ?? null;
    const siblings = conversation.children.get(parent);
    const next = siblings[siblings.indexOf(messageId) + step];
    if (!next) return;
    conversation.chosen.set(parent, next);
    this.#changed(id);
  }

  // The branch on show, from the root: [{message, position (from 1), count}]. Newest sibling unless one was chosen.
  path(id) {
    const conversation = this.#conversations.get(id);
    const path = [];
    let parent = null;
    while (conversation?.children.has(parent)) {
      const siblings = conversation.children.get(parent);
      const shown = conversation.chosen.get(parent) ?? siblings.at(-1);
      path.push({ message: conversation.messages.get(shown), position: siblings.indexOf(shown) + 1, count: siblings.length });
      parent = shown;
    }
    return path;
  }

  leaf(id) {
    return this.path(id).at(-1)?.message ?? null;
  }

  #changed(id) {
    this.dispatchEvent(new CustomEvent("change", { detail: { id } }));
  }
}

// Sends questions, watches replies, stops them and asks for others: everything that goes over the socket.

import { isEnded } from "./phases.js";
import { announce, showToast } from "./toast.js";

const WATCH = "watch"; // marks an error as the answer to a watch, which needs no notice

export class Replies {
  #socket;
  #store;
  #generations;
  #conversations;
  #list;
  #lost = null; // {conversation, text} whose answer went down with the line
  #openedBefore = false;
  onArrived = () => {}; // (text): a message that seemed lost did arrive

  constructor({ socket, store, generations, conversations, list }) {
    this.#socket = socket;
    this.#store = store;
    this.#generations = generations;
    this.#conversations = conversations;
    this.#list = list;
    socket.addEventListener("open", () => this.#opened());
    socket.addEventListener("frame", ({ detail }) => this.#received(detail));
    generations.addEventListener("gap", ({ detail }) => this.#watch(detail.id, detail.after));
    conversations.addEventListener("loaded", ({ detail }) => this.#loaded(detail.id));
    generations.addEventListener("change", ({ detail }) => {
      if (detail.what === "view") this.#viewChanged(generations.get(detail.id));
    });
  }

  // The running reply on show, or null.
  running() {
    const leaf = this.#store.leaf(this.#conversations.current);
    const entry = leaf?.generation && this.#generations.get(leaf.generation);
    return entry && !isEnded(entry.view) ? entry : null;
  }

  // Send a question after the last message on show, or in place of `edited`. Returns the conversation's id.
  async send(text, edited) {
    const conversation = this.#conversations.current ?? (await this.#conversations.create());
    const parent = edited ? edited.parent : (this.#store.leaf(conversation)?.id ?? null);
    try {
      await this.#socket.request({ type: "message.send", conversation, parent, text });
    } catch (error) {
      if (error.code === "offline" || error.code === "timeout") this.#lost = { conversation, text };
      throw error;
    }
    return conversation;
  }

  async regenerate(message) {
    try {
      await this.#socket.request({ type: "message.regenerate", message: message.id });
    } catch (error) {
      showToast(error.message, { tone: "error" });
    }
  }

  stop() {
    const entry = this.running();
    if (!entry || this.#socket.send({ type: "generation.stop", generation: entry.id })) return;
    showToast("Not connected: the reply can be stopped once the connection is back.", { tone: "error" });
  }

  #watch(generation, after) {
    this.#socket.send({ type: "generation.watch", ref: WATCH, generation, after });
  }

  #watchUnfinished() {
    for (const { id, after } of this.#generations.unfinished()) this.#watch(id, after);
  }

  #opened() {
    this.#generations.forgetAsked();
    this.#watchUnfinished();
    if (this.#openedBefore) this.#conversations.refresh();
    this.#openedBefore = true;
  }

  #loaded(conversation) {
    for (const { id, after, conversation: its } of this.#generations.unfinished()) if (its === conversation) this.#watch(id, after);
    if (this.#lost?.conversation !== conversation) return;
    const arrived = [...this.#store.get(conversation).messages.values()].some((message) => message.text === this.#lost.text);
    if (arrived) this.onArrived(this.#lost.text);
    this.#lost = null;
  }

  #received(frame) {
    switch (frame.type) {
      case "message.created":
        this.#created(frame);
        break;
      case "generation.deltas":
        this.#generations.applyDeltas(frame.deltas);
        break;
      case "generation.snapshot":
        this.#generations.applySnapshot(frame);
        break;
      case "generation.view":
        this.#generations.applyView(frame.view);
        break;
      case "conversation.changed":
        this.#conversations.changed(frame.conversation);
        break;
      case "error":
        if (!frame.ref) showToast(frame.message, { tone: "error" });
        break;
    }
  }

  #created({ ref, conversation, user_message: question, reply }) {
    this.#generations.put(reply.generation, reply.text ?? "", conversation);
    const messages = [question, { ...reply, text: "", generation: reply.generation.id }].filter(Boolean);
    this.#store.add(conversation, ...messages);
    this.#list.put(conversation, { touched: true });
    this.#list.setRunning(conversation, true);
    if (!ref) this.#watch(reply.generation.id, 0); // written in another window
  }

  #viewChanged({ conversation, view }) {
    this.#list.setRunning(conversation, this.#generations.runningIn(conversation));
    if (conversation !== this.#conversations.current || !isEnded(view)) return;
    announce({ done: "The reply is finished.", stopped: "The reply was stopped.", failed: `The reply failed. ${view.error}` }[view.state]);
  }
}

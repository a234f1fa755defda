// Starts the chat page: reads the data that came with it and connects the parts.

import { loadModels } from "./api.js";
import { Composer } from "./composer.js";
import { ConnectionStatus } from "./connection_status.js";
import { ConversationList } from "./conversation_list.js";
import { Conversations } from "./conversations.js";
import { byTestId } from "./dom.js";
import { Drawer } from "./drawer.js";
import { EmptyState } from "./empty_state.js";
import { Generations } from "./generations.js";
import { createMarkdown } from "./markdown.js";
import { ModelPicker } from "./model_picker.js";
import { recall, remember } from "./remembered.js";
import { Replies } from "./replies.js";
import { SettingsPanel } from "./settings_panel.js";
import { listenForShortcuts } from "./shortcuts.js";
import { ChatSocket } from "./socket.js";
import { Store } from "./store.js";
import { ThreadView } from "./thread_view.js";
import { showToast } from "./toast.js";
import { MarkdownIt, highlighter } from "./vendor.js";

const LAST_MODEL = "model"; // key of what this browser remembers

const page = JSON.parse(document.getElementById("page-data").textContent);
const part = (id) => document.getElementById(id);
const finePointer = window.matchMedia("(pointer: fine)");

const store = new Store();
const generations = new Generations();
const socketScheme = location.protocol === "https:" ? "wss:" : "ws:";
const socket = new ChatSocket(`${socketScheme}//${location.host}${page.urls?.socket ?? "/ws/chat/"}`);
const drawer = new Drawer({ app: part("app"), sidebar: part("sidebar"), button: part("drawer-button"), scrim: part("scrim") });
const list = new ConversationList({
  root: byTestId("conversation-list"),
  filter: part("filter"),
  actions: {
    open: (id) => (drawer.closeIfOver(), conversations.open(id)),
    rename: (id, title) => conversations.rename(id, title),
    remove: (id) => conversations.remove(id),
  },
});
const conversations = new Conversations({ store, generations, list, model: firstModel(page.models) });
const replies = new Replies({ socket, store, generations, conversations, list });
const thread = new ThreadView({
  list: part("messages"),
  scroller: part("scroller"),
  jump: part("jump"),
  md: createMarkdown(MarkdownIt, highlighter),
  store,
  generations,
  actions: {
    step: (message, step) => store.step(conversations.current, message.id, step),
    regenerate: (message) => replies.regenerate(message),
    edit: (message) => composer.edit(message),
  },
});
const composer = new Composer({ form: part("composer"), actions: { send, stop: () => replies.stop() } });
const picker = new ModelPicker({ button: byTestId("model-picker"), list: part("model-list"), load: loadModels, models: page.models });
const settings = new SettingsPanel({ panel: part("settings-panel"), button: byTestId("settings-open"), save: (fields) => conversations.saveSettings(fields) });
const connection = new ConnectionStatus({ root: byTestId("connection-status"), socket, onShow: () => refresh() });
const empty = new EmptyState({ root: part("empty-state"), isStaff: page.user.is_staff, write: (text) => composer.write(text) });

async function send(text, edited) {
  await conversations.settled();
  const created = conversations.current === null;
  const conversation = await replies.send(text, edited).finally(() => {
    if (created && conversations.current) composer.moveDraft(conversations.current);
    if (created && conversations.current) thread.open(conversations.current);
  });
  thread.toEnd();
  return conversation;
}

// The model that was used last, else the one that is nearest to answering; null when there are none.
function firstModel(models) {
  const last = recall(LAST_MODEL);
  const order = ["loaded", "loading", "unloaded", "unloading", "failed"];
  const rank = (model) => (model.name === last ? -1 : order.indexOf(model.state));
  return [...models].sort((a, b) => rank(a) - rank(b))[0] ?? null;
}

function showSettings() {
  settings.show(conversations.settings);
  picker.pick(conversations.settings.model || firstModel(picker.models)?.name);
  refresh();
}

// What depends on the open conversation, the models and the line at once.
function refresh() {
  const running = replies.running();
  const conversation = store.get(conversations.current);
  composer.setRunning(running !== null);
  if (!picker.models.length) composer.setBlocked("There is no model to answer yet.", { usable: false });
  else composer.setBlocked(connection.reason, { shown: connection.shown });
  picker.watch(running?.view.state === "loading");
  const loaded = conversations.current === null || conversation !== undefined;
  empty.show({ visible: loaded && store.path(conversations.current).length === 0, models: picker.models, model: picker.picked });
  part("conversation-title").textContent = conversation?.title || "New conversation";
  document.title = conversation?.title ? `${conversation.title} · Parley` : "Parley";
}

async function pickModel({ version, alias, name }) {
  try {
    await conversations.saveSettings({ version: String(version), alias }, { model: name });
    remember(LAST_MODEL, name);
  } catch (error) {
    showToast(`The model was not changed. ${error.message}`, { tone: "error" });
    showSettings();
  }
}

function newChat() {
  drawer.closeIfOver();
  conversations.openNew();
  composer.focus();
}

// Close or stop the nearest thing; false when there is nothing.
function escape() {
  if (picker.isOpen) picker.close();
  else if (settings.isOpen) settings.close();
  else if (drawer.isOver) drawer.close();
  else if (composer.editing) composer.cancelEdit();
  else if (replies.running()) replies.stop();
  else return false;
  return true;
}

conversations.addEventListener("open", ({ detail }) => {
  thread.open(detail.id);
  composer.open(detail.id);
  showSettings();
  if (finePointer.matches) composer.focus();
});
conversations.addEventListener("settings", showSettings);
replies.onArrived = (text) => composer.forget(text);
store.addEventListener("change", refresh);
generations.addEventListener("change", ({ detail }) => {
  if (detail.what === "view") refresh();
});
socket.addEventListener("status", refresh);
picker.addEventListener("models", refresh);
picker.addEventListener("pick", ({ detail }) => pickModel(detail.model));
byTestId("new-chat").addEventListener("click", newChat);
listenForShortcuts({
  newChat,
  escape,
  search: () => {
    drawer.open();
    part("filter").focus();
  },
  write: () => composer.focus(),
  help: () => part("help").togglePopover(),
});

conversations.start(page.conversation, page.messages);
socket.connect();
document.documentElement.dataset.ready = "true";

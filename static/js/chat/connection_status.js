// Says in words when the line to the server is down, and when it will be tried again.

const QUIET_MS = 1200; // a connection that takes no longer than this needs no word

export class ConnectionStatus {
  #root;
  #words;
  #socket;
  #timer = null;
  #retryAt = null;
  #onShow;

  constructor({ root, socket, onShow }) {
    this.#onShow = onShow;
    this.#root = root;
    this.#words = root.querySelector("[data-part=words]");
    this.#socket = socket;
    root.querySelector("[data-part=retry]").addEventListener("click", () => socket.retryNow());
    socket.addEventListener("status", ({ detail }) => this.#changed(detail));
  }

  #changed({ state, retryAt }) {
    clearTimeout(this.#timer);
    this.#root.dataset.state = state;
    this.#retryAt = retryAt;
    this.#root.querySelector("[data-part=retry]").hidden = state !== "waiting";
    if (state === "open") this.#root.hidden = true;
    else if (state === "connecting" && this.#root.hidden) this.#timer = setTimeout(() => this.#show("Connecting…"), QUIET_MS);
    else if (state === "connecting") this.#show("Reconnecting…");
    else if (state === "signed-out") this.#show("You are signed out. Reload the page to sign in.");
    else this.#countDown();
  }

  #countDown() {
    const seconds = Math.max(0, Math.ceil((this.#retryAt - Date.now()) / 1000));
    const offline = navigator.onLine ? "Connection lost" : "This device is offline";
    this.#show(`${offline}. Trying again ${seconds ? `in ${seconds} s` : "now"}`);
    this.#timer = setTimeout(() => this.#countDown(), 1000);
  }

  #show(words) {
    const appears = this.#root.hidden;
    this.#root.hidden = false;
    if (appears) this.#onShow();
    if (this.#words.textContent !== words) this.#words.textContent = words;
  }

  // Whether the reader has been told; a short wait for the connection goes without words.
  get shown() {
    return !this.#root.hidden;
  }

  // Why nothing can be sent now; empty when it can.
  get reason() {
    if (this.#socket.open) return "";
    if (this.#socket.state === "signed-out") return "You are signed out. Reload the page to sign in; your text is kept.";
    return "Not connected. You can go on writing; sending works again as soon as the connection is back.";
  }
}

// One WebSocket for the page: reconnects with growing pauses, notices a dead line, and pairs answers with requests.

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const PING_EVERY_MS = 25_000;
const PONG_WITHIN_MS = 10_000;
const ANSWER_WITHIN_MS = 20_000;
const SIGNED_OUT = 4401;

export class RequestError extends Error {
  constructor({ code, message, field }) {
    super(message);
    this.code = code;
    this.field = field;
  }
}

// Pause before attempt n (from 0), with up to a quarter of jitter so that a restarted server isn't stormed.
export function pauseBefore(attempt, random = Math.random) {
  const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt);
  return pause * (1 - random() / 4);
}

// Emits "open", "frame" {frame}, and "status" {state: "connecting" | "open" | "waiting" | "signed-out", retryAt}.
export class ChatSocket extends EventTarget {
  #url;
  #socket = null;
  #attempt = 0;
  #retry = null;
  #ping = null;
  #pongDue = null;
  #pending = new Map(); // ref → {resolve, reject, timer}
  #nextRef = 1;
  state = "connecting";

  constructor(url) {
    super();
    this.#url = url;
    window.addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.retryNow();
    });
  }

  connect() {
    clearTimeout(this.#retry);
    this.#status("connecting");
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    socket.addEventListener("open", () => this.#opened());
    socket.addEventListener("message", (event) => this.#received(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => {
      if (socket === this.#socket) this.#closed(event.code);
    });
  }

  retryNow() {
    if (this.state === "waiting") this.connect();
  }

  get open() {
    return this.state === "open";
  }

  // Send a frame that wants no answer; false when the line is down.
  send(frame) {
    if (!this.open) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  // Send a frame and wait for the answer with its ref. Rejects with RequestError.
  request(frame) {
    const ref = String(this.#nextRef++);
    return new Promise((resolve, reject) => {
      if (!this.send({ ...frame, ref })) {
        reject(new RequestError({ code: "offline", message: "Not connected. Your message is kept; send it when the line is back." }));
        return;
      }
      const timer = setTimeout(() => this.#fail(ref, { code: "timeout", message: "The server did not answer. Your message is kept; try again." }), ANSWER_WITHIN_MS);
      this.#pending.set(ref, { resolve, reject, timer });
    });
  }

  #opened() {
    this.#attempt = 0;
    this.#status("open");
    this.#ping = setInterval(() => {
      this.send({ type: "ping" });
      this.#pongDue ??= setTimeout(() => this.#lineIsDead(), PONG_WITHIN_MS);
    }, PING_EVERY_MS);
    this.dispatchEvent(new Event("open"));
  }

  #received(frame) {
    clearTimeout(this.#pongDue);
    this.#pongDue = null;
    if (frame.ref && frame.type === "error") this.#fail(frame.ref, frame);
    else if (frame.ref) this.#settle(frame.ref)?.resolve(frame);
    this.dispatchEvent(new CustomEvent("frame", { detail: frame }));
  }

  #settle(ref) {
    const pending = this.#pending.get(ref);
    if (!pending) return undefined;
    clearTimeout(pending.timer);
    this.#pending.delete(ref);
    return pending;
  }

  #fail(ref, error) {
    this.#settle(ref)?.reject(new RequestError(error));
  }

  #lineIsDead() {
    const socket = this.#socket;
    this.#closed(0);
    socket.close();
  }

  #closed(code) {
    this.#socket = null;
    clearInterval(this.#ping);
    clearTimeout(this.#pongDue);
    this.#pongDue = null;
    for (const ref of [...this.#pending.keys()]) {
      this.#fail(ref, { code: "offline", message: "The connection was lost before the server answered. Your message is kept." });
    }
    if (code === SIGNED_OUT) {
      this.#status("signed-out");
      return;
    }
    const pause = pauseBefore(this.#attempt++);
    this.#status("waiting", Date.now() + pause);
    this.#retry = setTimeout(() => this.connect(), pause);
  }

  #status(state, retryAt = null) {
    this.state = state;
    this.dispatchEvent(new CustomEvent("status", { detail: { state, retryAt } }));
  }
}

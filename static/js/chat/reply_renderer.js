// Draws a reply's markdown as it grows: settled blocks are drawn once, only the open end is drawn again, at most once a frame.

import { copyFrom, element, iconButton } from "./dom.js";
import { settledLength, withoutDanglingMarker } from "./markdown.js";
import { sanitise } from "./sanitise.js";

const REST_FACTOR = 4; // after a draw that took t ms, rest 4 t: drawing never takes more than a fifth of the time

export class ReplyRenderer {
  #md;
  #container;
  #source = "";
  #settled = 0; // characters whose elements are final
  #settledNodes = 0; // and how many elements they made
  #frame = null;
  #restUntil = 0;

  constructor(md, container) {
    this.#md = md;
    this.#container = container;
  }

  // Whether something is yet to be drawn.
  get pending() {
    return this.#frame !== null;
  }

  // Show the source soon; called for every delta.
  update(source) {
    if (!source.startsWith(this.#source.slice(0, this.#settled))) this.#startOver();
    this.#source = source;
    if (this.#frame === null) this.#schedule();
  }

  // Show the whole source now. One pass over all of it: a link defined at the end may be used at the start.
  finish(source) {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#frame = null;
    this.#startOver();
    this.#source = source;
    this.#container.replaceChildren(...this.#blocks(source));
  }

  #startOver() {
    this.#settled = 0;
    this.#settledNodes = 0;
  }

  #schedule() {
    this.#frame = requestAnimationFrame((now) => {
      if (now < this.#restUntil) {
        this.#schedule();
        return;
      }
      this.#frame = null;
      this.#draw();
      const took = performance.now() - now;
      this.#restUntil = performance.now() + took * REST_FACTOR;
    });
  }

  #draw() {
    const open = this.#source.slice(this.#settled);
    const settling = settledLength(this.#md, open);
    while (this.#container.childNodes.length > this.#settledNodes) this.#container.lastChild.remove();
    if (settling) {
      this.#container.append(...this.#blocks(open.slice(0, settling)));
      this.#settled += settling;
      this.#settledNodes = this.#container.childNodes.length;
    }
    this.#container.append(...this.#blocks(withoutDanglingMarker(open.slice(settling))));
  }

  #blocks(source) {
    const fragment = sanitise(this.#md.render(source));
    fragment.querySelectorAll("pre").forEach(frameCode);
    fragment.querySelectorAll("table").forEach(frameTable);
    return [...fragment.children];
  }
}

// Give a <pre> a head: language and copy button.
function frameCode(pre) {
  const code = pre.firstElementChild;
  const language = /language-(\S+)/.exec(code.className)?.[1] ?? "text";
  const copy = iconButton("copy", "Copy code", { onclick: () => copyFrom(copy, code.textContent), "data-testid": "copy-code" });
  const head = element("div", { class: "code-head" }, element("span", { class: "code-language" }, language), copy);
  const block = element("div", { class: "code-block" }, head);
  pre.setAttribute("tabindex", "0");
  pre.replaceWith(block);
  block.append(pre);
}

// A wide table scrolls by itself, not the page.
function frameTable(table) {
  const frame = element("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" });
  table.replaceWith(frame);
  frame.append(table);
}

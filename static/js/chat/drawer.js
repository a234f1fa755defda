// The sidebar: a column on wide windows that can be put away, a drawer over the page on narrow ones.

const NARROW = window.matchMedia("(max-width: 860px)");

export class Drawer {
  #app;
  #sidebar;
  #button;

  constructor({ app, sidebar, button, scrim }) {
    this.#app = app;
    this.#sidebar = sidebar;
    this.#button = button;
    button.addEventListener("click", () => this.#set(!this.isOpen));
    scrim.addEventListener("click", () => this.close());
    NARROW.addEventListener("change", () => this.#set(!NARROW.matches));
    this.#set(!NARROW.matches);
  }

  get isOpen() {
    return this.#app.dataset.sidebar === "open";
  }

  get isOver() {
    return NARROW.matches && this.isOpen;
  }

  open() {
    this.#set(true);
  }

  // After a choice in the drawer, the page is what the reader wants to see.
  closeIfOver() {
    if (this.isOver) this.#set(false);
  }

  close() {
    this.#set(false);
    this.#button.focus();
  }

  #set(open) {
    this.#app.dataset.sidebar = open ? "open" : "closed";
    this.#sidebar.inert = !open;
    this.#button.setAttribute("aria-expanded", String(open));
  }
}

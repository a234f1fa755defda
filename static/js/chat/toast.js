// Short notices at the page's edge, with one thing to do about them, for example undo.

import { element, iconButton } from "./dom.js";

const SHOWN_MS = 8000;

// action: {label, run} or null. A toast under the pointer or the focus stays.
export function showToast(text, { action = null, tone = "plain" } = {}) {
  const region = document.getElementById("toasts");
  const close = () => toast.remove();
  const act = action && element("button", { type: "button", class: "button small", "data-testid": action.testId ?? "toast-action", onclick: () => {
    close();
    action.run();
  } }, action.label);
  const toast = element("div", { class: "toast", "data-testid": "toast", "data-tone": tone, role: tone === "error" ? "alert" : "status" },
    element("span", { class: "toast-text" }, text), act, iconButton("close", "Dismiss", { onclick: close }));
  const fade = () => {
    if (toast.matches(":hover") || toast.contains(document.activeElement)) setTimeout(fade, 1500);
    else close();
  };
  region.append(toast);
  setTimeout(fade, SHOWN_MS);
  return close;
}

// Say something to screen readers alone.
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

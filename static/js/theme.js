// Chooses light or dark before the first paint: what the reader picked, else what the system says. Not a module, so that it runs at once.

(() => {
  const KEY = "parley.theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const read = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden; the system's choice then holds
    }
  };
  const apply = () => {
    const dark = read() ? read() === "dark" : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      button.setAttribute("aria-pressed", String(dark));
    }
  };
  const toggle = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, next);
    } catch {
      document.documentElement.dataset.theme = next;
      return;
    }
    apply();
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.addEventListener("click", (event) => {
      if (event.target.closest("[data-theme-toggle]")) toggle();
    });
  });
})();

// Copies an example or a new key: the text beside the button.

const SAID_MS = 1500;

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const words = button.querySelector("span");
  const said = words.textContent;
  try {
    await navigator.clipboard.writeText(button.parentElement.querySelector("[data-copy-text]").textContent);
    words.textContent = "Copied";
  } catch {
    words.textContent = "Select it and copy"; // no clipboard without HTTPS
  }
  setTimeout(() => { words.textContent = said; }, SAID_MS);
});

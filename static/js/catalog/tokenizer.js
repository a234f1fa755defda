// The tokenizer page: tokens follow the text as it is typed.

import { Idiomorph } from "../../vendor/idiomorph/idiomorph.esm.js";

const PAUSE_MS = 250;

const form = document.getElementById("tokenizer");
const tokens = document.getElementById("tokens");
let timer = null;
let newest = 0;

// Ask for the tokens of what the form says now; answers that a later one has overtaken are dropped.
async function show() {
  const turn = ++newest;
  const query = new URLSearchParams(new FormData(form));
  query.append("fragment", "1");
  const response = await fetch(`${form.action}?${query}`, { credentials: "same-origin" }).catch(() => null);
  if (turn !== newest || !response?.ok || response.redirected) return;
  Idiomorph.morph(tokens, await response.text(), { morphStyle: "innerHTML" });
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(show, PAUSE_MS);
}

form.elements.text.addEventListener("input", later);
form.addEventListener("change", (event) => {
  if (event.target.id === "ids") tokens.classList.toggle("token-ids", event.target.checked);
  else if (event.target.id === "another") form.requestSubmit(); // the chosen one gets a box of its own
  else later();
});
for (const button of form.querySelectorAll("[data-sample]")) {
  button.addEventListener("click", () => {
    form.elements.text.value = button.dataset.sample;
    show();
  });
}

// A version's page: the card as formatted text, digests that copy themselves, and a plan that follows its sliders.

import { createMarkdown } from "../chat/markdown.js";
import { sanitise } from "../chat/sanitise.js";
import { MarkdownIt, highlighter } from "../chat/vendor.js";
import { followHeat } from "./heat.js";
import { followPlan } from "./plan.js";

const COPIED_MS = 1600;

const card = document.getElementById("card-text");
if (card) {
  const html = createMarkdown(MarkdownIt, highlighter).render(JSON.parse(card.textContent));
  document.getElementById("card-view").append(sanitise(html));
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button || button.dataset.copied) return;
  const shown = button.textContent;
  const done = await navigator.clipboard?.writeText(button.dataset.copy).then(() => true, () => false);
  button.dataset.copied = "true";
  button.textContent = done ? "Copied" : button.dataset.copy; // where there is no clipboard, the whole digest can be marked
  if (done) setTimeout(() => {
    button.textContent = shown;
    delete button.dataset.copied;
  }, COPIED_MS);
});

const plan = document.getElementById("plan-form");
if (plan) followPlan(plan, document.getElementById("plan-result"));

followHeat(document.querySelector('[data-part="experts"]'));

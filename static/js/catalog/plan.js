// The plan of a version: sliders and numbers move together, and the arithmetic follows them.

import { Idiomorph } from "../../vendor/idiomorph/idiomorph.esm.js";

const PAUSE_MS = 200;
const STEPS = 100; // a slider's positions; its values grow by the same factor at each

// The value of a slider's position, from low to high on a logarithmic scale, and the position of a value.
export function valueAt(position, low, high) {
  return Math.round(low * (high / low) ** (position / STEPS));
}

export function positionOf(value, low, high) {
  if (high <= low) return STEPS;
  return Math.round((STEPS * Math.log(Math.min(high, Math.max(low, value)) / low)) / Math.log(high / low));
}

export function followPlan(form, result) {
  let timer = null;
  let newest = 0;

  async function show() {
    const turn = ++newest;
    const query = new URLSearchParams(new FormData(form));
    query.delete("csrfmiddlewaretoken");
    result.setAttribute("aria-busy", "true");
    const response = await fetch(`${form.dataset.planUrl}?${query}`, { credentials: "same-origin" }).catch(() => null);
    if (turn !== newest) return;
    result.removeAttribute("aria-busy");
    if (response?.ok && !response.redirected) Idiomorph.morph(result, await response.text(), { morphStyle: "innerHTML" });
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(show, PAUSE_MS);
  }

  for (const slider of form.querySelectorAll("[data-slides]")) {
    const number = form.elements[slider.dataset.slides];
    const low = Number(number.min);
    const high = Number(slider.dataset.high);
    const place = () => (slider.value = positionOf(Number(number.value) || low, low, high));
    slider.max = STEPS;
    place();
    slider.addEventListener("input", () => (number.value = valueAt(Number(slider.value), low, high)));
    number.addEventListener("input", place);
  }
  form.addEventListener("input", later);
}

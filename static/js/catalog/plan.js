// The plan of a version: sliders and numbers move together, and the arithmetic follows them.

import { Idiomorph } from "../../vendor/idiomorph/idiomorph.esm.js";
import { STEPS, positionOf, valueAt } from "./slider.js";

const PAUSE_MS = 200;
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

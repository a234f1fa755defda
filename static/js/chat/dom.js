// Builds elements: text always as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

// element("button", {class: "x", "aria-label": "Close", onclick: f}, "text", child, …); null and false values are left out.
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// An icon from the sprite that base.html carries.
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

export function iconButton(name, label, attributes = {}) {
  return element("button", { type: "button", class: "icon-button", "aria-label": label, title: label, ...attributes }, icon(name));
}

export const byTestId = (id) => document.querySelector(`[data-testid="${id}"]`);

// Copy text and show on the button, for a moment, that it is done.
export async function copyFrom(button, text) {
  const use = button.querySelector("use");
  const label = button.getAttribute("aria-label");
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copyBySelection(text);
  }
  use.setAttribute("href", done ? "#icon-check" : "#icon-alert");
  button.setAttribute("aria-label", done ? "Copied" : "Could not copy");
  setTimeout(() => {
    use.setAttribute("href", "#icon-copy");
    button.setAttribute("aria-label", label);
  }, 1600);
}

// Sites served over plain HTTP have no clipboard object.
function copyBySelection(text) {
  const area = element("textarea", { class: "visually-hidden", readonly: true });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

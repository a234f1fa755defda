// The second lock on model text: whatever the markdown stage made, only these tags and attributes reach the page.

import DOMPurify from "../../vendor/dompurify/purify.es.mjs";

const CONFIG = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s", "span", "strong",
    "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["class", "href", "rel", "start", "target", "title"],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const CLASS = /^(?:hljs(?:-[\w-]+)?|language-[\w+#.-]+|align-(?:left|center|right)|image-link|[a-z]+_)$/;

const purifier = DOMPurify(window);
purifier.addHook("afterSanitizeAttributes", (node) => {
  for (const name of [...node.classList]) if (!CLASS.test(name)) node.classList.remove(name);
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
});

// HTML text → a DocumentFragment that is safe to append.
export function sanitise(html) {
  return purifier.sanitize(html, CONFIG);
}

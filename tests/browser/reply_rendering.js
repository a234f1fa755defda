// Set-up for test_reply_rendering.py: the page's own renderer, and what to look for in what it draws.

import { createMarkdown } from "/static/js/chat/markdown.js";
import { ReplyRenderer } from "/static/js/chat/reply_renderer.js";
import { sanitise } from "/static/js/chat/sanitise.js";
import { MarkdownIt, highlighter } from "/static/js/chat/vendor.js";

const HARMLESS = new Set(("A BLOCKQUOTE BR BUTTON CODE DEL DIV EM H1 H2 H3 HR LI OL P PRE S SPAN STRONG SVG TABLE TBODY TD " +
  "TH THEAD TR UL USE").split(" "));
const LOADS_OR_RUNS = /^on|^style$|^src|^formaction$|^id$/i;
const HARMLESS_LINK = /^(https?:\/\/|mailto:|#icon-)/i;

const reply = document.getElementById("reply");
const nextFrame = () => new Promise(requestAnimationFrame);

window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));

// What could run, load, send or cover something: names of elements and attributes.
function live() {
  return [...reply.querySelectorAll("*")].flatMap((node) => {
    const attributes = [...node.attributes].filter(({ name, value }) =>
      LOADS_OR_RUNS.test(name) || (name === "href" && !HARMLESS_LINK.test(value)));
    const found = attributes.map(({ name, value }) => `${node.tagName} ${name}=${value}`);
    return HARMLESS.has(node.tagName.toUpperCase()) ? found : [node.tagName, ...found];
  });
}

function newRenderer() {
  reply.replaceChildren();
  return new ReplyRenderer(createMarkdown(MarkdownIt, highlighter), reply);
}

async function draw(renderer, text) {
  renderer.update(text);
  do await nextFrame(); while (renderer.pending);
}

window.replies = {
  finish(text) {
    newRenderer().finish(text);
    return { html: reply.innerHTML, text: reply.textContent, live: live() };
  },

  // Feed the text `step` characters at a time, look at every state, and end it.
  async stream(text, step) {
    const renderer = newRenderer();
    const seen = [];
    for (let end = step; end < text.length + step; end += step) {
      await draw(renderer, text.slice(0, end));
      seen.push(...live());
    }
    renderer.finish(text);
    return { html: reply.innerHTML, live: seen };
  },

  // How many of the first 40 paragraphs are the same elements after 10 more have come.
  async kept() {
    const paragraphs = (count) => Array.from({ length: count }, (_, index) => `Paragraph ${index} of a long reply.`).join("\n\n");
    const renderer = newRenderer();
    await draw(renderer, paragraphs(50));
    const before = [...reply.children].slice(0, 40);
    await draw(renderer, paragraphs(60));
    return before.filter((node, index) => reply.children[index] === node).length;
  },

  sanitise(markup) {
    const holder = document.createElement("div");
    holder.append(sanitise(markup));
    return holder.innerHTML;
  },
};

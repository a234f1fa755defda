import assert from "node:assert/strict";
import { test } from "node:test";

import highlighter from "@highlightjs/cdn-assets/es/highlight.min.js";
import MarkdownIt from "markdown-it";

import { createMarkdown, isSafeLink, settledLength, withoutDanglingMarker } from "../../static/js/chat/markdown.js";

const md = createMarkdown(MarkdownIt, highlighter);
const render = (text) => md.render(text);

// Every opening tag that the HTML has, with its attributes.
const tags = (html) => html.match(/<[a-z][^>]*>/g) ?? [];

test("a script tag is text", () => {
  const html = render("<script>alert(1)</script>\n\nand <b onclick=alert(1)>bold</b>");
  assert.deepEqual(tags(html), ["<p>", "<p>"]);
});

test("event handlers in html, attributes and titles are text", () => {
  for (const text of ['<img src=x onerror=alert(1)>', '[a](https://x.org "\\" onclick=\\"alert(1)")', '<a href="https://x.org" onmouseover="alert(1)">x</a>']) {
    assert.ok(!tags(render(text)).some((tag) => /\son\w+=/.test(tag.replace(/"[^"]*"/g, '""'))), text);
  }
});

test("links that would run or load something stay text", () => {
  for (const url of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", "&#106;avascript:alert(1)", "data:text/html,<script>alert(1)</script>",
    "vbscript:x", "file:///etc/passwd", "//evil.example/x", "/admin/", "blob:0123"]) {
    assert.ok(!tags(render(`[click](${url})`)).some((tag) => tag.startsWith("<a")), url);
    assert.ok(!tags(render(`<${url}>`)).some((tag) => tag.startsWith("<a")), url);
    assert.ok(!isSafeLink(url), url);
  }
});

test("ordinary links open outside without a referrer", () => {
  const html = render("[site](https://example.org/a?b=1&c=2) <mailto:a@example.org> https://example.org/bare");
  const anchors = tags(html).filter((tag) => tag.startsWith("<a"));
  assert.equal(anchors.length, 3);
  for (const anchor of anchors) assert.match(anchor, /target="_blank" rel="noopener noreferrer nofollow"/);
});

test("a file's name is not taken for a site", () => {
  assert.ok(!render("run main.py, read README.md").includes("<a"));
});

test("no image is ever loaded: remote, data, or by reference", () => {
  for (const text of ["![x](https://example.org/p.png)", "![x](data:image/png;base64,AAAA)", "![x][r]\n\n[r]: https://example.org/p.png", '![x" onerror="alert(1)](https://example.org/p.png)']) {
    const html = render(text);
    assert.ok(!tags(html).some((tag) => tag.startsWith("<img")), text);
  }
  assert.match(render("![A cat](https://example.org/cat.png)"), /<a class="image-link" href="https:\/\/example.org\/cat.png"[^>]*>Image: A cat<\/a>/);
});

test("html in a code fence is shown, not made", () => {
  for (const language of ["html", "", "nosuchlanguage", 'x"><script>alert(1)</script>']) {
    const html = render(`\`\`\`${language}\n<script>alert(1)</script>\n<img src=x onerror=alert(1)>\n\`\`\``);
    assert.ok(!tags(html).some((tag) => /^<(script|img)/.test(tag)), language);
    assert.match(html, /&lt;.*script/);
  }
});

test("a fence's language labels its code and nothing else", () => {
  assert.match(render("```Python title=x\nx = 1\n```"), /<code class="hljs language-python">/);
  assert.match(render("```\nx\n```"), /<code class="hljs language-text">/);
  assert.match(render('```a" onclick="b\nx\n```'), /<code class="hljs language-a">/);
});

test("an unclosed fence is code while it streams, whatever is in it", () => {
  const text = "Look:\n\n```html\n<script>alert(1)</script>\n<img src=x onerror=alert(1)>";
  for (let end = 1; end <= text.length; end += 1) {
    assert.ok(!tags(render(text.slice(0, end))).some((tag) => /^<(script|img)/.test(tag)), text.slice(0, end));
  }
});

test("tables are aligned by class, never by an inline style", () => {
  const html = render("| a | b |\n|---|--:|\n| 1 | 2 |");
  assert.match(html, /<td class="align-right">2<\/td>/);
  assert.ok(!html.includes("style="));
});

const REPLY = "# Title\n\nA paragraph\nof two lines.\n\n1. one\n2. two\n\n   inside two\n\n10. ten\n\n```python\nx = 1\n\ny = 2\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\nSetext\n---\n\n- a\n- b\n\nThe end.";

test("what has settled while streaming is what the whole gives in the end", () => {
  const whole = render(REPLY);
  let settled = 0;
  let html = "";
  for (let end = 1; end <= REPLY.length; end += 1) {
    const open = REPLY.slice(settled, end);
    const more = settledLength(md, open);
    html += render(open.slice(0, more));
    settled += more;
    assert.ok(whole.startsWith(html.trimEnd()), `after ${end} characters: ${html}`);
  }
  assert.ok(settled > REPLY.length / 2, "most of it settles before the end");
  assert.equal(html + render(REPLY.slice(settled)), whole);
});

test("a list that goes on after a blank line is not cut in two", () => {
  assert.equal(settledLength(md, "1. one\n\n2"), 0);
});

test("a marker that is being written is held back, and text never", () => {
  for (const marker of ["2", "2.", "-", "*", "##", ">", "``", "|"]) assert.equal(withoutDanglingMarker(`1. one\n${marker}`), "1. one\n");
  for (const text of ["42", "one\ntwo", "1. one\n2. t", "x\n```", "**bold**", "a\n---"]) assert.equal(withoutDanglingMarker(text), text);
});

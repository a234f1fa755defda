// Turns a model's markdown into HTML in which nothing runs and nothing loads. Pure: the libraries come from the caller.

const SAFE_LINK = /^(?:https?:\/\/|mailto:)/i;
const ALIGN = /text-align:(left|center|right)/;

export function isSafeLink(url) {
  return SAFE_LINK.test(url.trim());
}

// MarkdownIt: the library's constructor. highlighter: highlight.js, or null for plain code.
export function createMarkdown(MarkdownIt, highlighter) {
  const md = new MarkdownIt({ html: false, linkify: true, breaks: true, typographer: false });
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false }); // "main.py" is a file, not a site
  md.validateLink = isSafeLink;
  openLinksOutside(md);
  showImagesAsLinks(md);
  alignCellsByClass(md);
  labelCode(md, highlighter);
  return md;
}

function openLinksOutside(md) {
  md.renderer.rules.link_open = (tokens, index, options, env, self) => {
    tokens[index].attrSet("target", "_blank");
    tokens[index].attrSet("rel", "noopener noreferrer nofollow");
    return self.renderToken(tokens, index, options);
  };
}

// An image would tell a stranger's server who reads what; the reader decides by following a link.
function showImagesAsLinks(md) {
  const { escapeHtml } = md.utils;
  md.renderer.rules.image = (tokens, index) => {
    const source = tokens[index].attrGet("src") ?? "";
    const label = escapeHtml(tokens[index].content || source);
    if (!isSafeLink(source)) return `<span class="image-link">Image: ${label}</span>`;
    return `<a class="image-link" href="${escapeHtml(source)}" target="_blank" rel="noopener noreferrer nofollow">Image: ${label}</a>`;
  };
}

// markdown-it aligns with a style attribute, which the Content-Security-Policy refuses.
function alignCellsByClass(md) {
  const render = (tokens, index, options, env, self) => {
    const token = tokens[index];
    const align = ALIGN.exec(token.attrGet("style") ?? "");
    token.attrs = align ? [["class", `align-${align[1]}`]] : null;
    return self.renderToken(tokens, index, options);
  };
  md.renderer.rules.th_open = render;
  md.renderer.rules.td_open = render;
}

function labelCode(md, highlighter) {
  const { escapeHtml } = md.utils;
  const block = (code, info) => {
    const language = /^[\w+#.-]*/.exec(info.trim())[0].toLowerCase();
    const known = language && highlighter?.getLanguage(language);
    const html = known ? highlighter.highlight(code, { language, ignoreIllegals: true }).value : escapeHtml(code);
    return `<pre><code class="hljs language-${escapeHtml(language || "text")}">${html}</code></pre>\n`;
  };
  md.renderer.rules.fence = (tokens, index) => block(tokens[index].content, tokens[index].info);
  md.renderer.rules.code_block = (tokens, index) => block(tokens[index].content, "");
}

// A last line that is nothing but the beginning of a marker, such as the "3" of "3." in a list that is being written.
const DANGLING_MARKER = /\n[ \t]*(?:\d{1,9}[.)]?|[-*+]|#{1,6}|>|`{1,2}|\|)[ \t]*$/;

export function withoutDanglingMarker(source) {
  return source.replace(DANGLING_MARKER, "\n");
}

// Where the source can be cut so that what comes before can't change any more as text is appended: the start (in
// characters) of the last but one top-level block. The last two stay open, because "2" after a list becomes its "2.".
export function settledLength(md, source) {
  const starts = md.parse(source, {}).filter((token) => token.level === 0 && token.map && token.nesting >= 0).map((token) => token.map[0]);
  if (starts.length < 3) return 0;
  const line = starts.at(-2);
  let position = 0;
  for (let passed = 0; passed < line; passed += 1) position = source.indexOf("\n", position) + 1;
  return position;
}

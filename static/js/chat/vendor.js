// The browser libraries, as this page uses them.

import MarkdownIt from "../../vendor/markdown-it/markdown-it.esm.min.mjs";
import highlighter from "../../vendor/highlight/highlight.min.js";

export { MarkdownIt, highlighter };

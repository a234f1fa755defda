// The page's keys. Listed for readers in the help popover of chat/page.html.

function isTyping(target) {
  return target.closest("input, textarea, select, [contenteditable]") !== null;
}

// actions: {newChat, search, write, help, escape}; escape returns whether it had something to do.
export function listenForShortcuts(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const command = event.metaKey || event.ctrlKey;
    const key = event.key.toLowerCase();
    let run = null;
    if (command && event.shiftKey && key === "o") run = actions.newChat;
    else if (command && !event.shiftKey && key === "k") run = actions.search;
    else if (event.key === "Escape") run = actions.escape;
    else if (!command && !event.altKey && !isTyping(event.target)) run = { "/": actions.write, "?": actions.help }[event.key] ?? null;
    if (!run) return;
    if (run() !== false) event.preventDefault();
  });
}

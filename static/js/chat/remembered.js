// Small things kept in this browser. Storage may be full or forbidden; what can't be kept is forgotten with the page.

const PREFIX = "parley.";

export function recall(key) {
  try {
    return localStorage.getItem(PREFIX + key) ?? "";
  } catch {
    return "";
  }
}

export function remember(key, text) {
  try {
    if (text) localStorage.setItem(PREFIX + key, text);
    else localStorage.removeItem(PREFIX + key);
  } catch {
    // nothing to do about it, and nothing depends on it
  }
}

// The page's HTTP calls: JSON back, CSRF token along, refusals as typed errors.

export class ApiError extends Error {
  constructor(status, errors) {
    super(firstMessage(errors) ?? wordsFor(status));
    this.status = status;
    this.errors = errors; // {field: [message]}
  }
}

function firstMessage(errors) {
  return Object.values(errors)[0]?.[0];
}

function wordsFor(status) {
  if (status === 0) return "The server can't be reached.";
  if (status === 401 || status === 403) return "You are signed out. Reload the page to sign in.";
  if (status === 404) return "This conversation is not there any more.";
  return `The server could not do this (error ${status}).`;
}

async function call(url, options = {}) {
  let response;
  try {
    response = await fetch(url, { credentials: "same-origin", redirect: "manual", ...options, headers: { Accept: "application/json", ...options.headers } });
  } catch {
    throw new ApiError(0, {});
  }
  if (response.type === "opaqueredirect") throw new ApiError(401, {});
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, body.errors ?? {});
  return body;
}

export function getJson(url) {
  return call(url);
}

export function postForm(url, fields = {}) {
  const token = document.querySelector("input[name=csrfmiddlewaretoken]").value;
  return call(url, { method: "POST", headers: { "X-CSRFToken": token }, body: new URLSearchParams(fields) });
}

export const conversationUrl = (id) => `/c/${id}/`;
export const createConversation = ({ version, alias = "" }) => postForm("/c/", version ? { version, alias } : {});
export const loadMessages = (id) => getJson(`/c/${id}/messages/`);
export const renameConversation = (id, title) => postForm(`/c/${id}/rename/`, { title });
export const deleteConversation = (id) => postForm(`/c/${id}/delete/`);
export const restoreConversation = (id) => postForm(`/c/${id}/restore/`);
export const saveSettings = (id, fields) => postForm(`/c/${id}/settings/`, fields);
export const loadModels = () => getJson("/models/");

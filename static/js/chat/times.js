// Says when something happened, in the reader's own time zone.

const DAY_MS = 86_400_000;

function startOfDay(date) {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

export function dayGroup(when, now = new Date()) {
  const days = Math.round((startOfDay(now) - startOfDay(when)) / DAY_MS);
  if (days <= 0) return "Today";
  return days === 1 ? "Yesterday" : "Earlier";
}

export function clockTime(when, now = new Date()) {
  const time = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (dayGroup(when, now) === "Today") return time;
  return `${when.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
}

// A slider whose values grow by the same factor at each of its positions. Pure.

export const STEPS = 100;

// The value of a position, from low to high.
export function valueAt(position, low, high) {
  return Math.round(low * (high / low) ** (position / STEPS));
}

// The position of a value; one outside of the bounds is at the nearer end.
export function positionOf(value, low, high) {
  if (high <= low) return STEPS;
  const inside = Math.min(high, Math.max(low, value));
  return Math.round((STEPS * Math.log(inside / low)) / Math.log(high / low));
}

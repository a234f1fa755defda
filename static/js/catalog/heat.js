// The heat map of a mixture's experts: a cell for each expert of each layer, the stronger the more often it was visited.

const WEAKEST = 0.04; // what was never visited is still seen to be there

export function showHeat(root) {
  const canvas = root?.querySelector("canvas[data-heat]");
  if (!canvas) return;
  const counts = JSON.parse(canvas.dataset.heat);
  canvas.width = counts[0].length;
  canvas.height = counts.length;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  for (const [y, row] of counts.entries()) {
    const most = Math.max(...row, 1);
    for (const [x, count] of row.entries()) {
      context.globalAlpha = WEAKEST + (1 - WEAKEST) * (count / most);
      context.fillRect(x, y, 1, 1);
    }
  }
}

// Say which expert the pointer is on.
function point(event) {
  const canvas = event.target.closest?.("canvas[data-heat]");
  if (!canvas) return;
  const counts = JSON.parse(canvas.dataset.heat);
  const y = Math.min(counts.length - 1, Math.floor((event.offsetY / canvas.clientHeight) * counts.length));
  const x = Math.min(counts[0].length - 1, Math.floor((event.offsetX / canvas.clientWidth) * counts[0].length));
  const words = document.getElementById("heat-words");
  if (words && counts[y]?.[x] !== undefined) words.textContent = `Layer ${JSON.parse(canvas.dataset.layers)[y]}, expert ${x}: ${counts[y][x].toLocaleString("en-GB")} visits`;
}

export function followHeat(root) {
  if (!root) return;
  showHeat(root);
  root.addEventListener("updated", () => showHeat(root));
  root.addEventListener("pointermove", point);
  new MutationObserver(() => showHeat(root)).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

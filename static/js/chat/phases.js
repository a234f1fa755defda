// Says in words what a generation is doing, why it ended and what it cost. Pure: views in, strings out.

const LOAD_PHASES = {
  reading: "reading the weights",
  packing: "packing the weights",
  warming: "warming up",
};

export const ENDED = new Set(["done", "stopped", "failed"]);

export function isEnded(view) {
  return ENDED.has(view?.state);
}

export function formatCount(value) {
  return Number(value ?? 0).toLocaleString("en-GB");
}

export function formatSeconds(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 10 ? `${seconds.toFixed(2)} s` : `${seconds.toFixed(1)} s`;
}

export function formatRate(tokensPerSecond) {
  return `${tokensPerSecond < 10 ? tokensPerSecond.toFixed(1) : Math.round(tokensPerSecond)} tokens/s`;
}

// A load report → {words, fraction 0..1 or null}. A phase of one step has nothing to measure on the way.
export function loadProgress(load) {
  if (!load) return { words: "Loading the model", fraction: null };
  const doing = LOAD_PHASES[load.phase] ?? load.phase;
  const fraction = load.total > 1 ? Math.min(1, load.done / load.total) : null;
  const percent = fraction === null ? "" : `, ${Math.floor(fraction * 100)} %`;
  return { words: `Loading the model: ${doing || "starting"}${percent}`, fraction };
}

function queueWords(position) {
  if (position === null || position === undefined) return "Queued";
  return position <= 1 ? "Queued: next in line" : `Queued: number ${formatCount(position)} in line`;
}

// What a running generation is doing → {words, fraction}; null once it has ended.
export function phaseOf(view) {
  switch (view?.state) {
    case "queued":
      return { words: queueWords(view.queue_position), fraction: null };
    case "loading":
      return loadProgress(view.load);
    case "waiting":
      return { words: "Waiting for a place in the batch", fraction: null };
    case "prefill": {
      const done = Math.max(view.prefill_done ?? 0, view.cached_tokens ?? 0);
      const total = view.prompt_tokens ?? 0;
      if (!total) return { words: "Reading the prompt", fraction: null };
      const words = `Reading the prompt: ${formatCount(done)} of ${formatCount(total)} tokens`;
      return { words, fraction: Math.min(1, done / total) };
    }
    case "decoding":
      return { words: "Writing", fraction: null };
    default:
      return null;
  }
}

// The measured facts of a reply, in reading order. Running replies show what is known so far.
export function statsOf(view) {
  const facts = [];
  if (!view) return facts;
  if (view.ttft_s !== null && view.ttft_s !== undefined) {
    facts.push({ key: "ttft", words: `${formatSeconds(view.ttft_s)} to first token`, title: "From queued to first token" });
  }
  if (view.tokens_per_s) facts.push({ key: "rate", words: formatRate(view.tokens_per_s), title: "Output tokens per second" });
  if (!isEnded(view)) return facts;
  if (view.prompt_tokens) facts.push({ key: "prompt", words: promptWords(view), title: "Tokens read; cached ones were not computed again" });
  facts.push({ key: "output", words: `${formatCount(view.output_tokens)} out`, title: "Tokens written" });
  const ending = endingOf(view);
  if (ending) facts.push({ key: "finish", words: ending, title: "Why the reply ended" });
  return facts;
}

function promptWords(view) {
  const cached = view.cached_tokens ? ` (${formatCount(view.cached_tokens)} cached)` : "";
  return `${formatCount(view.prompt_tokens)} in${cached}`;
}

// Why a reply ended, where that is worth a word; an ordinary end needs none.
export function endingOf(view) {
  if (view.state === "stopped") return "stopped by you";
  if (view.state === "failed") return "failed";
  if (view.finish_reason === "length") return "stopped at the token limit";
  return "";
}

// What a model's state means to somebody about to write to it.
export function modelStateWords(model) {
  switch (model.state) {
    case "loaded":
      return "Loaded";
    case "loading":
      return loadProgress(model.load).words.replace("Loading the model", "Loading");
    case "unloading":
      return "Unloading";
    case "failed":
      return model.reason ? `Failed: ${model.reason}` : "Failed to load";
    default:
      return "Not loaded: your first message loads it";
  }
}

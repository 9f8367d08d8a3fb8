let last = { second: -1, text: "" };

/** Returns the current time in whole seconds, as an API server writes it: 2026-01-02T15:04:05Z. */
export const formatCurrentTime = (): string => {
  const second = Math.floor(Date.now() / 1000);
  if (second !== last.second) last = { second, text: `${new Date(second * 1000).toISOString().slice(0, 19)}Z` };
  return last.text;
};

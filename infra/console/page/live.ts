import type { ReviewRow } from "../messages.ts";
import { create, createBadge, describeNoMatch, formatTimeOfDay } from "./elements.ts";
import { knownIds, reviews, subscribeToReviews } from "./store.ts";

const filter = create("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the reviews by words" });
const pause = create("button", { type: "button" });
const count = create("span.quiet");
const columns = ["time", "cluster", "rule", "user", "object", "verdict", "ms", "sentence"];
const titles = columns.slice(0, -1).map((name) => create(`span.${name}`, name));
const head = create("div.row head", { "aria-hidden": "true" }, ...titles);
/** Invisible rows, whose heights are measured: one without a sentence, and a taller one with a sentence. */
const [plainProbe, tallProbe] = [create("div.row probe"), create("div.row tall probe")];
const list = create("ul.reviews");
const scroller = create("div.scroller", { tabindex: 0, role: "group", "aria-label": "Reviews" }, list);
const hint = create("p.quiet", { role: "status" });
const tools = create("div.tools", create("h1", "Live"), filter, pause, count);

export const livePage = create("div.live", tools, hint, head, scroller, plainProbe, tallProbe);

/** The reviews that match the filter, oldest first. */
let shown: ReviewRow[] = [];
/** The reviews to filter. While the list is paused, this is a copy of the reviews before the pause. */
let source: readonly ReviewRow[] = reviews;
/** The number of reviews that were added during the pause. */
let addedInPause = 0;
const isPaused = () => source !== reviews;
/** The list items by the ids of their reviews. Only rows on the screen, and a few around them, have an item. */
const elements = new Map<string, HTMLLIElement>();

/** Reports whether a review has all words of the filter, in its texts or in the names of a group's called rules. */
const matchesFilter = ({ id: _, at, milliseconds, members: verdictsByRule = {}, ...texts }: ReviewRow): boolean => {
  const text = [...Object.values(texts), ...Object.keys(verdictsByRule)].join(" ").toLowerCase();
  const words = filter.value.toLowerCase().split(/\s+/);
  return words.every((word) => text.includes(word));
};

/** Creates a review's row in the list of reviews. */
const createRow = (row: ReviewRow) => {
  const { id, at, cluster, rule, phase, user, operation, object, verdict, milliseconds, sentence } = row;
  const texts = [formatTimeOfDay(at), cluster, `${rule} ${phase}`, user, `${operation} ${object}`];
  const cells = [...texts, createBadge(verdict), `${milliseconds.toFixed(1)} ms`, ...(sentence ? [sentence] : [])];
  // Screen readers read the cells as one text. The spaces separate the cells in this text.
  const content = cells.flatMap((cell, index) => [create(`span.${columns[index] ?? ""}`, cell), " "]);
  return create("li", create(sentence ? "a.row tall" : "a.row", { href: `#live/${id}` }, ...content));
};

/** Returns the offset of the top of each row, the newest row first. The last number is the height of all rows. */
const computeTops = (rows: readonly ReviewRow[]): number[] => {
  const [plainHeight, tallHeight] = [plainProbe.offsetHeight || 36, tallProbe.offsetHeight || 60];
  const tops = [0];
  for (const { sentence } of rows.toReversed()) tops.push((tops.at(-1) ?? 0) + (sentence ? tallHeight : plainHeight));
  return tops;
};
const computeHeight = (rows: readonly ReviewRow[]): number => computeTops(rows).at(-1) ?? 0;

/** Shows the rows at the scroll position, the newest first. Existing elements are reused, so they keep the focus. */
const render = () => {
  hint.hidden = shown.length > 0;
  if (shown.length === 0)
    hint.textContent =
      source.length === 0
        ? "Reviews appear here as API servers send them. The newest is the first."
        : describeNoMatch("review", filter.value);
  const tops = computeTops(shown);
  list.style.height = `${tops.at(-1)}px`;
  const { scrollTop, clientHeight } = scroller;
  const first = Math.max(tops.findLastIndex((top) => top <= scrollTop) - 10, 0);
  const last = Math.min(tops.findLastIndex((top) => top <= scrollTop + clientHeight) + 10, shown.length);
  const rows = shown.slice(shown.length - last, shown.length - first).reverse();
  const ids = new Set(rows.map(({ id }) => id));
  for (const [id, element] of elements)
    if (!ids.has(id)) {
      element.remove();
      elements.delete(id);
    }
  for (const [index, row] of rows.entries()) {
    const element = elements.get(row.id) ?? createRow(row);
    elements.set(row.id, element);
    element.style.top = `${tops[first + index]}px`;
    element.setAttribute("aria-setsize", String(shown.length));
    element.setAttribute("aria-posinset", String(first + index + 1));
    if (list.children[index] !== element) list.insertBefore(element, list.children[index] ?? null);
  }
  count.textContent = `${shown.length} of ${source.length}`;
  pause.ariaPressed = String(isPaused());
  pause.textContent = isPaused() ? `Resume (${addedInPause} new)` : "Pause";
};

/** Filters all reviews again, and shows the result. */
export const showMatchingReviews = () => {
  shown = source.filter(matchesFilter);
  render();
};

subscribeToReviews((added) => {
  if (isPaused()) addedInPause += added.length;
  else {
    const matching = added.filter(matchesFilter);
    shown = [...shown, ...matching].filter(({ id }) => knownIds.has(id));
    list.style.height = `${computeHeight(shown)}px`;
    // New rows are inserted at the top. Unless the user is at the top, the visible rows must not move.
    if (scroller.scrollTop > 0 || list.querySelector(":focus-visible")) scroller.scrollTop += computeHeight(matching);
  }
  render();
});

scroller.addEventListener("scroll", render);
addEventListener("resize", render);
filter.addEventListener("input", showMatchingReviews);
pause.addEventListener("click", () => {
  const wasPaused = isPaused();
  // The pause begins with a copy, to which no new reviews are added.
  source = wasPaused ? reviews : [...reviews];
  addedInPause = 0;
  showMatchingReviews();
});

/** Scrolls to the row of a review, below three newer rows, and gives the row the focus. */
export const focusReview = (id: string) => {
  const indexFromTop = shown.length - 1 - shown.findIndex((row) => row.id === id);
  scroller.scrollTop = computeTops(shown)[Math.max(indexFromTop - 3, 0)] ?? 0;
  render();
  elements.get(id)?.querySelector("a")?.focus({ preventScroll: true });
};

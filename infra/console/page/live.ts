import type { ReviewRow } from "../messages.ts";
import { create, createBadge } from "./elements.ts";
import { known, reviews, subscribeToReviews } from "./store.ts";

const filter = create("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the reviews by words" });
const pause = create("button", { type: "button" });
const count = create("span.quiet");
const columns = ["time", "cluster", "rule", "user", "object", "verdict", "ms"];
const head = create("div.row", { "aria-hidden": "true" }, ...columns.map((name) => create(`span.${name}`, name)));
const list = create("ul.reviews");
const scroller = create("div.scroller", { tabindex: 0, role: "group", "aria-label": "Reviews" }, list);
const hint = create("p.quiet", "Reviews appear here as API servers send them. The newest is the first.");
const tools = create("div.tools", create("h1", "Live"), filter, pause, count);

export const livePage = create("div.live", tools, hint, head, scroller);

/** The reviews that the filter lets through, oldest first. */
let shown: ReviewRow[] = [];
/** The reviews to filter: while the list is paused, those from before. */
let source: readonly ReviewRow[] = reviews;
let waiting = 0;
const isPaused = () => source !== reviews;
/** The list's elements by the review's id: only those on the screen, and a few around them. */
const elements = new Map<string, HTMLLIElement>();

const isWanted = ({ id: _, at, milliseconds, members = {}, ...texts }: ReviewRow): boolean => {
  const text = [...Object.values(texts), ...Object.keys(members)].join(" ").toLowerCase();
  const words = filter.value.toLowerCase().split(/\s+/);
  return words.every((word) => text.includes(word));
};

const createRow = ({ id, at, cluster, rule, phase, user, operation, object, verdict, milliseconds }: ReviewRow) => {
  const time = new Date(at).toLocaleTimeString("en-GB");
  const texts = [time, cluster, `${rule} ${phase}`, user, `${operation} ${object}`];
  const cells = [...texts, createBadge(verdict), `${milliseconds.toFixed(1)} ms`];
  // A space between the cells separates them in the link's name.
  const content = cells.flatMap((cell, index) => [create(`span.${columns[index] ?? ""}`, cell), " "]);
  return create("li", create("a.row", { href: `#live/${id}` }, ...content));
};

/** The head of the list is as high as a row. */
const getRowHeight = () => head.offsetHeight || 36;

/** Shows the rows at the scroll position, the newest first. Elements that stay keep the focus. */
const render = () => {
  hint.hidden = reviews.length > 0;
  const height = getRowHeight();
  list.style.height = `${shown.length * height}px`;
  const first = Math.max(Math.floor(scroller.scrollTop / height) - 10, 0);
  const last = Math.min(first + Math.ceil(scroller.clientHeight / height) + 20, shown.length);
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
    element.style.top = `${(first + index) * height}px`;
    element.setAttribute("aria-setsize", String(shown.length));
    element.setAttribute("aria-posinset", String(first + index + 1));
    if (list.children[index] !== element) list.insertBefore(element, list.children[index] ?? null);
  }
  count.textContent = `${shown.length} of ${source.length}`;
  pause.ariaPressed = String(isPaused());
  pause.textContent = isPaused() ? `Resume (${waiting} new)` : "Pause";
};

export const showAll = () => {
  shown = source.filter(isWanted);
  render();
};

subscribeToReviews((added) => {
  waiting += isPaused() ? added.length : 0;
  if (!isPaused()) {
    const wanted = added.filter(isWanted);
    shown = [...shown, ...wanted].filter(({ id }) => known.has(id));
    list.style.height = `${shown.length * getRowHeight()}px`;
    // The rows stay where a reader has scrolled to, or is by keys.
    if (scroller.scrollTop > 0 || list.querySelector(":focus-visible"))
      scroller.scrollTop += wanted.length * getRowHeight();
  }
  render();
});

scroller.addEventListener("scroll", render);
addEventListener("resize", render);
filter.addEventListener("input", showAll);
pause.addEventListener("click", () => {
  source = isPaused() ? reviews : [...reviews];
  waiting = 0;
  showAll();
});

/** Scrolls to a review's row, and gives it the focus. */
export const focusReview = (id: string) => {
  const index = shown.length - 1 - shown.findIndex((row) => row.id === id);
  scroller.scrollTop = (index - 3) * getRowHeight();
  render();
  elements.get(id)?.querySelector("a")?.focus({ preventScroll: true });
};

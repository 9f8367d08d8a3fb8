import type { ReviewRow } from "../messages.ts";

/** The reviews that the page knows, oldest first; also those from before the gateway restarted. */
export const reviews: ReviewRow[] = [];
const most = 10_000;
export const known = new Set<string>();
const listeners: ((added: readonly ReviewRow[]) => void)[] = [];
let updatePage = () => {};

/** Returns a rule's reviews, also those of its group, with the rule's own verdict. */
export const findReviews = (name: string): ReviewRow[] =>
  reviews
    .filter(({ rule, members = {} }) => rule === name || Object.hasOwn(members, name))
    .map((row) => ({ ...row, verdict: row.members?.[name] ?? row.verdict }));

export const subscribeToReviews = (listener: (added: readonly ReviewRow[]) => void) => listeners.push(listener);

/** Calls `update` now, and after new reviews once a second, until another page sets its own. */
export const setPageUpdate = (update: () => void) => {
  updatePage = update;
  update();
};

const addReviews = (rows: readonly ReviewRow[]) => {
  const added = rows.filter(({ id }) => !known.has(id));
  for (const row of added) {
    known.add(row.id);
    reviews.push(row);
  }
  for (const { id } of reviews.splice(0, Math.max(reviews.length - most, 0))) known.delete(id);
  for (const listener of listeners) listener(added);
  isNew ||= added.length > 0;
};
let isNew = false;
setInterval(() => {
  if (isNew) updatePage();
  isNew = false;
}, 1000);

/** Receives reviews until the page is closed. The browser connects again by itself after the gateway restarted. */
export const connect = (report: (sentence: string) => void): void => {
  const source = new EventSource("reviews");
  source.addEventListener("open", () => report("connected"));
  source.addEventListener("message", ({ data }) => addReviews(JSON.parse(data)));
  source.addEventListener("error", () => {
    const isOver = source.readyState === EventSource.CLOSED;
    report(isOver ? "refused: open the address that postern serve prints" : "connecting again");
  });
};

import type { ReviewRow } from "../messages.ts";
import { formatTimeOfDay } from "./elements.ts";

/** The reviews that the page has received, oldest first. A restart of the gateway doesn't remove them. */
export const reviews: ReviewRow[] = [];
const maxReviews = 10_000;
/** The ids of `reviews`. */
export const knownIds = new Set<string>();
const listeners: ((added: readonly ReviewRow[]) => void)[] = [];
let updatePage = () => {};

/** Returns the reviews of a rule and of its group. The verdict in a group's review is replaced by that of the rule. */
export const findReviews = (name: string): ReviewRow[] =>
  reviews
    .filter(({ rule, members = {} }) => rule === name || Object.hasOwn(members, name))
    .map((row) => ({ ...row, verdict: row.members?.[name] ?? row.verdict }));

export const subscribeToReviews = (listener: (added: readonly ReviewRow[]) => void) => listeners.push(listener);

/** Calls `update` now, and then once a second if there were new reviews, until another page sets another function. */
export const setPageUpdate = (update: () => void) => {
  updatePage = update;
  update();
};

/** Adds reviews that the server sent, drops the oldest ones, and tells the listeners. */
const addReviews = (rows: readonly ReviewRow[]) => {
  const added = rows.filter(({ id }) => !knownIds.has(id));
  for (const row of added) {
    knownIds.add(row.id);
    reviews.push(row);
  }
  for (const { id } of reviews.splice(0, Math.max(reviews.length - maxReviews, 0))) knownIds.delete(id);
  for (const listener of listeners) listener(added);
  hasNewReviews ||= added.length > 0;
};
let hasNewReviews = false;
setInterval(() => {
  if (hasNewReviews) updatePage();
  hasNewReviews = false;
}, 1000);

/**
 * Receives reviews until the page is closed. After a restart of the gateway, the browser connects again by itself.
 * `report` gets the state of the connection, and if there is none, a sentence about what happened and what to do.
 */
export const connect = (report: (state: string, sentence?: string) => void): void => {
  const source = new EventSource("reviews");
  /** The time at which the connection was lost. */
  let lostAt: string | undefined;
  source.addEventListener("open", () => {
    lostAt = undefined;
    report("connected");
  });
  source.addEventListener("message", ({ data }) => addReviews(JSON.parse(data)));
  source.addEventListener("error", () => {
    lostAt ??= formatTimeOfDay(Date.now());
    if (source.readyState === EventSource.CLOSED)
      report(
        "refused",
        "The server at this address refuses this page: it has another token, or is another program. Open the address that postern serve prints.",
      );
    else
      report(
        "not connected",
        `The gateway has not answered since ${lostAt}. If postern serve has ended, start it again: this page then connects by itself, and keeps the reviews that it has.`,
      );
  });
};

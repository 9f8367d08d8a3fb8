import type { ReviewRow } from "../messages.ts";
import { formatTimeOfDay } from "./elements.ts";

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

/**
 * Receives reviews until the page is closed. The browser connects again by itself after the gateway restarted. `report`
 * gets the state in a word, and if the gateway is lost, what happened and what to do.
 */
export const connect = (report: (state: string, sentence?: string) => void): void => {
  const source = new EventSource("reviews");
  let lost: string | undefined;
  source.addEventListener("open", () => {
    lost = undefined;
    report("connected");
  });
  source.addEventListener("message", ({ data }) => addReviews(JSON.parse(data)));
  source.addEventListener("error", () => {
    lost ??= formatTimeOfDay(Date.now());
    if (source.readyState === EventSource.CLOSED)
      report(
        "refused",
        "The server at this address refuses this page: it has another token, or is another program. Open the address that postern serve prints.",
      );
    else
      report(
        "not connected",
        `The gateway has not answered since ${lost}. If postern serve has ended, start it again: this page then connects by itself, and keeps the reviews that it has.`,
      );
  });
};

/** One page of a list. Go writes a list without elements as null, which is an empty list here. */
export interface ListPage {
  items: unknown;
  /** Those of the elements, which don't have them themselves. */
  apiVersion: unknown;
  kind: string | undefined;
  /** What the next page is asked with; empty after the last one. */
  next: string;
}

/** Reads what the API server answers to a request for a page. */
export const pageIn = (content: unknown): ListPage => {
  const { apiVersion, kind, items, metadata } = Object(content);
  return {
    items: items === null ? [] : items,
    apiVersion,
    kind: typeof kind === "string" ? kind.replace(/List$/, "") : undefined,
    next: metadata?.continue ?? "",
  };
};

/** Builds the query for a page of at most so many elements. */
export const pageQuery = (limit: number, next: string, selection: Record<string, string> = {}): URLSearchParams =>
  new URLSearchParams({ limit: String(limit), ...selection, ...(next && { continue: next }) });

/** Reads a list page by page, each when the one before it is done with; `read` answers a query with the list. */
export const pagesOf = async function* (
  read: (query: URLSearchParams) => Promise<unknown>,
  limit: () => number,
  selection?: Record<string, string>,
): AsyncGenerator<ListPage, void, undefined> {
  let next = "";
  do {
    const page = pageIn(await read(pageQuery(limit(), next, selection)));
    yield page;
    next = page.next;
  } while (next !== "");
};

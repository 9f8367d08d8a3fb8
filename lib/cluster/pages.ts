import { toMap } from "../json.ts";

/** One page of a list. */
export interface ListPage {
  /** An empty list if the API server sent null, as Go writes an empty list. */
  items: unknown;
  /** The apiVersion and kind of the items. The API server sends them for the whole list, not in each item. */
  apiVersion: unknown;
  kind: string | undefined;
  /** The continue token of the next page; empty after the last one. */
  next: string;
}

/** Returns a page of a list. `next` is the token for the next page, "" on the last one. */
export const parsePage = (content: unknown): ListPage => {
  const { apiVersion, kind, items, metadata } = toMap(content);
  return {
    items: items === null ? [] : items,
    apiVersion,
    kind: typeof kind === "string" ? kind.replace(/List$/, "") : undefined,
    next: String(toMap(metadata).continue ?? ""),
  };
};

export const buildPageQuery = (limit: number, next: string, selection: Record<string, string> = {}): URLSearchParams =>
  new URLSearchParams({ limit: String(limit), ...selection, ...(next && { continue: next }) });

/** Reads an API server's list page by page. It requests a page only when the caller asks for it. */
export const readApiServerListPages = async function* (
  read: (query: URLSearchParams) => Promise<unknown>,
  limit: () => number,
  selection?: Record<string, string>,
): AsyncGenerator<ListPage, void, undefined> {
  let next = "";
  do {
    const page = parsePage(await read(buildPageQuery(limit(), next, selection)));
    yield page;
    next = page.next;
  } while (next !== "");
};

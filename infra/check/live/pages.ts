import { Unanswered } from "#lib/cluster/https-request.ts";
import { pageIn, pageQuery } from "#lib/cluster/pages.ts";
import { isMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { contentOf, isTooLarge, type Read, type Why } from "./reader.ts";

/** Some of a list's objects, and how many more there are, where the API server says so. */
export interface Page {
  items: KubernetesObject[];
  remaining?: number;
}

/** Why a list ended before its end. */
export interface Broken {
  broken: string;
}

/** How often in a row a list may be of no use. */
const mostInVain = 5;

/**
 * All objects of a list, page by page, each of at most so many; the next one is asked for when the last one is done with.
 * Where the API server forgot meanwhile what the list was, it goes on with what is there now, and tells nothing twice.
 * `why` says what a refusal is.
 */
export const pagesOf = async function* (
  read: Read,
  why: Why,
  path: string,
  selection: Record<string, string>,
  most: number,
): AsyncGenerator<Page | Broken> {
  let limit = most;
  let next = "";
  /** The last one that was told, and the last one before the list was begun anew. */
  let [last, skipped] = ["", ""];
  let isInOrder = true;
  /** With what each page began: where one begins so again, its list never ends. */
  const beginnings = new Set<string>();
  for (let inVain = 0; inVain <= mostInVain; ) {
    const answer = await read(`${path}?${pageQuery(limit, next, selection)}`);
    if (isTooLarge(answer) && limit > 1) {
      limit = Math.ceil(limit / 4);
      continue;
    }
    const content = answer instanceof Unanswered ? undefined : contentOf(answer);
    const { items: listed = [], next: further } = pageIn(content);
    const remaining = Object(Object(content).metadata).remainingItemCount;
    if (!(answer instanceof Unanswered) && answer.status === 410) {
      inVain++;
      // Of what follows it still knows how it is now; or else all begins again, of which the beginning is known.
      if (further === "" && !isInOrder) return yield { broken: "its list changed while it was read" };
      if (further === "") skipped = last;
      next = further;
      continue;
    }
    if (answer instanceof Unanswered || answer.status !== 200) return yield { broken: why(answer) };
    if (!isMap(content) || !Array.isArray(listed)) return yield { broken: "the API server answers no list" };
    if (further !== "" && further === next) break;
    const found = listed.filter(isObject);
    const fresh = found.filter((one) => skipped === "" || keyOf(one) > skipped);
    const [first] = fresh;
    if (first && beginnings.has(keyOf(first))) break;
    if (first) beginnings.add(keyOf(first));
    for (const one of fresh) {
      isInOrder &&= keyOf(one) > last;
      last = keyOf(one);
    }
    if (found.length < listed.length) yield { broken: "what the API server lists is no objects" };
    yield { items: fresh, ...(typeof remaining === "number" && { remaining }) };
    if (further === "") return;
    inVain = fresh.length > 0 ? 0 : inVain + Number(found.length === 0);
    next = further;
  }
  yield { broken: "its list goes in circles" };
};

/** As the API server's store orders them. */
const keyOf = ({ metadata }: KubernetesObject): string =>
  metadata?.namespace ? `${metadata.namespace}/${metadata.name}` : String(metadata?.name);

const isObject = (value: unknown): value is KubernetesObject => {
  if (!isMap(value) || !isMap(value.metadata)) return false;
  const { name, namespace } = value.metadata;
  return typeof name === "string" && name !== "" && (namespace === undefined || typeof namespace === "string");
};

import { UnansweredError } from "#lib/cluster/https-request.ts";
import { buildPageQuery, parsePage } from "#lib/cluster/pages.ts";
import { isMap, toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { type ApiGet, type FailureFormatter, isUnansweredAsTooLarge, parseAnswerJson } from "./reader.ts";

/** A page of a list, and the number of objects that follow it, if the API server states it. */
export interface ObjectPage {
  items: KubernetesObject[];
  remaining?: number;
}

/** Is yielded if a list or a part of it can't be read; `broken` says why. */
export interface ListInterruption {
  broken: string;
}

/** The number of responses in a row that may bring no objects, because the list expired or the page is empty. */
const maxEmptyResponses = 5;

/** The list that is read: all objects at a path, or only those that `selection` chooses, such as a `fieldSelector`. */
interface ListRequest {
  path: string;
  selection?: Record<string, string>;
  objectsPerPage: number;
}

/**
 * Yields all objects of a list in pages of at most `objectsPerPage` objects. A page is requested when the caller wants
 * the next element. If the list expires on the API server meanwhile, reading continues with the current objects, and no
 * object is yielded twice.
 */
export const readListPages = async function* (
  read: ApiGet,
  { path, selection, objectsPerPage }: ListRequest,
  describeRequestFailure: FailureFormatter,
): AsyncGenerator<ObjectPage | ListInterruption> {
  let limit = objectsPerPage;
  /** The continue token of the request; empty for the first page. */
  let token = "";
  /** The key of the object that was yielded last. */
  let lastKey = "";
  /** If the list began again: the key up to which objects are skipped, because they were yielded before. */
  let skippedUpTo = "";
  let isInOrder = true;
  /** The keys of each page's first object. If a later page begins with such a key, reading would never end. */
  const firstKeys = new Set<string>();
  for (let emptyResponses = 0; emptyResponses <= maxEmptyResponses; ) {
    const answer = await read(`${path}?${buildPageQuery(limit, token, selection)}`);
    if (isUnansweredAsTooLarge(answer) && limit > 1) {
      limit = Math.ceil(limit / 4);
      continue;
    }
    const content = answer instanceof UnansweredError ? undefined : parseAnswerJson(answer);
    const { items: listed = [], next: nextToken } = parsePage(content);
    const { remainingItemCount: remaining } = toMap(toMap(content).metadata);
    if (!(answer instanceof UnansweredError) && answer.status === 410) {
      emptyResponses++;
      // A 410 may carry a token that continues the list with the current objects. Without one, the list begins again,
      // and objects up to `skippedUpTo` are left out; this requires an ordered list.
      if (nextToken === "" && !isInOrder) return yield { broken: "its list changed while it was read" };
      if (nextToken === "") skippedUpTo = lastKey;
      token = nextToken;
      continue;
    }
    if (answer instanceof UnansweredError || answer.status !== 200)
      return yield { broken: describeRequestFailure(answer) };
    if (!isMap(content) || !Array.isArray(listed)) return yield { broken: "the API server did not answer with a list" };
    if (nextToken !== "" && nextToken === token) break;
    const found = listed.filter(isObject);
    const fresh = found.filter((object) => skippedUpTo === "" || toStoreKey(object) > skippedUpTo);
    const [first] = fresh;
    if (first && firstKeys.has(toStoreKey(first))) break;
    if (first) firstKeys.add(toStoreKey(first));
    for (const object of fresh) {
      isInOrder &&= toStoreKey(object) > lastKey;
      lastKey = toStoreKey(object);
    }
    // Unlike other failures, this one doesn't end the reading: the objects on the page are yielded, too.
    if (found.length < listed.length) yield { broken: "some items of the list are not objects" };
    yield { items: fresh, ...(typeof remaining === "number" && { remaining }) };
    if (nextToken === "") return;
    if (fresh.length > 0) emptyResponses = 0;
    else if (found.length === 0) emptyResponses++;
    token = nextToken;
  }
  yield { broken: "its list goes in circles" };
};

/** Returns the key by which the API server's store orders objects. */
const toStoreKey = ({ metadata }: KubernetesObject): string =>
  metadata?.namespace ? `${metadata.namespace}/${metadata.name}` : String(metadata?.name);

const isObject = (value: unknown): value is KubernetesObject => {
  if (!isMap(value) || !isMap(value.metadata)) return false;
  const { name, namespace } = value.metadata;
  return typeof name === "string" && name !== "" && (namespace === undefined || typeof namespace === "string");
};

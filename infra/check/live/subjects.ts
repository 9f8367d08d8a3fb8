import type { KubernetesObject, Operation, UserInfo } from "#lib/review.ts";
import { fill } from "../../apiserver/defaults/filled.ts";
import type { Kind } from "../../apiserver/kinds/kinds.ts";
import { received, requestOf, type Subject } from "../evaluation/requests.ts";
import type { Manifest } from "../manifests/documents.ts";

/** An object as an API server lists it. */
export type Stored = KubernetesObject & { metadata?: { uid?: unknown }; status?: unknown };

/** No file holds what a cluster has. */
const nowhere = { name: "", text: "" };

/** In a manifest's place. */
export const manifestOf = (object: Record<string, unknown>): Manifest => {
  return { source: nowhere, document: 0, path: [], line: 1, object };
};

/** An object as something to be judged, what stands in the way of that, and what it has that nobody here knows. */
export interface Taken {
  subject: Subject;
  misfits: readonly string[];
  strays: readonly string[];
}

/**
 * The request that would make an object as it is there, or change nothing of it, or delete it. It is made as somebody
 * would who writes it anew, without what only the API server and controllers set.
 */
export const taken = (
  { status, ...object }: Stored,
  kind: Kind,
  { operation, user }: { operation: Operation; user: UserInfo },
): Taken => {
  const isMade = operation === "CREATE";
  const rest =
    status === undefined || (isMade && kind.subresources.includes("status")) ? object : { ...object, status };
  const asking = { operation, user, namespace: object.metadata?.namespace ?? "" };
  const given = isMade ? received(rest, kind, asking) : rest;
  const { object: filled, misfits, strays } = fill(given);
  const attributes = requestOf(filled, operation === "UPDATE" ? filled : null, kind, asking);
  return { subject: { attributes, manifest: manifestOf({ ...filled }) }, misfits, strays };
};

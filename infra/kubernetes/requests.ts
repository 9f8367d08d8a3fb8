import type { KubernetesObject } from "#lib/review.ts";

/** A request to the module: what an API server is asked to do with one object. */
export interface KubernetesRequest {
  /** `define` creates a CustomResourceDefinition, and serves its kinds from then on. The object of `delete` are its options. */
  verb: "create" | "update" | "delete" | "define";
  /** `admission` for the object with its defaults, as mutating admission gets it; else the object that is stored. */
  until?: "admission";
  apiVersion: string;
  kind: string;
  /** Such as status or scale. */
  subresource?: string;
  /** Where the object is sent to, which its own metadata may contradict. Empty for kinds without namespace. */
  namespace?: string;
  name?: string;
  /** What unknown and repeated fields lead to; an API server's default is Warn. */
  fieldValidation?: "Strict" | "Warn" | "Ignore";
  /** Some kinds record their user. No request is refused for its user. */
  user?: { username?: string; uid?: string; groups?: readonly string[] };
  /** The object, or its JSON. An object may get an answer that was made from the answer to a similar one. */
  object: object | string | Uint8Array;
  /** The stored object that is updated or deleted, as JSON. */
  oldObject?: string | Uint8Array;
}

/** The Status of a refusal. `field` is a path such as spec.containers[0].name. */
export interface KubernetesStatus {
  code?: number;
  reason?: string;
  message?: string;
  details?: { name?: string; kind?: string; causes?: { reason?: string; message?: string; field?: string }[] };
}

/** What the module says of a request. Exactly one of `object`, `status`, `notServed` and `undecided` is there. */
export interface KubernetesAnswer {
  /** The object in the version of the request. */
  object?: KubernetesObject;
  status?: KubernetesStatus;
  /** True if no API server of this minor serves the kind, and no definition was given. */
  notServed?: true;
  /** Why there is no answer: the object took too long, needed too much memory, or made the module fail. */
  undecided?: string;
  warnings: readonly string[];
}

/** Returns the part of a request that precedes its objects in the module's buffer. */
export const formatHeader = ({ object: _object, oldObject: _oldObject, ...header }: KubernetesRequest): string =>
  JSON.stringify(header);

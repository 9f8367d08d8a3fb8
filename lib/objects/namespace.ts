import type { Request } from "../review.ts";

/** The namespace that a request's object lives in; none where it is a namespace itself, or lives in none. */
export const homeOf = ({ kind, namespace }: Request): string | undefined =>
  kind.group === "" && kind.kind === "Namespace" ? undefined : namespace || undefined;

/** What to do where it isn't there, as a suggestion. */
export const creationOf = (namespace = "") => `create namespace ${JSON.stringify(namespace)} first`;

/** In CEL: it lives in one. */
export const livesInANamespace = `request.?namespace.orValue("") != "" &&
  !(request.kind.group == "" && request.kind.kind == "Namespace")`;

import type { AdmissionRequest } from "../review.ts";

/** Returns the namespace of a request's object; undefined for a Namespace and for cluster-scoped objects. */
export const getObjectNamespace = ({ kind, namespace }: AdmissionRequest): string | undefined =>
  kind.group === "" && kind.kind === "Namespace" ? undefined : namespace || undefined;

export const describeNamespaceCreation = (namespace = "") => `create namespace ${JSON.stringify(namespace)} first`;

/** A CEL expression: the request's object is in a namespace. */
export const isNamespacedInCel = `request.?namespace.orValue("") != "" &&
  !(request.kind.group == "" && request.kind.kind == "Namespace")`;

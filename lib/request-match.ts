import type { AdmissionRequest } from "./review.ts";
import type { RequestMatch } from "./rule.ts";

/** Reports whether an element of a webhook entry's `rules` matches a request, as the API server decides it. */
export const matchesRequest = (
  { apiGroups, apiVersions, resources, operations, scope = "*" }: RequestMatch,
  { resource: { group, version, resource }, subResource = "", namespace = "", operation }: AdmissionRequest,
): boolean => {
  // A Namespace is cluster-scoped, though its requests carry its name as their namespace.
  const isNamespaced = namespace !== "" && !(group === "" && resource === "namespaces");
  return (
    covers(operations, operation) &&
    covers(apiGroups, group) &&
    covers(apiVersions, version) &&
    resources.some((path) => {
      const [wanted = "", wantedSub = ""] = path.split("/");
      return covers([wanted], resource) && (wantedSub === "*" || wantedSub === subResource);
    }) &&
    (scope === "*" || (scope === "Namespaced") === isNamespaced)
  );
};

const covers = (wanted: readonly string[], value: string) => wanted.includes("*") || wanted.includes(value);

/** Returns the text that stands for a resource, or a `resource/subresource`, of a group in exemptions. */
export const toResourceKey = (group: string, path: string): string =>
  `${group}/${path.includes("/") ? path : `${path}/`}`;

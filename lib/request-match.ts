import type { AdmissionRequest } from "./review.ts";
import type { RequestMatch } from "./rule.ts";

/** Reports whether an element of `rules` in a webhook configuration matches a request, as the API server does. */
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

/** Returns the key of a resource or a subresource in exemptions: `apps/deployments/` or `apps/deployments/scale`. */
export const toResourceKey = (group: string, path: string): string =>
  `${group}/${path.includes("/") ? path : `${path}/`}`;

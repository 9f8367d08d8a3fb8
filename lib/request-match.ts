import type { Request } from "./review.ts";
import type { Match } from "./rule.ts";

/** Whether a webhook entry with this among its `rules` is about a request, as the API server tells it. */
export const matches = (
  { apiGroups, apiVersions, resources, operations, scope = "*" }: Match,
  { resource: { group, version, resource }, subResource = "", namespace = "", operation }: Request,
): boolean => {
  // A Namespace is in no namespace, though its requests carry its name as one.
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

const covers = (wanted: readonly string[], one: string) => wanted.includes("*") || wanted.includes(one);

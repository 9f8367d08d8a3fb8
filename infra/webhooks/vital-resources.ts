import { toResourceKey } from "#lib/request-match.ts";
import type { RequestMatch } from "#lib/rule.ts";

/**
 * Resources that a control plane and its nodes must be able to write at any time: leases of leaders and nodes, the
 * status of Nodes and Pods, events, endpoints, and reviews of tokens and access.
 */
export const vitalResources: readonly { group: string; path: string }[] = [
  { group: "coordination.k8s.io", path: "leases" },
  { group: "coordination.k8s.io", path: "leasecandidates" },
  { group: "", path: "nodes/status" },
  { group: "", path: "pods/status" },
  { group: "", path: "events" },
  { group: "events.k8s.io", path: "events" },
  { group: "", path: "endpoints" },
  { group: "discovery.k8s.io", path: "endpointslices" },
  { group: "authentication.k8s.io", path: "tokenreviews" },
  { group: "authentication.k8s.io", path: "selfsubjectreviews" },
  { group: "authorization.k8s.io", path: "subjectaccessreviews" },
  { group: "authorization.k8s.io", path: "localsubjectaccessreviews" },
  { group: "authorization.k8s.io", path: "selfsubjectaccessreviews" },
  { group: "authorization.k8s.io", path: "selfsubjectrulesreviews" },
];

/** Returns the vital resources that a match covers only by a wildcard, as `group/resource/subresource`. */
export const listVitalResourcesByWildcard = (match: readonly RequestMatch[]): string[] =>
  vitalResources.flatMap(({ group, path }) => {
    const rows = match.filter((row) => isWrite(row) && coversResource(row, group, path));
    return rows.length > 0 && !rows.some(({ resources }) => resources.includes(path))
      ? [toResourceKey(group, path)]
      : [];
  });

const isWrite = ({ operations }: RequestMatch) => operations.some((operation) => operation !== "CONNECT");

/** Reports whether an element of a `match` covers a resource. `path` is for instance `pods` or `pods/status`. */
export const coversResource = ({ apiGroups, resources }: RequestMatch, group: string, path: string): boolean => {
  const [resource, subresource = ""] = path.split("/");
  return (
    (apiGroups.includes("*") || apiGroups.includes(group)) &&
    resources.some((matchedPath) => {
      const [matchedResource, matchedSubresource = ""] = matchedPath.split("/");
      return ["*", resource].includes(matchedResource) && ["*", subresource].includes(matchedSubresource);
    })
  );
};

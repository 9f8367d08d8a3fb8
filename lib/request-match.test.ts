import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { matchesRequest } from "./request-match.ts";
import type { AdmissionRequest } from "./review.ts";
import type { RequestMatch } from "./rule.ts";

const pods: RequestMatch = {
  apiGroups: [""],
  apiVersions: ["v1"],
  resources: ["pods"],
  operations: ["CREATE", "UPDATE"],
};
const request = (change: Partial<AdmissionRequest> = {}): AdmissionRequest => ({
  uid: "1",
  kind: { group: "", version: "v1", kind: "Pod" },
  resource: { group: "", version: "v1", resource: "pods" },
  namespace: "shop",
  operation: "CREATE",
  userInfo: {},
  ...change,
});
const node = { resource: { group: "", version: "v1", resource: "nodes" }, namespace: "" };
const namespace = { resource: { group: "", version: "v1", resource: "namespaces" }, namespace: "shop" };
const scale = { resource: { group: "apps", version: "v1", resource: "deployments" }, subResource: "scale" };

describe("a match", () => {
  const table: [string, Partial<RequestMatch>, Partial<AdmissionRequest>, boolean][] = [
    ["takes what it names", {}, {}, true],
    ["leaves another operation", {}, { operation: "DELETE" }, false],
    ["leaves another resource", {}, node, false],
    ["leaves another group", { apiGroups: ["apps"] }, {}, false],
    ["leaves another version", { apiVersions: ["v2"] }, {}, false],
    [
      "takes anything by asterisks",
      { apiGroups: ["*"], apiVersions: ["*"], operations: ["*"] },
      { operation: "DELETE" },
      true,
    ],
    ["leaves a subresource of what it names", {}, { subResource: "status" }, false],
    ["takes a subresource that it names", { resources: ["pods/status"] }, { subResource: "status" }, true],
    ["leaves the resource whose subresource it names", { resources: ["pods/status"] }, {}, false],
    ["takes every subresource", { resources: ["pods/*"] }, { subResource: "status" }, true],
    ["takes the resource with every subresource", { resources: ["pods/*"] }, {}, true],
    ["takes every resource, without subresources", { resources: ["*"] }, {}, true],
    ["leaves subresources by an asterisk alone", { resources: ["*"] }, { subResource: "status" }, false],
    ["takes everything by two asterisks", { resources: ["*/*"] }, { subResource: "status" }, true],
    ["takes the resources by two asterisks", { resources: ["*/*"] }, {}, true],
    ["takes a subresource of any", { apiGroups: ["apps"], resources: ["*/scale"] }, { ...scale }, true],
    ["takes what is in a namespace", { scope: "Namespaced" }, {}, true],
    ["leaves what is in none", { scope: "Namespaced", resources: ["nodes"] }, node, false],
    ["takes a Namespace for what is in none", { scope: "Cluster", resources: ["namespaces"] }, namespace, true],
    [
      "leaves a Namespace where it wants what is in one",
      { scope: "Namespaced", resources: ["namespaces"] },
      namespace,
      false,
    ],
    ["leaves what is in a namespace where it wants what is in none", { scope: "Cluster" }, {}, false],
  ];
  for (const [name, match, change, expected] of table)
    it(name, () => assert.equal(matchesRequest({ ...pods, ...match }, request(change)), expected));
});

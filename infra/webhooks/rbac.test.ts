import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { accessReview, create, discovery, get, https, list, onlyIf, updateStatus } from "#lib/needs.ts";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { parseConfig } from "../project/project.ts";
import { instanceLabel } from "./labels.ts";
import { buildFunctionRbacObjects } from "./rbac.ts";

// test/cluster/rights.test.ts checks what these roles allow in a cluster.

const pods = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE" as const] }];
const reads = { recent: get("namespaces"), now: get("namespaces", { maxAge: 0 }), all: list("namespaces") };
const catalogue = [
  toCatalogueRule("reads", rule({ summary: "Reads.", match: pods, needs: reads, mutate() {} })),
  toCatalogueRule(
    "asks",
    rule({
      summary: "Asks.",
      match: pods,
      needs: { may: accessReview(), kinds: discovery(), make: create("namespaces") },
      mutate() {},
      validate() {},
    }),
  ),
  toCatalogueRule(
    "charges",
    rule({
      summary: "Charges.",
      match: pods,
      settings: { on: false },
      needs: {
        all: list("resourcequotas"),
        charge: onlyIf(({ on }: { on: boolean }) => on, updateStatus("resourcequotas")),
      },
      validate() {},
    }),
  ),
  toCatalogueRule("calls", rule({ summary: "Calls.", match: pods, needs: { call: https() }, validate() {} })),
  toCatalogueRule("thinks", rule({ summary: "Thinks.", match: pods, validate() {} })),
];
const parseCluster = (yaml: string) => {
  const [cluster] = parseConfig(yaml, catalogue).clusters.values();
  assert.ok(cluster);
  return cluster;
};
const eks = JSON.stringify({ eks: "prod", region: "eu-west-1" });
const token = JSON.stringify({ tokenSecret: "t", region: "eu-west-1", server: "https://192.0.2.1" });
const rules = "rules: { reads: , asks: , calls: , thinks: }";

interface RoleManifest {
  kind: string;
  metadata: { name: string; labels: Record<string, string> };
  rules?: unknown;
  subjects?: { kind: string; name: string }[];
}
// The assertions read only these fields of the printed objects.
const printRoles = (yaml: string, name = "postern") =>
  buildFunctionRbacObjects(catalogue, parseCluster(yaml), name) as RoleManifest[];
const listNames = (yaml: string) => printRoles(yaml).map(({ kind, metadata }) => `${kind} ${metadata.name}`);

describe("a rule's rights", () => {
  it("a rule's rights are the rights that it needs, once each", () => {
    const [reading, , asking] = printRoles(`${rules}\nclusters: { prod: { connect: ${eks} } }`);
    assert.deepEqual(reading?.rules, [{ apiGroups: [""], resources: ["namespaces"], verbs: ["get", "list"] }]);
    assert.deepEqual(asking?.rules, [
      { apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"] },
      { nonResourceURLs: ["/api/*", "/apis/*"], verbs: ["get"] },
      { apiGroups: [""], resources: ["namespaces"], verbs: ["create"] },
    ]);
  });

  it("a rule's rights leave out a need that the rule doesn't have under its settings", () => {
    const listRights = (on: boolean) => printRoles(`rules: { charges: { settings: { on: ${on} } } }`)[0]?.rules;
    const read = { apiGroups: [""], resources: ["resourcequotas"], verbs: ["list"] };
    assert.deepEqual(listRights(false), [read]);
    assert.deepEqual(listRights(true), [
      read,
      { apiGroups: [""], resources: ["resourcequotas/status"], verbs: ["update"] },
    ]);
  });

  it("a rule's rights belong to its function's group; a rule without needs has none", () => {
    const all = printRoles(`${rules}\nclusters: { prod: { connect: ${eks} } }`);
    assert.deepEqual(
      all.map(({ kind, metadata, subjects }) => [kind, metadata.name, subjects?.map(({ kind, name }) => [kind, name])]),
      ["reads", "asks"].flatMap((name) => [
        ["ClusterRole", `postern:${name}`, undefined],
        ["ClusterRoleBinding", `postern:${name}`, [["Group", `postern:${name}`]]],
      ]),
    );
    assert.deepEqual(printRoles("rules: { calls: , thinks: , reads: { mode: 'off' } }"), []);
  });

  it("a rule's rights also belong to the service account if its token is stored", () => {
    const all = printRoles(`${rules}\nclusters: { prod: { connect: ${token} } }`);
    assert.deepEqual(
      all.slice(0, 2).map(({ kind, metadata }) => [kind, metadata.name]),
      [
        ["ServiceAccount", "postern"],
        ["Secret", "postern-token"],
      ],
    );
    for (const { subjects } of all.filter(({ kind }) => kind === "ClusterRoleBinding"))
      assert.deepEqual(
        subjects?.map(({ kind }) => kind),
        ["Group", "ServiceAccount"],
      );
  });

  it("a rule's rights are given to the service account whose name and label are the value of --name", () => {
    const all = printRoles(`${rules}\nclusters: { prod: { connect: ${token} } }`, "other");
    assert.deepEqual(
      all.map(({ metadata }) => metadata.name),
      ["other", "other-token", "other:reads", "other:reads", "other:asks", "other:asks"],
    );
    assert.ok(all.every(({ metadata }) => metadata.labels[instanceLabel] === "other"));
    const accounts = all.flatMap(({ subjects = [] }) => subjects.filter(({ kind }) => kind === "ServiceAccount"));
    assert.deepEqual([...new Set(accounts.map(({ name }) => name))], ["other"]);
  });

  it("a group mutates with its members' rights, and a member that also validates does that with its own rights", () => {
    const groups = "groups: { both: [reads, asks] }";
    assert.deepEqual(listNames(`${rules}\n${groups}`), [
      "ClusterRole postern:asks",
      "ClusterRoleBinding postern:asks",
      "ClusterRole postern:both",
      "ClusterRoleBinding postern:both",
    ]);
  });
});

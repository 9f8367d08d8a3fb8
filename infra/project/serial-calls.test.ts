import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parse, stringify } from "yaml";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { list } from "#lib/needs.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { type RequestMatch, type Rule, rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { readRows } from "../../test/rows.ts";
import { parseConfig } from "./project.ts";
import { countSerialCalls, describeGroupAdvice, findGroupSavingMostCalls } from "./serial-calls.ts";

const pods: RequestMatch = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] };
const claims: RequestMatch = { ...pods, resources: ["persistentvolumeclaims"] };
const everything: RequestMatch = { ...pods, apiGroups: ["*"], apiVersions: ["*"], resources: ["*"] };
const matchConditions = { "does-not-always-pull": "object.spec.containers[0].imagePullPolicy != 'Always'" };
const label = ({ metadata }: KubernetesObject) => {
  if (metadata) metadata.labels = { a: "b" };
};
const createMutator = (name: string, change: Partial<Rule> = {}) =>
  toCatalogueRule(name, rule({ summary: "Mutates.", match: [pods], mutate() {}, ...change }));

const catalogue = [
  createMutator("first"),
  createMutator("second"),
  createMutator("claims", { match: [claims] }),
  createMutator("scheduled", { matchConditions: { scheduled: "has(object.spec.nodeName)" } }),
  createMutator("selects", { namespaceSelector: { matchLabels: { team: "a" } } }),
  // It can't be in a group, whose rules share one webhook entry: only the API server can evaluate `authorizedBy`.
  createMutator("permitted", { authorizedBy: { may: "authorizer.group('').resource('pods').check('get').allowed()" } }),
  createMutator("writes", { sideEffects: "NoneOnDryRun" }),
  createMutator("guard", { guards: true }), // A guard is a rule that hardening makes fail closed.
  createMutator("second-guard", { guards: true }),
  createMutator("chosen", {
    settings: { resources: ["pods"] },
    match: ({ resources }: { resources: string[] }) => (resources.length > 0 ? [{ ...pods, resources }] : []),
  }),
  createMutator("labels", { mutate: label }),
  createMutator("pulls", {
    mutate: ({ spec }: Pod) => {
      for (const container of spec?.containers ?? []) container.imagePullPolicy = "Always";
    },
  }),
  createMutator("not-pulled", { matchConditions }),
  createMutator("refuses", { mutate: () => "no" }),
  createMutator("lists-pods", { needs: { pods: list("pods") }, mutate: label }),
  createMutator("everything", { match: [everything] }),
  createMutator("also-everything", { match: [everything] }),
  toCatalogueRule("checks", rule({ summary: "Validates.", match: [pods], validate() {} })),
  toCatalogueRule("checks-pulls", rule({ summary: "Validates.", match: [pods], matchConditions, validate() {} })),
];

const readClusters = (yaml: string) => {
  const { clusters } = parseConfig(yaml, catalogue);
  const local = clusters.get("local");
  assert.ok(local);
  return { local, all: clusters.values() };
};
/** Finds the group of rules with which writes to the cluster `local` would wait for the fewest calls in series. */
const proposeGroup = (yaml: string) => {
  const { local, all } = readClusters(yaml);
  return findGroupSavingMostCalls(catalogue, local, all);
};

describe("the group that saves most calls", () => {
  for (const [name, yaml, lines] of readRows<[string, string, string[]][]>(import.meta.filename)) {
    it(`is ${lines.length > 0 ? "proposed" : "none"} for ${name}`, async () => {
      const advice = await proposeGroup(yaml);
      assert.deepEqual(advice ? describeGroupAdvice(advice) : [], lines);
    });

    if (lines.length > 0)
      it(`has the predicted calls for ${name}, if its lines are copied, and isn't proposed again`, async () => {
        const advice = await proposeGroup(yaml);
        const copied = parse(lines.filter((line) => line.startsWith("  ")).join("\n"));
        const config = parse(yaml);
        const followed = stringify({ ...config, groups: { ...config.groups, ...copied.groups } });
        const calls = new Map(
          (await countSerialCalls(catalogue, readClusters(followed).local)).map((found) => [found.write, found.calls]),
        );
        for (const { write, grouped: callsWithGroup } of advice?.writes ?? [])
          assert.equal(calls.get(write), callsWithGroup, write);
        assert.notDeepEqual((await proposeGroup(followed))?.group, advice?.group);
      });
  }
});

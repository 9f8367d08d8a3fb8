import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { matchesRequest, toResourceKey } from "#lib/request-match.ts";
import type { AdmissionRequest, Operation } from "#lib/review.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { readRows } from "../../test/rows.ts";
import { readCases } from "../catalogue/cases.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { evaluateMatchCondition } from "../testing/cel-condition.ts";
import { buildExemptConditions, buildRuleWebhookEntries } from "./entry.ts";
import { listVitalResourcesByWildcard, vitalResources } from "./vital-resources.ts";

const rows = readRows<{ matches: [name: string, match: Partial<RequestMatch>[], expected: string[] | "all"][] }>(
  import.meta.filename,
);

const buildRequest = (group: string, path: string, operation: Operation): AdmissionRequest => {
  const [resource = "", subResource] = path.split("/");
  // The cast is safe: webhook entries, and their conditions that exempt requests, read only these fields.
  return {
    operation,
    resource: { group, version: "v1", resource },
    ...(subResource && { subResource }),
    namespace: "kube-system",
  } as AdmissionRequest;
};

/** Reports whether an entry with these exempt resources sends a request to its rule: its conditions are then true. */
const isSentToRule = (resources: string[], request: AdmissionRequest) =>
  Object.values(buildExemptConditions({ resources })).every((cel) => evaluateMatchCondition(cel, request));

describe("the vital resources that a match covers only by a wildcard", () => {
  for (const [name, match, expected] of rows.matches)
    it(`are ${expected === "all" ? "all" : expected.length || "none"} for ${name}`, () => {
      const completed = match.map(
        (row): RequestMatch => ({ apiGroups: [""], apiVersions: ["*"], resources: [], operations: ["*"], ...row }),
      );
      const all = vitalResources.map(({ group, path }) => toResourceKey(group, path));
      assert.deepEqual(listVitalResourcesByWildcard(completed), expected === "all" ? all : expected);
    });
});

describe("the condition of vital resources", () => {
  const all = listVitalResourcesByWildcard([
    { apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] },
  ]);

  it("the condition is false for each vital resource, even if its subresource is an empty text", () => {
    for (const { group, path } of vitalResources) {
      const request = buildRequest(group, path, "UPDATE");
      assert.equal(isSentToRule(all, request), false, path);
      if (!path.includes("/")) assert.equal(isSentToRule(all, { ...request, subResource: "" }), false, path);
    }
  });

  for (const [group, path] of [
    ["", "pods"],
    ["", "nodes"],
    ["", "pods/binding"],
    ["", "pods/resize"],
    ["", "serviceaccounts/token"],
    ["", "leases"],
    ["example.com", "events"],
    ["apps", "deployments/status"],
    ["coordination.k8s.io", "leases/status"],
  ] as const)
    it(`is true for ${path} in the group "${group}"`, () =>
      assert.equal(isSentToRule(all, buildRequest(group, path, "UPDATE")), true));
});

describe("the entries of the catalogue, with the settings of each case,", async () => {
  for (const listed of await readCatalogue()) {
    const cases = await readCases(listed);
    const setups = [{}, ...cases.map(({ settings }) => settings)].map((settings) => {
      return { mode: "enforce" as const, settings: mergeWithDefaults(listed.rule.settings ?? {}, settings) };
    });
    const entries = setups.flatMap((setup) =>
      listed.phases.flatMap((phase) => buildRuleWebhookEntries(listed, phase, setup, /* harden */ true)),
    );

    it(`call ${listed.name} for a vital resource only if its match names the resource`, () => {
      for (const { match, exempt } of entries.map(({ entry }) => entry))
        for (const { group, path } of vitalResources)
          for (const operation of ["CREATE", "UPDATE", "DELETE"] as const) {
            const request = buildRequest(group, path, operation);
            const isNamed = match.some(
              (row) => ["*", group].some((one) => row.apiGroups.includes(one)) && row.resources.includes(path),
            );
            const isMatched = match.some((row) => matchesRequest(row, request));
            const isCalled = isMatched && isSentToRule(exempt.resources ?? [], request);
            assert.equal(isCalled, isMatched && isNamed, `${operation} of ${path}: ${JSON.stringify(match)}`);
          }
    });

    if (entries.some(({ entry: { exempt } }) => exempt.resources !== undefined))
      it(`have a link in the README of ${listed.name} to the list of resources that aren't sent to the rule`, async () => {
        const readme = await readFile(join(listed.folder, "README.md"), "utf8");
        assert.ok(readme.includes("(../../docs/how-to/outages.md)"));
      });
  }
});

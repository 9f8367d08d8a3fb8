import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readCatalogue } from "../catalogue/registry.ts";
import { findPresentPlugins, formatPresentPlugins, hasPluginDependingOnVersion } from "./present-plugins.ts";
import { parseConfig } from "./project.ts";

const catalogue = await readCatalogue();
const onByDefault = "it is on by default in Kubernetes 1.35";
const eksPage = "https://docs.aws.amazon.com/eks/latest/userguide/platform-versions.html";
const hasSettings = "; the rule has settings of its own: ";

describe("the rules whose plugin the API server of EKS 1.35 has on", () => {
  type Row = [name: string, rules: object, lines: string[], dependsOnVersion: boolean, groups?: object];
  const rows: Row[] = [
    ["are those on by default", { "limit-ranger": null }, [`LimitRanger is probably on in one: ${onByDefault}`], false],
    [
      "are those that EKS says",
      { "node-restriction": null },
      [`NodeRestriction is on in one: EKS 1.35 has it on (${eksPage})`],
      true,
    ],
    [
      "are those in the mode warn, too",
      { "limit-ranger": { mode: "warn" } },
      [`LimitRanger is probably on in one: ${onByDefault}`],
      false,
    ],
    ["are not those that are off", { "limit-ranger": { mode: "off" } }, [], false],
    ["are not those without a plugin", { "minimum-replicas": null }, [], false],
    ["are not those whose plugin is off", { "always-pull-images": null, "pod-node-selector": null }, [], false],
    [
      "have their settings named, which are there on purpose",
      { "pod-security": { settings: { defaults: { enforce: "baseline" } } } },
      [`PodSecurity is probably on in one: ${onByDefault}${hasSettings}defaults`],
      false,
    ],
    [
      "have no setting of their own that only makes them do what the plugin does",
      {
        "resource-quota": { settings: { charges: true } },
        "pod-security": { settings: { kind: "PodSecurityConfiguration" } },
      },
      [`PodSecurity is probably on in one: ${onByDefault}`, `ResourceQuota is probably on in one: ${onByDefault}`],
      false,
    ],
    [
      "have the costs of their group",
      { priority: null, "always-pull-images": null },
      [`Priority is probably on in one: ${onByDefault}`],
      false,
      { "pod-defaults": ["always-pull-images", "priority"] },
    ],
  ];
  for (const [name, rules, lines, depends, groups = {}] of rows)
    it(name, () => {
      const text = JSON.stringify({ rules, groups, clusters: { one: {} } });
      const cluster = parseConfig(text, catalogue).clusters.get("one") ?? assert.fail();
      const found = findPresentPlugins(catalogue, [
        { name: "one", cluster, facts: { service: "eks", kubernetes: "1.35" } },
      ]);
      const [title, ...printed] = formatPresentPlugins(found, (rule) => `costs of ${rule}`);
      assert.equal(title === undefined, lines.length === 0);
      assert.deepEqual(
        printed.filter((line) => line.startsWith("    ")).map((line) => line.trim()),
        lines,
      );
      assert.deepEqual(
        printed.filter((line) => !line.startsWith("    ")),
        found.map(({ rule, group }) => `  ${rule}: ${group ? `in the group ${group}, ` : ""}costs of ${group ?? rule}`),
      );
      assert.equal(hasPluginDependingOnVersion(catalogue, cluster), depends);
    });

  it("rules with policies are not listed, because their policies differ from those of the cluster", () => {
    const rulesWithPolicies = catalogue
      .filter(({ rule }) => rule.upstreamPlugin && rule.manifests)
      .map(({ name }) => name);
    assert.deepEqual(rulesWithPolicies, ["mutating-admission-policy", "validating-admission-policy"]);
    const rules = new Map(rulesWithPolicies.map((name) => [name, { mode: "enforce" as const, settings: {} }]));
    const cluster = { rules, groups: [] };
    assert.deepEqual(findPresentPlugins(catalogue, [{ name: "one", cluster, facts: { kubernetes: "1.37" } }]), []);
  });

  it("a rule whose plugin is on in many clusters is listed once", () => {
    const names = ["a", "b", "c", "d"];
    const text = JSON.stringify({
      rules: { priority: null },
      clusters: Object.fromEntries(names.map((name) => [name, {}])),
    });
    const { clusters } = parseConfig(text, catalogue);
    const withFacts = [...clusters].map(([name, cluster]) => ({ name, cluster, facts: { kubernetes: "1.35" } }));
    assert.deepEqual(formatPresentPlugins(findPresentPlugins(catalogue, withFacts), () => "costs").slice(1), [
      "  priority: costs",
      `    Priority is probably on in a, b, 2 others: ${onByDefault}`,
    ]);
  });
});

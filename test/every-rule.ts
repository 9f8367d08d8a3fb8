import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { readCases } from "../infra/catalogue/cases.ts";
import { readRule } from "../infra/catalogue/registry.ts";

interface RuleConfigs {
  configOfOtherRules: object;
  configsByRule: Record<string, object>;
}

/**
 * Returns the `rules` of a postern.yaml that turns on all these rules; a rule that isn't in the fixture has no
 * settings.
 */
export const buildConfigOfEveryRule = (names: readonly string[]): Record<string, object> => {
  const text = readFileSync(new URL("fixtures/every-rule.yaml", import.meta.url), "utf8");
  const { configOfOtherRules, configsByRule }: RuleConfigs = parse(text);
  return Object.fromEntries(names.map((name) => [name, configsByRule[name] ?? configOfOtherRules]));
};

/**
 * The rules that evaluate policies. In a project of every rule, each has the policies of its first case, so that its
 * bundle contains CEL or CUE, and reads no policies from the cluster, because the cluster doesn't exist.
 */
export const policyRules = [
  "mutating-admission-policy",
  "policy-override",
  "policy-validate",
  "validating-admission-policy",
];

/** Returns a postern.yaml that turns on these rules for one cluster, and names a token for reading that cluster. */
export const buildProjectOfEveryRule = async (names: readonly string[], ca: string): Promise<string> => {
  const rules = buildConfigOfEveryRule(names);
  for (const name of policyRules) {
    const folder = fileURLToPath(new URL(`../functions/${name}`, import.meta.url));
    // Two of these rules, policy-override and policy-validate, would also read policies from the cluster.
    const readsCluster = name.startsWith("policy-");
    const [first] = await readCases(await readRule(folder, name));
    rules[name] = {
      ...rules[name],
      settings: { ...first?.settings, ...(readsCluster && { inCluster: false }) },
    };
  }
  // All rules together must answer the creation of a pod within the API server's time limit.
  for (const [name, config] of Object.entries(rules)) rules[name] = { ...config, timeoutSeconds: 1 };
  const tokenParameter = "arn:aws:ssm:eu-west-1:123456789012:parameter/token";
  const connect = { server: "https://cluster.example", ca, tokenParameter };
  return JSON.stringify({ rules, clusters: { prod: { kubernetes: "1.37", connect } } });
};

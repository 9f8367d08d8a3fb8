import { readFileSync } from "node:fs";
import { parse } from "yaml";

interface RuleConfigs {
  everyRule: object;
  rules: Record<string, object>;
}

/** Returns the `rules` of a postern.yaml that turns on all these rules; a rule that isn't in the fixture has no settings. */
export const buildConfigOfEveryRule = (names: readonly string[]): Record<string, object> => {
  const text = readFileSync(new URL("fixtures/every-rule.yaml", import.meta.url), "utf8");
  const { everyRule, rules }: RuleConfigs = parse(text);
  return Object.fromEntries(names.map((name) => [name, rules[name] ?? everyRule]));
};

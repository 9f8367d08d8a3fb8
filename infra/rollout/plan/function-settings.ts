import { isDeepStrictEqual } from "node:util";
import type { LambdaStackSettings, LambdaVersionContent } from "../../aws/function-updates.ts";

/** Names the settings that differ between two versions of a function, for instance "keys", "sizing" or "layers". */
export const listDifferentSettings = (left: LambdaVersionContent, right: LambdaVersionContent): string[] => [
  ...listDifferentKeys(groupVariables(left.environment), groupVariables(right.environment)),
  ...(left.memorySize === right.memorySize && left.timeout === right.timeout ? [] : ["sizing"]),
  ...listDifferentKeys(left.stackSettings, right.stackSettings).map((name) => settingNames[name]),
];

/**
 * Groups the environment variables of a function by what a plan calls them: keys, ledger and environment. The group
 * `keys` has all other variables of Postern (POSTERN_…): those that hold no keys are the same in all versions.
 */
const groupVariables = ({ POSTERN_LEDGER: ledger, ...others }: Record<string, string>) => {
  const variables = Object.entries(others);
  const keys = Object.fromEntries(variables.filter(([name]) => name.startsWith("POSTERN_")));
  const environment = Object.fromEntries(variables.filter(([name]) => !name.startsWith("POSTERN_")));
  return { keys, ledger, environment };
};

const listDifferentKeys = <T extends object>(left: T, right: T) =>
  (Object.keys(left) as (keyof T)[]).filter((key) => !isDeepStrictEqual(left[key], right[key]));

/** What a plan calls the settings of a function. */
const settingNames: Record<keyof LambdaStackSettings, string> = {
  Runtime: "runtime",
  Layers: "layers",
  TracingConfig: "tracing",
  EphemeralStorage: "storage",
  KMSKeyArn: "encryption key",
  LoggingConfig: "logging",
  VpcConfig: "network",
};

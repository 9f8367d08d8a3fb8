import { isDeepStrictEqual } from "node:util";
import type { LambdaStackSettings, LambdaVersionContent } from "../../aws/function-updates.ts";

/** Returns what differs between two configurations of a function, in words such as keys, sizing or layers; never values. */
export const listDifferentSettings = (left: LambdaVersionContent, right: LambdaVersionContent): string[] => [
  ...listDifferentKeys(groupVariables(left.environment), groupVariables(right.environment)),
  ...(left.memorySize === right.memorySize && left.timeout === right.timeout ? [] : ["sizing"]),
  ...listDifferentKeys(left.stackSettings, right.stackSettings).map((name) => settingNames[name]),
];

const groupVariables = ({ POSTERN_LEDGER: ledger, ...all }: Record<string, string>) => {
  const select = (isOwn: boolean) =>
    Object.fromEntries(Object.entries(all).filter(([name]) => name.startsWith("POSTERN_") === isOwn));
  return { keys: select(true), ledger, environment: select(false) };
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

import { type Broken, type Listed, readRules } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Cluster, Config } from "../config/config.ts";
import { readConfig } from "./read.ts";

export interface Project {
  catalogue: Listed[];
  broken: readonly Broken[];
  config: Config;
}

export const readProject = async (file: string): Promise<Project> => {
  const { rules: catalogue, broken } = await readRules();
  return { catalogue, broken, config: await readConfig(file, catalogue, broken) };
};

/** Writes the errors of rules that can't be loaded to stderr; throws if one of these rules is needed. */
export const reportBroken = (
  broken: readonly Broken[],
  isNeeded: (rule: string) => boolean,
  exitCode?: number,
): void => {
  const [needed, others] = [broken.filter(({ name }) => isNeeded(name)), broken.filter(({ name }) => !isNeeded(name))];
  for (const { sentence } of others) process.stderr.write(`${sentence}\n`);
  if (needed.length > 0) throw new Complaint(needed.map(({ sentence }) => sentence).join("\n"), exitCode);
};

/** Reports whether postern.yaml names a rule for any cluster. Such a rule has a function, even if its mode is off. */
export const isNamed =
  ({ clusters }: Config) =>
  (rule: string): boolean =>
    [...clusters.values()].some(({ rules }) => rules.has(rule));

export const isOn =
  ({ rules }: Cluster) =>
  (rule: string): boolean =>
    (rules.get(rule)?.mode ?? "off") !== "off";

import { type BrokenRule, type CatalogueRule, readCatalogueRules } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import type { ClusterConfig, PosternConfig } from "../config/config.ts";
import { readConfig } from "./read.ts";

export interface Project {
  catalogue: CatalogueRule[];
  broken: readonly BrokenRule[];
  config: PosternConfig;
}

export const readProject = async (file: string): Promise<Project> => {
  const { rules: catalogue, broken } = await readCatalogueRules();
  return { catalogue, broken, config: await readConfig(file, catalogue, broken) };
};

/** Writes the errors of rules that can't be loaded to stderr; throws if one of these rules is needed. */
export const reportBroken = (
  broken: readonly BrokenRule[],
  isNeeded: (rule: string) => boolean,
  exitCode?: number,
): void => {
  const [needed, others] = [broken.filter(({ name }) => isNeeded(name)), broken.filter(({ name }) => !isNeeded(name))];
  for (const { sentence } of others) process.stderr.write(`${sentence}\n`);
  if (needed.length > 0) throw new Complaint(needed.map(({ sentence }) => sentence).join("\n"), exitCode);
};

/** Reports whether postern.yaml names a rule for any cluster. Such a rule has a function, even if its mode is off. */
export const isNamed =
  ({ clusters }: PosternConfig) =>
  (rule: string): boolean =>
    [...clusters.values()].some(({ rules }) => rules.has(rule));

export const isOn =
  ({ rules }: ClusterConfig) =>
  (rule: string): boolean =>
    (rules.get(rule)?.mode ?? "off") !== "off";

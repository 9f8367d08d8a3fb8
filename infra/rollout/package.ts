import { readFile } from "node:fs/promises";
import type { EndpointConfig } from "#lib/endpoint.ts";
import type { WantedLambdaVersion } from "../aws/lambda-functions.ts";
import { packageStack, type StackTemplate } from "../aws/stack.ts";
import { buildFunctions, distFolder } from "../build/build.ts";
import type { RuleBundle } from "../build/bundle.ts";
import { computeFunctionSettings } from "../build/deployment.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { PosternConfig } from "../config/config.ts";
import { buildEndpointConfig, listServedRulesAndGroups } from "../project/served.ts";

/** A rule whose bundle is built: its function in AWS, as the deployment wants it. */
export interface PackagedRule {
  name: string;
  listed: CatalogueRule;
  wanted: WantedLambdaVersion;
  logic: string;
  config: EndpointConfig;
  asks: boolean;
  /** True if the bundle includes CUE and can run scripts. */
  scripts: boolean;
  /** The number of warm environments that the rule's live version has; undefined for none. */
  warm?: number | undefined;
  /** The reserved concurrency of the rule's function. */
  reserved?: number | undefined;
}

/** A stage's built rules with the CloudFormation template that deploys them. */
export interface StagePackage {
  parts: PackagedRule[];
  template: StackTemplate;
  notes: string[];
}

/** Builds the bundles of all rules that a stage serves, and the CloudFormation template. */
export const packageStage = async (
  stage: string,
  config: PosternConfig,
  catalogue: CatalogueRule[],
  file: string,
  publicKeys: string,
): Promise<StagePackage> => {
  const { bundles, notes } = await buildFunctions(config, catalogue, file, publicKeys, stage);
  const template = await packageStack(stage);
  const served = new Map(listServedRulesAndGroups(config, catalogue).map((listed) => [listed.name, listed]));
  const parts = await Promise.all(
    bundles.map(async (bundle): Promise<PackagedRule> => {
      const listed = served.get(bundle.name) as CatalogueRule;
      const zip = await readFile(`${distFolder}${bundle.name}.zip`);
      return { ...toPackagedRule(bundle, stage, publicKeys, zip), listed, config: buildEndpointConfig(config, listed) };
    }),
  );
  return { parts, template, notes };
};

const toPackagedRule = (bundle: RuleBundle, stage: string, publicKeys: string, zip: Uint8Array) => {
  const { name, logic, asks, scripts, warm, reserved, codeSha256, hash } = bundle;
  const description = `${hash.slice(0, 12)} of ${name}`;
  const wanted = { zip, codeSha256, description, ...computeFunctionSettings(bundle, publicKeys, stage) };
  return { name, logic, asks, scripts, warm, reserved, wanted };
};

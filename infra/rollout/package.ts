import { readFile } from "node:fs/promises";
import type { EndpointConfig } from "#lib/endpoint.ts";
import type { LambdaPlacement } from "../aws/function-updates.ts";
import type { WantedLambdaVersion } from "../aws/lambda-functions.ts";
import { packageStack, type StackTemplate } from "../aws/stack.ts";
import { buildFunctions, getDistFolder } from "../build/build.ts";
import type { RuleBundle } from "../build/bundle.ts";
import { computeFunctionSettings } from "../build/deployment.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toLogicalId } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
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
  pack = packageStack,
): Promise<StagePackage> => {
  const { bundles, notes } = await buildFunctions(config, catalogue, file, publicKeys, stage);
  const template = await pack(stage);
  const served = new Map(listServedRulesAndGroups(config, catalogue).map((listed) => [listed.name, listed]));
  const parts = await Promise.all(
    bundles.map(async (bundle): Promise<PackagedRule> => {
      const listed = served.get(bundle.name) as CatalogueRule;
      const zip = await readFile(`${getDistFolder()}${bundle.name}.zip`);
      const placement = readPlacement(template, bundle.name);
      const packaged = toPackagedRule(bundle, stage, publicKeys, zip, placement);
      return { ...packaged, listed, config: buildEndpointConfig(config, listed) };
    }),
  );
  return { parts, template, notes };
};

/** Returns what the template says of a function's log group and network, which a published version keeps, too. */
const readPlacement = (template: StackTemplate, rule: string): LambdaPlacement => {
  const { VpcConfig = {}, LoggingConfig } = Object(
    template.Resources[`${toLogicalId(rule)}LambdaFunction`]?.Properties,
  );
  const network: unknown[] = [...(VpcConfig.SubnetIds ?? []), ...(VpcConfig.SecurityGroupIds ?? [])];
  const unknown = network.find((id) => !/^(subnet|sg)-/.test(String(id)));
  if (unknown !== undefined)
    throw new Complaint(
      `vpc in serverless.yml must have ids such as subnet-0a1b and sg-0a1b, not ${JSON.stringify(unknown)}`,
    );
  return { logGroup: LoggingConfig?.LogGroup, network: network.map(String).sort() };
};

const toPackagedRule = (
  bundle: RuleBundle,
  stage: string,
  publicKeys: string,
  zip: Uint8Array,
  placement: LambdaPlacement,
) => {
  const { name, logic, asks, scripts, warm, reserved, codeSha256, hash } = bundle;
  const description = `${hash.slice(0, 12)} of ${name}`;
  const settings = computeFunctionSettings(bundle, publicKeys, stage);
  const wanted = { zip, codeSha256, description, ...settings, placement };
  return { name, logic, asks, scripts, warm, reserved, wanted };
};

import { readFile } from "node:fs/promises";
import type { EndpointConfig } from "#lib/core/endpoint.ts";
import { isObject, toMap } from "#lib/json.ts";
import type { LambdaStackSettings } from "../../aws/function-updates.ts";
import { toStackSettings, type WantedLambdaVersion } from "../../aws/lambda-functions.ts";
import { packageStack, type StackTemplate } from "../../aws/stack.ts";
import { buildFunctions, getDistFolder } from "../../build/build.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import { toLogicalId } from "../../catalogue/rule-names.ts";
import { Complaint } from "../../cli/complaint.ts";
import type { PosternConfig } from "../../config/config.ts";
import { buildEndpointConfig, listServedRulesAndGroups } from "../../project/served.ts";

/** A rule or group whose bundle is built. */
export interface PackagedRule {
  name: string;
  listed: CatalogueRule;
  /** Code and settings of the rule's function in AWS. */
  wanted: WantedLambdaVersion;
  /** The hash of the rule's code, without its configuration. */
  logic: string;
  config: EndpointConfig;
  /** True if the rule reads from its cluster. */
  readsCluster: boolean;
  /** True if the bundle includes CUE and can run scripts. */
  runsScripts: boolean;
  /** The number of warm environments that the rule's live version has; undefined for none. */
  warm?: number | undefined;
  /** The reserved concurrency of the rule's function. */
  reserved?: number | undefined;
}

/** A stage's built rules, and the CloudFormation template with their functions. */
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
      const { name, logicHash, readsCluster, runsCue, warm, reserved, codeSha256, hash } = bundle;
      const wanted = {
        zip,
        codeSha256,
        description: `${hash.slice(0, 12)} of ${name}`,
        ...readSettings(template, name),
      };
      return {
        name,
        logic: logicHash,
        readsCluster,
        runsScripts: runsCue,
        warm,
        reserved,
        wanted,
        listed,
        config: buildEndpointConfig(config, listed),
      };
    }),
  );
  return { parts, template, notes };
};

/**
 * The properties of a function in the template that `readSettings` ignores: a version lacks them or has other values.
 */
const unversioned = new Set([
  "FunctionName",
  "Code",
  "Handler",
  "Architectures",
  "Role",
  "Description",
  "Tags",
  "ReservedConcurrentExecutions",
]);

/** A function's properties in a CloudFormation template, which has `KmsKeyArn` where the API of Lambda has `KMSKeyArn`. */
interface FunctionProperties extends Partial<Omit<LambdaStackSettings, "KMSKeyArn">> {
  MemorySize?: unknown;
  Timeout?: unknown;
  Environment?: { Variables?: Record<string, unknown> };
  KmsKeyArn?: string;
}

/**
 * Returns the settings of a function in the template, for its next version. Throws if serverless.yml has a value that
 * Postern can't put into a version.
 */
const readSettings = (template: StackTemplate, rule: string) => {
  const declared = Object.entries(template.Resources[`${toLogicalId(rule)}LambdaFunction`]?.Properties ?? {});
  const properties = Object.fromEntries(declared.filter(([name]) => !unversioned.has(name)));
  const { MemorySize, Timeout, Environment, KmsKeyArn: KMSKeyArn, ...rest } = properties as FunctionProperties;
  const { Runtime, Layers, TracingConfig, EphemeralStorage, LoggingConfig, VpcConfig, ...others } = rest;
  const network: unknown[] = [...(VpcConfig?.SubnetIds ?? []), ...(VpcConfig?.SecurityGroupIds ?? [])];
  const wrongId = network.find((id) => !/^(subnet|sg)-/.test(String(id)));
  if (wrongId !== undefined)
    throw new Complaint(
      `vpc in serverless.yml must have ids such as subnet-0a1b and sg-0a1b, not ${JSON.stringify(wrongId)}`,
    );
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    throw new Complaint(
      `serverless.yml gives the function of ${rule} the property ${unknown}, which postern deploy can't put into its versions; leave it out`,
    );
  const reference = findReference(properties);
  if (reference !== undefined)
    throw new Complaint(
      `serverless.yml must give the function of ${rule} plain values, not ${JSON.stringify(reference)}: postern deploy puts them into its versions`,
    );
  const settings = { Runtime, Layers, TracingConfig, EphemeralStorage, KMSKeyArn, LoggingConfig, VpcConfig };
  const variables = Object.entries(Environment?.Variables ?? {}).map(([name, value]) => [name, String(value)]);
  return {
    environment: Object.fromEntries(variables) as Record<string, string>,
    memorySize: Number(MemorySize),
    timeout: Number(Timeout),
    stackSettings: toStackSettings(settings),
  };
};

/** Returns a value that only CloudFormation can resolve, such as `{ Ref: … }`. */
const findReference = (value: unknown): unknown => {
  if (Object.keys(toMap(value)).some((key) => /^(Ref|Fn::\w+)$/.test(key))) return value;
  return isObject(value) ? Object.values(value).map(findReference).find(Boolean) : undefined;
};

import { readFile } from "node:fs/promises";
import { isDeepStrictEqual } from "node:util";
import type { Share } from "#lib/endpoint.ts";
import type { Wanted } from "../aws/functions.ts";
import { packageStack, type Template } from "../aws/stack.ts";
import { buildFunctions, distFolder } from "../build/build.ts";
import type { Bundle } from "../build/bundle.ts";
import { surroundingsOf } from "../build/deployment.ts";
import { idOf } from "../catalogue/names.ts";
import type { Listed } from "../catalogue/registry.ts";
import type { Config } from "../config/config.ts";
import { servedRules, shareOf } from "../project/functions.ts";

/** A rule, or a group, as it shall be. */
export interface Part {
  name: string;
  listed: Listed;
  wanted: Wanted;
  logic: string;
  share: Share;
  /** Whether it asks a cluster, which takes it longer to start. */
  asks: boolean;
  /** Whether it can run scripts. */
  scripts: boolean;
}

/** What the working tree makes of a stage. */
export interface Package {
  parts: Part[];
  template: Template;
  notes: string[];
}

/** Builds and packages all that is on. */
export const pack = async (
  stage: string,
  config: Config,
  catalogue: Listed[],
  file: string,
  publicKeys: string,
): Promise<Package> => {
  const { bundles, notes } = await buildFunctions(config, catalogue, file, publicKeys);
  const template = await packageStack(stage);
  const served = new Map(servedRules(config, catalogue).map((listed) => [listed.name, listed]));
  const parts = await Promise.all(
    bundles.map(async (bundle): Promise<Part> => {
      const listed = served.get(bundle.name) as Listed;
      const zip = await readFile(`${distFolder}${bundle.name}.zip`);
      return { ...partOf(bundle, stage, publicKeys, zip), listed, share: shareOf(config, listed) };
    }),
  );
  return { parts, template, notes };
};

const partOf = (bundle: Bundle, stage: string, publicKeys: string, zip: Uint8Array) => {
  const { name, logic, asks, scripts, codeSha256, hash } = bundle;
  const description = `${hash.slice(0, 12)} of ${name}`;
  const wanted = { zip, codeSha256, description, ...surroundingsOf(bundle, publicKeys, stage) };
  return { name, logic, asks, scripts, wanted };
};

/** How a stack would differ from what is there, by the logical ids of what it is made of. */
export interface StackChange {
  isNew: boolean;
  added: string[];
  changed: string[];
  removed: string[];
}

export const changeOf = (before: Template | undefined, after: Template): StackChange => {
  const [old, fresh] = [partsIn(before), partsIn(after)];
  return {
    isNew: before === undefined,
    added: [...fresh.keys()].filter((id) => !old.has(id)),
    changed: [...fresh].flatMap(([id, one]) => (old.has(id) && !isDeepStrictEqual(old.get(id), one) ? [id] : [])),
    removed: [...old.keys()].filter((id) => !fresh.has(id)),
  };
};

export const isUnchanged = ({ isNew, added, changed, removed }: StackChange): boolean =>
  !isNew && added.length + changed.length + removed.length === 0;

/** What a version carries is published by us, whatever the stack says of it. */
const versioned = ["Code", "Environment", "Description", "MemorySize", "Timeout"];

const partsIn = (template: Template | undefined): Map<string, unknown> => {
  const resources = Object.entries(template?.Resources ?? {}).map(([id, resource]) => {
    if (resource.Type !== "AWS::Lambda::Function") return [id, resource] as const;
    const kept = Object.entries(resource.Properties ?? {}).filter(([name]) => !versioned.includes(name));
    return [id, { ...resource, Properties: Object.fromEntries(kept) }] as const;
  });
  const outputs = Object.entries(template?.Outputs ?? {}).map(([id, output]) => [`output ${id}`, output] as const);
  return new Map<string, unknown>([...resources, ...outputs]);
};

/** The rules that a template has functions for. */
export const rulesIn = (template: Template | undefined, stage: string): string[] => {
  const prefix = `postern-${stage}-`;
  const names = Object.values(template?.Resources ?? {}).flatMap(({ Type, Properties }) =>
    Type === "AWS::Lambda::Function" ? [String(Properties?.FunctionName)] : [],
  );
  return names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
};

/** With all that another template has of these rules, as it is there. */
export const withKept = (template: Template, from: Template | undefined, rules: string[]): Template => {
  const ids = rules.map((rule) => new RegExp(`^${idOf(rule)}(?!Dash)[A-Z]`));
  const of = (all: Record<string, unknown> = {}) =>
    Object.fromEntries(Object.entries(all).filter(([id]) => ids.some((form) => form.test(id))));
  // As they were parsed from a template.
  const resources = of(from?.Resources) as Template["Resources"];
  return {
    ...template,
    Resources: { ...template.Resources, ...resources },
    Outputs: { ...template.Outputs, ...of(from?.Outputs) },
  };
};

/** What the roles of functions may do, in words. */
export const rightsIn = (template: Template | undefined): string[] =>
  Object.entries(template?.Resources ?? {}).flatMap(([id, { Type, Properties }]) => {
    if (Type !== "AWS::IAM::Role") return [];
    const policies: { PolicyDocument: { Statement: { Action: string | string[]; Resource: unknown }[] } }[] =
      Object(Properties).Policies ?? [];
    return policies.flatMap(({ PolicyDocument: { Statement } }) =>
      Statement.flatMap(({ Action, Resource }) =>
        // That each writes its own log goes without saying.
        [Action]
          .flat()
          .filter((action) => !action.startsWith("logs:"))
          .map((action) => `${id}: ${action} on ${inWords(Resource)}`),
      ),
    );
  });

const inWords = (resource: unknown): string => {
  if (typeof resource === "string") return resource;
  const { Ref, "Fn::GetAtt": attribute, "Fn::Sub": text } = Object(resource);
  return String(Ref ?? attribute?.[0] ?? text ?? JSON.stringify(resource));
};

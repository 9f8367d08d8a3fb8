import { readFile } from "node:fs/promises";
import type { Share } from "#lib/endpoint.ts";
import type { Wanted } from "../aws/functions.ts";
import { packageStack, type Template } from "../aws/stack.ts";
import { buildFunctions, distFolder } from "../build/build.ts";
import type { Bundle } from "../build/bundle.ts";
import { surroundingsOf } from "../build/deployment.ts";
import type { Listed } from "../catalogue/registry.ts";
import type { Config } from "../config/config.ts";
import { servedRules, shareOf } from "../project/served.ts";

export interface Part {
  name: string;
  listed: Listed;
  wanted: Wanted;
  logic: string;
  share: Share;
  asks: boolean;
  /** Whether the bundle includes CUE and can run scripts. */
  scripts: boolean;
}

export interface Package {
  parts: Part[];
  template: Template;
  notes: string[];
}

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

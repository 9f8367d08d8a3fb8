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

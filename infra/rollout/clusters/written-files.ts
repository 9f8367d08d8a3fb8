import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import { isPolicyKind } from "../../clusters/apply.ts";
import { formatYamlDocuments } from "../../diff/yaml-lines.ts";
import { formatManifestFault, parseManifests } from "../../manifests/manifests.ts";
import { callThroughRelay, type WebhookEntry } from "../../webhooks/configurations.ts";
import type { DeploymentTargets } from "../targets.ts";
import { insertKeyIntoUrls, listEntries } from "./cluster-manifests.ts";

// `deploy --write` writes three files for each cluster: NAME.roles.yaml, NAME.policies.yaml and NAME.entries.yaml. A
// file without objects has only a comment. It is written all the same, because a kustomization.yaml may list it.

const parts = ["roles", "policies", "entries"] as const;
type Part = (typeof parts)[number];

/** A deployment replaces only files with this line. */
const firstLine = "# Written by postern deploy --write.";
/** It makes a URL invalid, so an API server refuses entries in which the user has not replaced it by the key. */
const usualPlaceholder = "%key%";

const getFile = (folder: string, cluster: string, part: Part) => join(folder, `${cluster}.${part}.yaml`);

const getPart = ({ kind, webhooks }: DeployedObject): Part => {
  if (webhooks !== undefined) return "entries";
  return isPolicyKind(kind) ? "policies" : "roles";
};

/**
 * Writes a cluster's objects to its files, or only to those in `chosen`. Files never contain the key: URLs have
 * `keyPlaceholder` in its place, which the user's tool replaces. Returns a text for the progress report.
 */
export const writeClusterFiles = async (
  { write = ".", keyPlaceholder = usualPlaceholder }: Pick<DeploymentTargets, "write" | "keyPlaceholder">,
  cluster: string,
  manifests: DeployedObject[],
  chosen: readonly Part[] = parts,
): Promise<string> => {
  await mkdir(write, { recursive: true });
  const withPlaceholder = insertKeyIntoUrls(manifests, `${cluster}.${keyPlaceholder}`);
  // `callThroughRelay` changes only the entries of a cluster that has a relay (a proxy).
  const objects = Map.groupBy(withPlaceholder.map(callThroughRelay), getPart);
  for (const part of chosen)
    await writeFile(getFile(write, cluster, part), `${firstLine}\n${formatYamlDocuments(objects.get(part) ?? [])}`);
  return `written to ${getFile(write, cluster, "entries")}`;
};

/**
 * Returns the webhook entries in a cluster's files; none if there are no files. Throws if one of the files exists, but
 * `--write` has not written it: such a file lacks the first line.
 */
export const readWrittenEntries = async (folder: string, cluster: string): Promise<WebhookEntry[]> => {
  const texts = new Map<Part, string>();
  for (const part of parts) {
    const file = getFile(folder, cluster, part);
    const text = await readFile(file, "utf8").catch((error) => {
      if (error.code === "ENOENT") return firstLine; // A missing file counts as one without entries.
      throw new Complaint(`${file} can't be read: ${toSentence(error)}`);
    });
    if (!text.startsWith(firstLine))
      throw new Complaint(
        `${file} would be replaced, but it doesn't begin with "${firstLine}"; move it away, or choose another folder`,
      );
    texts.set(part, text);
  }
  const { manifests, faults } = parseManifests({
    name: getFile(folder, cluster, "entries"),
    text: texts.get("entries") ?? "",
  });
  if (faults.length > 0) throw new Complaint(faults.map(formatManifestFault).join("\n"));
  return listEntries(manifests.map(({ object }) => object));
};

/** Returns the files that deployments have written for clusters that postern.yaml doesn't name any more. */
export const listFilesOfOtherClusters = async ({
  write = ".",
  config,
}: Pick<DeploymentTargets, "write" | "config">): Promise<string[]> => {
  const others: string[] = [];
  for (const name of (await readdir(write)).sort()) {
    const [, cluster = "", part] = /^([^.]+)\.(\w+)\.yaml$/.exec(name) ?? [];
    if (config.clusters.has(cluster) || !parts.some((known) => known === part)) continue;
    const file = join(write, name);
    if ((await readFile(file, "utf8")).startsWith(firstLine)) others.push(file);
  }
  return others;
};

import { readFile } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { isMap, toList, toMap } from "#lib/json.ts";
import type { SettingsMistake } from "#lib/settings.ts";
import { toSentence } from "../cli/complaint.ts";
import { readOptionFile } from "../cli/options.ts";
import { parseYamlDocument, type YamlDocument } from "../cli/yaml-document.ts";
import { findPluginNameFault, renamePlugin } from "./plugins.ts";

/** The configuration of a plugin. */
export interface PluginConfiguration {
  value: unknown;
  /** The folder of the file that contains the configuration. */
  folder: string;
  /** Throws one Complaint with all mistakes in the configuration, each with its file and line. */
  complain(mistakes: readonly SettingsMistake[]): void;
}

/** The number of mistakes after which an AdmissionConfiguration isn't read further. */
const maxMistakes = 10;

/**
 * The plugins whose configuration kube-apiserver also accepts as the whole file, without an AdmissionConfiguration
 * around it. Such a file has no `kind`; a member with this name identifies the plugin.
 */
const wholeFileConfigurations = { imagePolicy: "ImagePolicyWebhook", podNodeSelectorPluginConfig: "PodNodeSelector" };

/**
 * Reads the file of --admission-control-config-file, and the files that it names. Returns the configurations by the
 * current names of their plugins, even if a file has a former name.
 */
export const readAdmissionConfiguration = async (file: string): Promise<Map<string, PluginConfiguration>> => {
  const document = parseYamlDocument(await readOptionFile(file, "--config"), basename(file));
  const folder = dirname(resolve(file));
  const { kind, plugins = [], ...members } = toMap(document.value);
  // The whole file may be the configuration of one plugin. It then has no `kind`, but a member such as `imagePolicy`.
  const wholeFile = Object.entries(wholeFileConfigurations).filter(([member]) => Object.hasOwn(members, member));
  if (kind === undefined && wholeFile.length > 0)
    return new Map(
      wholeFile.map(([, plugin]) => [plugin, toPluginConfiguration({ folder, document, path: [] }, document.value)]),
    );
  if (kind !== "AdmissionConfiguration" || !Array.isArray(plugins))
    document.complain([{ path: [], sentence: "must be an AdmissionConfiguration with a list of plugins" }]);

  const mistakes: SettingsMistake[] = [];
  const found = new Map<string, PluginConfiguration>();
  for (const [index, entry] of toList(plugins).entries()) {
    const { name, configuration, path } = toMap(entry);
    const fault = findPluginNameFault(String(name));
    const plugin = renamePlugin(String(name));
    if (fault !== undefined) mistakes.push({ path: ["plugins", index, "name"], sentence: `is ${fault}` });
    if (mistakes.length === maxMistakes) break;
    // If two entries have the same plugin, kube-apiserver reads the first one.
    if (fault !== undefined || found.has(plugin)) continue;
    const inline = { folder, document, path: ["plugins", index, "configuration"] };
    if (isMap(configuration) || typeof path !== "string" || path === "")
      found.set(plugin, toPluginConfiguration(inline, configuration));
    else {
      const text = await readFile(resolve(folder, path), "utf8").catch((error) => {
        const sentence = `${path} can't be read: ${toSentence(error)}; copy the file from the control plane, and name it relative to this one`;
        mistakes.push({ path: ["plugins", index, "path"], sentence });
        return "";
      });
      const ownFile = { folder: dirname(resolve(folder, path)), document: parseYamlDocument(text, path), path: [] };
      found.set(plugin, toPluginConfiguration(ownFile, ownFile.document.value));
    }
  }
  document.complain(mistakes);
  return found;
};

/** Returns a plugin's part of the AdmissionConfiguration, and a function that reports its mistakes. */
const toPluginConfiguration = (
  { folder, document, path }: { folder: string; document: YamlDocument; path: SettingsMistake["path"] },
  value: unknown,
): PluginConfiguration => {
  const complain = (mistakes: readonly SettingsMistake[]) =>
    document.complain(mistakes.map((mistake) => ({ ...mistake, path: [...path, ...mistake.path] })));
  return { value, folder, complain };
};

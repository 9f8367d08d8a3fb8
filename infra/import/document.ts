// Builds the text of the postern.yaml that `postern import` prints.
import type { CatalogueRule } from "../catalogue/registry.ts";
import { formatPage } from "../catalogue/sources.ts";
import { toOneLine } from "../cli/terminal.ts";
import { schemaLine } from "../config/schemas.ts";
import { formatYamlDocuments } from "../diff/yaml-lines.ts";
import type { PluginOutcome } from "./decisions.ts";
import type { ImportTarget } from "./targets.ts";

/** Returns a postern.yaml with the outcomes. `clusterReaders` are the rules that read the cluster. */
export const formatImportedConfig = (
  outcomes: readonly PluginOutcome[],
  target: ImportTarget,
  catalogue: readonly CatalogueRule[],
  clusterReaders: readonly CatalogueRule[],
): string => {
  const rules = outcomes.flatMap(({ plugin, rule, settings = {}, reason }) => {
    if (rule === undefined) return [];
    // A guard is a rule that refuses requests for security reasons.
    const isGuard = catalogue.some((listed) => listed.name === rule && listed.rule.guards);
    const section = Object.keys(settings).length > 0 ? formatYamlDocuments([{ settings }]) : "";
    const comment = formatComment(`${plugin}${isGuard ? ", a guard" : ""}: ${reason}`);
    return [`${indent(comment, "  ")}  ${rule}:\n${indent(section, "    ")}`];
  });
  const origin = `Imported from the flags of a self-managed API server for ${target.name}. Plugins that are on in ${target.name}: ${target.pluginSummary}.`;
  const readers = `These rules read the cluster: ${clusterReaders.map(({ name }) => name).join(", ")}. ${formatPage("how-to/connect-a-cluster.md")} describes connect:`;
  const clusters = `clusters: { my-cluster: { kubernetes: "${target.kubernetes}", connect: { … } } }`;
  return [
    `${schemaLine}\n${formatComment(origin)}`,
    rules.length === 0 ? "rules: {}\n" : `${formatComment(failurePolicyNote)}rules:\n${rules.join("")}`,
    ...(clusterReaders.length === 0 ? [] : [`${formatComment(readers)}# ${clusters}\n`]),
    ...sections.map(({ title, kinds }) => formatSection(title, outcomes, kinds)).filter(Boolean),
  ].join("\n");
};

const failurePolicyNote =
  "Where a plugin fails, the API server refuses the request. Where a rule fails, it admits the request until postern deploy or postern manifests --harden makes guards fail closed; other rules fail closed with failurePolicy: Fail.";

/** The sections at the end of postern.yaml, each with the kinds of outcomes that it lists. */
const sections: { title: string; kinds: PluginOutcome["outcome"][] }[] = [
  { title: "Left to do", kinds: ["open"] },
  { title: "Nothing to do", kinds: ["target", "nothing"] }, // "target": the new cluster has the plugin on, too.
  { title: "Off until now, and on in the target", kinds: ["stays-on"] }, // It can't be turned off there.
];

/** Returns a list of outcomes as a comment. Plugins with the same reason are on the same line. */
const formatSection = (
  title: string,
  outcomes: readonly PluginOutcome[],
  kinds: readonly PluginOutcome["outcome"][],
): string => {
  const byReason = new Map<string, string[]>();
  for (const { plugin, outcome, reason } of outcomes)
    if (kinds.includes(outcome)) byReason.set(reason, [...(byReason.get(reason) ?? []), plugin]);
  const lines = [...byReason].map(([reason, plugins]) =>
    formatComment(`- ${plugins.join(", ")}: ${reason}`, "# ", "#   "),
  );
  return lines.length === 0 ? "" : `# ${title}:\n${lines.join("")}`;
};

const maxLineLength = 118;

/** Returns a text as lines of a YAML comment. The text may contain line breaks and control characters. */
const formatComment = (text: string, firstPrefix = "# ", nextPrefix = "# "): string => {
  const lines: string[] = [];
  for (const word of toOneLine(text).split(" ")) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + word.length < maxLineLength) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(`${line === undefined ? firstPrefix : nextPrefix}${word}`);
  }
  return lines.map((line) => `${line}\n`).join("");
};

const indent = (text: string, prefix: string): string =>
  text
    .split("\n")
    .map((line) => (line === "" ? line : `${prefix}${line}`))
    .join("\n");

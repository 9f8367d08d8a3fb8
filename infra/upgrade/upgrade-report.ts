import { sanitizeTerminalText } from "../cli/terminal.ts";
import type { UpgradeDifferences } from "./comparison.ts";

/** Reports whether the new version changes something for the project. Changes of unused catalogue rules don't count. */
export const hasDifferences = ({ refusal, settings, entries, cases }: UpgradeDifferences): boolean =>
  refusal !== undefined ||
  settings.length + cases.length > 0 ||
  entries.some(({ differences }) => differences.length > 0);

/** Returns the differences as text, with sections for catalogue, settings, entries and cases. */
export const formatDifferences = (found: UpgradeDifferences): string => {
  const { from, to, refusal, catalogue, settings, entries, cases } = found;
  const { added, removed, replaced } = catalogue;
  const compared = [
    formatSection(
      "settings",
      settings.flatMap(({ rule, changes }) => changes.map((change) => `~ ${rule}: ${change}`)),
    ),
    // `postern deploy --plan-only` prints the same sentences.
    ...entries.map(({ cluster, differences }) =>
      formatSection(
        `entries of cluster ${cluster} that a deployment with ${to} would change`,
        differences.map((difference) => `~ ${difference}`),
      ),
    ),
  ];
  const refused = formatSection(
    `${to} can't build this project, so settings, entries and answers are not compared`,
    (refusal ?? "").split("\n"),
  );
  return [
    `postern ${from} → ${to}\n`,
    formatSection("catalogue", [
      ...added.map((rule) => `+ ${rule}`),
      ...removed.map((rule) => `- ${rule}`),
      ...replaced.map((rule) => `! functions/${rule} replaces the rule ${rule}, which is new in the catalogue`),
    ]),
    ...(refusal === undefined ? compared : [refused]),
    formatSection("cases of functions/", cases.flatMap(formatCase)),
  ].join("");
};

const formatSection = (title: string, lines: readonly string[]): string => {
  const shown = lines.length > 0 ? lines : ["nothing differs"];
  return `\n${title}\n${shown.map((line) => `  ${sanitizeTerminalText(line)}\n`).join("")}`;
};

const formatCase = ({ before, after }: UpgradeDifferences["cases"][number]): string[] => [
  `~ ${[after.file, after.line].filter(Boolean).join(":")} ${after.name}: ${before} → ${after.result}`,
  ...after.because.map((reason) => `    ${reason}`),
];

import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { isMap, parseDocument } from "yaml";
import { writeListing } from "../catalogue/list.ts";
import { mustBeName } from "../catalogue/names.ts";
import { catalogueFolder, readRule, readRules } from "../catalogue/registry.ts";
import { type Command, common, print } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { configFile } from "../config/config.ts";
import { reportBroken } from "../project/project.ts";

export default {
  summary: "Makes a rule: a folder that passes all checks, turned on in postern.yaml, to be edited from there.",
  usage: "NAME",
  options: {
    mutate: { type: "boolean", says: "a rule that changes objects; so do names that begin with default- or add-" },
    config: common.config,
  },

  async run({ options, words: [name, ...rest] }) {
    if (name === undefined || rest.length > 0)
      throw new Complaint("postern new takes one name, for instance require-owner-label");
    mustBeName(name);
    const folder = join(catalogueFolder, name);
    const file = options.text("config") ?? configFile;
    const mutates = options.flag("mutate") || /^(default|add)-/.test(name);
    await make(folder, name, mutates ? mutating(name) : validating(name));
    await turnOn(file, name);
    const { rules, broken } = await readRules();
    // The list would lack the rules that can't be loaded.
    reportBroken(broken, () => false);
    if (broken.length === 0) await writeListing(rules);
    print(
      `functions/${name} is there, and on in postern.yaml.\nEdit its rule.ts and cases.yaml; npx postern test ${name} runs them, npm start -- --watch serves them.\n`,
    );
  },
} satisfies Command;

type Files = Record<"rule.ts" | "cases.yaml" | "README.md", string>;

const make = async (folder: string, name: string, files: Files) => {
  await mkdir(folder).catch((error) => {
    throw new Complaint(
      error.code === "EEXIST"
        ? `functions/${name} is there already`
        : `functions/${name} can't be made: ${error.message}`,
    );
  });
  for (const [file, content] of Object.entries(files)) await writeFile(join(folder, file), content);
  // What the registry refuses doesn't stay.
  await readRule(folder, name).catch(async (error) => {
    await rm(folder, { recursive: true });
    throw error;
  });
};

/** Adds the rule to postern.yaml as its author would, by a line: all else stays as it was written. */
const turnOn = async (file: string, name: string) => {
  const text = await readFile(file, "utf8");
  const rules = parseDocument(text).get("rules");
  if (isMap(rules) && !rules.flow && rules.range) {
    const [start, , end] = rules.range;
    const indent = " ".repeat(start - text.lastIndexOf("\n", start) - 1);
    await writeFile(file, `${text.slice(0, end).trimEnd()}\n${indent}${name}:\n${text.slice(end).replace(/^\n/, "")}`);
    return;
  }
  if (rules != null) throw new Complaint(`${basename(file)} has its rules in braces; add ${name} there by hand`);
  const rest = text.replace(/^rules:.*\n?/m, "");
  await writeFile(file, `${rest && `${rest.trimEnd()}\n`}rules:\n  ${name}:\n`);
};

const imports = `import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { rule } from "postern/rule";
`;

const match = `[{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }]`;

const readme = (name: string, summary: string, why: string, settings: string[]) => `# ${name}

${summary}

## Why

${why}

## Settings

| setting | default | what it says |
| --- | --- | --- |
${settings.join("\n")}

## Needs

Nothing: the pod says it all.
`;

const validating = (name: string): Files => {
  const summary = "Requires a label on every pod.";
  return {
    "rule.ts": `${imports}
export default rule({
  summary: "${summary}",
  match: ${match},
  settings: { label: "owner" },

  validate(pod: Pod, { settings }) {
    if (!pod.metadata?.labels?.[settings.label]) return \`metadata.labels must have a label "\${settings.label}"\`;
  },
});
`,
    "cases.yaml": `- name: admits a pod that has the label
  validate: { metadata: { labels: { owner: team-a } } }
  admitted: true
- name: refuses a pod without it
  validate: { metadata: { labels: { app: web } } }
  refused: metadata.labels must have a label "owner"
- name: takes an empty label for none
  validate: { metadata: { labels: { owner: "" } } }
  refused: metadata.labels must have a label "owner"
- name: asks for the label of its settings
  settings: { label: team }
  validate: { metadata: { labels: { owner: team-a } } }
  refused: metadata.labels must have a label "team"
`,
    "README.md": readme(name, summary, "So that everybody knows whom to ask about a pod.", [
      "| `label` | `owner` | the label that a pod must have, with any value |",
    ]),
  };
};

const mutating = (name: string): Files => {
  const summary = "Gives every pod a label that it lacks.";
  return {
    "rule.ts": `${imports}
export default rule({
  summary: "${summary}",
  match: ${match},
  settings: { label: "owner", value: "nobody" },

  mutate(pod: Pod, { settings: { label, value } }) {
    if (pod.metadata?.labels?.[label]) return;
    pod.metadata = { ...pod.metadata, labels: { ...pod.metadata?.labels, [label]: value } };
  },
});
`,
    "cases.yaml": `- name: labels a pod that has no labels
  mutate: { metadata: { name: web } }
  becomes: { metadata: { name: web, labels: { owner: nobody } } }
- name: keeps the labels that are there
  mutate: { metadata: { labels: { app: web } } }
  becomes: { metadata: { labels: { app: web, owner: nobody } } }
- name: leaves a pod alone that has the label
  mutate: &labelled { metadata: { labels: { owner: team-a } } }
  becomes: *labelled
`,
    "README.md": readme(name, summary, "So that no pod is left out where things are counted by label.", [
      "| `label` | `owner` | the label that every pod has |",
      "| `value` | `nobody` | what it says where the pod doesn't |",
    ]),
  };
};

import { writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import type { Operation } from "#lib/review.ts";
import { openCheck } from "../check/check.ts";
import type { Checked } from "../check/checked.ts";
import { type Fault, faultText } from "../check/documents.ts";
import { type Edit, edited, editOf } from "../check/fix.ts";
import { jsonOf } from "../check/json.ts";
import { type Output, outputsOf } from "../check/outputs.ts";
import { github } from "../check/reports/github.ts";
import { junit } from "../check/reports/junit.ts";
import { policyReport } from "../check/reports/policyreport.ts";
import { sarif } from "../check/reports/sarif.ts";
import { withOnly } from "../check/rules.ts";
import { isColoured, painter, summaryLine, summaryOf, summed, told } from "../check/text.ts";
import { type Command, common, type Options, print } from "../command.ts";
import { Complaint } from "../complaint.ts";
import { chooseCluster, configFile, readConfig } from "../config.ts";
import { placeOf } from "../connections.ts";
import { counted } from "../progress.ts";
import { type Listed, readCatalogue } from "../registry.ts";

const reports: Record<string, (all: Checked[], catalogue: Listed[]) => string> = {
  junit: (all) => junit(all),
  sarif: (all, catalogue) =>
    sarif(
      all,
      catalogue.map(({ name, rule: { summary } }) => ({ name, summary })),
    ),
  github: (all) => github(all),
  policyreport: (all) => policyReport(all),
};
const forms = ["text", "json", ...Object.keys(reports)];

export default {
  summary:
    "Says what the rules would do to manifests, as a cluster would ask them: what they change, and what they refuse.",
  usage: "PATH…",
  options: {
    config: common.config,
    cluster: common.cluster,
    rules: {
      type: "string",
      multiple: true,
      value: "RULES",
      says: "only these, also where postern.yaml names them not",
    },
    operation: {
      type: "string",
      value: "NAME",
      says: "CREATE, UPDATE or DELETE; as kubectl apply, an update of what --old or --state holds, if not said",
    },
    old: { type: "string", multiple: true, value: "PATH", says: "what is there before an update" },
    as: { type: "string", value: "USER", default: "kubernetes-admin", says: "who sends the manifests" },
    "as-group": { type: "string", multiple: true, value: "GROUP", says: "a group of theirs" },
    namespace: { type: "string", short: "n", value: "NAME", default: "default", says: "of manifests that name none" },
    state: { type: "string", multiple: true, value: "PATH", says: "manifests of what exists" },
    review: { type: "string", multiple: true, value: "PATH", says: "judge these recorded AdmissionReviews as well" },
    webhooks: {
      type: "string",
      multiple: true,
      value: "PATH",
      says: "webhook configurations of others, to be asked too",
    },
    call: {
      type: "string",
      multiple: true,
      value: "HOST",
      says: "call others' webhooks there, and not only name them; loopback is this machine",
    },
    "also-pod-templates": { type: "boolean", says: "judge the Pods that workloads would make as well" },
    harden: { type: "boolean", says: "as with manifests --harden" },
    fix: { type: "boolean", says: "write what the rules change back into the files" },
    output: {
      ...common.output,
      multiple: true,
      value: "FORM[=FILE]",
      says: `${forms.join(", ")}; several where they go to files`,
    },
  },

  async run({ options, words }) {
    const outputs = outputsOf(among(options, "output"), forms);
    const reviews = options.texts("review");
    if (words.length + reviews.length === 0)
      throw new Complaint("postern check takes files or folders of manifests, or - for standard input");
    const file = options.text("config") ?? configFile;
    const catalogue = await readCatalogue();
    const [name, whole] = chooseCluster(await readConfig(file, catalogue), options.text("cluster"));
    const only = among(options, "rules");
    const cluster = only.length === 0 ? whole : withOnly(whole, only, catalogue);
    const written = whole.connect?.manifests;
    const state = options.texts("state");
    const check = await openCheck({
      catalogue,
      ...{ cluster: [name, cluster], harden: options.flag("harden"), paths: words, reviews },
      state: state.length === 0 && written !== undefined ? [placeOf(written, dirname(file))] : state,
      ...{ old: options.texts("old"), webhooks: options.texts("webhooks"), hosts: among(options, "call") },
      ...{ operation: operationOf(options), user: userOf(options), namespace: options.text("namespace") ?? "default" },
      alsoPods: options.flag("also-pod-templates"),
    });

    const summary = { ...summaryOf(), faults: check.faults.length };
    const paint = painter(isColoured(process.stdout, process.env));
    const isTold = outputs.some(({ form, file }) => form === "text" && file === undefined);
    const texts: string[] = [];
    const all: Checked[] = [];
    const details: object[] = [];
    const edits: Edit[] = [];
    const wants = (form: string, toFile: boolean) =>
      outputs.some((one) => one.form === form && (one.file !== undefined) === toFile);
    for await (const judged of check.judged) {
      summed(summary, judged.checked);
      if (isTold) print(told(judged, paint));
      if (wants("text", true)) texts.push(told(judged, painter(false)));
      if (outputs.some(({ form }) => form === "json")) details.push(jsonOf(judged));
      all.push(judged.checked);
      const edit = options.flag("fix") ? editOf(judged) : undefined;
      if (edit) edits.push(edit);
    }
    if (isTold) print(summaryLine(summary, paint));
    const content = ({ form }: Output): string => {
      if (form === "text") return `${texts.join("")}${summaryLine(summary, painter(false))}`;
      if (form === "json")
        return `${JSON.stringify({ summary, objects: details, faults: check.faults, notes: [...check.notes] }, null, 2)}\n`;
      return reports[form]?.([...all, ...check.faults.map(unread)], catalogue) ?? "";
    };
    for (const output of outputs) {
      if (output.file !== undefined) await save(output.file, content(output));
      else if (output.form !== "text") print(content(output));
    }
    for (const sentence of [...check.notes, ...check.faults.map(faultText)]) process.stderr.write(`${sentence}\n`);
    if (options.flag("fix")) await fix(edits);
    if (summary.denied > 0) return 1;
    return summary.undecided + summary.faults > 0 ? 3 : 0;
  },
} satisfies Command;

/** What can't be read was not judged either. */
const unread = ({ file, line, sentence }: Fault): Checked => {
  const nothing = { denials: [], warnings: [], changes: [], passed: [] };
  return {
    file,
    line,
    apiVersion: "",
    kind: "Document",
    name: file,
    verdict: "undecided",
    undecided: [sentence],
    ...nothing,
  };
};

const save = (file: string, text: string) =>
  writeFile(file, text).catch((error) => {
    throw new Complaint(`${file} can't be written: ${error.message}`);
  });

const operationOf = (options: Options): Operation | undefined => {
  const said = options.text("operation")?.toUpperCase();
  if (said === undefined || said === "CREATE" || said === "UPDATE" || said === "DELETE") return said;
  throw new Complaint(`--operation takes CREATE, UPDATE or DELETE, not "${said}"; others are judged as --review`);
};

const userOf = (options: Options) => {
  const groups = among(options, "as-group");
  const username = options.text("as") ?? "";
  // As kubeadm makes its administrator.
  const usual = username === "kubernetes-admin" && groups.length === 0 ? ["kubeadm:cluster-admins"] : groups;
  return { username, groups: [...new Set([...usual, "system:authenticated"])] };
};

/** File by file; what others wrote meanwhile isn't lost, for a file is written at once. */
const fix = async (edits: readonly Edit[]): Promise<void> => {
  const byFile = Map.groupBy(edits, ({ manifest }) => manifest.source);
  for (const [{ name, text }, own] of byFile) {
    const fixed = edited(text, own);
    if ("kept" in fixed) process.stderr.write(`${name} is left as it is: ${fixed.kept}\n`);
    else if (fixed.text !== text) {
      await save(name, fixed.text);
      process.stderr.write(`${name}: ${counted(own.length, "object")} mended\n`);
    }
  }
};

/** What is given several times, or with commas between. */
const among = (options: Options, name: string): string[] =>
  options.texts(name).flatMap((text) => text.split(",").filter(Boolean));

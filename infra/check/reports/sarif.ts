import { createHash } from "node:crypto";
import project from "../../../package.json" with { type: "json" };
import { type Checked, called, type Denial } from "../checked.ts";
import { lineOf, pathIn, sayingOf, uriOf } from "./places.ts";

/** What is known of a rule beside its name. */
export interface About {
  name: string;
  summary: string;
}

/**
 * The findings as a SARIF 2.1.0 log. Denials are errors, warnings are warnings; what can't be said is a notification of
 * the run, for no rule has found it.
 */
export const sarif = (all: Iterable<Checked>, catalogue: Iterable<About> = []): string => {
  const summaries = new Map([...catalogue].map(({ name, summary }) => [name, summary]));
  const rules = new Map<string, number>();
  const results: object[] = [];
  const notifications: object[] = [];
  for (const one of all) {
    const add = (rule: string, level: "error" | "warning", message: string, denial?: Denial) => {
      const ruleIndex = rules.get(rule) ?? rules.size;
      rules.set(rule, ruleIndex);
      const locations = locationsOf(one, lineOf(one, denial), denial?.column);
      // A finding stays the same one when lines move.
      const identity = [rule, one.apiVersion, one.kind, one.namespace ?? "", one.name, message].join("\n");
      const partialFingerprints = { "posternFinding/v1": createHash("sha256").update(identity).digest("hex") };
      results.push({
        ...{ ruleId: rule, ruleIndex, level, message: { text: plain(message || "denied without explanation") } },
        ...{ locations, partialFingerprints },
      });
    };
    for (const denial of one.denials) add(denial.rule, "error", sayingOf(denial), denial);
    for (const { rule, text } of one.warnings) add(rule, "warning", text);
    for (const sentence of one.undecided) {
      const text = plain(`${called(one)}: ${sentence}`);
      notifications.push({ level: "warning", message: { text }, locations: locationsOf(one, one.line) });
    }
  }
  const driver = {
    name: "Postern",
    semanticVersion: project.version,
    rules: [...rules.keys()].map((id) => {
      const summary = summaries.get(id);
      return { id, ...(summary !== undefined && { shortDescription: { text: plain(summary) } }) };
    }),
  };
  const run = {
    tool: { driver },
    invocations: [{ executionSuccessful: true, toolExecutionNotifications: notifications }],
    results,
    columnKind: "utf16CodeUnits",
  };
  const $schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
  return `${JSON.stringify({ $schema, version: "2.1.0", runs: [run] }, null, 2)}\n`;
};

const locationsOf = (one: Checked, line?: number, column?: number): object[] => {
  const path = pathIn(one.file);
  const logicalLocations = [{ fullyQualifiedName: called(one).toWellFormed(), kind: "object" }];
  if (path === undefined) return [{ logicalLocations }];
  const { uri, isRelative } = uriOf(path);
  const region = line === undefined ? {} : { region: { startLine: line, ...(column && { startColumn: column }) } };
  const artifactLocation = { uri, ...(isRelative && { uriBaseId: "%SRCROOT%" }) };
  return [{ physicalLocation: { artifactLocation, ...region }, logicalLocations }];
};

/** Text in which nothing is a link: a message is anybody's, and viewers make links of `[…](…)`. */
const plain = (text: string): string => text.toWellFormed().replace(/[\\[\]](?=.*\()/gs, "\\$&");

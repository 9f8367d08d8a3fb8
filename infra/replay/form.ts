import { isMap } from "#lib/json.ts";
import type { Case } from "../catalogue/cases.ts";
import { isName } from "../catalogue/registry.ts";

/** What a member must be, and how that is said. */
type Shape = readonly [expected: string, test: (value: unknown) => boolean];

const text: Shape = ["a text", (value) => typeof value === "string"];
const map: Shape = ["a map", isMap];
const texts: Shape = [
  "a list of texts",
  (value) => Array.isArray(value) && value.every((one) => typeof one === "string"),
];
const mapOfTexts: Shape = [
  "a map of texts",
  (value) => isMap(value) && Object.values(value).every((one) => typeof one === "string"),
];

const members: Record<string, Shape> = {
  name: text,
  ...{ mutate: map, validate: map, oldObject: map, settings: map, needs: map, request: map, recorded: map },
  ...{ resource: text, namespace: text, variant: text, user: map },
  operation: [
    "CREATE, UPDATE, DELETE or CONNECT",
    (value) => ["CREATE", "UPDATE", "DELETE", "CONNECT"].includes(String(value)),
  ],
  dryRun: ["true or false", (value) => typeof value === "boolean"],
  now: ["a time, for instance 2026-01-01T00:00:00Z", (value) => !Number.isNaN(Date.parse(String(value)))],
  ...{ becomes: map, refused: text, warnings: texts, audit: mapOfTexts, details: map },
  admitted: ["true", (value) => value === true],
  code: ["a number", (value) => typeof value === "number"],
  reason: ["a text or null", (value) => value === null || typeof value === "string"],
};

const each = (expected: string, test: (one: { [key: string]: unknown }) => boolean): Shape => [
  expected,
  (value) => Array.isArray(value) && value.every((one) => isMap(one) && test(one)),
];
/** What may be left out must be this where it is said. */
const perhaps = ([, test]: Shape, ...values: unknown[]) => values.every((value) => value === undefined || test(value));

const objects = each("a list of objects with names", ({ apiVersion, kind, metadata }) => {
  if (!isMap(metadata) || !perhaps(text, apiVersion, kind)) return false;
  const { name, namespace, labels } = metadata;
  return text[1](name) && perhaps(text, namespace) && perhaps(mapOfTexts, labels);
});
const answers = each("a list of questions with answers", ({ answer }) => isMap(answer));
const needed: Record<string, Shape> = {
  ...{ objects, https: answers, http: answers, aws: answers },
  may: each("a list of questions that say whether it is allowed", ({ allowed }) => typeof allowed === "boolean"),
  refused: each("a list of names with a status", ({ status }) => isMap(status)),
  ...{ reads: each("a list of maps", () => true), discovery: map, ledger: map, plurals: mapOfTexts },
};

const origin: Record<string, Shape> = {
  rule: ["the name of a rule", (value) => typeof value === "string" && isName(value)],
  cluster: text,
};

/** A case, and whose it is, where that is written down; or a sentence that says why it is none. */
export const caseIn = (value: unknown): { entry: Case; rule?: string; cluster?: string } | { sentence: string } => {
  if (!isMap(value)) return { sentence: "is no case: a map is expected" };
  if (isDeeper(value)) return { sentence: `is no case: it is nested more than ${deepest} deep` };
  const needs = isMap(value.needs) ? value.needs : {};
  const recorded = isMap(value.recorded) ? value.recorded : {};
  const fault =
    faultIn(value, members, "") ?? faultIn(needs, needed, "needs.") ?? faultIn(recorded, origin, "recorded.");
  if (fault !== undefined) return { sentence: `is no case: ${fault}` };
  if (!Object.hasOwn(value, "name")) return { sentence: "is no case: it has no name" };
  if (Object.hasOwn(value, "mutate") === Object.hasOwn(value, "validate"))
    return { sentence: "is no case: it must say either mutate or validate" };
  // Checked above; what else it may say, nobody looks at here.
  const entry = value as unknown as Case;
  const { rule, cluster } = recorded as { rule?: string; cluster?: string };
  return { entry, ...(rule !== undefined && { rule }), ...(cluster !== undefined && { cluster }) };
};

const faultIn = (value: object, shapes: Record<string, Shape>, place: string): string | undefined => {
  for (const [key, [expected, test]] of Object.entries(shapes))
    if (Object.hasOwn(value, key) && !test(Reflect.get(value, key))) return `${place}${key} must be ${expected}`;
  return undefined;
};

/** Deeper than any object that somebody made; beyond, recursion would end us rather than the review. */
const deepest = 1000;

const isDeeper = (value: object): boolean => {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > deepest) return true;
    level = level.flatMap((one) => (Object(one) === one ? Object.values(one as object) : []));
  }
  return false;
};

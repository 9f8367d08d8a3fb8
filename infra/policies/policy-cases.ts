import { readFile } from "node:fs/promises";
import { toFailure } from "#lib/failure.ts";
import { toMap } from "#lib/json.ts";
import type { NamedKubernetesObject, RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionReview } from "#lib/review.ts";
import { findSettingsMistakes, mergeWithDefaults } from "#lib/settings.ts";
import { createRecordedCluster, findServedResource, listServedResources } from "../apiserver/kinds/served.ts";
import { describeCaseDifferences } from "../catalogue/case-differences.ts";
import { caseMembers } from "../catalogue/case-shape.ts";
import { buildReview, evaluateCase, getCasePhase, parseCases } from "../catalogue/cases.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import {
  createEnumShape,
  createMapListShape,
  createMapSchema,
  createMapShape,
  flagShape,
  type InputShape,
  mapShape,
  numberShape,
  textShape,
} from "../cli/shape.ts";
import type { RuleConfig } from "../config/config.ts";
import { setNamespace } from "../manifests/object-store.ts";
import type { TestResult } from "../testing/results.ts";

/** A rule whose settings hold the policies under test. */
interface RuleWithTestedPolicies {
  listed: CatalogueRule;
  held: string[];
}

/** Returns the rules that apply these policies, with the policies in their settings. */
export const findRulesForPolicies = (
  catalogue: readonly CatalogueRule[],
  documents: readonly unknown[],
  setups: ReadonlyMap<string, RuleConfig> = new Map(),
): RuleWithTestedPolicies[] =>
  catalogue.flatMap((listed) => {
    const { name, rule } = listed;
    const readers = Object.entries(rule.manifests ?? {});
    const read = readers.map(([key, reader]) => [key, reader(documents)] as const);
    if (read.length === 0 || read.some(([, { faults }]) => faults.length > 0)) return [];
    const holding = Object.fromEntries(read.map(([key, { objects }]) => [key, objects]));
    const settings = mergeWithDefaults(setups.get(name)?.settings ?? rule.settings ?? {}, holding);
    // Matches everything, because a case goes to its policies without a webhook entry.
    const match = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*" as const] }];
    return [{ listed: { ...listed, rule: { ...rule, match, settings } }, held: Object.keys(holding) }];
  });

/** Reads a user's cases for policies, each with the rule that evaluates it. Throws a Complaint for an invalid case. */
export const readPolicyCases = async (
  file: string,
  rules: readonly RuleWithTestedPolicies[],
): Promise<[RuleWithTestedPolicies, Case][]> => {
  const text = await readFile(file, "utf8").catch((error) => {
    throw new Complaint(`${file} can't be read: ${toSentence(error)}`);
  });
  return parseCases(text, file, ["mutate", "validate"], caseShape).map((entry) => {
    const createComplaint = (sentence: string) => new Complaint(`${file}: "${entry.name}" ${sentence}`);
    const underTest = rules.find(({ listed }) => listed.phases.includes(getCasePhase(entry)));
    if (underTest === undefined)
      throw createComplaint(`says ${getCasePhase(entry)}, which no rule does that reads such policies`);
    const unfit = findCaseSettingsFault(underTest, entry.settings);
    if (unfit !== undefined) throw createComplaint(unfit);
    const objects = entry.needs?.objects;
    if (objects === undefined) return [underTest, entry];
    const where = `${file}: "${entry.name}" needs.objects`;
    return [underTest, { ...entry, needs: { ...entry.needs, objects: requireObjects(objects, where) } }];
  });
};

/** Returns values that are Kubernetes objects, with `default` for a missing namespace; throws for any other value. */
const requireObjects = (values: readonly unknown[], place: string): NamedKubernetesObject[] => {
  const objects = values.map((value, index): NamedKubernetesObject => {
    const { apiVersion, kind, metadata } = toMap(value);
    if (typeof apiVersion === "string" && typeof kind === "string" && typeof toMap(metadata).name === "string")
      return value as NamedKubernetesObject;
    const where = `${place}[${index}]`;
    throw new Complaint(`${where} is no manifest: it must have an apiVersion, a kind and a metadata.name`);
  });
  const served = listServedResources(objects);
  return objects.map((object) => setNamespace(object, findServedResource(served, object) ?? unserved, "default"));
};
const unserved = { namespaced: false };

/** Runs a test case of policies. The rule's questions get only the answers that the case contains. */
export const runPolicyCase = async (
  file: string,
  { listed }: RuleWithTestedPolicies,
  entry: Case,
): Promise<TestResult> => {
  const { name, fails } = entry;
  const toResult = (because: string[]) => {
    return { file, name, result: because.length === 0 ? ("passed" as const) : ("failed" as const), because };
  };
  try {
    const decision = await evaluateCase(
      listed,
      entry,
      buildCaseReview(listed, entry),
      createRecordedCluster(entry.needs ?? {}, entry.kubernetes),
    );
    if (fails !== undefined) return toResult([`it does not fail, but should: ${fails}`]);
    return toResult(describeCaseDifferences(entry, decision));
  } catch (error) {
    const { message } = toFailure(error);
    if (fails === undefined) return { file, name, result: "not evaluated", because: [message] };
    return toResult(
      message === fails ? [] : [`it fails with ${JSON.stringify(message)}, not ${JSON.stringify(fails)}`],
    );
  }
};

const buildCaseReview = (listed: CatalogueRule, entry: Case): AdmissionReview => {
  const object = entry[getCasePhase(entry)] ?? {};
  const home = entry.namespace === undefined ? object : { ...object, metadata: { namespace: entry.namespace } };
  const served = findServedResource(
    { ...listServedResources([...(entry.needs?.objects ?? []), home], entry.kubernetes), ...entry.needs?.discovery },
    object,
  );
  const review = buildReview(listed, { ...entry, resource: entry.resource ?? String(served?.resource) });
  if (served?.namespaced !== false || object.kind === "Namespace") return review;
  const { namespace: _, ...request } = review.request;
  return { ...review, request };
};

const objectShape: InputShape = {
  expected: "an object with apiVersion and kind",
  type: "object",
  properties: { apiVersion: textShape, kind: textShape, metadata: { type: ["object", "null"] } },
  required: ["apiVersion", "kind"],
};
const answersShape = createMapListShape(
  "a list of requests, such as { url }, each with an answer: { status, body }, the body a text",
  { answer: createMapSchema({ status: numberShape, body: textShape }) },
);
const mapsShape = createMapListShape("a list of maps");
const needsShape: Record<keyof RecordedCapabilityAnswers, InputShape> = {
  objects: { expected: "a list of objects", type: "array" },
  http: answersShape,
  https: answersShape,
  aws: answersShape,
  refused: mapsShape,
  may: mapsShape,
  reads: mapsShape,
  discovery: {
    expected: "a map from versions such as apps/v1 to lists of { resource, kind, namespaced }",
    type: "object",
    additionalProperties: {
      type: "array",
      items: createMapSchema({ resource: textShape, kind: textShape, namespaced: flagShape }),
    },
  },
  ledger: mapShape,
  cluster: textShape,
  plurals: mapShape,
};
const caseShape = createMapShape({
  ...caseMembers,
  mutate: objectShape,
  validate: objectShape,
  oldObject: objectShape,
  becomes: { ...mapShape, expected: "an object" },
  operation: createEnumShape("CREATE, UPDATE or DELETE", "CREATE", "UPDATE", "DELETE"),
  needs: createMapShape(needsShape),
  now: { ...caseMembers.now, expected: "a time such as 2026-01-01T00:00:00Z" },
  reason: { ...caseMembers.reason, expected: "a text" },
  audit: mapShape,
});

const findCaseSettingsFault = (
  { listed: { rule }, held }: RuleWithTestedPolicies,
  expected: object | undefined,
): string | undefined => {
  const [mistake] = findSettingsMistakes(rule, expected ?? {});
  if (mistake) return `settings.${mistake.path.join(".")} ${mistake.sentence}`;
  const twice = held.find((key) => Object.hasOwn(expected ?? {}, key));
  if (twice !== undefined) return `can't have settings.${twice}: they are those that are tested`;
  const unfit = rule.checkSettings?.(mergeWithDefaults(rule.settings ?? {}, expected));
  return unfit && `can't have these settings: it ${unfit}`;
};

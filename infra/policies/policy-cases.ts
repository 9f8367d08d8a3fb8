import { readFile } from "node:fs/promises";
import type { RuleDecision } from "#lib/core/evaluation.ts";
import { toFailure } from "#lib/failure.ts";
import { toMap } from "#lib/json.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import type { NamedKubernetesObject, RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionReview, KubernetesObject } from "#lib/review.ts";
import { findSettingsMistakes, mergeWithDefaults } from "#lib/settings.ts";
import { fillDefaults } from "../apiserver/defaults/defaults.ts";
import { createRecordedCluster, findServedResource, listServedResources } from "../apiserver/kinds/served.ts";
import { applyOutcomePatch, describeCaseDifferences } from "../catalogue/case-differences.ts";
import { caseMembers } from "../catalogue/case-shape.ts";
import { buildReview, evaluateCase, getCasePhase, parseCases } from "../catalogue/cases.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { describeKnownWords } from "../cli/did-you-mean.ts";
import {
  createMapListShape,
  createMapSchema,
  createMapShape,
  flagShape,
  type InputShape,
  mapShape,
  numberShape,
  textShape,
} from "../cli/shape.ts";
import { parseYamlDocument, unlimitedAliases } from "../cli/yaml-document.ts";
import type { RuleConfig } from "../config/config.ts";
import type { Manifest } from "../manifests/manifests.ts";
import { setNamespace } from "../manifests/object-store.ts";
import type { PolicyMatch, TestResult } from "../testing/results.ts";
import {
  addUnstatedExpectations,
  createTestedPolicies,
  describeIgnoredResults,
  fillCase,
  findObjectMistakes,
  isSelected,
  listCaseObjects,
  observeCase,
  type TestedAdmissionPolicies,
} from "./admission-cases.ts";
import { type AdmissionPolicies, formatFieldPosition } from "./admission-policies.ts";

/** A rule that evaluates the policies under test. */
interface RuleWithTestedPolicies {
  listed: CatalogueRule;
  /** The names of the rule's settings that contain the policies. */
  settingsWithPolicies: string[];
  /** For rules that evaluate admission policies. */
  admissionPolicies?: TestedAdmissionPolicies;
}

/** A case, and the rules that evaluate it, in the order in which an API server would call them. */
interface PolicyCase {
  file: string;
  line: number;
  rules: RuleWithTestedPolicies[];
  ruleCase: Case;
  /** Unknown fields and wrong values in the objects of a case of admission policies. The case fails if it has any. */
  objectMistakes: string[];
}

/** Returns the rules that can read these policies, with the policies in their settings. */
export const findRulesForPolicies = (
  catalogue: readonly CatalogueRule[],
  documents: readonly unknown[],
  setups: ReadonlyMap<string, RuleConfig> = new Map(),
): RuleWithTestedPolicies[] =>
  catalogue.flatMap((listed) => {
    const { name, rule } = listed;
    const readersBySetting = Object.entries(rule.manifests ?? {});
    const read = readersBySetting.map(([setting, readPolicies]) => [setting, readPolicies(documents)] as const);
    if (read.length === 0 || read.some(([, { faults }]) => faults.length > 0)) return [];
    const policiesBySetting = Object.fromEntries(read.map(([setting, { objects }]) => [setting, objects]));
    const settings = mergeWithDefaults(setups.get(name)?.settings ?? rule.settings ?? {}, policiesBySetting);
    return [
      {
        listed: { ...listed, rule: { ...rule, match: matchEverything, settings } },
        settingsWithPolicies: Object.keys(policiesBySetting),
      },
    ];
  });

/** Matches all requests, because cases are evaluated without webhook entries. */
const matchEverything = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*" as const] }];

/**
 * Returns the rules that evaluate the admission policies of files. The rules match all requests, so that only the
 * constraints of the policies decide what a policy matches. The cluster of each case has the files' other objects,
 * which policies use, such as their parameters.
 */
export const findRulesForAdmissionPolicies = (files: AdmissionPolicies): RuleWithTestedPolicies[] => {
  const { otherManifests } = files;
  const values = otherManifests.map(({ object }) => object);
  const otherObjects = requireObjects(values, (index) => formatFieldPosition(otherManifests[index] as Manifest, []));
  return [...new Set(files.policies.map(({ rule }) => rule))].map((listed) => {
    const rule = { ...listed.rule, match: matchEverything };
    const admissionPolicies = createTestedPolicies(listed, files, otherObjects);
    // The policies under test are put into the rule's setting `policies`, so a case must not have this setting.
    return { listed: { ...listed, rule }, settingsWithPolicies: ["policies"], admissionPolicies };
  });
};

/** Reads cases of policies, and finds the rules that evaluate each case. Throws a Complaint for an invalid case. */
export const readPolicyCases = async (
  file: string,
  rules: readonly RuleWithTestedPolicies[],
): Promise<PolicyCase[]> => {
  const text = await readFile(file, "utf8").catch((error) => {
    throw new Complaint(`${file} can't be read: ${toSentence(error)}`);
  });
  const entries = parseCases(text, file, ["mutate", "validate"], { shape: caseShape });
  const { findLine } = parseYamlDocument(text, file, unlimitedAliases);
  return entries.map((ruleCase, index) => {
    const phase = getCasePhase(ruleCase);
    const formatPlace = (path: readonly string[]) => `${file}:${findLine([index, ...path])} "${ruleCase.name}"`;
    const complain = (path: string[], sentence: string) => new Complaint(`${formatPlace(path)} ${sentence}`);
    const found = rules.filter(({ listed }) => listed.phases.includes(phase));
    const admissionRules = found.filter((rule) => rule.admissionPolicies);
    const otherRules = found.filter((rule) => !rule.admissionPolicies);
    if (found.length === 0) throw complain([phase], `has ${phase}, but no rule for the tested policies has that phase`);
    // A case's settings are for the first rule that evaluates other policies than admission policies, if there is one.
    const [ruleWithSettings = found[0] as RuleWithTestedPolicies] = otherRules;
    const fault = findCaseSettingsFault(ruleWithSettings, ruleCase.settings);
    if (fault !== undefined) throw complain(["settings"], fault);
    const mistake = findAdmissionCaseMistake(admissionRules, ruleCase);
    if (mistake !== undefined) throw complain(mistake.path, mistake.sentence);
    // A case with these mistakes is valid, but fails when it runs.
    const objectMistakes = (admissionRules.length > 0 ? findObjectMistakes(ruleCase) : []).map(
      ({ path, sentence }) => `${file}:${findLine([index, ...path])} ${sentence}`,
    );
    const place = { file, line: findLine([index]), rules: [...admissionRules, ...otherRules], objectMistakes };
    const objects = ruleCase.needs?.objects;
    if (objects === undefined) return { ...place, ruleCase };
    const formatObject = (at: number) => `${formatPlace(["needs", "objects", String(at)])} needs.objects[${at}]`;
    return {
      ...place,
      ruleCase: { ...ruleCase, needs: { ...ruleCase.needs, objects: requireObjects(objects, formatObject) } },
    };
  });
};

/**
 * Finds a mistake that concerns admission policies. `admissionRules` are the rules that evaluate the case and read such
 * policies. Without any, the case must not have a member that only cases of admission policies may have. Otherwise, its
 * `variant`, if there is one, must be the name of an admission policy.
 */
const findAdmissionCaseMistake = (admissionRules: readonly RuleWithTestedPolicies[], ruleCase: Case) => {
  if (admissionRules.length === 0) {
    const sentence = (what: string) => `has ${what}, which only cases of admission policies may have`;
    if (ruleCase.unmatched) return { path: ["unmatched"], sentence: sentence("unmatched") };
    if (ruleCase.operation === "CONNECT") return { path: ["operation"], sentence: sentence("the operation CONNECT") };
    return undefined;
  }
  const policies = admissionRules.flatMap(({ admissionPolicies }) => admissionPolicies?.policies ?? []);
  const names = policies.map(({ metadata: { name } }) => name);
  if (!policies.some((policy) => isSelected(policy, ruleCase))) {
    const sentence = `has the variant ${JSON.stringify(ruleCase.variant)}, which is no policy; ${describeKnownWords(ruleCase.variant ?? "", names)}`;
    return { path: ["variant"], sentence };
  }
  return undefined;
};

/** Returns Kubernetes objects. A missing namespace is set to `default`. Throws if a value is no Kubernetes object. */
const requireObjects = (
  values: readonly unknown[],
  formatPlace: (index: number) => string,
): NamedKubernetesObject[] => {
  const objects = values.map((value, index): NamedKubernetesObject => {
    const { apiVersion, kind, metadata } = toMap(value);
    if (typeof apiVersion === "string" && typeof kind === "string" && typeof toMap(metadata).name === "string")
      return value as NamedKubernetesObject;
    throw new Complaint(`${formatPlace(index)} is no manifest: it must have an apiVersion, a kind and a metadata.name`);
  });
  const served = listServedResources(objects);
  return objects.map((object) => setNamespace(object, findServedResource(served, object) ?? unserved, "default"));
};
const unserved = { namespaced: false };

/**
 * Runs a case of policies. Rules get only the answers of the cluster and of services that the case has. `report` is
 * called with the results of the expressions of admission policies.
 */
export const runPolicyCase = async (
  { file, line, rules, ruleCase, objectMistakes }: PolicyCase,
  report: (observations: Awaited<ReturnType<typeof observeCase>>["observations"]) => void = () => {},
): Promise<TestResult> => {
  const { name, fails } = ruleCase;
  const tested = rules.flatMap(({ admissionPolicies }) => admissionPolicies ?? []);
  const toResult = (because: string[], notes: string[] = [], policies: PolicyMatch[] = []): TestResult => {
    const result = because.length === 0 ? "passed" : "failed";
    const lines = [...because, ...notes].map((text) => text.replace(/\s*\n\s*/g, " "));
    return { file, line, name, result, because: lines, ...(tested.length > 0 && { policies }) };
  };
  if (objectMistakes.length > 0) return toResult(objectMistakes);
  try {
    const versionFault = tested
      .map(({ findVersionFault }) => findVersionFault(ruleCase))
      .find((fault) => fault !== undefined);
    if (versionFault !== undefined) return toResult([versionFault]);
    const filled = tested.length > 0 ? fillCase(ruleCase) : ruleCase;
    const { decision, observations, matches } = await observeCase(ruleCase, tested, () =>
      evaluateInOrder(rules, filled),
    );
    report(observations);
    if (fails !== undefined) return toResult([`it does not fail, but should: ${fails}`], [], matches);
    if (tested.length === 0) return toResult(describeCaseDifferences(filled, decision));
    // The code and the reason of a refusal, and audit annotations, are compared only if the case states them.
    const differences = describeCaseDifferences(addUnstatedExpectations(filled, decision), decision);
    const { mistakes: matchMistakes = [], notes = [] } = describeMatches(ruleCase, matches, decision.outcome.allowed);
    // If some of the rules have no admission policies, the case may be meant for those rules. Then mistakes about which
    // admission policies match are only notes, which don't fail the case.
    const haveAllAdmissionPolicies = rules.length === tested.length;
    return toResult(
      [...differences, ...(haveAllAdmissionPolicies ? matchMistakes : [])],
      [...(haveAllAdmissionPolicies ? [] : matchMistakes), ...notes, ...describeIgnoredResults(decision, observations)],
      matches,
    );
  } catch (error) {
    const { message } = toFailure(error);
    if (fails === undefined) return { file, line, name, result: "not evaluated", because: [message] };
    return toResult(
      message === fails ? [] : [`it fails with ${JSON.stringify(message)}, not ${JSON.stringify(fails)}`],
    );
  }
};

/**
 * Returns a mistake if a policy matched although the case says `unmatched`, or if no policy matched although the case
 * doesn't say so. If only some policies matched, returns a note that names these.
 */
const describeMatches = (
  ruleCase: Case,
  matches: readonly PolicyMatch[],
  isAllowed: boolean,
): { mistakes?: string[]; notes?: string[] } => {
  const matched = matches.filter((match) => match.matched).map(({ policy }) => policy);
  const names = matched.join(", ");
  if (ruleCase.unmatched && matched.length > 0)
    return { mistakes: [`no admission policy should match, but ${names} does`] };
  // A refusal names its policy. Otherwise, if only some policies matched, a note names these.
  if (matched.length > 0) return isAllowed && matches.length > matched.length ? { notes: [`evaluated: ${names}`] } : {};
  // If the evaluation of a match condition fails, the request may be refused although no policy matched.
  if (ruleCase.unmatched || !isAllowed) return {};
  const advice = ruleCase.refused === undefined ? "; if that is right, say unmatched: true" : "";
  const reasons = matches.map(({ policy, because }) => `${policy} doesn't match: ${because}`);
  return { mistakes: [`no admission policy was evaluated${advice}`, ...reasons] };
};

/** Evaluates a case by one rule after the other, until one refuses. */
const evaluateInOrder = async (rules: readonly RuleWithTestedPolicies[], ruleCase: Case): Promise<RuleDecision> => {
  const phase = getCasePhase(ruleCase);
  const decisions: RuleDecision[] = [];
  let object = ruleCase[phase] as KubernetesObject;
  for (const rule of rules) {
    const decision = await evaluateWithRule(rule, { ...ruleCase, [phase]: object });
    decisions.push(decision);
    if (!decision.outcome.allowed) break;
    object = applyOutcomePatch(object, decision.outcome) as KubernetesObject;
  }
  const outcomes = decisions.map(({ outcome }) => outcome);
  // An API server sets defaults after an admission policy has changed an object.
  const needsDefaults = rules.some(({ admissionPolicies }) => admissionPolicies);
  const value = needsDefaults ? fillDefaults(object, ruleCase.kubernetes).object : object;
  return {
    refused: decisions.some(({ refused }) => refused),
    operations: 0, // the number of changes in the patch; cases don't state it, so it isn't compared
    outcome: {
      ...(outcomes.at(-1) as RuleDecision["outcome"]),
      warnings: outcomes.flatMap(({ warnings = [] }) => warnings),
      audit: Object.assign({}, ...outcomes.map(({ audit }) => audit)),
      patch: phase === "mutate" ? [{ op: "replace", path: "", value }] : [],
    },
  };
};

/** Evaluates a case by one rule. Admission policies of the case are put into the rule's settings. */
const evaluateWithRule = (
  { listed, admissionPolicies }: RuleWithTestedPolicies,
  ruleCase: Case,
): Promise<RuleDecision> => {
  const evaluate = (given: Case) =>
    evaluateCase(
      listed,
      given,
      buildCaseReview(listed, given),
      createRecordedCluster(given.needs ?? {}, given.kubernetes),
    );
  if (admissionPolicies === undefined) return evaluate(ruleCase);
  const objects = listCaseObjects(ruleCase, admissionPolicies.objects);
  const settings = { policies: admissionPolicies.buildPolicySetting(ruleCase, objects) };
  // `buildPolicySetting` has used `variant` to select a policy. `variant` must not also select a variant of the rule.
  const { variant: _, ...rest } = ruleCase;
  return evaluate({ ...rest, settings, needs: { ...ruleCase.needs, objects } });
};

/** Builds the review of a case. Resource and scope come from the kinds that the case's cluster serves. */
const buildCaseReview = (listed: CatalogueRule, ruleCase: Case): AdmissionReview => {
  const object = ruleCase[getCasePhase(ruleCase)] ?? {};
  // For listServedResources, a kind is namespaced if its object has a metadata.namespace. It reads no other metadata.
  const objectInNamespace =
    ruleCase.namespace === undefined ? object : { ...object, metadata: { namespace: ruleCase.namespace } };
  const served = {
    ...listServedResources([...(ruleCase.needs?.objects ?? []), objectInNamespace], ruleCase.kubernetes),
    ...ruleCase.needs?.discovery,
  };
  const resourcePath = ruleCase.resource ?? String(findServedResource(served, object)?.resource);
  const review = buildReview(listed, { ...ruleCase, resource: resourcePath });
  const { namespace: _, ...requestWithoutNamespace } = review.request;
  const { resource } = review.request.resource;
  const version = joinApiVersion(review.request.resource);
  const found = Object.hasOwn(served, version) ? served[version]?.find((one) => one.resource === resource) : undefined;
  // The request for a Namespace has a namespace, though a Namespace isn't in one: its own name.
  const hasNamespace = found?.namespaced !== false || resource === "namespaces";
  return hasNamespace ? review : { ...review, request: requestWithoutNamespace };
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
/** The shape of a case's `needs`: the answers of the cluster and of services to questions of the rules for policies. */
const needsShape: Record<keyof RecordedCapabilityAnswers, InputShape> = {
  objects: { expected: "a list of objects", type: "array" },
  http: answersShape,
  https: answersShape,
  aws: answersShape,
  refused: mapsShape, // writes that the cluster refuses
  may: mapsShape, // what users have the right to do
  reads: mapsShape, // the reads that `objects` answer; other reads fail
  discovery: {
    expected: "a map from versions such as apps/v1 to lists of { resource, kind, namespaced }",
    type: "object",
    additionalProperties: {
      type: "array",
      items: createMapSchema({ resource: textShape, kind: textShape, namespaced: flagShape }),
    },
  },
  ledger: mapShape, // what a rule has stored in earlier reviews
  cluster: textShape, // the cluster's name
  plurals: mapShape, // irregular plurals of kinds
};
/** The shape of a case for policies. */
const caseShape = createMapShape({
  ...caseMembers,
  mutate: objectShape,
  validate: objectShape,
  oldObject: objectShape,
  becomes: { ...mapShape, expected: "an object" },
  needs: createMapShape(needsShape),
  now: { ...caseMembers.now, expected: "a time such as 2026-01-01T00:00:00Z" },
  reason: { ...caseMembers.reason, expected: "a text" },
  audit: mapShape,
});

/** Describes a mistake in the settings of a case; undefined if there is none. */
const findCaseSettingsFault = (
  { listed: { rule }, settingsWithPolicies }: RuleWithTestedPolicies,
  caseSettings: object | undefined,
): string | undefined => {
  const [mistake] = findSettingsMistakes(rule, caseSettings ?? {});
  if (mistake) return `settings.${mistake.path.join(".")} ${mistake.sentence}`;
  const policySetting = settingsWithPolicies.find((name) => Object.hasOwn(caseSettings ?? {}, name));
  if (policySetting !== undefined) return `can't have settings.${policySetting}: it is set to the tested policies`;
  const fault = rule.checkSettings?.(mergeWithDefaults(rule.settings ?? {}, caseSettings));
  return fault && `can't have these settings: it ${fault}`;
};

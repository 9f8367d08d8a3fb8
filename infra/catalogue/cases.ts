import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { RuleDecision } from "#lib/core/evaluation.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { freezeDeep, isMap, toList, toMap } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { createRecordedCapabilities, toPlural } from "#lib/recording/recorded-answers.ts";
import { type Case, caseRequestUid, restoreRequest } from "#lib/recording/recording.ts";
import { type AdmissionRequest, type AdmissionReview, type Operation, requireValidReview } from "#lib/review.ts";
import { type Phase, type Rule, selectPhase } from "#lib/rule.ts";
import { findSettingsMistakes, mergeWithDefaults, type SettingsMistake } from "#lib/settings.ts";
import { findKindOfSubresource, inferKinds } from "../apiserver/kinds/kinds.ts";
import { Complaint } from "../cli/complaint.ts";
import { describeKnownWords } from "../cli/did-you-mean.ts";
import { describeFoundValue, findMisfits, type InputShape, type ShapeMismatch } from "../cli/shape.ts";
import { parseYamlDocument, unlimitedAliases } from "../cli/yaml-document.ts";
import { caseShape, outcomes } from "./case-shape.ts";
import { applyVariant, type CatalogueRule } from "./registry.ts";

/** Reads the cases in a rule's cases.yaml. */
export const readCases = async ({ place, folder, phases, rule }: CatalogueRule): Promise<Case[]> =>
  parseCases(await readFile(join(folder, "cases.yaml"), "utf8"), `${place}/cases.yaml`, phases, { rule });

/** Returns the line of cases.yaml at which each case begins, in the order of `readCases`. */
export const readCaseLineNumbers = async ({ folder }: Pick<CatalogueRule, "folder">): Promise<number[]> => {
  const text = await readFile(join(folder, "cases.yaml"), "utf8");
  const { value, findLine } = parseYamlDocument(text, "cases.yaml", unlimitedAliases);
  return toList(value).map((_, index) => findLine([index]));
};

/**
 * Parses the cases of a file. Throws one Complaint with all mistakes, such as a case of a phase not in `phases`, or with
 * settings that `rule` doesn't have.
 */
export const parseCases = (
  text: string,
  file: string,
  phases: readonly Phase[],
  { shape = caseShape, rule }: { shape?: InputShape; rule?: Rule } = {},
): Case[] => {
  // Any number of YAML aliases is allowed, because many cases use the same object. The file is the user's own.
  const { value: cases, findLine } = parseYamlDocument(text, file, unlimitedAliases);
  if (!Array.isArray(cases) || cases.length === 0)
    throw new Complaint(`${file} must be a list of cases, with at least one`);
  const indexes = new Map<unknown, number>();
  const mistakes = cases.flatMap((ruleCase: unknown, index) => {
    const { name, settings = {}, recorded } = toMap(ruleCase);
    const found = findCaseMistakes(ruleCase, phases, shape);
    if (found.length === 0 && rule)
      for (const { path, sentence } of findSettingsMistakes(rule, settings))
        found.push({ path: ["settings", ...path], sentence: `${["settings", ...path].join(".")} ${sentence}` });
    // Recordings of similar reviews have the same name.
    const first = recorded === undefined ? indexes.get(name) : undefined;
    if (found.length === 0 && first !== undefined)
      found.push({ path: [], sentence: `needs another name: the case in line ${findLine([first])} has the same` });
    indexes.set(name, first ?? index);
    const what = typeof name === "string" ? `"${name}"` : "a case";
    return found.map(({ path, sentence }) => `${file}:${findLine([index, ...path])} ${what} ${sentence}`);
  });
  if (mistakes.length > 0) throw new Complaint(mistakes.join("\n"));
  return cases;
};

/** Returns the mistakes in members of a case. If there are none, returns the mistakes in the combination of members. */
const findCaseMistakes = (ruleCase: unknown, phases: readonly Phase[], shape: InputShape): SettingsMistake[] => {
  if (!isMap(ruleCase) || typeof ruleCase.name !== "string")
    return [{ path: [], sentence: 'must be a map with a name, a sentence that completes "it …"' }];
  const misfits = findMisfits(ruleCase, shape);
  if (misfits.length > 0) return misfits.map((misfit) => ({ path: misfit.path, sentence: describeMisfit(misfit) }));
  const possible = outcomes.filter((key) => Object.hasOwn(shape.properties ?? {}, key));
  const [subject, otherSubject] = ["mutate", "validate"].filter((key) => key in ruleCase);
  const [outcome, otherOutcome] = possible.filter((key) => key in ruleCase);
  const complain = (sentence: string, member?: string) => [{ path: member === undefined ? [] : [member], sentence }];
  if (!subject || otherSubject) return complain("must have either mutate or validate", otherSubject);
  if (!phases.some((phase) => phase === subject))
    return complain(`has ${subject}, a phase that the rule does not have`, subject);
  if (!outcome || otherOutcome) return complain(`must have one of ${joinWithOr(possible)}`, otherOutcome);
  if (subject === "validate" && "becomes" in ruleCase)
    return complain("can't have an expected object: a validating phase changes nothing", "becomes");
  return [];
};

const describeMisfit = (misfit: ShapeMismatch) => {
  const { path, expected, known } = misfit;
  const place = path.join(".");
  if (known === undefined)
    return path.length === 0 ? `must be ${expected}` : `must have ${expected} as ${place}${describeFoundValue(misfit)}`;
  return `has no member ${place}; ${describeKnownWords(path.at(-1) ?? "", known)}`;
};

const joinWithOr = (words: readonly string[]) => `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;

export const getCasePhase = (ruleCase: Case): Phase => (ruleCase.mutate === undefined ? "validate" : "mutate");

export const getCaseOperation = (ruleCase: Case): Operation =>
  ruleCase.operation ?? (ruleCase.oldObject === undefined ? "CREATE" : "UPDATE");

/** Returns a rule and its settings, with the variant and the settings of a case. */
export const applyCaseSettingsAndVariant = (rule: Rule, { settings, variant }: Case) =>
  applyVariant(rule, mergeWithDefaults(rule.settings ?? {}, settings), variant);

/** Returns the review that the API server would send for a case. */
export const buildReview = ({ place, rule }: CatalogueRule, ruleCase: Case): AdmissionReview => {
  if (ruleCase.request) return restoreReview({ ...ruleCase, request: ruleCase.request });
  const phase = getCasePhase(ruleCase);
  const operation = getCaseOperation(ruleCase);
  const object = ruleCase[phase];
  const oldObject = operation === "DELETE" ? object : ruleCase.oldObject;
  // A rule may have several webhook entries, its variants. The case's variant has a match of its own.
  const { rule: ruleOfVariant, settings } = applyCaseSettingsAndVariant(rule, ruleCase);
  const matchElements = selectPhase(ruleOfVariant.match, phase, settings) ?? [];
  const objectResource = object?.kind && toPlural(object.kind);
  const matchedResources = matchElements.flatMap(({ resources }) => resources);
  const matchedResource = matchedResources.find((resource) => resource === objectResource) ?? matchedResources[0];
  // If the rule doesn't match the object's own resource, the case is for another one, such as pods/exec.
  const resourcePath = ruleCase.resource ?? matchedResource ?? objectResource ?? "";
  const matchElement = matchElements.find(({ resources }) => resources.includes(resourcePath)) ?? matchElements[0];
  const [resource = "", subResource] = resourcePath.split("/");
  const objectVersion = splitApiVersion(object?.apiVersion ?? "v1");
  const objects = [...(ruleCase.needs?.objects ?? []), ...(object ? [object] : [])];
  const parentKind =
    subResource && findKindOfSubresource(inferKinds(objects, ruleCase.kubernetes), resourcePath, object?.apiVersion);
  // A wildcard in the rule's match is replaced by the group or version of the resource. For the resource
  // deployments/scale, they are those of the kind Deployment, although the object is a Scale.
  const actual = parentKind ? parentKind.resource : objectVersion;
  const resolveWildcard = (pattern = "", replacement: string) => (pattern === "*" ? replacement : pattern);
  const [group, version] = [
    resolveWildcard(matchElement?.apiGroups[0], actual.group),
    resolveWildcard(matchElement?.apiVersions[0], actual.version),
  ];
  const kind = object?.kind ?? kindsByResource[resourcePath];
  if (kind === undefined)
    throw new Complaint(`${place}/cases.yaml: "${ruleCase.name}" must say the kind of its object`);
  // The object of a subresource, such as Scale, may have another group and version than the resource.
  const hasOwnVersion = subResource && object?.apiVersion;
  const gvk = hasOwnVersion ? { ...objectVersion, kind } : { group, version: version || "v1", kind };
  const gvr = { group, version: version || "v1", resource };
  const metadata = object?.metadata ?? {};
  const namespace = resource === "namespaces" ? metadata.name : metadata.namespace;
  return createReview({
    uid: caseRequestUid,
    kind: gvk,
    resource: gvr,
    ...(subResource && { subResource, requestSubResource: subResource }),
    requestKind: gvk,
    requestResource: gvr,
    ...(metadata.name && { name: metadata.name }),
    ...(!clusterScoped.has(resource) && { namespace: ruleCase.namespace ?? namespace ?? "default" }),
    operation,
    userInfo: ruleCase.user ?? { username: "jane", groups: ["developers", "system:authenticated"] },
    object: operation === "DELETE" ? null : object,
    oldObject: oldObject ?? null,
    dryRun: ruleCase.dryRun ?? false,
    options: null,
  });
};

/** Returns the AdmissionReview of a recorded request. */
export const restoreReview = (ruleCase: Parameters<typeof restoreRequest>[0]): AdmissionReview =>
  createReview(restoreRequest(ruleCase));

const createReview = (request: AdmissionRequest): AdmissionReview =>
  requireValidReview({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request });

const clusterScoped = new Set(["nodes", "persistentvolumes", "priorityclasses", "volumeattributesclasses"]);

/** The kinds of objects, by resource, for cases that leave the kind out. */
const kindsByResource: Record<string, string> = {
  configmaps: "ConfigMap",
  deployments: "Deployment",
  "deployments/scale": "Scale",
  ingresses: "Ingress",
  jobs: "Job",
  localsubjectaccessreviews: "LocalSubjectAccessReview",
  namespaces: "Namespace",
  nodes: "Node",
  persistentvolumeclaims: "PersistentVolumeClaim",
  persistentvolumes: "PersistentVolume",
  "nodes/status": "Node",
  podgroups: "PodGroup",
  pods: "Pod",
  "pods/attach": "PodAttachOptions",
  "pods/binding": "Binding",
  "pods/exec": "PodExecOptions",
  "pods/ephemeralcontainers": "Pod",
  "pods/resize": "Pod",
  "pods/status": "Pod",
  priorityclasses: "PriorityClass",
  replicasets: "ReplicaSet",
  secrets: "Secret",
  services: "Service",
  statefulsets: "StatefulSet",
  "statefulsets/scale": "Scale",
};

/** Evaluates a rule for the review of a case. By default, the case has the answers of the cluster and of services. */
export const evaluateCase = async (
  { name, rule }: CatalogueRule,
  ruleCase: Case,
  { request }: AdmissionReview,
  capabilities = createRecordedCapabilities(ruleCase.needs ?? {}),
): Promise<RuleDecision> =>
  evaluateRule(rule, getCasePhase(ruleCase), request, {
    name,
    mode: "enforce",
    settings: freezeDeep(applyCaseSettingsAndVariant(rule, ruleCase).settings),
    kubernetes: ruleCase.kubernetes,
    variant: ruleCase.variant,
    now: new Date(ruleCase.now ?? "2026-01-01T00:00:00Z"),
    capabilities,
  });

/** Returns an event to invoke a function directly. It has the settings, the recorded answers and the time of a case. */
export const buildInvocationEvent = (listed: CatalogueRule, ruleCase: Case) => {
  const { version, request } = buildReview(listed, ruleCase);
  const { variant, kubernetes, needs = {}, now = "2026-01-01T00:00:00Z" } = ruleCase;
  const review = { kind: "AdmissionReview", apiVersion: `admission.k8s.io/${version}`, request };
  return {
    phase: getCasePhase(ruleCase),
    variant,
    kubernetes,
    review,
    settings: applyCaseSettingsAndVariant(listed.rule, ruleCase).settings,
    needs,
    now,
  };
};

/** Returns what a function on this machine needs to evaluate a case: its review, settings, recorded answers, time. */
export const buildCaseReview = (listed: CatalogueRule, ruleCase: Case) => {
  const { needs, now, ...review } = buildInvocationEvent(listed, ruleCase);
  const capabilities = createRecordedCapabilities(needs);
  return { ...review, capabilities, now: new Date(now), deadline: Date.now() + 600_000 };
};

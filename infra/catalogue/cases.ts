import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Document, isNode, isSeq, LineCounter, parseDocument } from "yaml";
import type { RuleDecision } from "#lib/core/evaluation.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { freezeDeep } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { createRecordedCapabilities, toPlural } from "#lib/recording/recorded-answers.ts";
import { type Case, caseRequestUid, restoreRequest } from "#lib/recording/recording.ts";
import { type AdmissionRequest, type AdmissionReview, type Operation, requireValidReview } from "#lib/review.ts";
import { type Phase, type Rule, selectPhase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { findMisfits, type ShapeMismatch } from "../cli/shape.ts";
import { caseShape, outcomes } from "./case-shape.ts";
import { applyVariant, type CatalogueRule } from "./registry.ts";

export const readCases = async ({ place, folder, phases }: CatalogueRule): Promise<Case[]> =>
  parseCases(await readFile(join(folder, "cases.yaml"), "utf8"), `${place}/cases.yaml`, phases);

/** Returns the line of cases.yaml at which each case begins, in the order of `readCases`. */
export const readCaseLineNumbers = async ({ folder }: Pick<CatalogueRule, "folder">): Promise<number[]> => {
  const lines = new LineCounter();
  const { contents } = parseDocument(await readFile(join(folder, "cases.yaml"), "utf8"), { lineCounter: lines });
  return (isSeq(contents) ? contents.items : []).map((item) =>
    isNode(item) && item.range ? lines.linePos(item.range[0]).line : 1,
  );
};

/** Parses the cases of a file. Throws if a case has a phase not in `phases`, or doesn't have the shape. */
export const parseCases = (text: string, file: string, phases: readonly Phase[], shape = caseShape): Case[] => {
  const document = parseDocument(text);
  if (document.errors[0]) throw new Complaint(`${file}: ${document.errors[0].message.split("\n")[0]}`);
  const { properties = {} } = shape;
  const possible = outcomes.filter((key) => Object.hasOwn(properties, key));
  const cases = resolveAliases(document, file);
  if (!Array.isArray(cases) || cases.length === 0)
    throw new Complaint(`${file} must be a list of cases, with at least one`);
  for (const entry of cases) {
    if (typeof entry?.name !== "string")
      throw new Complaint(`${file}: every case has a name, a sentence that completes "it …"`);
    const createComplaint = (sentence: string) => new Complaint(`${file}: "${entry.name}" ${sentence}`);
    const unknown = Object.keys(entry).find((key) => !Object.hasOwn(properties, key));
    if (unknown !== undefined) throw createComplaint(`has an unknown member ${unknown}`);
    const phase = getCasePhase(entry);
    if (!phases.includes(phase)) throw createComplaint(`has ${phase}, a phase that the rule does not have`);
    if ("mutate" in entry === "validate" in entry) throw createComplaint("must say either mutate or validate");
    const expected = possible.filter((key) => key in entry);
    if (expected.length !== 1) throw createComplaint(`must say one of ${joinWithAnd(possible)}`);
    if ("validate" in entry && "becomes" in entry)
      throw createComplaint("can't have an expected object: a validating phase changes nothing");
    const [misfit] = findMisfits(entry, shape);
    if (misfit) throw createComplaint(describeMisfit(misfit));
  }
  return cases;
};

const describeMisfit = ({ path, expected, known }: ShapeMismatch) =>
  known
    ? `has an unknown ${path.join(".")}; ${known.join(", ")} are known`
    : `must have ${expected} as ${path.join(".")}`;

/** Allows any number of aliases: many cases share an object, and the file is the user's own. */
const resolveAliases = (document: Document, file: string): unknown => {
  try {
    return document.toJS({ maxAliasCount: -1 });
  } catch (error) {
    // toJS throws if the YAML of the cases uses an alias without an anchor.
    throw new Complaint(`${file}: ${toSentence(error)}`);
  }
};

const joinWithAnd = (words: readonly string[]) => `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

export const getCasePhase = (entry: Case): Phase => (entry.mutate === undefined ? "validate" : "mutate");

export const getCaseOperation = (entry: Case): Operation =>
  entry.operation ?? (entry.oldObject === undefined ? "CREATE" : "UPDATE");

/** Returns a rule and its settings as a case needs them: with the case's settings and variant. */
export const applyCaseSettingsAndVariant = (rule: Rule, { settings, variant }: Case) =>
  applyVariant(rule, mergeWithDefaults(rule.settings ?? {}, settings), variant);

/** Returns the review that the API server would send for a case. */
export const buildReview = ({ place, rule }: CatalogueRule, entry: Case): AdmissionReview => {
  if (entry.request) return restoreReview({ ...entry, request: entry.request });
  const phase = getCasePhase(entry);
  const operation = getCaseOperation(entry);
  const object = entry[phase];
  const oldObject = operation === "DELETE" ? object : entry.oldObject;
  const { rule: variantRule, settings } = applyCaseSettingsAndVariant(rule, entry);
  const matches = selectPhase(variantRule.match, phase, settings) ?? [];
  const ownPlural = object?.kind && toPlural(object.kind);
  const possible = matches.flatMap(({ resources }) => resources);
  const path = entry.resource ?? possible.find((plural) => plural === ownPlural) ?? possible[0] ?? ownPlural ?? "";
  const match = matches.find(({ resources }) => resources.includes(path)) ?? matches[0];
  const [resource = "", subResource] = path.split("/");
  // A wildcard in the rule's match is replaced by the group or version of the case's object.
  const own = splitApiVersion(object?.apiVersion ?? "v1");
  const resolveWildcard = (matched = "", own: string) => (matched === "*" ? own : matched);
  const [group, version] = [
    resolveWildcard(match?.apiGroups[0], own.group),
    resolveWildcard(match?.apiVersions[0], own.version),
  ];
  const kind = object?.kind ?? kindsByResource[path];
  if (kind === undefined) throw new Complaint(`${place}/cases.yaml: "${entry.name}" must say the kind of its object`);
  const gvk = { group, version: version || "v1", kind };
  const gvr = { group, version: version || "v1", resource };
  const metadata = object?.metadata ?? {};
  const ownNamespace = path === "namespaces" ? metadata.name : metadata.namespace;
  return createReview({
    uid: caseRequestUid,
    kind: gvk,
    resource: gvr,
    ...(subResource && { subResource, requestSubResource: subResource }),
    requestKind: gvk,
    requestResource: gvr,
    ...(metadata.name && { name: metadata.name }),
    ...(!clusterScoped.has(resource) && { namespace: entry.namespace ?? ownNamespace ?? "default" }),
    operation,
    userInfo: entry.user ?? { username: "jane", groups: ["developers", "system:authenticated"] },
    object: operation === "DELETE" ? null : object,
    oldObject: oldObject ?? null,
    dryRun: entry.dryRun ?? false,
    options: null,
  });
};

/** Returns the AdmissionReview of a recorded request. */
export const restoreReview = (entry: Parameters<typeof restoreRequest>[0]): AdmissionReview =>
  createReview(restoreRequest(entry));

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

export const evaluateCase = async (
  { name, rule }: CatalogueRule,
  entry: Case,
  { request }: AdmissionReview,
  capabilities = createRecordedCapabilities(entry.needs ?? {}),
): Promise<RuleDecision> =>
  evaluateRule(rule, getCasePhase(entry), request, {
    name,
    mode: "enforce",
    settings: freezeDeep(applyCaseSettingsAndVariant(rule, entry).settings),
    kubernetes: entry.kubernetes,
    variant: entry.variant,
    now: new Date(entry.now ?? "2026-01-01T00:00:00Z"),
    capabilities,
  });

/** Returns an event for direct invocation of a function, with the case's settings, answers and time. */
export const buildInvocationEvent = (listed: CatalogueRule, entry: Case) => {
  const { version, request } = buildReview(listed, entry);
  const { variant, kubernetes, needs = {}, now = "2026-01-01T00:00:00Z" } = entry;
  const review = { kind: "AdmissionReview", apiVersion: `admission.k8s.io/${version}`, request };
  return {
    phase: getCasePhase(entry),
    variant,
    kubernetes,
    review,
    settings: applyCaseSettingsAndVariant(listed.rule, entry).settings,
    needs,
    now,
  };
};

/** Returns a review that evaluates a case here, with the case's settings, answers and time. */
export const buildCaseReview = (listed: CatalogueRule, entry: Case) => {
  const { needs, now, ...review } = buildInvocationEvent(listed, entry);
  const capabilities = createRecordedCapabilities(needs);
  return { ...review, capabilities, now: new Date(now), deadline: Date.now() + 600_000 };
};

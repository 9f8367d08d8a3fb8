import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import jsonPatch from "fast-json-patch";
import { type Document, isNode, isSeq, LineCounter, parseDocument } from "yaml";
import { type Decision, decide } from "#lib/decide.ts";
import { isMap } from "#lib/json.ts";
import { plural, type Recorded, recorded } from "#lib/recorded.ts";
import { type Envelope, requestOf, uid } from "#lib/recording/recording.ts";
import {
  check,
  type KubernetesObject,
  type Operation,
  type Outcome,
  type Patch,
  type Request,
  type Review,
  type Status,
  type UserInfo,
} from "#lib/review.ts";
import { inPhase, type Phase, type Rule } from "#lib/rule.ts";
import { frozen, merge } from "#lib/settings.ts";
import { Complaint, sentenceOf } from "../cli/complaint.ts";
import { difference } from "../diff/difference.ts";
import { asVariant } from "../webhooks/entry.ts";
import type { Listed } from "./registry.ts";

/** One entry of a cases.yaml: what goes into a rule, and what must come out. */
export interface Case {
  name: string;
  /** The object judged, by phase; on DELETE it is the old one. */
  mutate?: KubernetesObject;
  validate?: KubernetesObject;
  oldObject?: KubernetesObject;
  /** UPDATE where there is an oldObject, else CREATE. */
  operation?: Operation;
  /** Of one that was recorded: what the other members don't say of it. Nothing of such a request is filled in. */
  request?: Envelope;
  /** Of those that the rule matches the object's own, or else the first, unless said otherwise: `pods`, `deployments/scale`. */
  resource?: string;
  namespace?: string;
  user?: UserInfo;
  dryRun?: boolean;
  variant?: string;
  settings?: object;
  needs?: Recorded;
  now?: string;

  becomes?: KubernetesObject;
  admitted?: true;
  refused?: string;
  /** Of policies: the sentence with which their evaluation fails. */
  fails?: string;
  /** 403 and Forbidden, unless said otherwise. */
  code?: number;
  /** Null where there is none. */
  reason?: string | null;
  /** Only where they are said. */
  details?: Status["details"];
  warnings?: string[];
  audit?: Record<string, string>;

  /** Where it comes from; no test looks at it. */
  recorded?: object;
}

const members = new Set([
  ...[
    "name",
    "mutate",
    "validate",
    "oldObject",
    "operation",
    "resource",
    "namespace",
    "user",
    "dryRun",
    "variant",
    "settings",
    "needs",
    "now",
    "request",
  ],
  ...["code", "reason", "details", "warnings", "audit", "recorded"],
]);

/** One of these is said of what comes out. */
const outcomes = ["becomes", "admitted", "refused"];

/** The cases of a rule, in the order in which they stand. */
export const readCases = async ({ name, folder, phases }: Listed): Promise<Case[]> =>
  casesIn(await readFile(join(folder, "cases.yaml"), "utf8"), `functions/${name}/cases.yaml`, phases);

/** The line at which each case of a rule begins, in the order of `readCases`. */
export const readCaseLines = async ({ folder }: Pick<Listed, "folder">): Promise<number[]> => {
  const lines = new LineCounter();
  const { contents } = parseDocument(await readFile(join(folder, "cases.yaml"), "utf8"), { lineCounter: lines });
  return (isSeq(contents) ? contents.items : []).map((item) =>
    isNode(item) && item.range ? lines.linePos(item.range[0]).line : 1,
  );
};

/** The cases in a file's text, where they judge in one of these phases; `fails` among what can come out is for some. */
export const casesIn = (text: string, file: string, phases: readonly Phase[], ...more: "fails"[]): Case[] => {
  const document = parseDocument(text);
  if (document.errors[0]) throw new Complaint(`${file}: ${document.errors[0].message.split("\n")[0]}`);
  const possible = [...outcomes, ...more];
  const cases = shared(document, file);
  if (!Array.isArray(cases) || cases.length === 0)
    throw new Complaint(`${file} must be a list of cases, with at least one`);
  for (const entry of cases) {
    if (typeof entry?.name !== "string")
      throw new Complaint(`${file}: every case has a name, a sentence that completes "it …"`);
    const wrong = (sentence: string) => new Complaint(`${file}: "${entry.name}" ${sentence}`);
    for (const key of Object.keys(entry))
      if (!members.has(key) && !possible.includes(key)) throw wrong(`has an unknown member ${key}`);
    const phase = phaseOf(entry);
    if (!phases.includes(phase)) throw wrong(`says ${phase}, which the rule does not have`);
    if ("mutate" in entry === "validate" in entry) throw wrong("must say either mutate or validate");
    const expected = possible.filter((key) => key in entry);
    if (expected.length !== 1) throw wrong(`must say one of ${spoken(possible)}`);
    if ("validate" in entry && "becomes" in entry) throw wrong("can't become anything where it is validated");
  }
  return cases;
};

/** Many share an object; nobody attacks us with our own file. */
const shared = (document: Document, file: string): unknown => {
  try {
    return document.toJS({ maxAliasCount: -1 });
  } catch (error) {
    // An alias to nowhere.
    throw new Complaint(`${file}: ${sentenceOf(error)}`);
  }
};

const spoken = (words: readonly string[]) => `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

export const phaseOf = (entry: Case): Phase => (entry.mutate === undefined ? "validate" : "mutate");

export const operationOf = (entry: Case): Operation =>
  entry.operation ?? (entry.oldObject === undefined ? "CREATE" : "UPDATE");

/** The rule and its settings as a case has them. */
export const facetOf = (rule: Rule, { settings, variant }: Case) =>
  asVariant(rule, merge(rule.settings ?? {}, settings), variant);

/** The review that the API server would send for a case. */
export const reviewOf = ({ name, rule }: Listed, entry: Case): Review => {
  if (entry.request) return reviewWith(requestOf({ ...entry, request: entry.request }));
  const phase = phaseOf(entry);
  const operation = operationOf(entry);
  const given = entry[phase];
  const oldObject = operation === "DELETE" ? given : entry.oldObject;
  const { rule: facet, settings } = facetOf(rule, entry);
  const matches = inPhase(facet.match, phase, settings) ?? [];
  const ownPlural = given?.kind && plural(given.kind);
  const possible = matches.flatMap(({ resources }) => resources);
  const path = entry.resource ?? possible.find((one) => one === ownPlural) ?? possible[0] ?? "";
  const match = matches.find(({ resources }) => resources.includes(path)) ?? matches[0];
  const [resource = "", subResource] = path.split("/");
  // What the match leaves open, the object may say.
  const [ownVersion, ownGroup] = (given?.apiVersion ?? "v1").split("/").reverse();
  const said = (matched: string | undefined, own: string | undefined) => (matched === "*" ? own : matched) ?? "";
  const [group, version] = [said(match?.apiGroups[0], ownGroup), said(match?.apiVersions[0], ownVersion)];
  const kind = given?.kind ?? kinds[path];
  if (kind === undefined)
    throw new Complaint(`functions/${name}/cases.yaml: "${entry.name}" must say the kind of its object`);
  const gvk = { group, version: version || "v1", kind };
  const gvr = { group, version: version || "v1", resource };
  const metadata = given?.metadata ?? {};
  const ownNamespace = path === "namespaces" ? metadata.name : metadata.namespace;
  return reviewWith({
    uid,
    kind: gvk,
    resource: gvr,
    ...(subResource && { subResource, requestSubResource: subResource }),
    requestKind: gvk,
    requestResource: gvr,
    ...(metadata.name && { name: metadata.name }),
    ...(!clusterScoped.has(resource) && { namespace: entry.namespace ?? ownNamespace ?? "default" }),
    operation,
    userInfo: entry.user ?? { username: "jane", groups: ["developers", "system:authenticated"] },
    object: operation === "DELETE" ? null : given,
    oldObject: oldObject ?? null,
    dryRun: entry.dryRun ?? false,
    options: null,
  });
};

const reviewWith = (request: Request): Review =>
  check({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request });

const clusterScoped = new Set(["nodes", "persistentvolumes", "priorityclasses", "volumeattributesclasses"]);

/** Kinds that a case need not name. */
const kinds: Record<string, string> = {
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

/** The rule's decision on a review, under a case's settings and needs, in mode enforce. */
export const decideCase = async (
  { name, rule }: Listed,
  entry: Case,
  { request }: Review,
  world = recorded(entry.needs ?? {}),
): Promise<Decision> =>
  decide(rule, phaseOf(entry), request, {
    name,
    mode: "enforce",
    settings: frozen(facetOf(rule, entry).settings),
    variant: entry.variant,
    now: new Date(entry.now ?? "2026-01-01T00:00:00Z"),
    world,
  });

/** The event that has a function decide a case, with its settings, its world and its time in the place of its own. */
export const eventOf = (listed: Listed, entry: Case): object => {
  const { version, request } = reviewOf(listed, entry);
  const { variant, needs = {}, now = "2026-01-01T00:00:00Z" } = entry;
  const review = { kind: "AdmissionReview", apiVersion: `admission.k8s.io/${version}`, request };
  return { phase: phaseOf(entry), variant, review, settings: facetOf(listed.rule, entry).settings, needs, now };
};

/** An AdmissionReview that came back, as the decision that it was made from; undefined where it is none. */
export const decisionIn = (answer: unknown, uid: string): Decision | undefined => {
  const { kind, response } = Object(answer);
  if (kind !== "AdmissionReview" || Object(response).uid !== uid) return undefined;
  const { allowed, status, warnings, auditAnnotations: audit, patch } = response;
  const operations: Patch = patch === undefined ? [] : JSON.parse(Buffer.from(patch, "base64").toString());
  const outcome: Outcome = {
    allowed,
    ...(status && { status }),
    ...(warnings && { warnings }),
    ...(audit && { audit }),
    ...(patch && { patch: operations }),
  };
  return { outcome, refused: !allowed, operations: operations.length };
};

/** The object with the outcome's patch, as the API server applies it. */
export const patched = (object: unknown, { patch }: Outcome): unknown =>
  patch === undefined ? object : jsonPatch.applyPatch(structuredClone(object), patch, true).newDocument;

/** What differs from what a case says, in sentences; none where it holds. */
export const differences = (entry: Case, { outcome }: Decision): string[] => {
  const { status } = outcome;
  const differs = (what: string, expected: unknown, actual: unknown) =>
    isDeepStrictEqual(expected, actual)
      ? []
      : [`${what} is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`];

  return [
    ...differs("the refusal", entry.refused, status?.message),
    ...(status === undefined ? [] : differs("the code", entry.code ?? 403, status.code)),
    ...(status === undefined
      ? []
      : differs("the reason", entry.reason === undefined ? "Forbidden" : entry.reason, status.reason ?? null)),
    ...(entry.details === undefined ? [] : differs("what its details say", entry.details, status?.details)),
    ...(entry.mutate && entry.refused === undefined
      ? unlike(entry.becomes ?? entry.mutate, patched(entry.mutate, outcome))
      : []),
    ...differs("what it warns of", entry.warnings ?? [], outcome.warnings ?? []),
    ...differs("what it says to the audit log", entry.audit ?? {}, outcome.audit ?? {}),
  ];
};

/** The same for a person: a difference between what the case says (-) and what the rule does (+), line by line. */
export const describeDifferences = (entry: Case, decision: Decision): string[] => {
  const sentences = differences(entry, decision);
  if (sentences.length === 0) return [];
  const [expected, actual] = [expectedOf(entry), actualOf(entry, decision)];
  const hunks = difference(expected, [{ rule: "", after: inOrderOf(expected, actual) }]);
  if (hunks.length === 0) return sentences;
  const text = hunks.map(({ lines }) => lines.map(({ sign, text }) => `${sign} ${text}`));
  return [
    "the case says (-), the rule does (+):",
    ...text.flatMap((lines, index) => (index > 0 ? ["…", ...lines] : lines)),
  ];
};

/** What a case says of the outcome, as cases.yaml would say all of it. */
const expectedOf = (entry: Case): object => {
  const { refused, code = 403, reason = "Forbidden", details, warnings = [], audit = {} } = entry;
  const outcome = entry.mutate ? { becomes: entry.becomes ?? entry.mutate } : { admitted: true };
  return {
    ...(refused === undefined ? outcome : { refused, code, reason, ...(details && { details }) }),
    ...(warnings.length > 0 && { warnings }),
    ...(Object.keys(audit).length > 0 && { audit }),
  };
};

/** The same of what a rule decided. */
const actualOf = (entry: Case, { outcome }: Decision): object => {
  const { status, warnings = [], audit = {} } = outcome;
  return expectedOf({
    ...{ name: entry.name, warnings, audit },
    ...(status === undefined
      ? { ...(entry.mutate && { mutate: entry.mutate, becomes: patched(entry.mutate, outcome) as KubernetesObject }) }
      : {
          refused: status.message ?? "",
          code: status.code ?? 0,
          reason: status.reason ?? null,
          ...(entry.details && { details: status.details }),
        }),
  });
};

/** The same value with the keys of its maps in the order of another one: their order means nothing. */
const inOrderOf = (model: unknown, value: unknown): unknown => {
  if (Array.isArray(value))
    return value.map((one, index) => inOrderOf(Array.isArray(model) ? model[index] : undefined, one));
  if (!isMap(value)) return value;
  const order = isMap(model) ? model : {};
  const keys = [...new Set([...Object.keys(order).filter((key) => Object.hasOwn(value, key)), ...Object.keys(value)])];
  return Object.fromEntries(keys.map((key) => [key, inOrderOf(order[key], value[key])]));
};

/** Where an object isn't as it was expected, place by place: most of a large one is. */
const unlike = (expected: object, actual: unknown): string[] => {
  if (isDeepStrictEqual(expected, actual)) return [];
  const places = jsonPatch.compare(expected, Object(actual)).map(({ path, ...found }) => {
    const wanted: unknown = found.op === "add" ? undefined : jsonPatch.getValueByPointer(expected, path);
    const present = "value" in found ? JSON.stringify(found.value) : "nothing";
    return `the object has ${present} at ${path}, not ${JSON.stringify(wanted) ?? "nothing"}`;
  });
  return places.length > 0 ? places : [`the object is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`];
};

import { admit } from "#infra/apiserver/admission/admit.ts";
import type { Hook, Hooks } from "#infra/apiserver/admission/hooks.ts";
import { notConverted } from "#infra/apiserver/admission/matching.ts";
import type { Around, Attributes, Called, Cel, Sent, Step, Trace } from "#infra/apiserver/admission/trace.ts";
import { own } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { fill } from "../../apiserver/defaults/filled.ts";
import type { Kind, Kinds } from "../../apiserver/kinds/kinds.ts";
import { isDefinable, unknownKind } from "../../apiserver/kinds/unknown.ts";
import { sentenceOf } from "../../cli/complaint.ts";
import type { Checked, Denial } from "../checked.ts";
import type { Manifest, Path } from "../manifests/documents.ts";
import { positionOf } from "../manifests/positions.ts";
import type { Existing } from "./existing-objects.ts";
import { fieldOf, stepsIn } from "./fields.ts";
import { findingsIn } from "./findings.ts";
import { podOf } from "./pod-templates.ts";
import { type Asking, inApplyOrder, isReview, received, recordedRequest, requestOf, type Subject } from "./requests.ts";
import type { Unevaluated } from "./unevaluated.ts";

/** What became of one object, with all that its report may want to show. */
export interface Judged {
  subject: Pick<Subject, "manifest" | "made"> & Partial<Pick<Subject, "attributes">>;
  checked: Checked;
  /** What the rules' modes had them tell the audit log. */
  audit: Record<string, string>;
  /** What hooks were asked, or would be. */
  steps: Step[];
  /** The object as it came to the first of them, and as it left the last. */
  before: unknown;
  after: unknown;
}

/** What objects are judged with. */
export interface Court {
  kinds: Kinds;
  existing: Omit<Existing, "world">;
  hooks: Pick<Hooks, "mutating" | "validating">;
  call(hook: Hook, review: Sent): Promise<Called>;
  cel: Cel;
  /** How a hook is called in a report. */
  nameOf(hook: string, message?: string): string;
  /** What a rule suggests that refused in a step, where it can say; `at` is where the object stands in its manifest. */
  suggestionOf(rule: string, step: Step, at: Path): Promise<string | undefined>;
  asking: Omit<Asking, "operation"> & { operation: Asking["operation"] | undefined };
  /** What updates are made to; deletions and creations need none. */
  old: ReadonlyMap<string, KubernetesObject>;
  alsoPods: boolean;
  /** Whether it is known what exists; where it isn't, namespaces that objects name count as there. */
  isWorldKnown: boolean;
  unevaluated: Unevaluated;
  /** Where more could be known of namespaces. */
  moreOf: string;
  /** Hears of a namespace that nobody described. */
  missing(namespace: string): void;
}

/** What tells an object from all others. */
export const keyOf = ({ resource: { group, resource } }: Kind, { metadata = {} }: KubernetesObject): string =>
  JSON.stringify([group, resource, metadata.namespace ?? "", metadata.name ?? ""]);

/** Judges them one after the other, each where those before it exist. */
export const judgeAll = async function* (manifests: readonly Manifest[], court: Court): AsyncGenerator<Judged> {
  const order = court.asking.operation === "DELETE" ? manifests : inApplyOrder(manifests, (one) => one);
  for (const manifest of order) {
    const judged = isReview(manifest) ? await ofReview(manifest, court) : await ofManifest(manifest, court);
    yield judged;
    if (court.alsoPods && judged.checked.verdict !== "denied") yield* madeBy(judged, court);
  }
};

const ofReview = async (manifest: Manifest, court: Court): Promise<Judged> => {
  try {
    return await judge({ attributes: recordedRequest(manifest), manifest }, court);
  } catch (error) {
    return undecided(manifest, Object(manifest.object), sentenceOf(error));
  }
};

const ofManifest = async (manifest: Manifest, court: Court): Promise<Judged> => {
  const { kinds, asking, existing } = court;
  const { apiVersion, kind: word } = manifest.object;
  const kind = kinds.of(String(apiVersion), String(word));
  if (kind === undefined && !mayConcern(manifest, court))
    return unasked(manifest, manifest.object, { verdict: "allowed", noRule: true });
  if (kind === undefined) return undecided(manifest, manifest.object, unknownKind(String(apiVersion), String(word)));
  const object = received(manifest.object, kind, { ...asking, operation: "CREATE" });
  const { name = "", namespace } = object.metadata ?? {};
  const stored =
    court.old.get(keyOf(kind, object)) ?? (name === "" ? undefined : existing.find(kind.resource, name, namespace));
  // An API server reads it in the version that it is asked in.
  const there = stored && (kinds.convert(stored, kind.kind) as KubernetesObject | undefined);
  const operation = asking.operation ?? (stored === undefined ? "CREATE" : "UPDATE");
  if (stored !== undefined && there === undefined && operation !== "CREATE")
    return undecided(manifest, object, notConverted({ kind: kindOf(stored) }, kind.kind));
  if (operation === "UPDATE" && there === undefined)
    return undecided(manifest, object, "there is nothing to update; --old or --state must hold it as it is now");
  const filled = fill(object);
  const misfits = [
    ...filled.misfits,
    ...(isNameless(object, kind) ? ["metadata.name or generateName is required"] : []),
  ];
  if (misfits.length > 0 && operation !== "DELETE") return misread(manifest, object, misfits);
  // What goes away is what is there, and only its name comes from a manifest.
  const whole = operation === "DELETE" ? (there ?? filled.object) : filled.object;
  const attributes = requestOf(whole, operation === "UPDATE" ? (there ?? null) : null, kind, {
    ...asking,
    operation,
  });
  const judged = await judge({ attributes, manifest }, court);
  for (const stray of operation === "DELETE" ? [] : filled.strays)
    judged.checked.warnings.push({ rule: "field validation", text: `unknown field ${JSON.stringify(stray)}` });
  return judged;
};

/** Reports whether an entry, a policy or a quota may be about an object of an unknown kind, by its group and version. */
const mayConcern = ({ object }: Manifest, { hooks, unevaluated, asking }: Court): boolean => {
  const { group, version } = splitApiVersion(String(object.apiVersion));
  const { namespace } = Object(object.metadata);
  const operations = asking.operation === undefined ? (["CREATE", "UPDATE"] as const) : [asking.operation];
  return (
    // Kubernetes has moved its own kinds between groups, so that an entry for another group may be about one.
    !isDefinable(group) ||
    unevaluated.countsGroup(group, namespace || asking.namespace) ||
    [...hooks.mutating, ...hooks.validating, ...unevaluated.hooks].some(({ rules, matchPolicy }) =>
      rules.some(
        (rule) =>
          includes(rule.apiGroups, group) &&
          (matchPolicy === "Equivalent" || includes(rule.apiVersions, version)) &&
          operations.some((operation) => includes(rule.operations, operation)) &&
          rule.resources.some((resource) => /^[^/]*(\/\*)?$/.test(resource)),
      ),
    )
  );
};

const includes = (wanted: readonly string[], one: string): boolean => wanted.includes("*") || wanted.includes(one);

const kindOf = ({ apiVersion = "", kind = "" }: KubernetesObject) => ({ ...splitApiVersion(apiVersion), kind });

/** Questions to the API server are asked without a name. */
const isNameless = ({ metadata }: KubernetesObject, { resource: { group } }: Kind): boolean =>
  !metadata?.name && !metadata?.generateName && !/^auth(entication|orization)\.k8s\.io$/.test(group);

/** The Pods that a workload would make, judged as its controller would create them. */
export const madeBy = async function* ({ subject, after }: Judged, court: Court): AsyncGenerator<Judged> {
  const { manifest } = subject;
  // What goes away makes nothing any more.
  if (subject.attributes?.operation === "DELETE") return;
  const workload = after as KubernetesObject;
  const made = after === null || after === undefined ? undefined : podOf(workload);
  const kind = made && court.kinds.of("v1", "Pod");
  if (made === undefined || kind === undefined) return;
  const filled = fill(made.pod);
  const attributes = requestOf(filled.object, null, kind, { ...court.asking, operation: "CREATE", user: made.user });
  const { apiVersion, kind: word, name } = basics(manifest, workload);
  const by = { apiVersion, kind: word, name };
  yield await judge({ attributes, manifest, made: { by, at: made.at } }, court);
};

const basics = ({ source, line }: Manifest, object: unknown) => {
  const [metadata, name] = [own(object, "metadata"), (key: string) => own(own(object, "metadata"), key)];
  const [said, namespace] = [name("name") ?? name("generateName"), own(metadata, "namespace")];
  return {
    file: source.name,
    line,
    apiVersion: String(own(object, "apiVersion") ?? ""),
    kind: String(own(object, "kind") ?? ""),
    ...(typeof namespace === "string" && { namespace }),
    name: typeof said === "string" ? said : "",
  };
};

const nothing = { denials: [], warnings: [], changes: [], undecided: [], passed: [] };

/** Nobody was asked. */
const unasked = (manifest: Manifest, object: unknown, checked: Partial<Checked> & Pick<Checked, "verdict">): Judged => {
  return {
    subject: { manifest },
    checked: { ...basics(manifest, object), ...nothing, ...checked },
    ...{ audit: {}, steps: [], before: null, after: null },
  };
};

const undecided = (manifest: Manifest, object: unknown, sentence: string): Judged =>
  unasked(manifest, object, { verdict: "undecided", undecided: [sentence] });

/** What can't be read, no admission sees. */
const misread = (manifest: Manifest, object: KubernetesObject, sentences: readonly string[]): Judged => {
  const denials = sentences.map((message): Denial => {
    const { line, column } = positionOf(
      manifest,
      fieldOf(manifest.object, { message, code: 400 }, stepsIn(message.split(" ", 1)[0] ?? "")),
    );
    return { rule: "the API server", message, code: 400, reason: "BadRequest", line, column };
  });
  return unasked(manifest, object, { verdict: "denied", denials });
};

/** Sends one request through the chain. */
export const judge = async (subject: Subject, court: Court): Promise<Judged> => {
  const { attributes, manifest, made } = subject;
  assumeOld(attributes, court);
  const assumed = assumeNamespace(attributes, court);
  const trace = await admit(attributes, court.hooks, around(court));
  const unevaluated = court.unevaluated.findMatching(attributes, trace.object, around(court), assumed);
  if (trace.allowed && !made) remember(attributes, trace, court);
  const before = attributes.object ?? attributes.oldObject;
  const after = attributes.object === null || attributes.object === undefined ? before : trace.object;
  return {
    subject,
    checked: {
      ...basics(manifest, before),
      ...(made && { madeBy: made.by }),
      ...(await findingsIn(trace, subject, court, assumed, unevaluated)),
    },
    audit: trace.audit,
    steps: trace.steps,
    before,
    after,
  };
};

const around = ({ kinds, existing, call, cel }: Court): Around & { cel: Cel } => ({
  namespaceOf: (name) => existing.find(namespaces, name),
  equivalents: kinds.equivalents,
  convert: kinds.convert,
  fill: (object) => {
    const { object: whole, misfits } = fill(object as KubernetesObject);
    if (misfits[0] !== undefined) throw new Error(misfits[0]);
    return whole;
  },
  call,
  cel,
});

const namespaces = { group: "", resource: "namespaces" };

/** What an update or a deletion is about is there, whoever says so. */
const assumeOld = ({ resource, subResource, oldObject }: Attributes, { existing }: Court): void => {
  const { name, namespace } = Object(Object(oldObject).metadata);
  if (subResource || typeof name !== "string" || name === "") return;
  if (existing.find(resource, name, namespace) === undefined) existing.put(resource, oldObject as KubernetesObject);
};

/** Of a namespace that nobody described nothing is known but its name; says whether it is such a one. */
const assumeNamespace = ({ namespace, resource, operation }: Attributes, court: Court): boolean => {
  const { existing, isWorldKnown, missing } = court;
  const isItself = resource.group === "" && resource.resource === "namespaces" && operation !== "DELETE";
  if (!namespace || isItself) return false;
  const found = existing.find(namespaces, namespace);
  if (found === undefined) missing(namespace);
  if (found !== undefined || isWorldKnown) return found !== undefined && bare.has(found);
  const labels = { "kubernetes.io/metadata.name": namespace };
  const assumed = {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: namespace, labels },
    status: { phase: "Active" },
  };
  existing.put(namespaces, assumed);
  bare.add(assumed);
  return true;
};

const bare = new WeakSet<object>();

/** What is admitted is there for those that come after, and what is deleted is not; but a namespace takes its time. */
const remember = (attributes: Attributes, { object }: Trace, { existing }: Court): void => {
  const { resource, subResource, operation, oldObject, dryRun } = attributes;
  if (dryRun || subResource || operation === "CONNECT") return;
  const { name, namespace } = Object(Object(operation === "DELETE" ? oldObject : object).metadata);
  if (typeof name !== "string" || name === "") return;
  if (operation === "DELETE" && resource.group === "" && resource.resource === "namespaces")
    existing.put(resource, ending(oldObject as KubernetesObject));
  else if (operation === "DELETE") existing.remove(resource, name, namespace);
  else existing.put(resource, object as KubernetesObject);
};

/** A namespace from which everything has to go before it does. */
const ending = ({ metadata, ...namespace }: KubernetesObject): KubernetesObject => {
  const gone = { deletionTimestamp: new Date().toISOString().replace(/\.\d+/, "") };
  const ended = { ...namespace, metadata: { ...metadata, ...gone }, status: { phase: "Terminating" } };
  return ended;
};

import { runAdmissionChain } from "#infra/apiserver/admission/admit.ts";
import { celEvaluator } from "#infra/apiserver/admission/conditions.ts";
import { type DefaultedWebhookEntry, parseWebhookConfigurations } from "#infra/apiserver/admission/hooks.ts";
import { parseWebhookHttpAnswer } from "#infra/apiserver/admission/http.ts";
import type {
  AdmissionAttributes,
  AdmissionTrace,
  HookCallResult,
  ReviewToSend,
} from "#infra/apiserver/admission/types.ts";
import { fillDefaults, prepareForStorage } from "#infra/apiserver/defaults/defaults.ts";
import { isMap } from "#lib/json.ts";
import type { AdmissionRequest, GroupVersionKind } from "#lib/review.ts";
import type { TestClusterResponse } from "../../control-plane/client.ts";
import { observer, type ScriptedSet } from "./sets.ts";
import { namespaces } from "./writes.ts";

/** A webhook's name, and the request that it got. */
export interface Call {
  hook: string;
  request: AdmissionRequest;
}

/** The API server's response to a write, the calls of webhooks that it made, and its audit annotations. */
export interface ObservedWrite {
  answer: TestClusterResponse;
  calls: Call[];
  annotations: Record<string, string>;
}

/**
 * Runs Postern's admission chain for a write. `firstRequest` is the request that the first webhook got for this write:
 * it has the attributes of the write, and the object before a webhook changed it.
 */
export const predict = async (
  set: ScriptedSet,
  manifests: unknown[],
  firstRequest: AdmissionRequest,
  minor: string,
): Promise<AdmissionTrace> => {
  const { uid: _, requestKind: __, requestResource: ___, requestSubResource: ____, ...attributes } = firstRequest;
  return runAdmissionChain(attributes as AdmissionAttributes, parseWebhookConfigurations(manifests, minor), {
    kubernetes: minor,
    findNamespace: (name) => {
      const labels = namespaces[name];
      return labels && { metadata: { name, labels } };
    },
    equivalents: ({ group, version, resource }) => {
      const otherVersions = (servedVersions[`${group}/${resource}`] ?? []).filter((other) => other !== version);
      return otherVersions.map((other) => ({ group, version: other, resource }));
    },
    convert,
    // The defaults, which the API server sets before and between webhooks.
    addDefaults: (object, step) => (isMap(object) ? fillDefaults(object, minor, step).object : object),
    // The changes that the API server makes between mutating and validating webhooks.
    prepare: (object) => (isMap(object) ? prepareForStorage(object, minor) : object),
    call: async (hook, review) => callScript(set, hook, review),
    cel: celEvaluator,
  });
};

/** The versions of the kinds that the API server serves in two versions, in any order. */
const servedVersions: Record<string, string[]> = {
  "autoscaling/horizontalpodautoscalers": ["v2", "v1"],
  "example.com/widgets": ["v1", "v2"],
};

/** Returns the answer of a webhook's script. A script without an answer stands for a webhook that never answers. */
const callScript = (
  set: ScriptedSet,
  hook: DefaultedWebhookEntry,
  { apiVersion, request }: ReviewToSend,
): HookCallResult | Promise<HookCallResult> => {
  const answer = set.scripts[getHookKey(hook)]?.answer(request, apiVersion);
  if (!answer) return new Promise(() => {});
  const { code = 200, type = "application/json", body } = answer;
  return parseWebhookHttpAnswer({ code, type, text: body });
};

/** Returns the key of a webhook's script: the first segment of the webhook's URL path. */
export const getHookKey = ({ clientConfig: { url = "" } }: Pick<DefaultedWebhookEntry, "clientConfig">): string =>
  new URL(url).pathname.split("/")[1] ?? "";

/** Converts objects between the versions of the kinds that the test writes. */
const convert = (object: unknown, to: GroupVersionKind): unknown => {
  if (!isMap(object)) return undefined;
  const apiVersion = `${to.group}/${to.version}`;
  if (object.apiVersion === apiVersion) return object;
  if (to.group === "example.com") return { ...object, apiVersion };
  const { metrics, targetCPUUtilizationPercentage, ...spec } = Object(object.spec);
  if (to.version === "v1") {
    const { averageUtilization } = Object(Object(Object(metrics?.[0]).resource).target);
    return { ...object, apiVersion, spec: { ...spec, targetCPUUtilizationPercentage: averageUtilization } };
  }
  const target = { type: "Utilization", averageUtilization: targetCPUUtilizationPercentage };
  const cpuMetrics = [{ type: "Resource", resource: { name: "cpu", target } }];
  return { ...object, apiVersion, spec: { ...spec, metrics: cpuMetrics } };
};

/** Returns a line for each difference between the prediction and the API server's behaviour. */
export const listDifferences = (trace: AdmissionTrace, observed: ObservedWrite): string[] => {
  const { answer, calls, annotations } = observed;
  if (trace.undecided.length > 0) return trace.undecided.map((reason) => `can't say: ${reason}`);
  const calledSteps = trace.steps.filter(({ outcome, request }) => outcome === "called" && request);
  const listPhaseCalls = (phase: string) => calledSteps.filter((step) => step.phase === phase).map(toCall);
  const mutating = listPhaseCalls("mutate");
  const actualCalls = calls.map(({ hook, request }) => ({ hook, request: normalizeRequest(request) }));
  const differences: string[] = [];
  const compare = (what: string, predicted: unknown, actual: unknown) =>
    differences.push(...compareValues(sortKeys(predicted), sortKeys(actual), what).slice(0, 3));
  // The API server calls mutating webhooks one by one, and then all validating webhooks at once.
  compare("calls of hooks that mutate", mutating, actualCalls.slice(0, mutating.length));
  const sortByHook = (list: { hook: string }[]) => list.toSorted((left, right) => (left.hook < right.hook ? -1 : 1));
  compare(
    "calls of hooks that validate",
    sortByHook(listPhaseCalls("validate")),
    sortByHook(actualCalls.slice(mutating.length)),
  );
  // Node reads headers as bytes, not as UTF-8.
  const warnings = answer.warnings.map((text) => Buffer.from(text, "latin1").toString());
  compare("warnings", trace.warnings.toSorted(), warnings.toSorted());
  compare("annotations", trace.audit, annotations);

  const isRefused = answer.code >= 400;
  if (trace.allowed) {
    const isWithoutObject = isMap(answer.body) && answer.body.kind === "Status";
    if (isRefused) {
      // The cluster has no kubelet, so an exec that admission allows still fails.
      if (!calledSteps.some(({ request }) => request?.operation === "CONNECT"))
        differences.push(`allowed, but ${JSON.stringify(answer)}`);
    } else if (!isWithoutObject && calledSteps[0]?.request?.operation !== "DELETE")
      // The API server doesn't store empty maps and lists in an object's metadata.
      compare(
        "object",
        normalizeObject(addGeneratedName(trace.object), { dropEmptyMetadata: true }),
        normalizeObject(answer.body),
      );
  } else {
    const selectFields = ({ code, reason, message, details }: Record<string, unknown>) =>
      maskRandomValues({ code, reason, message, details });
    const refusal = selectFields(answer.body);
    // If several webhooks deny a request, the API server answers with any of these denials.
    const possible = trace.refusals.map((one) => selectFields({ ...one }));
    if (!possible.some((one) => JSON.stringify(sortKeys(one)) === JSON.stringify(sortKeys(refusal))))
      compare("refusal", possible.length === 1 ? possible[0] : possible, refusal);
  }
  return differences;
};

const toCall = ({ hook, request }: AdmissionTrace["steps"][number]) => ({
  hook,
  request: normalizeRequest(request as AdmissionRequest),
});

/** Returns a request without random values and without fields that the server sets. */
const normalizeRequest = ({ uid: _, object, oldObject, ...request }: AdmissionRequest) =>
  maskRandomValues({ ...request, object: normalizeObject(object), oldObject: normalizeObject(oldObject) });

/** The fields of metadata that the API server sets. */
const serverFields = [
  "uid",
  "creationTimestamp",
  "resourceVersion",
  "managedFields",
  "generation",
  "deletionTimestamp",
  "deletionGracePeriodSeconds",
];

/** Reports whether a value is null, or an empty map or list. */
const isEmpty = (value: unknown) => typeof value === "object" && Object.keys(Object(value)).length === 0;

/**
 * Returns an object without status, random values, fields that the server sets, and members of its metadata that are
 * null or, with `dropEmptyMetadata`, empty.
 */
const normalizeObject = (object: unknown, { dropEmptyMetadata = false } = {}): unknown => {
  if (!isMap(object)) return object ?? null;
  const { status: _, ...rest } = object;
  // The API server sets the spec of a namespace when it stores the namespace.
  if (object.kind === "Namespace") delete rest.spec;
  const metadata = Object.entries(Object(object.metadata)).filter(
    ([key, value]) => !serverFields.includes(key) && !(dropEmptyMetadata ? isEmpty(value) : value === null),
  );
  return maskRandomValues({ ...rest, metadata: Object.fromEntries(metadata) });
};

/** Adds a name to an object that has only a generateName. The suffix looks like a random one, for maskRandomValues. */
const addGeneratedName = (object: unknown): unknown => {
  const { generateName, name } = Object(Object(object).metadata);
  if (!generateName || name) return object;
  return { ...Object(object), metadata: { ...Object(object).metadata, name: `${generateName}bcdfg` } };
};

/** Replaces random suffixes, as in `g-x7k2p`, and uids. */
const maskRandomValues = <T>(value: T): T =>
  JSON.parse(
    JSON.stringify(value ?? null)
      .replaceAll(/\bg-[bcdfghjklmnpqrstvwxz2456789]{5}\b/g, "g-?")
      .replaceAll(/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, "?"),
  );

/** Sorts the keys of all maps in a value, and removes members that are undefined. */
const sortKeys = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (!isMap(value)) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(
    entries.sort(([left], [right]) => (left < right ? -1 : 1)).map(([key, item]) => [key, sortKeys(item)]),
  );
};

/** Returns the request that the observer got. The observer is the first webhook, so the object is unchanged. */
export const findFirstRequest = (calls: Call[]): AdmissionRequest | undefined =>
  calls.find(({ hook }) => hook === observer)?.request;

/** Returns a line for each path at which two values differ, with both values. */
const compareValues = (predicted: unknown, actual: unknown, path: string): string[] => {
  const areBothMapsOrLists = Array.isArray(predicted) ? Array.isArray(actual) : isMap(predicted) && isMap(actual);
  const [left, right]: Record<string, unknown>[] = [Object(predicted), Object(actual)];
  if (areBothMapsOrLists)
    return [...new Set([...Object.keys(left ?? {}), ...Object.keys(right ?? {})])].flatMap((key) =>
      compareValues(left?.[key], right?.[key], `${path}.${key}`),
    );
  const [text, otherText] = [predicted, actual].map((value) => JSON.stringify(value));
  return text === otherText ? [] : [`${path}: predicted ${text}, but it was ${otherText}`];
};

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

/** A call that a hook got. */
export interface Call {
  hook: string;
  request: AdmissionRequest;
}

/** The response to a write, the calls of hooks, and the audit annotations. */
export interface ObservedWrite {
  answer: TestClusterResponse;
  calls: Call[];
  annotations: Record<string, string>;
}

/** Runs our admission chain for a request as the first hook got it. */
export const predict = async (
  set: ScriptedSet,
  manifests: unknown[],
  seen: AdmissionRequest,
  minor: string,
): Promise<AdmissionTrace> => {
  const { uid: _, requestKind: __, requestResource: ___, requestSubResource: ____, ...attributes } = seen;
  return await runAdmissionChain(attributes as AdmissionAttributes, parseWebhookConfigurations(manifests, minor), {
    kubernetes: minor,
    findNamespace: (name) => {
      const labels = namespaces[name];
      return labels && { metadata: { name, labels } };
    },
    equivalents: ({ group, version, resource }) => {
      const others = versions[`${group}/${resource}`] ?? [];
      return others.filter((other) => other !== version).map((other) => ({ group, version: other, resource }));
    },
    convert,
    fill: (object, step) => (isMap(object) ? fillDefaults(object, minor, step).object : object),
    prepare: (object) => (isMap(object) ? prepareForStorage(object, minor) : object),
    call: async (hook, review) => callScript(set, hook, review),
    cel: celEvaluator,
  });
};

const versions: Record<string, string[]> = {
  "autoscaling/horizontalpodautoscalers": ["v2", "v1"],
  "example.com/widgets": ["v1", "v2"],
};

const callScript = (
  set: ScriptedSet,
  hook: DefaultedWebhookEntry,
  { apiVersion, request }: ReviewToSend,
): HookCallResult | Promise<HookCallResult> => {
  const answer = set.scripts[getHookKey(hook)]?.answer(request, apiVersion);
  if (answer)
    return parseWebhookHttpAnswer({
      code: answer.code ?? 200,
      type: answer.type ?? "application/json",
      text: answer.body,
    });
  return new Promise(() => {});
};

/** The first segment of the path at which a hook is called. */
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
  return {
    ...object,
    apiVersion,
    spec: { ...spec, metrics: [{ type: "Resource", resource: { name: "cpu", target } }] },
  };
};

/** Returns the differences between the prediction and what happened, one a line. */
export const listDifferences = (trace: AdmissionTrace, happened: ObservedWrite): string[] => {
  const { answer, calls, annotations } = happened;
  if (trace.undecided.length > 0) return trace.undecided.map((one) => `can't say: ${one}`);
  const expected = trace.steps.filter(({ outcome, request }) => outcome === "called" && request);
  const listPhaseCalls = (phase: string) => expected.filter((step) => step.phase === phase).map(toCall);
  const mutating = listPhaseCalls("mutate");
  const real = calls.map(({ hook, request }) => ({ hook, request: normalizeRequest(request) }));
  const found: string[] = [];
  const compare = (what: string, predicted: unknown, actual: unknown) =>
    found.push(...compareValues(sortKeys(predicted), sortKeys(actual), what).slice(0, 3));
  compare("calls of hooks that mutate", mutating, real.slice(0, mutating.length));
  const sortByHook = (list: { hook: string }[]) => list.toSorted((left, right) => (left.hook < right.hook ? -1 : 1));
  compare(
    "calls of hooks that validate",
    sortByHook(listPhaseCalls("validate")),
    sortByHook(real.slice(mutating.length)),
  );
  // Node reads headers as bytes, not as UTF-8.
  const warnings = answer.warnings.map((text) => Buffer.from(text, "latin1").toString());
  compare("warnings", trace.warnings.toSorted(), warnings.toSorted());
  compare("annotations", trace.audit, annotations);

  const isRefused = answer.code >= 400;
  if (trace.allowed) {
    const isGone = isMap(answer.body) && answer.body.kind === "Status";
    if (isRefused) {
      // The cluster has no kubelet, so an admitted exec still fails.
      if (!expected.some(({ request }) => request?.operation === "CONNECT"))
        found.push(`allowed, but ${JSON.stringify(answer)}`);
    } else if (!isGone && expected[0]?.request?.operation !== "DELETE")
      compare("object", normalizeObject(addGeneratedName(trace.object), isFull), normalizeObject(answer.body));
  } else {
    const { code, reason, message, details } = answer.body;
    const refusal = maskRandomValues({ code, reason, message, details });
    const possible = trace.refusals.map(({ code, reason, message, details }) =>
      maskRandomValues({ code, reason, message, details }),
    );
    if (!possible.some((expected) => JSON.stringify(sortKeys(expected)) === JSON.stringify(sortKeys(refusal))))
      compare("refusal", possible.length === 1 ? possible[0] : possible, refusal);
  }
  return found;
};

const toCall = ({ hook, request }: AdmissionTrace["steps"][number]) => ({
  hook,
  request: normalizeRequest(request as AdmissionRequest),
});

/** Returns a request without random values and fields that the server sets. */
const normalizeRequest = ({ uid: _, object, oldObject, ...request }: AdmissionRequest) =>
  maskRandomValues({ ...request, object: normalizeObject(object), oldObject: normalizeObject(oldObject) });

const serverFields = [
  "uid",
  "creationTimestamp",
  "resourceVersion",
  "managedFields",
  "generation",
  "deletionTimestamp",
  "deletionGracePeriodSeconds",
];

/** Reports whether a member of metadata is stored: empty maps and lists are not. */
const isFull = (value: unknown) => Object.keys(Object(value)).length > 0 || typeof value !== "object";

const normalizeObject = (object: unknown, isKept: (value: unknown) => boolean = (value) => value !== null): unknown => {
  if (!isMap(object)) return object ?? null;
  const { status: _, ...rest } = object;
  // The API server sets the spec of a namespace when it stores the namespace.
  if (object.kind === "Namespace") delete rest.spec;
  const metadata = Object.entries(Object(object.metadata)).filter(
    ([key, value]) => !serverFields.includes(key) && isKept(value),
  );
  return maskRandomValues({ ...rest, metadata: Object.fromEntries(metadata) });
};

/** Adds a name to an object that has only a generateName. */
const addGeneratedName = (object: unknown): unknown => {
  const { generateName, name } = Object(Object(object).metadata);
  if (!generateName || name) return object;
  return { ...Object(object), metadata: { ...Object(object).metadata, name: `${generateName}bcdfg` } };
};

/** Replaces random suffixes and uids. */
const maskRandomValues = <T>(value: T): T =>
  JSON.parse(
    JSON.stringify(value ?? null)
      .replaceAll(/\bg-[bcdfghjklmnpqrstvwxz2456789]{5}\b/g, "g-?")
      .replaceAll(/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, "?"),
  );

const sortKeys = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (!isMap(value)) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(
    entries.sort(([left], [right]) => (left < right ? -1 : 1)).map(([key, item]) => [key, sortKeys(item)]),
  );
};

/** Returns the request of the first call, which has the object before any hook changed it. */
export const findFirstRequest = (calls: Call[]): AdmissionRequest | undefined =>
  calls.find(({ hook }) => hook === observer)?.request;

/** Returns the paths at which two values differ, with both values. */
const compareValues = (predicted: unknown, actual: unknown, place: string): string[] => {
  const isPair = Array.isArray(predicted) ? Array.isArray(actual) : isMap(predicted) && isMap(actual);
  const [left, right]: Record<string, unknown>[] = [Object(predicted), Object(actual)];
  if (isPair)
    return [...new Set([...Object.keys(left ?? {}), ...Object.keys(right ?? {})])].flatMap((key) =>
      compareValues(left?.[key], right?.[key], `${place}.${key}`),
    );
  const [text, otherText] = [predicted, actual].map((value) => JSON.stringify(value));
  return text === otherText ? [] : [`${place}: predicted ${text}, but it was ${otherText}`];
};

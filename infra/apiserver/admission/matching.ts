import { Failure } from "#lib/failure.ts";
import { isMap, isSame } from "#lib/json.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import { isSelected, type LabelSelector } from "#lib/objects/selection.ts";
import { forbidden, joinErrors, notFound } from "#lib/refusals.ts";
import { matchesRequest } from "#lib/request-match.ts";
import type { AdmissionRequest, GroupVersionKind, GroupVersionResource, Status } from "#lib/review.ts";
import type { DefaultedWebhookEntry } from "./hooks.ts";
import type { AdmissionAttributes, ImitatedServerFunctions } from "./types.ts";

/** The object and the old object of a request, both in the version of `kind`. */
export interface RequestObjectsInVersion {
  kind: GroupVersionKind;
  object: unknown;
  oldObject: unknown;
}

/** Holds a request's objects while hooks change them, and converts them to the version that each hook asks for. */
export interface ConvertibleRequestObjects {
  /** A request's object and old object, in the kind and version to which they were last converted. */
  readonly latest: RequestObjectsInVersion;
  /** Converts the object and the old object to a kind and version; undefined if the conversion is unknown. */
  convertTo(kind: GroupVersionKind): RequestObjectsInVersion | undefined;
  /** Replaces the request's object by one in the kind and version of `latest`. */
  replaceObject(object: unknown): void;
}

/** Keeps a request's objects, and converts them for hooks that ask for another version. */
export const createConvertibleRequestObjects = (
  { kind, object, oldObject }: AdmissionAttributes,
  convert: ImitatedServerFunctions["convert"],
): ConvertibleRequestObjects => {
  // `latest` is a plain member that is assigned again. A getter (`get latest()`) would keep the request's objects in
  // memory until V8's next full garbage collection.
  const view = {
    latest: { kind, object, oldObject },
    convertTo: (wanted: GroupVersionKind) => {
      const { latest } = view;
      if (latest.kind === wanted || isSame(latest.kind, wanted)) return latest;
      const old = isSame(wanted, kind) ? oldObject : convertObject(oldObject, wanted, convert);
      const now = convertObject(latest.object, wanted, convert);
      if (old === undefined || now === undefined) return undefined;
      view.latest = { kind: wanted, object: now, oldObject: old };
      return view.latest;
    },
    replaceObject: (object: unknown) => {
      view.latest = { ...view.latest, object };
    },
  };
  return view;
};

const convertObject = (
  object: unknown,
  kind: GroupVersionKind,
  convert: ImitatedServerFunctions["convert"],
): unknown => (object == null ? null : convert(object, kind));

/** The resource and kind that a hook is called with; they can differ from those of the request. */
export interface InvocationResourceAndKind {
  resource: GroupVersionResource;
  kind: GroupVersionKind;
}

type HookMatch =
  | { invocation: InvocationResourceAndKind }
  | { skipped: string }
  | { refusal: Status }
  | { unsupported: string };

/** Decides whether a hook is called for the current state of a request, with the API server's checks in its order. */
export const matchHook = (
  hook: DefaultedWebhookEntry,
  attributes: AdmissionAttributes,
  view: ConvertibleRequestObjects,
  context: ImitatedServerFunctions,
): HookMatch => {
  const namespaceMatch = matchNamespace(hook.namespaceSelector, attributes, view, context);
  if (namespaceMatch === false) return { skipped: "its namespaceSelector doesn't match the namespace" };
  if (!matchObject(hook.objectSelector, view)) return { skipped: "its objectSelector doesn't match the object" };
  const invocation = findInvocation(hook, attributes, context);
  if (invocation === undefined) return { skipped: "none of its rules matches the request" };
  // A refusal for a missing namespace counts only if the hook would otherwise be called.
  if (namespaceMatch !== true) return { refusal: namespaceMatch };
  return hook.matchConditions.length > 0
    ? evaluateConditions(hook, attributes, view, invocation, context)
    : { invocation };
};

/**
 * Decides as `matchHook` does. If that is `unsupported`, perhaps because a condition asks the authorizer, asks the
 * cluster's authorizer and matches again. Only then, it returns a promise: to await each match would be slow.
 */
export const matchHookWithAuthorizer = (...args: Parameters<typeof matchHook>): HookMatch | Promise<HookMatch> => {
  const match = matchHook(...args);
  const [, , , { authorizations }] = args;
  return "unsupported" in match && authorizations ? askAndMatch(authorizations, match, args) : match;
};

/** Asks the cluster's authorizer what a hook's conditions still need, and then matches the hook again. */
const askAndMatch = async (
  authorizations: NonNullable<ImitatedServerFunctions["authorizations"]>,
  match: HookMatch,
  args: Parameters<typeof matchHook>,
): Promise<HookMatch> => {
  try {
    return (await authorizations.askMissing()) ? matchHookWithAuthorizer(...args) : match;
  } catch (error) {
    if (error instanceof Failure) return { unsupported: error.message };
    throw error;
  }
};

const isEmptySelector = ({ matchLabels = {}, matchExpressions = [] }: LabelSelector): boolean =>
  matchExpressions.length === 0 && Object.keys(matchLabels).length === 0;

/** Reports whether a namespaceSelector selects the namespace of a request; returns a refusal if that doesn't exist. */
const matchNamespace = (
  selector: LabelSelector,
  { namespace = "", resource: { resource }, subResource = "", operation }: AdmissionAttributes,
  view: ConvertibleRequestObjects,
  { findNamespace }: ImitatedServerFunctions,
): boolean | Status => {
  // Cluster-scoped objects other than namespaces match every namespaceSelector.
  if (namespace === "" && resource !== "namespaces") return true;
  if (isEmptySelector(selector)) return true;
  const isWritten = resource === "namespaces" && subResource === "" && /^(CREATE|UPDATE)$/.test(operation);
  if (isWritten) return isSelected(selector, getLabels(view.latest.object) ?? {});
  const found = findNamespace(namespace);
  if (found === undefined) return notFound({ group: "", resource: "namespaces" }, namespace);
  return isSelected(selector, { "kubernetes.io/metadata.name": namespace, ...getLabels(found) });
};

const matchObject = (selector: LabelSelector, { latest: { object, oldObject } }: ConvertibleRequestObjects): boolean =>
  isEmptySelector(selector) ||
  [object, oldObject].some((candidate) => {
    const labels = getLabels(candidate);
    return labels !== undefined && isSelected(selector, labels);
  });

/** Returns the labels of an object; undefined for kinds without metadata, which are the options of CONNECT requests. */
const getLabels = (object: unknown): Record<string, string> | undefined => {
  if (!isMap(object) || connectOptionKinds.test(String(object.kind))) return undefined;
  const { labels } = isMap(object.metadata) ? object.metadata : {};
  return isMap(labels) ? (labels as Record<string, string>) : {};
};

const connectOptionKinds = /^(PodExec|PodAttach|PodPortForward|PodProxy|ServiceProxy|NodeProxy)Options$/;

/** Returns the resource and kind with which a hook's rules match a request; undefined if none matches. */
const findInvocation = (
  hook: DefaultedWebhookEntry,
  attributes: AdmissionAttributes,
  { equivalents }: ImitatedServerFunctions,
): InvocationResourceAndKind | undefined => {
  const { resource, kind } = attributes;
  // The cast is safe: `matchesRequest` doesn't read the fields of AdmissionRequest that AdmissionAttributes lacks.
  if (hook.rules.some((rule) => matchesRequest(rule, attributes as AdmissionRequest))) return { resource, kind };
  if (hook.matchPolicy === "Exact") return undefined;
  for (const rule of hook.rules)
    for (const equivalent of equivalents(resource))
      if (matchesRequest(rule, { ...attributes, resource: equivalent } as AdmissionRequest))
        return { resource: equivalent, kind: chooseKind(equivalent, attributes) };
  return undefined;
};

/**
 * Returns the kind for an equivalent resource. The kind of a subresource such as scale stays: its group and version are
 * independent of the resource's.
 */
const chooseKind = (
  { group, version }: GroupVersionResource,
  { kind, resource }: AdmissionAttributes,
): GroupVersionKind =>
  kind.group === resource.group && kind.version === resource.version ? { group, version, kind: kind.kind } : kind;

/** Evaluates a hook's matchConditions: whether it is called, skipped, or refuses the request by an error. */
const evaluateConditions = (
  hook: DefaultedWebhookEntry,
  attributes: AdmissionAttributes,
  view: ConvertibleRequestObjects,
  invocation: InvocationResourceAndKind,
  { cel, kubernetes, authorizations }: ImitatedServerFunctions,
): HookMatch => {
  const objects = view.convertTo(invocation.kind);
  if (objects === undefined) return { unsupported: describeUnknownConversion(attributes, invocation.kind) };
  const { kind, object = null, oldObject = null } = objects;
  let request: Record<string, unknown> | undefined;
  const readRequest = () => {
    request ??= buildConditionRequest(attributes, kind);
    return request;
  };
  const variables = { object, oldObject, readRequest, decide: authorizations?.decide };
  let errors: string[] = [];
  let unsupported: string | undefined;
  let falseCondition: string | undefined;
  const budget = cel.createBudget();
  for (const { name, expression } of hook.matchConditions) {
    const result = cel.compile(expression, kubernetes)(variables, budget);
    if ("unsupported" in result)
      unsupported ??= `whether its condition ${JSON.stringify(name)} holds: ${result.unsupported}`;
    else if ("exhausted" in result) {
      // The API server looks at the results only after it evaluated all conditions. If together they cost too much, it
      // reports only that, even if an earlier condition is false.
      errors = [result.exhausted];
      falseCondition = undefined;
      break;
    } else if ("error" in result) errors.push(result.error);
    else if (!result.holds) falseCondition ??= name;
  }
  // One false condition is enough to skip the hook, whatever the others evaluate to.
  if (falseCondition !== undefined) return { skipped: `its condition ${JSON.stringify(falseCondition)} is false` };
  if (unsupported !== undefined) return { unsupported };
  if (errors.length === 0) return { invocation };
  if (hook.failurePolicy === "Ignore")
    return { skipped: `its conditions fail and it is left out then: ${joinErrors(errors)}` };
  return { refusal: forbidden(attributes as AdmissionRequest, joinErrors(errors), attributes.name ?? "") };
};

/** Returns a clause such as "how a Deployment of apps/v1 is converted to apps/v1beta1", for what can't be decided. */
export const describeUnknownConversion = ({ kind }: Pick<AdmissionAttributes, "kind">, to: GroupVersionKind): string =>
  `how a ${kind.kind} of ${joinApiVersion(kind)} is converted to ${joinApiVersion(to)}`;

/** Returns the request as conditions see it: with the kind of the converted objects and the original resource. */
const buildConditionRequest = (attributes: AdmissionAttributes, kind: GroupVersionKind): Record<string, unknown> => {
  const { resource, subResource, name, namespace, operation, userInfo, dryRun, options } = attributes;
  const members = {
    kind,
    resource,
    subResource,
    requestKind: attributes.kind,
    requestResource: resource,
    requestSubResource: subResource,
    name,
    namespace,
    operation,
    userInfo: dropEmptyValues(userInfo),
    dryRun: dryRun === true,
    options: options ?? null,
  };
  return dropEmptyValues(members);
};

/** Returns the members without empty texts and empty objects: in an API server, CEL sees such fields as absent, too. */
const dropEmptyValues = (members: object): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(members).filter(
      ([, value]) => value !== "" && value !== undefined && !(typeof value === "object" && isEmptyObject(value)),
    ),
  );

const isEmptyObject = (value: object | null): boolean => value !== null && Object.keys(value).length === 0;

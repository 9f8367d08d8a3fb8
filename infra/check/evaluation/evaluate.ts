import { runAdmissionChain } from "#infra/apiserver/admission/admit.ts";
import { describeUnknownConversion } from "#infra/apiserver/admission/matching.ts";
import type { AdmissionAttributes, AdmissionTrace, ImitatedServerFunctions } from "#infra/apiserver/admission/types.ts";
import { exactJson } from "#lib/exact-json.ts";
import { getOwn, isMap, toMap } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { formatCurrentTime } from "../../apiserver/current-time.ts";
import { fillDefaults, hasKnownDefaults, prepareForStorage } from "../../apiserver/defaults/defaults.ts";
import { listKnownFields, listMetadataErrors, type ReadingStep } from "../../apiserver/defaults/typed-reading.ts";
import {
  describeMissingKind,
  describeUnknownKind,
  isCustomResourceGroup,
  type ResourceKind,
} from "../../apiserver/kinds/kinds.ts";
import { toSentence } from "../../cli/complaint.ts";
import { formatDidYouMean } from "../../cli/did-you-mean.ts";
import type { FieldPath, Manifest } from "../../manifests/manifests.ts";
import { type Assumption, describeAssumption, formatAssumedObject } from "./assumptions.ts";
import { describeUndecidedChange, markUndecidedChange } from "./existing-objects.ts";
import { guessRefusedField, parseFieldPath } from "./field-paths.ts";
import { collectFindings, isShownChange, placeDenial } from "./findings.ts";
import {
  type EvaluatedRequestAndManifest,
  noFindings,
  type ObjectCheckResult,
  type ObjectEvaluation,
  type ObjectEvaluationEnvironment,
} from "./object-evaluation.ts";
import { buildPod, countNewPods, hasAllPods } from "./pod-templates.ts";
import {
  addOmitted,
  buildAdmissionAttributes,
  dropServerFieldsAndSetNamespace,
  hasServerFields,
  isNamespaceResource,
  isReview,
  readReviewManifest,
  sortForApply,
  toObjectKey,
} from "./requests.ts";

/** Evaluates manifests one after the other; each sees the objects that were admitted before it. */
export const evaluateManifestsInOrder = async function* (
  manifests: readonly Manifest[],
  environment: ObjectEvaluationEnvironment,
): AsyncGenerator<ObjectEvaluation> {
  const order =
    environment.requestOptions.operation === "DELETE"
      ? manifests
      : sortForApply(manifests, ({ object }) => String(object.kind));
  const isAlternative = createAlternativePredicate(manifests);
  for (const manifest of order) {
    const own = isAlternative(manifest) ? createEnvironmentForCreation(environment) : environment;
    const evaluation = addDuplicateKeyWarnings(
      isReview(manifest) ? await evaluateReview(manifest, own) : await evaluateManifest(manifest, own),
    );
    const { checked, subject } = evaluation;
    const isRequestUnknown = checked.verdict === "undecided" && subject.attributes === undefined;
    if (isRequestUnknown) {
      // The object is not counted here, but a cluster may create or update it, and so have more or less quota in use.
      const { mayBeLess, mayBeMore } = environment.uncertainUse;
      const namespace = checked.namespace ?? environment.requestOptions.namespace;
      for (const sentences of [mayBeLess, mayBeMore]) addUncertainUse(sentences, namespace);
    }
    yield evaluation;
    if (environment.alsoPods && checked.verdict !== "denied") yield* evaluatePodOfWorkload(evaluation, environment);
  }
};

/**
 * Returns a function that is called for one manifest after the other. It reports whether the last manifest of the same
 * object is from another build. Builds, such as overlays, are alternatives: none updates what another one has created.
 */
const createAlternativePredicate = (manifests: readonly Manifest[]): ((manifest: Manifest) => boolean) => {
  if (manifests.every(({ build }) => build === undefined)) return () => false;
  const builds = new Map<string, string | undefined>();
  return ({ object: { kind, metadata }, build }) => {
    const key = exactJson.stringify([kind, getOwn(metadata, "namespace"), getOwn(metadata, "name")]);
    const isAlternative = builds.has(key) && builds.get(key) !== build;
    builds.set(key, build);
    return isAlternative;
  };
};

/** Returns an environment in which an object is created even if it exists, unless the user chose the operation. */
const createEnvironmentForCreation = (environment: ObjectEvaluationEnvironment): ObjectEvaluationEnvironment =>
  environment.requestOptions.operation === undefined
    ? { ...environment, requestOptions: { ...environment.requestOptions, operation: "CREATE" } }
    : environment;

/** Adds a warning for each key that a map of the manifest has more than once. */
const addDuplicateKeyWarnings = (evaluation: ObjectEvaluation): ObjectEvaluation => {
  const { checked, subject } = evaluation;
  const warnings = (subject.manifest.repeated ?? []).map(({ key, line }) => {
    return { rule: "field validation", text: `${key} is there more than once; the last one counts, in line ${line}` };
  });
  return warnings.length === 0
    ? evaluation
    : { ...evaluation, checked: { ...checked, warnings: [...checked.warnings, ...warnings] } };
};

const evaluateReview = async (
  manifest: Manifest,
  environment: ObjectEvaluationEnvironment,
): Promise<ObjectEvaluation> => {
  try {
    return await evaluateRequest({ attributes: readReviewManifest(manifest), manifest }, environment);
  } catch (error) {
    return createUndecidedEvaluation(manifest, manifest.object, toSentence(error));
  }
};

const evaluateManifest = async (
  manifest: Manifest,
  environment: ObjectEvaluationEnvironment,
): Promise<ObjectEvaluation> => {
  const { kinds, requestOptions, existing, kubernetes } = environment;
  const { apiVersion, kind: word } = manifest.object;
  const kind = kinds.of(String(apiVersion), String(word));
  const missing = kind === undefined && describeMissingKind(String(apiVersion), String(word), kinds, kubernetes);
  if (missing) {
    const status = { message: missing, code: 404, reason: "NotFound" };
    const denial = placeDenial({ rule: "the API server", message: missing }, status, manifest, ["apiVersion"]);
    return createEvaluationWithoutRequest(manifest, manifest.object, { verdict: "denied", denials: [denial] });
  }
  if (kind === undefined && !mayConcern(manifest, environment)) {
    environment.noteUndefinedKind?.(manifest.object);
    const assumed = environment.noteAssumption ? [`${word} of ${apiVersion} is defined`] : [];
    return createEvaluationWithoutRequest(manifest, manifest.object, { verdict: "allowed", noRule: true, assumed });
  }
  if (kind === undefined)
    return createUndecidedEvaluation(
      manifest,
      manifest.object,
      describeUnknownKind(String(apiVersion), String(word), kubernetes),
    );
  const object = dropServerFieldsAndSetNamespace(manifest.object, kind, { ...requestOptions, operation: "CREATE" });
  const { name = "", namespace } = object.metadata ?? {};
  const stored =
    (environment.old.size > 0 ? environment.old.get(toObjectKey(kind, object)) : undefined) ??
    (name === "" ? undefined : existing.find(kind.resource, name, namespace));
  // The stored object is converted to the request's API version, as an API server does.
  const converted = stored && (kinds.convert(stored, kind.kind) as KubernetesObject | undefined);
  const operation = requestOptions.operation ?? (stored === undefined ? "CREATE" : "UPDATE");
  // An API server also decodes the fields that only it sets, which `object` lacks. If the manifest has none of them, the
  // metadata of a new object of a known kind is decoded below. A deletion sends only the name.
  const { metadata } = manifest.object;
  const isNew = operation === "CREATE" && stored === undefined;
  const isDecodedBelow = isNew && !hasServerFields(metadata) && hasKnownDefaults(object, kubernetes);
  const misfits = operation === "DELETE" || isDecodedBelow ? [] : listMetadataErrors(metadata, kubernetes);
  if (misfits.length > 0) return createDecodeDenial(manifest, object, misfits.map(toDecodeFault));
  if (stored !== undefined && converted === undefined && operation !== "CREATE")
    return createUndecidedEvaluation(
      manifest,
      object,
      describeUnknownConversion({ kind: toGroupVersionKind(stored) }, kind.kind),
    );
  const undecidedChange = stored && describeUndecidedChange(stored);
  if (undecidedChange !== undefined)
    return createUndecidedEvaluation(manifest, object, `whether it exists as it is here, because ${undecidedChange}`);
  if (operation === "UPDATE" && converted === undefined)
    return createUndecidedEvaluation(
      manifest,
      object,
      "there is nothing to update; --old or --state must hold it as it is now",
    );
  const completeOld = async (old: KubernetesObject) => {
    const creation = buildAdmissionAttributes(old, null, kind, { ...requestOptions, operation: "CREATE" });
    const { metadata, ...rest } = (await environment.handlers?.complete(creation)) ?? old;
    // A stored object always has a resourceVersion, by which ResourceQuota tells it from a new one.
    return { ...rest, metadata: { resourceVersion: "1", ...metadata } };
  };
  const oldObject = operation === "UPDATE" && converted !== undefined ? await completeOld(converted) : null;
  const build = (given: KubernetesObject) =>
    buildAdmissionAttributes(given, oldObject, kind, { ...requestOptions, operation });
  // A DELETE request has the stored object; the manifest only says which object that is.
  if (operation === "DELETE")
    return evaluateRequest(
      { attributes: build(converted ?? fillDefaults(object, kubernetes).object), manifest },
      environment,
    );
  const evaluate = (given: KubernetesObject) => evaluateObject(build(given), kind, manifest, environment);
  const evaluation = await evaluate(object);
  if (oldObject === null || !isInvalid(evaluation)) return evaluation;
  // The manifest in place of the old object is invalid, for instance because it omits a required field. `kubectl apply`
  // keeps the fields that a manifest omits, unless an earlier apply set them, so the update is evaluated with them.
  return evaluate(addOmitted(object, oldObject));
};

const isInvalid = ({ checked: { denials } }: ObjectEvaluation): boolean =>
  denials.length > 0 && denials.every(({ rule }) => rule === "API validation");

/** Evaluates the request that a manifest's object is sent with. */
const evaluateObject = async (
  attributes: AdmissionAttributes,
  kind: ResourceKind,
  manifest: Manifest,
  environment: ObjectEvaluationEnvironment,
): Promise<ObjectEvaluation> => {
  const object = attributes.object as KubernetesObject;
  const mayBeTooLarge = manifest.source.text.length > largeText;
  const read = await readObject(attributes, environment, { mayBeTooLarge });
  // Kubernetes' handlers, if they are here, refuse an object without a name themselves, after mutating admission.
  const isNameMissing = environment.handlers === undefined && isNameless(object, kind);
  const misfits = [...read.misfits, ...(isNameMissing ? ["metadata.name or generateName is required"] : [])];
  const { validate } = environment;
  const warnings = validate === "ignore" ? [] : read.warnings;
  const unknown = validate === "strict" ? warnings.flatMap((text) => unknownField.exec(text)?.[1] ?? []) : [];
  if (misfits.length + unknown.length > 0) {
    const fields = unknown.map(parseFieldPath);
    return createDecodeDenial(manifest, object, [
      ...misfits.map(toDecodeFault),
      ...fields.map((field, index) => {
        const advice = suggestField(object, field, environment);
        return { message: `unknown field "${unknown[index]}"${advice}`, field };
      }),
    ]);
  }
  if (read.undecided !== undefined) return createUndecidedEvaluation(manifest, object, read.undecided);
  const evaluation = await evaluateRequest(
    { attributes: { ...attributes, object: read.object }, manifest, sent: object },
    environment,
  );
  // The handlers may warn of the same in API validation. An API server sends each warning once.
  const known = new Set(evaluation.checked.warnings.map(({ text }) => text));
  for (const text of warnings)
    if (!known.has(text)) evaluation.checked.warnings.push({ rule: "field validation", text });
  return evaluation;
};

const toDecodeFault = (message: string) => ({ message, field: parseFieldPath(message.split(" ", 1)[0] ?? "") });

const unknownField = /^unknown field "(.*)"$/;

/** Returns the end of a sentence that names the known field nearest to an unknown one; empty if none is near. */
const suggestField = (
  { apiVersion = "", kind = "" }: KubernetesObject,
  field: FieldPath,
  { kubernetes, handlers }: ObjectEvaluationEnvironment,
): string => {
  const parent = field.slice(0, -1);
  const known = handlers?.listCustomFields(apiVersion, kind, parent) ?? [];
  const all = known.length > 0 ? known : listKnownFields(apiVersion, kind, kubernetes, parent);
  const meant = formatDidYouMean(String(field.at(-1)), all).trim();
  return meant && `; ${meant}`;
};

/**
 * Reports whether an entry, a plugin or a policy may be about an object of an unknown kind, by its group and version.
 */
const mayConcern = (
  { object }: Manifest,
  { chain, unevaluatedPolicies, requestOptions, noteAssumption }: ObjectEvaluationEnvironment,
): boolean => {
  const { group, version } = splitApiVersion(String(object.apiVersion));
  const operations =
    requestOptions.operation === undefined ? (["CREATE", "UPDATE"] as const) : [requestOptions.operation];
  // By assumption, no plugin concerns a custom resource. Without `noteAssumption`, nothing may be assumed.
  const ignoresPlugins = noteAssumption !== undefined;
  return (
    // A kind in a group of Kubernetes may always concern a webhook entry: it may also be served in another group.
    !isCustomResourceGroup(group) ||
    [...chain.mutating, ...chain.validating, ...unevaluatedPolicies.hooks].some(
      ({ rules, matchPolicy, isPlugin }) =>
        // This ignores the plugins that evaluate policies, too, but each policy has an entry in `unevaluatedPolicies`.
        !(isPlugin && ignoresPlugins) &&
        rules.some(
          (rule) =>
            includes(rule.apiGroups, group) &&
            (matchPolicy === "Equivalent" || includes(rule.apiVersions, version)) &&
            operations.some((operation) => includes(rule.operations, operation)) &&
            // The kind's resource isn't known, so any resource may match it, but no subresource such as `pods/status`.
            rule.resources.some((resource) => /^[^/]*(\/\*)?$/.test(resource)),
        ),
    )
  );
};

const includes = (wanted: readonly string[], value: string): boolean => wanted.includes("*") || wanted.includes(value);

const toGroupVersionKind = ({ apiVersion = "", kind = "" }: KubernetesObject) => ({
  ...splitApiVersion(apiVersion),
  kind,
});

/** Reports whether an object lacks the name it needs; objects such as SubjectAccessReview need none. */
const isNameless = ({ metadata }: KubernetesObject, { resource: { group } }: ResourceKind): boolean =>
  !metadata?.name && !metadata?.generateName && !/^auth(entication|orization)\.k8s\.io$/.test(group);

/**
 * Evaluates the Pod that an evaluated workload would create; yields nothing for other objects and for DELETE.
 * `after` is the workload after mutating admission; `stored` is what an API server would then store, if it is known.
 * `existingWorkload` is the workload as a cluster has it, with its status, which says whether its Pods exist.
 */
export const evaluatePodOfWorkload = async function* (
  { subject, after, stored = after }: ObjectEvaluation,
  environment: ObjectEvaluationEnvironment,
  existingWorkload?: KubernetesObject,
): AsyncGenerator<ObjectEvaluation> {
  const { manifest } = subject;
  if (subject.attributes?.operation === "DELETE") return;
  const workload = stored as KubernetesObject;
  const built = stored === null || stored === undefined ? undefined : buildPod(workload);
  const kind = built && environment.kinds.of("v1", "Pod");
  if (built === undefined || kind === undefined) return;
  const filled = fillDefaults(built.pod, environment.kubernetes);
  const attributes = buildAdmissionAttributes(filled.object, null, kind, {
    ...environment.requestOptions,
    operation: "CREATE",
    user: built.user,
  });
  const { apiVersion, kind: word, name } = readIdentity(manifest, workload);
  const oldWorkload = subject.attributes?.oldObject as KubernetesObject | null;
  // Undefined if the number isn't known: the status of an existing workload only tells whether all its Pods exist.
  const missingPods = existingWorkload && hasAllPods(existingWorkload) ? 0 : undefined;
  const newPods = existingWorkload ? missingPods : countNewPods(workload, oldWorkload);
  const podOfWorkload = { workload: { apiVersion, kind: word, name }, templatePath: built.templatePath, newPods };
  yield await evaluateRequest({ attributes, manifest, podOfWorkload }, environment);
};

const readIdentity = ({ source, line }: Manifest, object: unknown) => {
  const { apiVersion, kind, metadata } = toMap(object);
  const { name, generateName, namespace } = toMap(metadata);
  const shownName = name ?? generateName;
  return {
    file: source.name,
    line,
    apiVersion: String(apiVersion ?? ""),
    kind: String(kind ?? ""),
    ...(typeof namespace === "string" && { namespace }),
    name: typeof shownName === "string" ? shownName : "",
  };
};

/** Creates the evaluation of a manifest for which no request is evaluated, as `checked` already has its verdict. */
const createEvaluationWithoutRequest = (
  manifest: Manifest,
  object: unknown,
  checked: Partial<ObjectCheckResult> & Pick<ObjectCheckResult, "verdict">,
): ObjectEvaluation => {
  return {
    subject: { manifest },
    checked: { ...readIdentity(manifest, object), ...noFindings, ...checked },
    audit: {},
    steps: [],
    before: null,
    after: null,
  };
};

export const createUndecidedEvaluation = (manifest: Manifest, object: unknown, sentence: string): ObjectEvaluation =>
  createEvaluationWithoutRequest(manifest, object, { verdict: "undecided", undecided: [sentence] });

/** Builds the evaluation of an object that the API server can't decode: a denial before any webhook is called. */
const createDecodeDenial = (
  manifest: Manifest,
  object: KubernetesObject,
  faults: readonly { message: string; field: FieldPath }[],
): ObjectEvaluation => {
  const denials = faults.map(({ message, field: otherwise }) => {
    const status = { message, code: 400, reason: "BadRequest" };
    const field = guessRefusedField(manifest.object, status, otherwise);
    return placeDenial({ rule: "the API server", message }, status, manifest, field);
  });
  return createEvaluationWithoutRequest(manifest, object, { verdict: "denied", denials });
};

export const evaluateRequest = async (
  given: EvaluatedRequestAndManifest,
  environment: ObjectEvaluationEnvironment,
): Promise<ObjectEvaluation> => {
  const assumed: Assumption[] = [];
  const subject = { ...given, assumed, isRecorded: isReview(given.manifest) };
  const { attributes, manifest, podOfWorkload } = subject;
  storeOldObjectIfMissing(attributes, environment);
  const unknownLabels = assumeNamespace(attributes, environment, assumed);
  const context = createServerContext(environment, subject);
  const trace = await runAdmissionChain(attributes, environment.chain, context);
  const unevaluatedPolicies = environment.unevaluatedPolicies.findMatching(
    attributes,
    trace.object,
    context,
    unknownLabels !== undefined,
  );
  const findings = await collectFindings(trace, subject, environment, unknownLabels, unevaluatedPolicies);
  const { verdict } = findings;
  if (trace.allowed && !podOfWorkload) storeOutcome(attributes, trace, environment, verdict === "undecided");
  // A cluster may count less for quotas than this check, which still counts a deleted object and an undecided one.
  const { mayBeLess, mayBeMore } = environment.uncertainUse;
  if (attributes.operation === "DELETE" || verdict === "undecided") addUncertainUse(mayBeLess, attributes.namespace);
  // A cluster also counts less if it refuses this object because what it names, such as a ServiceAccount, is missing.
  const needed = assumed.find(({ resource, name }) => name !== undefined && resource !== "namespaces");
  if (needed !== undefined && trace.allowed)
    addUncertainUse(mayBeLess, attributes.namespace, `an object that needs ${formatAssumedObject(needed)}`);
  // A cluster may count more than this check: an unknown mutation may make the object use more, or the plugin
  // ResourceQuota may count an object that isn't counted here.
  const isCountUncertain = trace.steps.some(
    ({ hook, phase, outcome, ignored }) =>
      (outcome === "can't say" || ignored) && (phase === "mutate" || hook === "ResourceQuota"),
  );
  if (isCountUncertain || unevaluatedPolicies.length > 0 || unknownLabels !== undefined)
    addUncertainUse(mayBeMore, attributes.namespace);
  const changedByPlugins = findBeforeWebhooks(trace);
  // Reports show what webhooks and policies change: from `before`, as they first get the object, to `after`. If they
  // change nothing, trace.object is `changedByPlugins` with its defaults.
  const isChanged = trace.steps.some(isShownChange);
  const withDefaults =
    changedByPlugins && (isChanged ? await context.addDefaults(changedByPlugins, "request") : trace.object);
  const before = withDefaults ?? attributes.object ?? attributes.oldObject;
  const after = attributes.object === null || attributes.object === undefined ? before : trace.object;
  return {
    subject,
    checked: {
      ...readIdentity(manifest, before),
      ...(podOfWorkload && { madeBy: podOfWorkload.workload }),
      ...findings,
      assumed: [...new Set(assumed.map(describeAssumption))],
    },
    audit: trace.audit,
    steps: trace.steps.filter((step) => !step.isPlugin || isShownChange(step)),
    before,
    after,
    ...(trace.stored !== undefined && { stored: trace.stored }),
  };
};

const addUncertainUse = (
  uncertain: Map<string, string>,
  namespace = "",
  cause = "a deletion or an undecided object",
): void => {
  if (!uncertain.has(namespace))
    uncertain.set(namespace, `what the quotas of namespace ${namespace} have in use after ${cause}`);
};

/** Returns the object as plugins left it for the first policy or webhook; undefined if none changed it. */
const findBeforeWebhooks = ({ steps, object }: AdmissionTrace): unknown => {
  // In round 0, all plugins that change objects come before policies and webhooks; round 1 calls some hooks again. The
  // step of a policy has `isPlugin`, too, because a plugin evaluates the policy.
  const changed = steps.findLast(
    ({ isPlugin, policy, round, after }) => isPlugin && policy === undefined && round === 0 && after !== undefined,
  )?.after;
  // Reports compare it with the last object, which is in the version of the request.
  return getOwn(changed, "apiVersion") === getOwn(object, "apiVersion") ? changed : undefined;
};

const createServerContext = (
  { kubernetes, kinds, existing, handlers, call, cel, openAuthorizations }: ObjectEvaluationEnvironment,
  subject: EvaluatedRequestAndManifest,
): ImitatedServerFunctions => ({
  kubernetes,
  findNamespace: (name) => existing.find(namespaces, name),
  equivalents: kinds.equivalents,
  convert: kinds.convert,
  // `step` says if a client sent the object or a webhook patched it. An object that can't be decoded is an error.
  addDefaults: async (object, step) => {
    const kind = toGroupVersionKind(object as KubernetesObject);
    const read = await readObject({ ...subject.attributes, object, kind }, { handlers, kubernetes }, { step });
    if (read.misfits[0] !== undefined) throw new Error(read.misfits[0]);
    return read.object;
  },
  prepare: (object) => (isMap(object) ? prepareForStorage(object, kubernetes) : object),
  objectBeforeDefaults: subject.sent,
  store: handlers?.store,
  call: (hook, review) => call(hook, review, subject),
  cel,
  authorizations: openAuthorizations?.(),
});

/** An object as webhooks see it, and what was found while it was read. */
interface ReadObject {
  object: KubernetesObject;
  warnings: readonly string[];
  /** Why an API server can't decode the object, and so refuses it; empty if it can. */
  misfits: readonly string[];
  /** Why it isn't known whether an API server can decode the object. */
  undecided?: string | undefined;
}

/**
 * Reads the object of a request: decodes it and sets its defaults. Kubernetes' handlers read an object that can't be read
 * here, has defaults that aren't known here, or may be too large; they decide whether it is refused.
 */
const readObject = async (
  attributes: AdmissionAttributes,
  { handlers, kubernetes }: Pick<ObjectEvaluationEnvironment, "handlers" | "kubernetes">,
  { step, mayBeTooLarge = false }: { step?: ReadingStep; mayBeTooLarge?: boolean },
): Promise<ReadObject> => {
  const filled = fillDefaults(attributes.object as KubernetesObject, kubernetes, step);
  const { object, isKnownKind, unknownFields, decodingErrors: misfits } = filled;
  const own = { object, misfits, warnings: unknownFields.map((field) => `unknown field ${JSON.stringify(field)}`) };
  const needsHandlers = misfits.length > 0 || mayBeTooLarge || !isKnownKind;
  const answer = needsHandlers && !readByHandlers.has(object) ? await handlers?.read(attributes) : undefined;
  if (answer === undefined) return own;
  const { object: read = object, status, undecided, warnings } = answer;
  readByHandlers.add(read);
  // If the handlers refuse the object, the misfits that were found here are shown: unlike the handlers' message, they
  // name the index of a value in a list.
  return {
    object: read,
    misfits: status ? (misfits.length > 0 ? misfits : [status.message]) : [],
    undecided,
    warnings,
  };
};

const readByHandlers = new WeakSet<object>();

/** An API server takes requests of at most 3 MB of JSON. A shorter text has no object that is larger. */
const largeText = 1 << 20;

const namespaces = { group: "", resource: "namespaces" };

/** Adds the old object of an update or deletion to the imitated API server if it is missing there: it must exist. */
const storeOldObjectIfMissing = (
  { resource, subResource, oldObject }: AdmissionAttributes,
  { existing }: ObjectEvaluationEnvironment,
): void => {
  const { name, namespace } = (oldObject as KubernetesObject | null)?.metadata ?? {};
  if (subResource || typeof name !== "string" || name === "") return;
  if (existing.find(resource, name, namespace) === undefined) existing.put(resource, oldObject as KubernetesObject);
};

/**
 * Adds a missing Namespace to the imitated API server, unless all objects are known. If labels aren't known, returns a
 * text for reports: why, or where to see them (`namespaceHint`); undefined if they are known or assumed to be absent.
 */
const assumeNamespace = (
  { namespace, resource, operation }: AdmissionAttributes,
  environment: ObjectEvaluationEnvironment,
  assumed: Assumption[],
): string | undefined => {
  const { existing, isStateKnown, noteMissingNamespace, noteAssumption, namespaceHint } = environment;
  const isItself = isNamespaceResource(resource) && operation !== "DELETE";
  if (!namespace || isItself) return undefined;
  const found = existing.find(namespaces, namespace);
  if (found === undefined) noteMissingNamespace(namespace);
  const needsNoAssumption = found === undefined ? isStateKnown : !assumedNamespaces.has(found);
  // An existing Namespace has unknown labels if an earlier request to change it is undecided.
  if (needsNoAssumption) return found && describeUndecidedChange(found);
  if (found === undefined) {
    const metadata = { name: namespace, labels: { "kubernetes.io/metadata.name": namespace } };
    const added = { apiVersion: "v1", kind: "Namespace", metadata, status: { phase: "Active" } };
    existing.put(namespaces, added);
    assumedNamespaces.add(added);
  }
  // Without `noteAssumption`, the check may assume nothing about the labels.
  if (noteAssumption === undefined) return namespaceHint;
  const assumption = { resource: namespaces.resource, name: namespace };
  assumed.push(assumption);
  if (found === undefined) noteAssumption(assumption);
  return undefined;
};

const assumedNamespaces = new WeakSet<object>();

/** Reports whether a Namespace is made up, so that only its name is known. */
export const isAssumedNamespace = (object: KubernetesObject): boolean => assumedNamespaces.has(object);

/**
 * Stores an admitted object for later evaluations or removes a deleted one, but a deleted Namespace stays as
 * terminating. The object of an undecided request is stored with a mark that it is uncertain.
 */
const storeOutcome = (
  attributes: AdmissionAttributes,
  // If it isn't known what an API server would store, the object after mutating admission is stored.
  { object, stored = object }: AdmissionTrace,
  { existing }: ObjectEvaluationEnvironment,
  isUndecided: boolean,
): void => {
  const { resource, subResource, operation, oldObject, dryRun } = attributes;
  if (dryRun || subResource || operation === "CONNECT") return;
  const given = (operation === "DELETE" ? oldObject : stored) as KubernetesObject | null;
  const { name, namespace } = given?.metadata ?? {};
  if (!given || typeof name !== "string" || name === "") return;
  const isNamespace = isNamespaceResource(resource);
  if (operation === "DELETE" && !isNamespace && !isUndecided) {
    existing.remove(resource, name, namespace);
    return;
  }
  const changed = operation === "DELETE" && isNamespace ? terminateNamespace(given) : given;
  if (isUndecided) markUndecidedChange(changed, operation);
  existing.put(resource, changed);
};

const terminateNamespace = ({ metadata, ...namespace }: KubernetesObject) => {
  const deletionTimestamp = formatCurrentTime();
  return { ...namespace, metadata: { ...metadata, deletionTimestamp }, status: { phase: "Terminating" } };
};

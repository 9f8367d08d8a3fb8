import { getOwn, toMap } from "#lib/json.ts";
import type { Capabilities, ResourceType } from "#lib/needs.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { describeUnknownMinor } from "#lib/since.ts";
import { apiServerOwnObjects } from "../apiserver/initial-objects.ts";
import { buildKindIndex, type KindIndex } from "../apiserver/kinds/kinds.ts";
import { createCustomKinds } from "../apiserver/validation/custom-resources.ts";
import { createValidation } from "../apiserver/validation/validation.ts";
import { Complaint } from "../cli/complaint.ts";
import { readInput, readManifests } from "../manifests/input.ts";
import { type Manifest, toSourceName } from "../manifests/manifests.ts";
import { toStoredObject } from "../manifests/object-store.ts";
import { assembleChain } from "./chain.ts";
import { evaluateManifestsInOrder, isAssumedNamespace } from "./evaluation/evaluate.ts";
import { createEmptyObjectStore } from "./evaluation/existing-objects.ts";
import type { ChainOptions, CheckRequestOptions } from "./evaluation/object-evaluation.ts";
import { buildCreation, isReview, normalizeManifestObjects } from "./evaluation/requests.ts";
import { isPolicyOrQuota } from "./evaluation/unevaluated.ts";
import { describeDuplicateOrLostManifests, describeMissingNamespaces, describeUnknownValidation } from "./notes.ts";

interface CheckOptions extends ChainOptions {
  /** The files, folders and globs that name the manifests to check. */
  paths: readonly string[];
  /** Paths of recorded reviews. */
  reviews: readonly string[];
  /** Paths of manifest files with the objects that already exist in the imitated cluster. */
  state: readonly string[];
  /** Paths of the manifests of old objects, from which updates start. */
  old: readonly string[];
  operation: Operation | undefined;
  namespace: string;
}

/**
 * Reads manifests, but evaluates none: iterating over `evaluations` evaluates them. The notes and the Secrets that were read
 * grow meanwhile.
 */
export const prepareManifestCheck = async (options: CheckOptions) => {
  const { cluster, user, namespace } = options;
  const { manifests, recorded, old, state, webhooks, faults, notes } = await readFiles(options);
  const note = (sentence: string) => void notes.add(sentence);
  const all = [...manifests, ...recorded];
  const { kubernetes } = cluster[1];
  const unknown = describeUnknownMinor(kubernetes);
  if (unknown !== undefined) note(unknown);
  const given = [...state, ...old, ...all].map(({ object }) => object);
  const kinds = buildKindIndex(given, kubernetes);
  const sending: Omit<CheckRequestOptions, "operation"> = { user, namespace };
  for (const remark of describeDuplicateOrLostManifests(manifests, old, kinds, sending)) note(remark);
  const isStateKnown = options.state.length > 0;
  if (isStateKnown && state.length === 0)
    note(`--state ${options.state.join(", ")} contains no manifest, so no object exists`);
  const existing = createEmptyObjectStore(cluster[0], kinds, note);
  // The checked DELETEs need existing objects, so the manifests are put into the imitated API server, too.
  const deleted = options.operation === "DELETE" ? manifests : [];
  const filled = [...fillAll([...deleted, ...state], kinds, sending, kubernetes).values()];
  for (const object of [...apiServerOwnObjects, ...filled]) {
    const kind = kinds.of(object.apiVersion ?? "", object.kind ?? "");
    if (kind !== undefined) existing.put(kind.resource, object);
  }
  const buildCreations = (objects: readonly KubernetesObject[]) =>
    objects.flatMap((object) => buildCreation(object, kinds, user));
  const { environment, rules, objects, secretsRead } = await assembleChain(
    options,
    {
      isLive: false,
      isStateKnown,
      foreign: webhooks,
      openCapabilities: (tell, _, plugin) => {
        const capabilities = existing.capabilities(tell);
        return isStateKnown || plugin === undefined ? capabilities : restrictToKnown(plugin, capabilities, tell);
      },
      // Each admission policy or quota among the manifests concerns all of them, also earlier ones: the API server
      // applies it only some time after it was sent.
      readPolicies: async () => ({ objects: listStanding([...state, ...manifests], namespace), unreadable: [] }),
      creations: buildCreations(filled),
      listCreations: (namespace) => buildCreations(existing.listAll(namespace)),
      listComing: (resource) => {
        const found = selectNamed(resource, all, kinds);
        for (const { kind } of found)
          note(
            `each ${kind} among the manifests holds for what is sent after it; in a cluster, once postern manifests has been applied again`,
          );
        return found;
      },
    },
    note,
  );
  const missing = new Set<string>();
  const unvalidated = new Set<string>();
  const findCustomKind = createCustomKinds(objects, kubernetes);
  const evaluations = evaluateManifestsInOrder(all, {
    ...environment,
    kinds,
    existing,
    asking: { ...sending, operation: options.operation },
    old: fillAll(old, kinds, sending, kubernetes),
    findCustomKind,
    // Without plugins, only rules and webhooks are asked.
    validate:
      options.plugins[0] === "none"
        ? undefined
        : createValidation(
            kubernetes,
            findCustomKind,
            ({ apiVersion, kind }) => void unvalidated.add(`${kind} (${apiVersion})`),
          ),
    isStateKnown,
    namespaceHint: "that may be among the manifests or in --state",
    noteMissingNamespace: (namespace) => void missing.add(namespace),
  });
  const end = () => {
    for (const sentence of describeMissingNamespaces(missing, isStateKnown)) note(sentence);
    for (const sentence of describeUnknownValidation(unvalidated)) note(sentence);
    if (!isStateKnown && rules.asking.size > 0) note(describeAskingRules(rules.asking));
  };
  return { faults, notes, secretsRead, evaluations: runAtEnd(evaluations, end) };
};

const readFiles = async ({ paths, reviews, ...options }: CheckOptions) => {
  if (options.user.username === "") throw new Complaint("--as must name a user");
  if (!isLabel(options.namespace))
    throw new Complaint(`--namespace takes the name of one, such as default, not ${JSON.stringify(options.namespace)}`);
  const input = await readInput(paths);
  const recorded = await readInput(reviews);
  const old = await readManifests(options.old, "--old");
  const state = await readManifests(options.state, "--state");
  const webhooks = await readManifests(options.webhooks, "--webhooks");
  for (const { source, line, object } of webhooks.filter((manifest) => !isConfiguration(manifest)))
    throw new Complaint(
      `--webhooks ${toSourceName(source.name)}:${line} is a ${object.kind}, no ${hookKinds.join(" and no ")}`,
    );
  const faults = [...input.faults, ...recorded.faults];
  for (const { source, line, object } of recorded.manifests.filter((manifest) => !isReview(manifest)))
    faults.push({ file: source.name, line, sentence: `is a ${object.kind}, no AdmissionReview` });
  const notes = new Set([...input.notes, ...input.manifests.filter(isForKustomize).map(describeLeftOut)]);
  const manifests = input.manifests.filter((manifest) => !isForKustomize(manifest));
  const asReviews = recorded.manifests.filter(isReview);
  if (manifests.length + asReviews.length + faults.length === 0)
    throw new Complaint(`there is no manifest in ${[...paths, ...reviews].join(", ")}`);
  return { manifests, recorded: asReviews, old, state, webhooks, faults, notes };
};

/** Yields all elements, then calls `end`; also calls it if the consumer stops early. */
const runAtEnd = async function* <T>(all: AsyncGenerator<T>, end: () => void): AsyncGenerator<T> {
  try {
    yield* all;
  } finally {
    end();
  }
};

/**
 * Returns the capabilities of a plugin without --state. Nothing is known of what the cluster has beside the manifests: neither
 * whether an object exists that no manifest has, nor which objects a list has.
 */
const restrictToKnown = (
  plugin: string,
  capabilities: Capabilities,
  tell: (sentence: string) => void,
): Capabilities => ({
  ...capabilities,
  list: (kind, namespace, ...more) => {
    const place = namespace === undefined ? "" : ` in namespace ${namespace}`;
    tell(`which ${kind.resource} exist${place}; they may be among the manifests or in --state`);
    return capabilities.list(kind, namespace, ...more);
  },
  get: async (kind, name, ...more) => {
    const found = await capabilities.get(kind, name, ...more);
    const isAssumed = found !== undefined && isAssumedNamespace(found);
    // NamespaceLifecycle and its like read a namespace to see whether it exists, other plugins for its labels.
    if (isAssumed && !plugin.startsWith("Namespace"))
      tell(`what labels namespace ${name} has; that may be among the manifests or in --state`);
    else if (isAssumed || found === undefined)
      tell(`whether ${kind.resource} "${name}" exists; that may be among the manifests or in --state`);
    return found;
  },
});

const describeAskingRules = (rules: ReadonlySet<string>): string =>
  `${[...rules].sort().join(", ")} ${rules.size === 1 ? "asks" : "ask"} the cluster, of which nothing is known but these manifests; --state says what exists`;

const hookKinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
const isConfiguration = ({ object: { kind } }: Manifest) => hookKinds.includes(String(kind));

const isLabel = (text: string) => /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(text);

/**
 * Reports whether a manifest is a file for kustomize: such files are often among manifests, but no API server knows
 * their kinds.
 */
const isForKustomize = ({ object: { apiVersion } }: Manifest) =>
  /^kustomize\.config\.k8s\.io\//.test(String(apiVersion));

const describeLeftOut = ({ source, object }: Manifest) =>
  `${toSourceName(source.name)} is for kustomize, and left out; kustomize build prints manifests of this ${object.kind}, which - reads`;

const fillAll = (
  manifests: readonly Manifest[],
  kinds: KindIndex,
  asking: Omit<CheckRequestOptions, "operation">,
  kubernetes: string | undefined,
) =>
  new Map(
    normalizeManifestObjects(manifests, kinds, asking).map(({ key, object, manifest }) => {
      // By the time of creation, plugins choose among several default classes.
      const { creationTimestamp } = toMap(manifest.object.metadata);
      const metadata = { ...object.metadata, ...(typeof creationTimestamp === "string" && { creationTimestamp }) };
      return [key, toStoredObject({ ...object, metadata }, kubernetes)];
    }),
  );

/** Returns the policies and quotas, and the definitions of kinds that policies change; the last one of each name counts. */
const listStanding = (manifests: readonly Manifest[], namespace: string): KubernetesObject[] => {
  const all = manifests
    .filter(({ object }) => isPolicyOrQuota(object) || object.kind === "CustomResourceDefinition")
    .map(({ object }) => setDefaultNamespace(object, namespace));
  const toName = ({ kind, metadata }: KubernetesObject) => `${kind} ${metadata?.namespace}/${metadata?.name}`;
  return [...new Map(all.map((object) => [toName(object), object])).values()];
};

const setDefaultNamespace = (object: KubernetesObject, otherwise: string): KubernetesObject => {
  const { metadata } = object;
  return { ...object, metadata: { ...metadata, namespace: metadata?.namespace || otherwise } };
};

const selectNamed = ({ group, resource }: ResourceType, manifests: readonly Manifest[], kinds: KindIndex) =>
  manifests.flatMap(({ object }): KubernetesObject[] => {
    const found = kinds.of(String(object.apiVersion), String(object.kind))?.resource;
    const isNamed = typeof getOwn(object.metadata, "name") === "string";
    return isNamed && found?.group === group && found.resource === resource ? [object] : [];
  });

import { stat } from "node:fs/promises";
import { getOwn, toMap } from "#lib/json.ts";
import type { ResourceType } from "#lib/needs.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { describeMinorOutOfRange } from "#lib/since.ts";
import { apiServerOwnObjects } from "../apiserver/initial-objects.ts";
import { buildKindIndex, isCustomResourceGroup, type KindIndex } from "../apiserver/kinds/kinds.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Kubernetes } from "../kubernetes/kubernetes.ts";
import { readInput, readManifests } from "../manifests/input.ts";
import { type Manifest, toSourceName } from "../manifests/manifests.ts";
import { toStoredObject } from "../manifests/object-store.ts";
import { managedByLabel } from "../webhooks/labels.ts";
import { assembleChain } from "./chain.ts";
import { type Assumption, describeAssumption, restrictToManifests } from "./evaluation/assumptions.ts";
import { evaluateManifestsInOrder, isAssumedNamespace } from "./evaluation/evaluate.ts";
import { createEmptyObjectStore } from "./evaluation/existing-objects.ts";
import { createRequestHandlers, selectDefinitions } from "./evaluation/kubernetes-handlers.ts";
import type {
  ChainOptions,
  CheckRequestOptions,
  FieldValidation,
  ObjectEvaluation,
} from "./evaluation/object-evaluation.ts";
import { buildCreation, isReview, normalizeManifestObjects } from "./evaluation/requests.ts";
import { isPolicyOrQuota, policyKinds } from "./evaluation/unevaluated.ts";
import {
  describeAssumptions,
  describeDuplicateOrLostManifests,
  describeIdlePolicies,
  describeLeftOut,
  describeMissingKubernetes,
  describeMissingNamespaces,
  describeProgramFiles,
  describeUnknownValidation,
} from "./notes.ts";

/** The options of `postern check` without --live. */
interface CheckOptions extends ChainOptions {
  /** The files, folders and globs that name the manifests to check. */
  paths: readonly string[];
  /** Whether kustomize and helm make manifests of the kustomizations and charts in the folders. */
  build?: boolean;
  /** Paths of recorded reviews. */
  reviews: readonly string[];
  /** Paths of manifest files with the objects that already exist in the imitated cluster. */
  state: readonly string[];
  /** True if check assumes nothing about the cluster: a verdict that depends on unknown objects is undecided. */
  isStrict: boolean;
  /** Paths of the manifests of old objects, from which updates start. */
  old: readonly string[];
  operation: Operation | undefined;
  validate: FieldValidation;
  namespace: string;
  /** Starts Kubernetes' own handlers; returns undefined if they aren't there. */
  startKubernetes(minor: string | undefined): Promise<Kubernetes | undefined>;
}

/**
 * Reads manifests, but evaluates none: iterating over `evaluations` evaluates them. The notes and the Secrets that were
 * read grow meanwhile.
 */
export const prepareManifestCheck = async (options: CheckOptions) => {
  const { cluster, user, namespace } = options;
  const { kubernetes } = cluster[1];
  // Without plugins, only rules and webhooks are asked.
  const isValidated = options.plugins[0] !== "none";
  const starting = isValidated ? options.startKubernetes(kubernetes) : undefined;
  starting?.catch(() => {});
  const { manifests: read, recorded, old, state, webhooks, faults, notes } = await readFiles(options);
  const note = (sentence: string) => void notes.add(sentence);
  const unknown = describeMinorOutOfRange(kubernetes);
  if (unknown !== undefined) note(unknown);
  const objects = [...state, ...old, ...read, ...recorded].map(({ object }) => object);
  const kinds = buildKindIndex(objects, kubernetes);
  const manifests = read.filter((manifest) => !isForProgram(manifest, kinds));
  for (const remark of describeProgramFiles(read.filter((manifest) => isForProgram(manifest, kinds)))) note(remark);
  const all = [...manifests, ...recorded];
  if (all.length + faults.length === 0)
    throw new Complaint(
      [`there is no manifest in ${[...options.paths, ...options.reviews].join(", ")}`, ...notes].join("; "),
    );
  const requestOptions: Omit<CheckRequestOptions, "operation"> = { user, namespace };
  for (const remark of describeDuplicateOrLostManifests(manifests, old, kinds, requestOptions)) note(remark);
  const isStateKnown = options.state.length > 0;
  if (isStateKnown && state.length === 0 && (await hasFolder(options.state)))
    throw new Complaint(`there is no manifest in --state ${options.state.join(", ")}`);
  // A file without manifests, such as /dev/null, stands for a new cluster.
  if (isStateKnown && state.length === 0)
    note(`--state ${options.state.join(", ")} contains no manifest, so no object exists`);
  const isAssuming = !isStateKnown && !options.isStrict;
  const assumptions = new Map<string, Assumption>();
  const noteAssumption = (assumption: Assumption) => void assumptions.set(describeAssumption(assumption), assumption);
  const existing = createEmptyObjectStore(cluster[0], kinds, isAssuming ? () => {} : note);
  // The checked DELETEs need existing objects, so the manifests are put into the imitated API server, too.
  const deleted = options.operation === "DELETE" ? manifests : [];
  const filled = [...fillAll([...deleted, ...state], kinds, requestOptions, kubernetes).values()];
  for (const object of [...apiServerOwnObjects, ...filled]) {
    const kind = kinds.of(object.apiVersion ?? "", object.kind ?? "");
    if (kind !== undefined) existing.put(kind.resource, object);
  }
  const buildCreations = (objects: readonly KubernetesObject[]) =>
    objects.flatMap((object) => buildCreation(object, kinds, user));
  // Each admission policy or quota among the manifests concerns all of them, also earlier ones: the API server
  // applies it only some time after it was sent.
  const policyManifests = mapPoliciesToManifests([...state, ...manifests], namespace);
  const { environment, secretsRead, idle } = await assembleChain(
    options,
    {
      isLive: false,
      isStateKnown,
      isUseKnown: isStateKnown || isAssuming,
      foreign: webhooks,
      openCapabilities: (tell, _, plugin) => {
        if (isStateKnown) return existing.capabilities(tell);
        return restrictToManifests(existing.capabilities(tell), {
          plugin,
          isStrict: options.isStrict,
          isAssumedNamespace,
          tell: (sentence, scope) => {
            if (scope?.assumed) noteAssumption(scope.assumed);
            tell(sentence, scope);
          },
        });
      },
      readPolicies: async () => ({ objects: [...policyManifests.keys()], unreadable: [] }),
      creationsBefore: buildCreations(filled),
      listCreations: (namespace) => buildCreations(existing.listAll(namespace)),
      listCheckedObjects: (resource) => {
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
  const definitions = selectDefinitions([...state, ...manifests], all);
  const module = await (starting ?? (definitions.length > 0 ? options.startKubernetes(kubernetes) : undefined));
  if (isValidated && module === undefined) note(describeMissingKubernetes());
  const evaluations = evaluateManifestsInOrder(all, {
    ...environment,
    kinds,
    existing,
    requestOptions: { ...requestOptions, operation: options.operation },
    old: fillAll(old, kinds, requestOptions, kubernetes),
    handlers:
      module &&
      (await createRequestHandlers(module, {
        kinds,
        definitions,
        isValidated,
        reportUnknown: ({ apiVersion, kind }) => void unvalidated.add(`${kind} (${apiVersion})`),
      })),
    isStateKnown,
    validate: options.validate,
    ...(isAssuming && { noteAssumption }),
    ...(isValidated && {
      noteUndefinedKind: ({ apiVersion, kind }) => void unvalidated.add(`${kind} (${apiVersion})`),
    }),
    namespaceHint: "that may be among the manifests or in --state",
    noteMissingNamespace: (namespace) => void missing.add(namespace),
  });
  const denied = new Set<Manifest>();
  const addFinalNotes = () => {
    const findManifest = (object: KubernetesObject) => policyManifests.get(object);
    // A policy whose own manifest is denied needs no further note. A binding does: the verdicts name only its policy.
    const isAdmitted = (object: KubernetesObject) => !denied.has(findManifest(object) as Manifest);
    const refused = idle.refused.filter(({ object }) => isAdmitted(object) || !policyKinds.includes(object.kind ?? ""));
    const unbound = idle.unbound.filter(isAdmitted);
    for (const sentence of describeIdlePolicies({ refused, unbound }, findManifest)) note(sentence);
    if (isStateKnown) for (const sentence of describeMissingNamespaces(missing)) note(sentence);
    for (const sentence of describeUnknownValidation(unvalidated)) note(sentence);
    for (const sentence of describeAssumptions([...assumptions.values()])) note(sentence);
  };
  const recordDenial = ({ subject, checked }: ObjectEvaluation) => {
    if (checked.verdict === "denied") denied.add(subject.manifest);
  };
  const files = [...new Set([...state, ...old, ...read, ...recorded, ...webhooks].map(({ source }) => source.name))];
  return { faults, notes, files, secretsRead, evaluations: watch(evaluations, recordDenial, addFinalNotes) };
};

/** Reads and sorts the files that the options of `postern check` name. Wrong options are Complaints. */
const readFiles = async ({ paths, reviews, ...options }: CheckOptions) => {
  if (options.user.username === "") throw new Complaint("--as must name a user");
  if (!isLabel(options.namespace))
    throw new Complaint(
      `--namespace takes a namespace name, such as default, not ${JSON.stringify(options.namespace)}`,
    );
  const build = options.build ? { namespace: options.namespace, kubernetes: options.cluster[1].kubernetes } : undefined;
  const input = await readInput(paths, { readsLikeKubectl: true, chartsAndKustomizations: { build } });
  const recorded = await readInput(reviews);
  const old = await readManifests(options.old, "--old");
  const state = await readManifests(options.state, "--state", /* mayFileBeEmpty */ true);
  const webhooks = await readManifests(options.webhooks, "--webhooks");
  for (const { source, line, object } of webhooks.filter((manifest) => !isConfiguration(manifest)))
    throw new Complaint(
      `--webhooks ${toSourceName(source.name)}:${line} is a ${object.kind}, no ${hookKinds.join(" and no ")}`,
    );
  const givenNames = new Set(webhooks.map(({ object }) => toName(object)));
  // Configurations of Postern are left out, because the check makes those of its rules from postern.yaml.
  const stateConfigurations = state.filter(
    (one) => isConfiguration(one) && !isOfPostern(one) && !givenNames.has(toName(one.object)),
  );
  const faults = [...input.faults, ...recorded.faults];
  for (const { source, line, object } of recorded.manifests.filter((manifest) => !isReview(manifest)))
    faults.push({ file: source.name, line, sentence: `is a ${object.kind}, no AdmissionReview` });
  const notes = new Set([
    ...describeLeftOut(input, build !== undefined),
    ...input.manifests.filter(isForKustomize).map(describeKustomizeFile),
  ]);
  const manifests = input.manifests.filter((manifest) => !isForKustomize(manifest));
  const asReviews = recorded.manifests.filter(isReview);
  return { manifests, recorded: asReviews, old, state, webhooks: [...webhooks, ...stateConfigurations], faults, notes };
};

const hasFolder = async (paths: readonly string[]): Promise<boolean> => {
  const found = await Promise.all(paths.map((path) => stat(path).catch(() => undefined)));
  return found.some((one) => one?.isDirectory());
};

/** Yields all elements, each after a call of `take`, and calls `end` at the end, also if the consumer stops early. */
const watch = async function* <T>(all: AsyncGenerator<T>, take: (one: T) => void, end: () => void): AsyncGenerator<T> {
  try {
    for await (const one of all) {
      take(one);
      yield one;
    }
  } finally {
    end();
  }
};

const hookKinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
const isConfiguration = ({ object: { kind } }: Manifest) => hookKinds.includes(String(kind));
const isOfPostern = ({ object: { metadata } }: Manifest) => toMap(toMap(metadata).labels)[managedByLabel] === "postern";
const toName = ({ kind, metadata }: KubernetesObject) => `${kind} ${metadata?.namespace}/${metadata?.name}`;

const isLabel = (text: string) => /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(text);

/**
 * Reports whether a manifest is a file for kustomize: such files are often among manifests, but no API server knows
 * their kinds.
 */
const isForKustomize = ({ object: { apiVersion } }: Manifest) =>
  /^kustomize\.config\.k8s\.io\//.test(String(apiVersion));

const describeKustomizeFile = ({ source }: Manifest) =>
  `${toSourceName(source.name)} is for kustomize, and left out; run kustomize build FOLDER | postern check -`;

/**
 * Reports whether a manifest is a file that a program reads, such as a KubeletConfiguration: it has no name, which
 * every object of a custom kind needs.
 */
const isForProgram = (manifest: Manifest, kinds: KindIndex): boolean => {
  const { apiVersion, kind, metadata } = manifest.object;
  const { group } = splitApiVersion(String(apiVersion));
  const { name, generateName } = toMap(metadata);
  const mayBeCustom = isCustomResourceGroup(group) || group.endsWith(".config.k8s.io");
  if (!mayBeCustom || name || generateName || isReview(manifest)) return false;
  return kinds.of(String(apiVersion), String(kind)) === undefined;
};

/** Returns the manifests' objects as an API server stores them, with defaults, by their keys. */
const fillAll = (
  manifests: readonly Manifest[],
  kinds: KindIndex,
  requestOptions: Omit<CheckRequestOptions, "operation">,
  kubernetes: string | undefined,
) =>
  new Map(
    normalizeManifestObjects(manifests, kinds, requestOptions).map(({ key, object, manifest }) => {
      // Of several default classes, plugins choose the one with the newest creationTimestamp, so it is kept.
      const { creationTimestamp } = toMap(manifest.object.metadata);
      const metadata = { ...object.metadata, ...(typeof creationTimestamp === "string" && { creationTimestamp }) };
      return [key, toStoredObject({ ...object, metadata }, kubernetes)];
    }),
  );

/** Maps the policies, quotas and definitions of kinds to their manifests; the last object of each name counts. */
const mapPoliciesToManifests = (manifests: readonly Manifest[], namespace: string): Map<KubernetesObject, Manifest> => {
  const byName = new Map<string, [KubernetesObject, Manifest]>();
  for (const manifest of manifests) {
    if (!isPolicyOrQuota(manifest.object) && manifest.object.kind !== "CustomResourceDefinition") continue;
    const object = setDefaultNamespace(manifest.object, namespace);
    byName.set(toName(object), [object, manifest]);
  }
  return new Map(byName.values());
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

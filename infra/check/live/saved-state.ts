import { readFile, stat } from "node:fs/promises";
import { toSelector } from "#lib/admission-policies/matching.ts";
import { getOwn, isMap, type JsonMap, toList, toMap } from "#lib/json.ts";
import { joinApiVersion, splitApiVersion } from "#lib/objects/api-version.ts";
import { isSelected } from "#lib/objects/selection.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { Complaint } from "../../cli/complaint.ts";
import { formatCount } from "../../cli/progress.ts";
import { lastAppliedAnnotation } from "../../diff/secret-values.ts";
import { formatYamlDocuments } from "../../diff/yaml-lines.ts";
import { managedByLabel } from "../../webhooks/labels.ts";
import { contentOmittedAnnotation } from "../evaluation/existing-objects.ts";
import { openFileSink } from "../reports/outputs.ts";
import { type ClusterReadOptions, openCluster } from "./cluster.ts";
import type { DiscoveredResource } from "./discovery.ts";
import { toResourceName } from "./selected-kinds.ts";

/** What is saved of a kind's objects beside name, namespace and labels. */
interface SavedKind {
  /** The only annotations that are kept. If absent, all are kept, except kubectl's copy of the object. */
  annotations?: readonly string[];
  /** True if plugins choose an object by its age. */
  keepsAge?: boolean;
  /** True if the saved objects are marked as having content that isn't saved. */
  isContentOmitted?: boolean;
  /** Returns the members of an object that are saved; undefined if the object isn't saved. */
  keep(object: JsonMap): JsonMap | undefined;
}

/** Returns a function that returns these members of an object. */
const pick =
  (...names: string[]) =>
  (object: unknown): JsonMap =>
    Object.fromEntries(
      names.filter((name) => getOwn(object, name) !== undefined).map((name) => [name, getOwn(object, name)]),
    );

/** Keeps what other programs' webhook entries match, but not their secrets. Postern's own aren't kept. */
const keepWebhooks: SavedKind["keep"] = ({ metadata, webhooks }) =>
  getOwn(getOwn(metadata, "labels"), managedByLabel) === "postern"
    ? undefined
    : {
        webhooks: toList(webhooks).map((webhook) => ({
          ...toMap(webhook),
          clientConfig: keepHost(toMap(webhook).clientConfig),
        })),
      };

/** Returns a webhook's address without its path and user, which may have a password, and without its CA bundle. */
const keepHost = (config: unknown): JsonMap => {
  const { service, url } = toMap(config);
  if (service !== undefined) return { service: pick("name", "namespace", "port")(service) };
  return { url: URL.canParse(String(url)) ? `https://${new URL(String(url)).host}/` : "https://unknown.invalid/" };
};

/** Keeps a CustomResourceDefinition, without its descriptions and without the path of its webhook. */
const keepDefinition: SavedKind["keep"] = ({ spec }) => {
  const { versions, conversion, ...rest } = toMap(spec);
  return {
    spec: {
      ...rest,
      ...(conversion !== undefined && { conversion: keepConversion(toMap(conversion)) }),
      versions: toList(versions).map((version) => {
        const { schema, ...others } = toMap(version);
        return { ...others, ...(schema !== undefined && { schema: dropDescriptions(schema) }) };
      }),
    },
  };
};

/**
 * Keeps how the versions of a CustomResourceDefinition are converted. Of a webhook's address, only the host is kept:
 * the path may be a password.
 */
const keepConversion = ({ strategy, webhook }: JsonMap): JsonMap => {
  const { clientConfig, conversionReviewVersions } = toMap(webhook);
  if (strategy !== "Webhook") return { strategy };
  return { strategy, webhook: { clientConfig: keepHost(clientConfig), conversionReviewVersions } };
};

/** Returns a schema without its descriptions, which are most of its text. */
const dropDescriptions = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(dropDescriptions);
  if (!isMap(schema)) return schema;
  return Object.fromEntries(
    Object.entries(schema)
      .filter(([key, value]) => key !== "description" || typeof value !== "string")
      .map(([key, value]) => [key, dropInMember(key, value)]),
  );
};
const dropInMember = (key: string, value: unknown) => {
  if (valueMembers.has(key)) return value;
  return schemaMaps.has(key) ? dropInEach(value) : dropDescriptions(value);
};
const dropInEach = (value: unknown) =>
  Object.fromEntries(Object.entries(toMap(value)).map(([key, schema]) => [key, dropDescriptions(schema)]));
/** Members of a schema that hold schemas by the names of fields, and members that hold values. */
const schemaMaps = new Set(["properties", "patternProperties", "definitions", "dependencies"]);
const valueMembers = new Set(["default", "enum", "example", "x-kubernetes-validations"]);

const keepSpec = pick("spec");
const accountMembers = ["secrets", "imagePullSecrets", "automountServiceAccountToken"];
const defaultClass = "kubernetes.io/is-default-class";

/**
 * The resources that are saved, by name and group; `--state` needs no others. Only the listed annotations are kept;
 * without a list, all are kept. Plugins choose the newest one of several default classes, so these two kinds keep their
 * age.
 */
const savedKinds: Record<string, SavedKind> = {
  namespaces: { keep: ({ status }) => ({ status: pick("phase")(status) }) },
  limitranges: { annotations: [], keep: keepSpec },
  resourcequotas: { annotations: [], keep: pick("spec", "status") },
  serviceaccounts: { annotations: ["kubernetes.io/enforce-mountable-secrets"], keep: pick(...accountMembers) },
  "priorityclasses.scheduling.k8s.io": { annotations: [], keep: pick("value", "globalDefault", "preemptionPolicy") },
  "storageclasses.storage.k8s.io": {
    annotations: [`storageclass.${defaultClass}`, `storageclass.beta.${defaultClass}`],
    keepsAge: true,
    keep: pick("provisioner", "allowVolumeExpansion", "volumeBindingMode"),
  },
  "ingressclasses.networking.k8s.io": {
    annotations: [`ingressclass.${defaultClass}`],
    keepsAge: true,
    keep: ({ spec }) => ({ spec: pick("controller")(spec) }),
  },
  "runtimeclasses.node.k8s.io": { annotations: [], keep: pick("handler", "overhead", "scheduling") },
  "deviceclasses.resource.k8s.io": {
    annotations: [],
    keep: ({ spec }) => ({ spec: pick("extendedResourceName")(spec) }),
  },
  "customresourcedefinitions.apiextensions.k8s.io": {
    annotations: ["api-approved.kubernetes.io"],
    keep: keepDefinition,
  },
  "validatingadmissionpolicies.admissionregistration.k8s.io": { keep: keepSpec },
  "validatingadmissionpolicybindings.admissionregistration.k8s.io": { annotations: [], keep: keepSpec },
  "mutatingadmissionpolicies.admissionregistration.k8s.io": { keep: keepSpec },
  "mutatingadmissionpolicybindings.admissionregistration.k8s.io": { annotations: [], keep: keepSpec },
  "mutatingwebhookconfigurations.admissionregistration.k8s.io": { annotations: [], keep: keepWebhooks },
  "validatingwebhookconfigurations.admissionregistration.k8s.io": { annotations: [], keep: keepWebhooks },
};

/** A parameter of policies is kept as it is, because an expression may read any field. */
const savedParameter: SavedKind = { keep: ({ apiVersion: _, kind: __, metadata: ___, status: ____, ...rest }) => rest };

/** Of a Secret, only its name and labels are kept: what depends on its content is undecided. */
const savedSecret: SavedKind = { annotations: [], isContentOmitted: true, keep: () => ({}) };

/**
 * Writes what `--state` needs of a cluster to a file, sorted, and returns a sentence about it. Throws if something
 * can't be read: what is missing in the file wouldn't exist for a check. Throws before it reads the cluster if the file
 * has content of another program or of the user.
 */
export const saveClusterState = async (
  options: ClusterReadOptions,
  file: string,
  signal: AbortSignal,
): Promise<string> => {
  await requireReplaceable(file);
  const { found, list } = await openCluster(options, signal);
  const objects: KubernetesObject[] = [];
  const read = async function* (
    resource: DiscoveredResource,
    namespaces: readonly string[],
  ): AsyncGenerator<KubernetesObject> {
    for await (const page of list(resource, namespaces)) {
      if ("broken" in page)
        throw new Complaint(`${toResourceName(resource)} can't be read, so nothing is saved: ${page.broken}`, 3);
      yield* page.items;
    }
  };
  const [lost] = found.unknown.filter(({ group }) => Object.keys(savedKinds).some((name) => toGroup(name) === group));
  if (lost)
    throw new Complaint(`the kinds in ${joinApiVersion(lost)} can't be read, so nothing is saved: ${lost.why}`, 3);
  const versionsByName = Map.groupBy(found.resources, toResourceName);
  for (const [name, savedKind] of Object.entries(savedKinds)) {
    // Discovery lists the preferred version of a resource first.
    const resource = versionsByName.get(name)?.[0];
    // An older minor doesn't serve every kind.
    if (!resource?.verbs.includes("list")) continue;
    const isLimited = resource.namespaced || name === "namespaces";
    for await (const object of read(resource, isLimited ? options.namespaces : []))
      objects.push(...toSavedObject(object, savedKind));
  }
  // The objects that admission policies use as parameters are saved, too.
  for (const { apiVersion, kind, selects } of listPolicyParameters(objects)) {
    const resource = found.resources.find((one) => joinApiVersion(one.kind) === apiVersion && one.kind.kind === kind);
    if (resource === undefined) continue;
    for await (const object of read(resource, []))
      if (selects(object)) objects.push(...toSavedObject(object, kind === "Secret" ? savedSecret : savedParameter));
  }
  const sorted = [...new Map(objects.map((object) => [toKey(object), object])).entries()].sort(([one], [other]) =>
    one < other ? -1 : 1,
  );
  const sink = await openFileSink(file);
  try {
    await sink.write(`${firstLineStart}${options.cluster[0]} has, for postern check --state.\n`);
    await sink.write(formatYamlDocuments(sorted.map(([, object]) => object)));
    await sink.end();
  } catch (error) {
    await sink.abandon();
    throw error;
  }
  return `${file} has ${formatCount(sorted.length, "object")} of cluster ${options.cluster[0]}`;
};

const firstLineStart = "# What cluster ";

/** Throws if a file has content that no `--save` has written. */
const requireReplaceable = async (file: string): Promise<void> => {
  const found = await stat(file).catch(() => undefined);
  if (!found?.isFile() || found.size === 0) return;
  const text = await readFile(file, "utf8");
  if (!text.startsWith(firstLineStart))
    throw new Complaint(
      `--save ${file} would replace a file that --save hasn't written; name a new file, or delete this one first`,
    );
};

const toGroup = (name: string) => name.split(".").slice(1).join(".");

const toKey = ({ apiVersion = "", kind, metadata }: KubernetesObject): string =>
  [kind, splitApiVersion(apiVersion).group, metadata?.namespace ?? "", metadata?.name].join(" ");

/** Returns the part of an object that is saved for --state, in a list; an empty list if nothing is saved. */
const toSavedObject = (
  object: KubernetesObject,
  { annotations: keptNames, keepsAge, isContentOmitted, keep }: SavedKind,
): KubernetesObject[] => {
  const kept = keep({ ...object });
  if (kept === undefined) return [];
  const { metadata = {} } = object;
  const isKept = (name: string) => name !== lastAppliedAnnotation && (keptNames?.includes(name) ?? true);
  const keptAnnotations = isContentOmitted
    ? [[contentOmittedAnnotation, "yes"]]
    : Object.entries(metadata.annotations ?? {}).filter(([name]) => isKept(name));
  const annotations = Object.fromEntries(keptAnnotations);
  const members = ["name", "namespace", "labels", "deletionTimestamp", ...(keepsAge ? ["creationTimestamp"] : [])];
  return [
    {
      ...pick("apiVersion", "kind")(object),
      metadata: { ...pick(...members)(metadata), ...(keptAnnotations.length > 0 && { annotations }) },
      ...kept,
    },
  ];
};

/** Lists the kinds of policies' parameters. `selects` reports whether a binding selects an object of the kind. */
const listPolicyParameters = (objects: readonly KubernetesObject[]) =>
  objects.flatMap((binding) => {
    const { policyName, paramRef } = toMap(getOwn(binding, "spec"));
    const isBound = ({ kind, metadata }: KubernetesObject) =>
      `${kind}Binding` === binding.kind && metadata?.name === policyName;
    const { apiVersion, kind } = toMap(getOwn(getOwn(objects.find(isBound), "spec"), "paramKind"));
    const { name, namespace, selector } = toMap(paramRef);
    const selects = ({ metadata }: KubernetesObject) =>
      (namespace === undefined || metadata?.namespace === namespace) &&
      (name === undefined ? isSelected(toSelector(toMap(selector)), metadata?.labels) : metadata?.name === name);
    return paramRef && kind ? [{ apiVersion, kind, selects }] : [];
  });

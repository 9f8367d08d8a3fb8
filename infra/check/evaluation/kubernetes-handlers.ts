import type { AdmissionAttributes } from "#infra/apiserver/admission/types.ts";
import { exactJson } from "#lib/exact-json.ts";
import { getOwn, isMap, toList, toMap } from "#lib/json.ts";
import { joinApiVersion, splitApiVersion } from "#lib/objects/api-version.ts";
import type { KubernetesObject, Status } from "#lib/review.ts";
import type { KindIndex } from "../../apiserver/kinds/kinds.ts";
import { findModule } from "../../kubernetes/find-module.ts";
import { createKubernetes, type Kubernetes } from "../../kubernetes/kubernetes.ts";
import type { KubernetesAnswer } from "../../kubernetes/requests.ts";
import type { FieldPath, Manifest } from "../../manifests/manifests.ts";

/** The answer of Kubernetes' handlers: the resulting object, a refusal (`status`), or why neither is known. */
export interface RequestAnswer {
  object?: KubernetesObject | undefined;
  status?: Status;
  undecided?: string | undefined;
  warnings: readonly string[];
}

/** Kubernetes' own handlers, as a check asks them. The answer is undefined for what they don't serve. */
export interface RequestHandlers {
  /** Decodes the object of a request and sets its defaults, as an API server does before mutating admission. */
  read(attributes: AdmissionAttributes): Promise<RequestAnswer | undefined>;
  /**
   * Returns the object of a creation as an API server would store it. Returns it unchanged if it can't be created, or
   * if it comes from a cluster and so has the time of its creation.
   */
  complete(creation: AdmissionAttributes): Promise<KubernetesObject>;
  /** Returns the fields of the value at a path of a custom resource, by its definition. */
  listCustomFields(apiVersion: string, kind: string, path: FieldPath): string[];
  /** Prepares and validates the object of a request, as an API server does after mutating admission. */
  store(attributes: AdmissionAttributes): Promise<RequestAnswer | undefined>;
}

/** Starts the module with Kubernetes' own request handlers, for a minor version; undefined if it isn't installed. */
export const startKubernetes = async (minor: string | undefined): Promise<Kubernetes | undefined> => {
  const packed = await findModule();
  return packed === undefined ? undefined : createKubernetes({ packed, ...(minor !== undefined && { minor }) });
};

/** Returns the definitions of the custom kinds that some manifests have; the last one of each name counts. */
export const selectDefinitions = (all: readonly Manifest[], used: readonly Manifest[]): KubernetesObject[] => {
  const kinds = new Set(used.map(({ object }) => `${String(object.apiVersion).split("/")[0]} ${object.kind}`));
  const definitions = all
    .map(({ object }): KubernetesObject => object)
    .filter(({ kind }) => kind === "CustomResourceDefinition")
    .filter((definition) => kinds.has(getDefinedKind(definition)));
  return [...new Map(definitions.map((definition) => [definition.metadata?.name, definition])).values()];
};

/** Lets the handlers serve custom kinds. Returns why kinds aren't served, by their groups and names. */
const defineKinds = async (
  module: Pick<Kubernetes, "handle">,
  definitions: readonly KubernetesObject[],
): Promise<ReadonlyMap<string, string>> => {
  const refused = new Map<string, string>();
  for (const definition of definitions) {
    const answer = await module.handle({
      verb: "define",
      apiVersion: String(definition.apiVersion),
      kind: "CustomResourceDefinition",
      name: String(definition.metadata?.name),
      object: exactJson.stringify(definition),
    });
    const reason = answer.undecided ?? answer.status?.message ?? `${definition.apiVersion} isn't served`;
    if (answer.object === undefined) refused.set(getDefinedKind(definition), reason);
  }
  return refused;
};

const getDefinedKind = (definition: KubernetesObject): string => {
  const { group, names } = toMap(getOwn(definition, "spec"));
  return `${group} ${toMap(names).kind}`;
};

/** Returns the functions by which a check asks Kubernetes' own handlers. */
export const createRequestHandlers = async (
  module: Pick<Kubernetes, "handle">,
  options: {
    kinds: KindIndex;
    /** The definitions of the custom kinds to serve. */
    definitions: readonly KubernetesObject[];
    /** False if objects are only read. */
    isValidated: boolean;
    /** Gets an object of a kind that the handlers don't serve. */
    reportUnknown(object: KubernetesObject): void;
  },
): Promise<RequestHandlers> => {
  const refused = await defineKinds(module, options.definitions);
  // With `until`, the answer has the object as mutating admission gets it, otherwise the object that is stored.
  const ask = async (attributes: AdmissionAttributes, until?: "admission"): Promise<RequestAnswer | undefined> => {
    const { kind, subResource, name, namespace, userInfo, operation, object, oldObject } = attributes;
    const isUpdate = operation === "UPDATE";
    const { username, uid, groups } = userInfo;
    const { notServed, status, ...answer } = await module.handle({
      verb: isUpdate ? "update" : "create",
      ...(until && { until }),
      apiVersion: joinApiVersion(kind),
      kind: kind.kind,
      ...(subResource && { subresource: subResource }),
      namespace: namespace ?? "default",
      ...(name && { name }),
      fieldValidation: until ? "Warn" : "Ignore",
      user: { ...(username && { username }), ...(uid && { uid }), ...(groups && { groups }) },
      object: object as KubernetesObject,
      ...(isUpdate && { oldObject: exactJson.stringify(oldObject) }),
    });
    return notServed ? undefined : { ...answer, ...(status && { status: toStatus(status) }) };
  };
  const isServed = ({ operation, subResource, kind, resource, object, oldObject }: AdmissionAttributes): boolean => {
    if (!isMap(object)) return false;
    if (operation === "CREATE") return !subResource;
    // The kinds of some subresources, such as Scale, don't say what is stored.
    const found = options.kinds.of(joinApiVersion(kind), kind.kind)?.resource;
    const isOfResource = found?.group === resource.group && found.resource === resource.resource;
    return operation === "UPDATE" && isMap(oldObject) && isOfResource;
  };

  const findRefusal = ({ kind: { group, kind } }: AdmissionAttributes) => refused.get(`${group} ${kind}`);

  return {
    listCustomFields: (apiVersion, kind, path) => {
      const { group, version } = splitApiVersion(apiVersion);
      const definition = options.definitions.find((one) => getDefinedKind(one) === `${group} ${kind}`);
      const found = toList(toMap(getOwn(definition, "spec")).versions).find((one) => toMap(one).name === version);
      const schema = path.reduce<unknown>(
        (value, step) =>
          toMap(value).items ?? getOwn(toMap(value).properties, step) ?? toMap(value).additionalProperties,
        toMap(toMap(found).schema).openAPIV3Schema,
      );
      return Object.keys(toMap(toMap(schema).properties));
    },
    complete: async (creation) => {
      const object = creation.object as KubernetesObject;
      if (!options.isValidated || getOwn(object.metadata, "creationTimestamp") !== undefined) return object;
      const answer = await ask(creation);
      const completed = (answer && leaveOutClusterFields(answer, creation).object) ?? object;
      // A creation drops the status, which controllers have written since.
      const status = getOwn(object, "status");
      return { ...completed, ...(status !== undefined && { status }) };
    },
    read: async (attributes) =>
      isServed(attributes) && findRefusal(attributes) === undefined ? ask(attributes, "admission") : undefined,
    store: async (attributes) => {
      if (!options.isValidated) return undefined;
      if (!isServed(attributes)) return refuseScale(attributes);
      const reason = findRefusal(attributes);
      if (reason !== undefined)
        return { undecided: `what its CustomResourceDefinition says, which is refused here: ${reason}`, warnings: [] };
      const { operation, object, oldObject } = attributes;
      const sent = operation === "UPDATE" ? replaceVersion(object, oldObject) : object;
      const answer = await ask({ ...attributes, object: sent });
      if (answer === undefined) options.reportUnknown(attributes.object as KubernetesObject);
      return answer && leaveOutClusterFields(answer, attributes);
    },
  };
};

/**
 * Refuses a Scale of a built-in kind if its replicas are negative. The handlers can't validate a Scale: they read it
 * from the object that it scales, which no review has.
 */
const refuseScale = (attributes: AdmissionAttributes): RequestAnswer | undefined => {
  const { subResource, kind, resource, name = "", object } = attributes;
  const { replicas } = toMap(getOwn(object, "spec"));
  const isBuiltInScale = subResource === "scale" && kind.kind === "Scale" && ["", "apps"].includes(resource.group);
  if (!isBuiltInScale || typeof replicas !== "number" || replicas >= 0) return undefined;
  const message = `Invalid value: ${replicas}: must be greater than or equal to 0`;
  const causes = [{ reason: "FieldValueInvalid", message, field: "spec.replicas" }];
  const details = { name, group: kind.group, kind: kind.kind, causes };
  const text = `Scale.autoscaling "${name}" is invalid: spec.replicas: ${message}`;
  return { status: { code: 422, reason: "Invalid", message: text, details }, warnings: [] };
};

const toStatus = ({ message = "", ...status }: NonNullable<KubernetesAnswer["status"]>): Status =>
  ({ ...status, message }) as Status;

/** Updates of some kinds need the version of the stored object. */
const replaceVersion = (object: unknown, old: unknown): unknown => {
  const { resourceVersion = "1" } = toMap(toMap(old).metadata);
  return { ...toMap(object), metadata: { ...toMap(toMap(object).metadata), resourceVersion } };
};

const httpTooLarge = 413;

/** What an API server says of addresses and ports that its flags don't provide for. */
const flagDependentFault =
  /not configured on this cluster|not configured for dual-stack services|port is not in the valid range/;

/** The fields of a Service that an API server sets by its flags and by what is free. */
const serviceFieldsSetByServer = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"];

/** Returns an answer without what depends on the storage and the flags of a cluster. */
const leaveOutClusterFields = (
  answer: RequestAnswer,
  { operation, object, oldObject }: AdmissionAttributes,
): RequestAnswer => {
  const causes = answer.status?.details?.causes ?? [];
  if (causes.length > 0 && causes.every(({ message }) => flagDependentFault.test(message ?? ""))) {
    const fields = causes.map(({ field }) => field).join(", ");
    return { undecided: `whether the cluster's addresses and node ports allow ${fields}`, warnings: answer.warnings };
  }
  // Defaults made the object too large: a manifest that is too large itself was refused when it was read. An API server
  // limits what a client sends, without defaults, so it may accept the object. A report then lists as
  // undecided: "API validation: what is larger than 3 MB with its defaults".
  if (answer.status?.code === httpTooLarge)
    return { undecided: "what is larger than 3 MB with its defaults", warnings: answer.warnings };
  if (answer.object === undefined) return answer;
  const { resourceVersion, ...metadata } = toMap(answer.object.metadata);
  const isCreation = operation === "CREATE";
  const stored = { ...answer.object, metadata: isCreation ? metadata : { ...metadata, resourceVersion } };
  if (stored.kind !== "Service") return { ...answer, object: stored };
  const given = [object, oldObject].map((one) => toMap(toMap(one).spec));
  const spec = Object.entries(toMap(getOwn(stored, "spec"))).filter(
    ([name]) => !serviceFieldsSetByServer.includes(name) || given.some((one) => one[name] !== undefined),
  );
  const givenPorts = new Set(given.flatMap(({ ports }) => toList(ports).map((port) => toMap(port).nodePort)));
  const ports = toList(Object.fromEntries(spec).ports).map((port) => {
    const { nodePort, ...rest } = toMap(port);
    return givenPorts.has(nodePort) && nodePort !== undefined ? { ...rest, nodePort } : rest;
  });
  const service = { ...stored, spec: { ...Object.fromEntries(spec), ports } };
  return { ...answer, object: service };
};

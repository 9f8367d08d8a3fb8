import { setTimeout as wait } from "node:timers/promises";
import type { JsonMap } from "#lib/json.ts";
import { toApiPath } from "#lib/objects/api-version.ts";
import type { Status } from "#lib/review.ts";
import type { TestClusterClient, TestClusterRequest, TestClusterResponse } from "../control-plane/client.ts";
import { replaceUidPlaceholders } from "./generators/nodes.ts";
import {
  competingWebhookAnnotation,
  type FieldEdit,
  parityGeneratedKinds,
  type RequestSequence,
  type RequestUser,
  type SequenceQuota,
  type SequenceRequest,
  scenarioOnlyKinds,
} from "./generators/steps.ts";

/** Returns the client of a user of one API server. */
export type GetClient = (user: RequestUser) => TestClusterClient;

/** A request to an API server and its answer. */
export interface RequestWithAnswer {
  call: TestClusterRequest & { user: RequestUser };
  answer: TestClusterResponse;
  /** The audit annotations of the request. */
  audit?: Record<string, string>;
  /** The Status that each refusing webhook entry answered, if denials are collected. */
  denials?: readonly Status[];
  /** The name of the sequence's object after this request. With generateName, each server generates another name. */
  name: string;
}

/**
 * Sends a sequence's requests, which are about an object of this name. Returns each request with its answer (`turns`),
 * and the API paths of the created objects that still exist. `takeDenials` returns and forgets the answers of webhook
 * entries that denied a request of this sequence.
 */
export const sendSequence = async (
  sequence: RequestSequence,
  sequenceName: string,
  as: GetClient,
  takeDenials: (sequenceName: string) => readonly Status[] = () => [],
): Promise<{ turns: RequestWithAnswer[]; remainingObjectPaths: string[] }> => {
  const { kind, namespace = sequenceName, existingObject, generateName, namePrefix = "", steps } = sequence;
  const { namespaced, kind: kindName, ...usual } = { ...parityGeneratedKinds, ...scenarioOnlyKinds }[kind];
  const { apiVersion = usual.apiVersion } = sequence;
  const namespacePath = `/api/v1/namespaces/${namespace}`;
  const collection = `${toApiPath(apiVersion)}${namespaced ? `/namespaces/${namespace}` : ""}/${kind}`;
  const turns: RequestWithAnswer[] = [];
  // With generateName, no object has this name: the first create replaces it by the generated name.
  let objectName = existingObject ?? (generateName ? `${sequenceName}-none` : namePrefix + sequenceName);
  const createdNames = new Set<string>();

  // The subresource `ephemeralcontainers` has the whole Pod as its object, so the Pod itself is read.
  const readStored = async (step: SequenceRequest & { verb: "replace" }) => {
    const suffix = step.subresource && step.subresource !== "ephemeralcontainers" ? `/${step.subresource}` : "";
    const { code, body } = await as("admin")({ method: "GET", path: `${collection}/${objectName}${suffix}` });
    return code === 200 ? body : undefined;
  };
  /**
   * Reports whether the API server's cached copy of an object is current. While it is older than the last write, the
   * API server's answers may vary.
   */
  const isCopyCurrent = async (path: string) => {
    const [stored, copy] = await Promise.all(
      [path, `${path}?resourceVersion=0`].map((path) => as("admin")({ method: "GET", path })),
    );
    return Object(stored?.body.metadata).resourceVersion === Object(copy?.body.metadata).resourceVersion;
  };
  const quotas = sequence.quotas && (await createQuotas(sequence.quotas, namespace, as("admin")));
  for (const step of steps) {
    const object = `${collection}/${objectName}`;
    const end = Date.now() + 60_000;
    while (createdNames.has(objectName) && !(await isCopyCurrent(object))) {
      if (Date.now() > end) throw new Error(`the API server's copy of ${object} stays older than what is stored`);
      await wait(5);
    }
    const paths = { namespacePath, namespace, collection, object };
    const isKindStored = kind !== "localsubjectaccessreviews";
    const context = { ...paths, isKindStored, sequenceName, objectName, generateName, readStored, first: steps[0] };
    // An existing object is used by several sequences, so it must not be changed.
    const built = await buildCall(existingObject === undefined ? step : { ...step, dryRun: true }, context);
    const call = await replaceUidPlaceholders(built, as("admin"));
    // A closed connection counts as an answer with code 0: a panic of the API server closes the connection.
    const answer = await as(step.user)(call).catch((error: Error): TestClusterResponse => {
      return { code: 0, body: { message: error.message }, warnings: [] };
    });
    const { name: answeredName } = Object(answer.body.metadata);
    if (answer.code === 201 && answer.body.kind === kindName && answeredName && !step.dryRun) {
      objectName = answeredName;
      createdNames.add(answeredName);
    }
    turns.push({ call: { ...call, user: step.user }, answer, name: objectName, denials: takeDenials(sequenceName) });
  }
  const paths = [
    ...[...createdNames].map((one) => `${collection}/${one}`),
    ...(quotas ?? []),
    ...(sequence.namespace === undefined ? [namespacePath] : []),
  ];
  const remaining: string[] = [];
  for (const path of paths) if ((await as("admin")({ method: "GET", path })).code === 200) remaining.push(path);
  return { turns, remainingObjectPaths: remaining };
};

/**
 * Creates a namespace with these quotas, and waits until they have an effect: one more quota, which is created last,
 * allows no Secrets. Returns the API paths of all quotas. The API server may refuse to create some of these quotas.
 */
const createQuotas = async (
  quotas: readonly SequenceQuota[],
  name: string,
  admin: TestClusterClient,
): Promise<string[]> => {
  const namespacePath = `/api/v1/namespaces/${name}`;
  await admin({ method: "POST", path: "/api/v1/namespaces", body: { metadata: { name } } });
  const noSecrets = { hard: { secrets: "0" } };
  const all = [
    ...quotas.map((quota, index) => ({ ...quota, name: `q${index}` })),
    { name: "refuses-secrets", spec: noSecrets, status: { ...noSecrets, used: { secrets: "0" } } },
  ];
  for (const { name, spec } of all)
    await admin({ method: "POST", path: `${namespacePath}/resourcequotas`, body: { metadata: { name }, spec } });
  const contentType = "application/merge-patch+json";
  for (const { name, status } of all)
    await admin({
      method: "PATCH",
      path: `${namespacePath}/resourcequotas/${name}/status`,
      body: { status },
      contentType,
    });
  const probe = {
    method: "POST",
    path: `${namespacePath}/secrets?dryRun=All`,
    body: { metadata: { name: "s" } },
  } as const;
  for (const end = Date.now() + 60_000; (await admin(probe)).code !== 403; await wait(5))
    if (Date.now() > end) throw new Error(`the quotas of namespace ${name} have no effect`);
  return all.map(({ name }) => `${namespacePath}/resourcequotas/${name}`);
};

/** Deletes an object that remains after a sequence. Removes its finalizers, because they would keep the object. */
export const deleteWithFinalizers = async (path: string, as: GetClient): Promise<void> => {
  // Background propagation: otherwise, a Job would stay until its pods are deleted.
  const deletion = { method: "DELETE", path: `${path}?gracePeriodSeconds=0&propagationPolicy=Background` } as const;
  const [, name] = /^\/api\/v1\/namespaces\/([^/]+)$/.exec(path) ?? [];
  const { code, body } = await as("admin")(deletion);
  // Most objects have no finalizers, so the request above has already deleted them.
  if (code === 404 || (code === 200 && !name && !Object(body.metadata).finalizers)) return;
  const contentType = "application/merge-patch+json";
  // A webhook of the test changes pods with this annotation. Such a change would be refused, and with it this update.
  const metadata = { finalizers: null, annotations: { [competingWebhookAnnotation]: null } };
  await as("admin")({ method: "PATCH", path, body: { metadata }, contentType });
  await as("admin")(deletion);
  // The test clusters run no controller that empties and finalizes a deleted namespace.
  if (name) await as("admin")({ method: "PUT", path: `${path}/finalize`, body: { metadata: { name }, spec: {} } });
};

/** What `buildCall` needs to know about the sequence of a step. */
interface StepContext {
  namespace: string;
  /** The API path of the namespace that the sequence uses. */
  namespacePath: string;
  /** False for kinds that the API server answers but doesn't store, such as LocalSubjectAccessReview. */
  isKindStored: boolean;
  /** The API path of the collection of objects. */
  collection: string;
  /** The API path of the sequence's object. */
  object: string;
  sequenceName: string;
  /** The current name of the sequence's object. */
  objectName: string;
  generateName: boolean;
  /** The first request of the sequence, which creates the object. */
  first: SequenceRequest | undefined;
  /** Reads the stored object, which a replace changes and sends back. */
  readStored(step: SequenceRequest & { verb: "replace" }): Promise<JsonMap | undefined>;
}

/** Returns the API request of a step. */
const buildCall = async (step: SequenceRequest, context: StepContext): Promise<TestClusterRequest> => {
  const { namespacePath, collection, object, objectName, generateName, sequenceName } = context;
  const query = (parameters: Record<string, string> = {}) => {
    const all = new URLSearchParams({ ...(step.dryRun && { dryRun: "All" }), ...parameters }).toString();
    return all && `?${all}`;
  };
  const subresource = "subresource" in step && step.subresource ? `/${step.subresource}` : "";
  switch (step.verb) {
    case "create": {
      const resource = step.otherResource === undefined ? collection : `${namespacePath}/${step.otherResource}`;
      const path = `${subresource ? `${object}${subresource}` : resource}${query()}`;
      const isNameGenerated = generateName && !subresource && step.otherResource === undefined;
      const nameField = isNameGenerated ? { generateName: `${sequenceName}-` } : { name: objectName };
      // An object that isn't stored, such as a LocalSubjectAccessReview, has no name.
      if (!context.isKindStored) return { method: "POST", path, body: addNamespace(step.body, context.namespace) };
      return { method: "POST", path, body: addName(step.body, sequenceName, nameField) };
    }
    case "replace": {
      const before =
        (await context.readStored(step)) ?? addName(getBody(context.first), sequenceName, { name: objectName });
      return { method: "PUT", path: `${object}${subresource}${query()}`, body: applyEdits(before, step.edits) };
    }
    case "patch": {
      const contentType = `application/${step.type}-patch+json`;
      return { method: "PATCH", path: `${object}${subresource}${query()}`, body: step.body, contentType };
    }
    case "apply": {
      const path = `${object}${subresource}${query({ fieldManager: step.manager, ...(step.force && { force: "true" }) })}`;
      const body = addName(step.body, sequenceName, { name: objectName });
      return { method: "PATCH", path, body, contentType: "application/apply-patch+yaml" };
    }
    case "delete":
      return { method: "DELETE", path: `${object}${query(step.graceful ? {} : { gracePeriodSeconds: "0" })}` };
    case "deletecollection": {
      const selector = { labelSelector: `${sequenceLabel}=${sequenceName}`, gracePeriodSeconds: "0" };
      return { method: "DELETE", path: `${collection}${query(selector)}` };
    }
    case "look":
      return { method: "GET", path: step.at === undefined ? namespacePath : `${namespacePath}/${step.at}` };
  }
};

/** The label that identifies the objects of a sequence. */
export const sequenceLabel = "parity.postern.dev/sequence";

const getBody = (step: SequenceRequest | undefined): JsonMap => (step && "body" in step ? Object(step.body) : {});

/** Adds the label of a sequence, and the object's name (or `generateName`). */
const addName = (body: JsonMap, sequence: string, nameField: JsonMap): JsonMap => {
  const metadata = Object(body.metadata);
  const labels = { ...metadata.labels, [sequenceLabel]: sequence };
  return { ...body, metadata: { ...metadata, labels, ...nameField } };
};

/** Sets the namespace of an access review. */
const addNamespace = ({ spec, ...body }: JsonMap, namespace: string): JsonMap => {
  const { resourceAttributes, ...rest } = Object(spec);
  return {
    ...body,
    metadata: { namespace },
    spec: { ...rest, resourceAttributes: { ...resourceAttributes, namespace } },
  };
};

/** Returns a copy of an object with these edits. */
export const applyEdits = <T extends object>(object: T, edits: readonly FieldEdit[]): T => {
  const copy = structuredClone(object);
  for (const edit of edits) applyEdit(copy, edit);
  return copy;
};

/** Applies an edit to an object in place. Maps and lists that are missing on the path are created. */
const applyEdit = (target: object, { path: [first, ...rest], ...edit }: FieldEdit): void => {
  const key = first === "-" && Array.isArray(target) ? target.length : (first ?? "");
  if (rest.length > 0) {
    const isPresent = typeof Reflect.get(target, key) === "object" && Reflect.get(target, key) !== null;
    const isListNext = rest[0] === "-" || typeof rest[0] === "number";
    if (!isPresent) Reflect.set(target, key, isListNext ? [] : {});
    applyEdit(Reflect.get(target, key), { path: rest, ...edit });
  } else if ("value" in edit) Reflect.set(target, key, structuredClone(edit.value));
  else if (Array.isArray(target)) target.splice(Number(key), 1);
  else Reflect.deleteProperty(target, key);
};

import { isMap, type JsonMap } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import { type Phase, rule } from "#lib/rule.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import type { TestClusterClient, TestClusterResponse } from "../../control-plane/client.ts";
import { buildTestRule, type WebhookManifests } from "../rule-server.ts";
import { deleteWithFinalizers, type RequestWithAnswer } from "../sequence-sender.ts";
import { buildCaseRequest, type CaseRequest } from "./case-request.ts";

// Members of `extra` in a request's user: the name of the setup (rules with settings) whose webhooks are called, and a
// unique word, the request's id, by which the observer (a webhook that stores reviews) finds those of this request.
const [setupKey, requestIdKey] = ["postern-setup", "postern-word"];
const buildExtraExpression = (key: string) => `request.userInfo.?extra[?"${key}"].orValue([])`;

/**
 * Adds a matchCondition to webhooks, so that they are called only for requests whose user's `extra` names this setup.
 */
export const restrictWebhooksToCaseSetup = (name: string, manifests: WebhookManifests) =>
  addCondition(`"${name}" in ${buildExtraExpression(setupKey)}`, manifests);

const addCondition = (expression: string, manifests: WebhookManifests) => {
  const condition = { name: "is-from-this-test", expression };
  return manifests.map(({ webhooks, ...manifest }) => ({
    ...manifest,
    webhooks: webhooks.map((one) => ({ ...one, matchConditions: [condition, ...(one.matchConditions ?? [])] })),
  }));
};

/** For each phase, the last review that the API server sent for a request. */
type SeenReviews = Partial<Record<Phase, AdmissionRequest>>;

/**
 * Creates an observer, which is a rule that admits everything and stores the reviews that it gets. To find the reviews
 * of a request, the test puts a unique id into the request's user.
 */
export const createTestObserverRule = () => {
  const reviewsByRequest = new Map<string, SeenReviews>();
  const note = (phase: Phase, request: AdmissionRequest) => {
    const [requestId = ""] = request.userInfo.extra?.[requestIdKey] ?? [];
    reviewsByRequest.set(requestId, { ...reviewsByRequest.get(requestId), [phase]: request });
  };
  let count = 0;
  return {
    listed: buildTestRule(
      "observer",
      rule({
        summary: "Stores every review.",
        match: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] }],
        mutate: (_, { request }) => note("mutate", request),
        validate: (_, { request }) => note("validate", request),
      }),
    ),
    /** Adds a matchCondition, so that the observer gets only the requests with an id, which the test sends. */
    restrictToTestRequests: (manifests: WebhookManifests) =>
      addCondition(`size(${buildExtraExpression(requestIdKey)}) > 0`, manifests),
    createRequestId: () => `${count++}`,
    /** Returns and forgets the reviews of the request with this id. */
    takeReviews: (requestId: string): SeenReviews => {
      const reviews = reviewsByRequest.get(requestId) ?? {};
      reviewsByRequest.delete(requestId);
      return reviews;
    },
  };
};

/** A test API server, and the observer: a webhook that records the reviews which the server sends. */
export interface ObservedTestServer {
  admin: TestClusterClient;
  observer?: ReturnType<typeof createTestObserverRule>;
}

/** A case that is sent to API servers, with the rule that it belongs to. */
export interface CaseToSend {
  listed: CatalogueRule;
  entry: Case;
  /** The namespace of the object, unless the case states another. */
  namespace: string;
  /** The labels of `namespace`. */
  labels: Record<string, string>;
  /** Creates further objects once the case's own object exists; returns a function that deletes them. */
  prepare?(admin: TestClusterClient, stored: JsonMap): Promise<() => Promise<unknown>>;
}

/** A request and its answer, with the reviews that the observer saw. */
export interface SentCaseWithReviews extends RequestWithAnswer {
  seen: SeenReviews;
}

/**
 * Builds the body of a request from a case's object and the stored object: the case's object unchanged, or with the
 * fields of the stored object that it omits.
 */
export type CaseBodyBuilder = (body: JsonMap, stored: JsonMap) => JsonMap;
/** Builders that are tried in turn: of the case's own object, then of the stored object with the case's fields. */
export const caseBodyBuilders: CaseBodyBuilder[] = [
  (body) => body,
  (body, stored) => mergeOnto(stored, body) as JsonMap,
];

export const isAccepted = ({ code }: TestClusterResponse) => code >= 200 && code < 300;

/** Returns the first line of an answer's message. */
export const getFirstMessageLine = ({ message, text }: Record<string, unknown> = {}) =>
  String(message ?? text)
    .trim()
    .split("\n")[0] ?? "";

/**
 * Creates the object that a case's request needs, sends the request, and deletes the object. Only the webhooks of the
 * setup with this name are called.
 */
export const sendCase = async (
  server: ObservedTestServer,
  question: CaseToSend,
  object: KubernetesObject,
  buildBody: CaseBodyBuilder,
  setupName?: string,
): Promise<SentCaseWithReviews> => {
  const { admin } = server;
  const request = await buildCaseRequest(question.listed, question.entry, question.namespace, admin);
  const { method, path, name, collectionPath } = request;
  const obstacle = await prepareCaseObjectOrGetRefusal(admin, request, question.labels);
  if (obstacle) return { call: { method, path, user: "admin" }, name, answer: obstacle, seen: {} };

  const stored = method === "PUT" ? (await admin({ method: "GET", path })).body : {};
  const cleanUp = await question.prepare?.(admin, stored);
  const sent = await sendCaseAndObserveReviews(server, request, buildBody(request.body(object), stored), setupName);
  // The answer to a subresource may be only a Status of success, so the changed object itself is read.
  if (sent.answer.code === 201 && sent.answer.body.kind === "Status" && request.storedObjectPath)
    sent.answer = { ...sent.answer, body: (await admin({ method: "GET", path: request.storedObjectPath })).body };
  await cleanUp?.();
  const { name: createdName } = Object(sent.answer.body.metadata);
  const createdPath = sent.answer.code === 201 && createdName ? `${collectionPath}/${createdName}` : undefined;
  const remainingPath = request.storedObjectPath ?? createdPath;
  if (remainingPath) await deleteWithFinalizers(remainingPath, () => admin);
  return sent;
};

type Sendable = Pick<CaseRequest, "method" | "path" | "user" | "name">;

/** Sends a case's request. Returns the answer, and the reviews of this request that the observer got. */
export const sendCaseAndObserveReviews = async (
  { admin, observer }: ObservedTestServer,
  { method, path, user, name }: Sendable,
  body: JsonMap,
  setupName?: string,
): Promise<SentCaseWithReviews> => {
  const requestId = observer?.createRequestId();
  // The matchConditions of a setup's webhooks require its name here; those of the observer (a webhook) require an id.
  const extra = {
    ...user.extra,
    ...(requestId && { [requestIdKey]: [requestId] }),
    ...(setupName && { [setupKey]: [setupName] }),
  };
  const call = { method, path, impersonate: { ...user, extra }, ...(method !== "DELETE" && { body }) };
  const answer = await admin(call)
    // Some objects make the API server panic and close the connection; that counts as an answer with code 0.
    .catch(({ message }: Error): TestClusterResponse => ({ code: 0, body: { message }, warnings: [] }));
  // Some objects store their user with `extra`, so the members that the test added there are deleted from the answer.
  const { extra: storedExtra } = Object(answer.body.spec);
  if (storedExtra) for (const key of [setupKey, requestIdKey]) Reflect.deleteProperty(storedExtra, key);
  if (storedExtra && Object.keys(storedExtra).length === 0) Reflect.deleteProperty(Object(answer.body.spec), "extra");
  return {
    call: { ...call, user: "admin" },
    name,
    answer,
    seen: (requestId && observer?.takeReviews(requestId)) || {},
  };
};

/**
 * Creates the object that must exist before a case's request, unless it is stored; deletes one that must not exist. No
 * rule is called. Returns the API server's answer if the API server refuses the object.
 */
export const prepareCaseObjectOrGetRefusal = async (
  admin: TestClusterClient,
  { namespace, storedObjectPath, existing: required, collectionPath, ephemeralContainers }: CaseRequest,
  labels: Record<string, string>,
): Promise<TestClusterResponse | undefined> => {
  const namespaceBody = { metadata: { name: namespace, labels } };
  if (namespace) await admin({ method: "POST", path: "/api/v1/namespaces", body: namespaceBody });
  const isStored = storedObjectPath !== undefined && isAccepted(await admin({ method: "GET", path: storedObjectPath }));
  if (isStored && !required) await deleteWithFinalizers(storedObjectPath, () => admin);
  if (isStored || !required) return undefined;

  const created = await admin({ method: "POST", path: collectionPath, body: required });
  if (!isAccepted(created)) return created;
  const { status } = required;
  if (status !== undefined) {
    const contentType = "application/merge-patch+json";
    const answer = await admin({ method: "PATCH", path: `${storedObjectPath}/status`, body: { status }, contentType });
    if (!isAccepted(answer)) return answer;
  }
  if (ephemeralContainers === undefined) return undefined;
  const body = { spec: { ephemeralContainers } };
  const contentType = "application/strategic-merge-patch+json";
  const answer = await admin({ method: "PATCH", path: `${storedObjectPath}/ephemeralcontainers`, body, contentType });
  return isAccepted(answer) ? undefined : answer;
};

/** Merges an object into a copy of the present one. Elements of lists with the same name are merged, too. */
const mergeOnto = (present: unknown, given: unknown): unknown => {
  if (given === undefined) return present;
  if (isListOfNamed(present) && isListOfNamed(given)) {
    const merged = present.map((old) =>
      mergeOnto(
        old,
        given.find(({ name }) => name === old.name),
      ),
    );
    const added = given.filter(({ name }) => !present.some((old) => old.name === name));
    return [...merged, ...added];
  }
  if (!isMap(present) || !isMap(given)) return given;
  const changed = Object.entries(given).map(([key, value]) => [key, mergeOnto(present[key], value)]);
  return { ...present, ...Object.fromEntries(changed) };
};

const isListOfNamed = (value: unknown): value is (JsonMap & { name: unknown })[] =>
  Array.isArray(value) && value.length > 0 && value.every((one) => isMap(one) && "name" in one);

import { randomUUID } from "node:crypto";
import { Agent } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import {
  type HttpsAnswer,
  requireUnansweredError,
  sendRequest,
  type UnansweredError,
} from "#lib/cluster/https-request.ts";
import { probeUser } from "#lib/core/log-line.ts";
import { parseJson, toMap } from "#lib/json.ts";
import type { Operation } from "#lib/review.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { standardKinds } from "../apiserver/kinds/kinds.ts";
import { toSentence } from "../cli/complaint.ts";
import type { WebhookEntry } from "../webhooks/configurations.ts";
import { hideUrlKeys } from "./api.ts";

/** The result of sending a test review to an endpoint. */
interface EndpointProbeResult {
  ok: boolean;
  /** How long the last try took. */
  milliseconds: number;
  /** Describes the result. The key in the URL is hidden. */
  sentence: string;
}

/** How often and how long an endpoint is probed before it counts as failing. */
interface EndpointProbeLimits {
  tries: number;
  /** Milliseconds between two tries. */
  pause: number;
  timeoutSeconds: number;
  /**
   * A time in milliseconds since 1970. Until then, a change of an alias, a permission or a route may still propagate in
   * AWS, so some answers may be as before it.
   */
  propagationDeadline: number;
  /** True if a function has just got the right to read the cluster, so that EKS may not know it yet. */
  functionHasNewRights: boolean;
}

const defaultLimits: EndpointProbeLimits = {
  tries: 3,
  pause: 500,
  timeoutSeconds: 3,
  propagationDeadline: 0,
  functionHasNewRights: false,
};
/** A deployment waits at most so many milliseconds until its changes have an effect in all endpoints of AWS. */
const spreadMilliseconds = 20_000;
/** A deployment waits at most so many milliseconds until the API servers of an EKS cluster know a new access entry. */
const accessMilliseconds = 60_000;

/** Sends a dry-run review to an endpoint, as an API server does. Tries again within the limits. */
export const probeEndpoint = async (
  url: string,
  ca?: string,
  options: Partial<EndpointProbeLimits> & { review?: object; agent?: Agent } = {},
): Promise<EndpointProbeResult> => {
  const { review = buildProbeReview([]), agent = false, ...patience } = options;
  const { tries, pause, timeoutSeconds, propagationDeadline, functionHasNewRights } = { ...defaultLimits, ...patience };
  const body = JSON.stringify(review);
  const begun = Date.now();
  for (let attempt = 1; ; attempt++) {
    const start = performance.now();
    const headers = { "content-type": "application/json", accept: "application/json", "user-agent": "postern" };
    // Only the first try uses the shared agent. Later tries open new connections.
    const request = { method: "POST", headers, agent: attempt === 1 ? agent : false, ...(ca && { ca }) };
    const deadline = Date.now() + timeoutSeconds * 1000;
    const answer = await sendRequest(`${url}?timeout=${timeoutSeconds}s`, request, body, deadline).catch(
      requireUnansweredError, // The result is the error if no answer came; other errors are thrown.
    );
    const milliseconds = Math.round(performance.now() - start);
    const fault = findAnswerFault(answer, toMap(toMap(review).request).uid);
    if (fault === undefined)
      return { ok: true, milliseconds, sentence: hideUrlKeys(`${url} answers in ${milliseconds} ms`) };
    const isTemporary = !("status" in answer) || answer.status >= 500 || answer.status === 429;
    // Until the deadline (0 if nothing was deployed), changed permissions, routes and aliases may have no effect yet.
    const isPropagating = propagationDeadline > begun && mayBePropagating(answer, functionHasNewRights);
    const givesUp = isPropagating ? Date.now() >= propagationDeadline : !isTemporary || attempt >= tries;
    if (givesUp) {
      const seconds = Math.round((Date.now() - begun) / 1000);
      const others = isPropagating ? ` (the last of ${attempt} answers in ${seconds} s)` : "";
      return { ok: false, milliseconds, sentence: hideUrlKeys(`${url}: ${fault}${others}`) };
    }
    await wait(pause);
  }
};

/** The result of a probe of one webhook entry. */
interface WebhookEntryProbe extends EndpointProbeResult {
  entry: string;
}

/**
 * The number of endpoints that are probed in parallel, also if several clusters are updated in parallel. A new AWS
 * account can run only 10 functions at the same time.
 */
const maxParallelProbes = 5;
let running = 0;
const waiting: (() => void)[] = [];

/** Runs `act` as soon as fewer than `maxParallelProbes` others run. */
const takeTurn = async <T>(act: () => Promise<T>): Promise<T> => {
  if (running >= maxParallelProbes) await new Promise<void>((resolve) => waiting.push(resolve));
  else running += 1;
  try {
    return await act();
  } finally {
    // If another one waits, it runs next, so `running` stays the same.
    const next = waiting.shift();
    if (next) next();
    else running -= 1;
  }
};

/** Probes the endpoints of webhook entries. */
export const probeEntries = async (
  entries: readonly WebhookEntry[],
  patience: Partial<EndpointProbeLimits> = {},
): Promise<WebhookEntryProbe[]> => {
  // The probes share connections of a new agent. An older connection wouldn't check the present certificate.
  const agent = new Agent({ keepAlive: true });
  const probes = entries.map(({ name, clientConfig: { url, caBundle }, rules, timeoutSeconds }) =>
    takeTurn(async () => {
      const ca = caBundle && Buffer.from(caBundle, "base64").toString();
      const options = { timeoutSeconds, ...patience, review: buildProbeReview(rules), agent };
      return { entry: name, ...(await probeEndpoint(url, ca, options)) };
    }),
  );
  try {
    return await Promise.all(probes);
  } finally {
    agent.destroy();
  }
};

/** Probes the endpoints of entries after changes in AWS, and waits until these have an effect. Returns the failures. */
export const probeForFailingEntries = async (
  entries: readonly WebhookEntry[],
  { functionHasNewRights = false } = {},
): Promise<WebhookEntryProbe[]> => {
  const patience = functionHasNewRights ? accessMilliseconds : spreadMilliseconds;
  const found = await probeEntries(entries, { propagationDeadline: Date.now() + patience, functionHasNewRights });
  return found.filter(({ ok }) => !ok);
};

/**
 * Reports whether an endpoint's answer may be wrong only because a change in AWS has no effect yet:
 * - 403 of a function URL, and 404 or 500 of API Gateway, if a permission or a route is new. A 500 with a Status comes
 *   from the function itself.
 * - 404 of the function's old version, which may still answer and doesn't know a new key
 * - 503 of a function whose new right to read its cluster has no effect yet
 */
const mayBePropagating = (answer: HttpsAnswer | UnansweredError, functionHasNewRights: boolean): boolean =>
  "status" in answer &&
  ([403, 404].includes(answer.status) ||
    (answer.status === 503 && functionHasNewRights) ||
    (answer.status === 500 && toMap(parseJson(answer.body)).kind !== "Status"));

/** Describes why an endpoint's answer to a probe is wrong; undefined if it is right. A refusal is a right answer. */
const findAnswerFault = (answer: HttpsAnswer | UnansweredError, uid: unknown): string | undefined => {
  if (!("status" in answer)) return `it can't be reached: ${toSentence(answer)}`;
  const { status, body } = answer;
  const content = toMap(parseJson(body));
  // Function URLs have `Message` in place of `message`.
  const { Message, message = Message } = content;
  const text = toSentence(typeof message === "string" ? message : body.slice(0, 200));
  if (status === 404 && content.kind === "Status") return "the endpoint doesn't know this cluster's key, or the rule";
  if (status !== 200) return `it answers ${status}${text && `: ${text}`}`;
  const { kind, apiVersion, response } = content;
  const isReview = kind === "AdmissionReview" && apiVersion === "admission.k8s.io/v1";
  const isOurs = toMap(response).uid === uid && typeof toMap(response).allowed === "boolean";
  return isReview && isOurs ? undefined : `its answer is not an AdmissionReview for this request: ${text}`;
};

/** The kinds of objects in requests for subresources, if they are not the kind of the resource. */
const subresourceKinds: Record<string, { group: string; version: string; kind: string }> = {
  binding: { group: "", version: "v1", kind: "Binding" },
  exec: { group: "", version: "v1", kind: "PodExecOptions" },
  attach: { group: "", version: "v1", kind: "PodAttachOptions" },
  portforward: { group: "", version: "v1", kind: "PodPortForwardOptions" },
  proxy: { group: "", version: "v1", kind: "PodProxyOptions" },
  eviction: { group: "policy", version: "v1", kind: "Eviction" },
  scale: { group: "autoscaling", version: "v1", kind: "Scale" },
};

/** Builds a review for a probe: its request matches the first element of a webhook's `rules`. */
export const buildProbeReview = ([match]: readonly RequestMatch[]) => {
  const { apiGroups = [], apiVersions = [], resources = [], operations = [] } = match ?? {};
  const [path = "*"] = resources;
  const isAny = path.startsWith("*");
  const group = findLiteral(apiGroups) ?? "";
  const version = findLiteral(apiVersions) ?? "v1";
  const [resource = "", subResource = ""] = isAny
    ? ["configmaps"]
    : path.split("/").map((part) => part.replace("*", ""));
  const standardKind = standardKinds.find((candidate) => candidate.resource.resource === resource);
  const kind = {
    group,
    version,
    kind: standardKind?.kind.kind ?? resource.replace(/^./, (first) => first.toUpperCase()).replace(/s$/, ""),
  };
  const requestKind = subresourceKinds[subResource] ?? kind;
  const operation: Operation = operations.some((verb) => verb === "*" || verb === "CREATE")
    ? "CREATE"
    : (findLiteral(operations) ?? "CREATE");
  const name = "postern-probe";
  const namespace = standardKind?.namespaced === false ? undefined : "default";
  const metadata = { name, ...(namespace && { namespace }) };
  const apiVersion = requestKind.group === "" ? requestKind.version : `${requestKind.group}/${requestKind.version}`;
  // The options objects of CONNECT requests have no metadata.
  const object = { apiVersion, kind: requestKind.kind, ...(operation !== "CONNECT" && { metadata }) };
  const options = optionKinds[operation];
  return {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: {
      uid: randomUUID(),
      kind: requestKind,
      resource: { group, version, resource },
      requestKind,
      requestResource: { group, version, resource },
      ...(subResource && { subResource, requestSubResource: subResource }),
      name,
      ...(namespace && { namespace }),
      operation,
      userInfo: { username: probeUser, groups: [] },
      object: operation === "DELETE" ? null : object,
      oldObject: operation === "UPDATE" || operation === "DELETE" ? object : null,
      dryRun: true,
      options: options && { apiVersion: "meta.k8s.io/v1", kind: options, dryRun: ["All"] },
    },
  };
};

const optionKinds = { CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions", CONNECT: undefined };

const findLiteral = <T extends string>(list: readonly (T | "*")[]) =>
  list.find((element): element is T => element !== "*");

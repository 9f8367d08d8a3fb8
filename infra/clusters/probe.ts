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
  /** The milliseconds that the last try to reach the endpoint took. */
  milliseconds: number;
  /** The result of probing an endpoint, in a sentence that doesn't contain the key of the URL. */
  sentence: string;
}

/** How often and how long an endpoint is asked before it counts as failing. */
interface EndpointProbeLimits {
  tries: number;
  /** Milliseconds. */
  pause: number;
  timeoutSeconds: number;
  /**
   * The time, in milliseconds since 1970, until which AWS may answer as before a change of an alias, a permission or a
   * route.
   */
  spreadingUntil: number;
  /** Whether EKS may not know yet that a function may read the cluster. */
  hasNewRights: boolean;
}

const defaultLimits: EndpointProbeLimits = {
  tries: 3,
  pause: 500,
  timeoutSeconds: 3,
  spreadingUntil: 0,
  hasNewRights: false,
};
/** The milliseconds for which a deployment waits until AWS's endpoints have its changes. */
const spreadMilliseconds = 20_000;
/** The milliseconds for which it waits until the API servers of an EKS cluster know a new access entry. */
const accessMilliseconds = 60_000;

/** Sends an endpoint a harmless dry-run review, as the API server would. */
export const probeEndpoint = async (
  url: string,
  ca?: string,
  options: Partial<EndpointProbeLimits> & { review?: object; agent?: Agent } = {},
): Promise<EndpointProbeResult> => {
  const { review = buildProbeReview([]), agent = false, ...patience } = options;
  const { tries, pause, timeoutSeconds, spreadingUntil, hasNewRights } = { ...defaultLimits, ...patience };
  const body = JSON.stringify(review);
  const begun = Date.now();
  for (let attempt = 1; ; attempt++) {
    const start = performance.now();
    const headers = { "content-type": "application/json", accept: "application/json", "user-agent": "postern" };
    // Another try opens a new connection.
    const request = { method: "POST", headers, agent: attempt === 1 ? agent : false, ...(ca && { ca }) };
    const deadline = Date.now() + timeoutSeconds * 1000;
    const answer = await sendRequest(`${url}?timeout=${timeoutSeconds}s`, request, body, deadline).catch(
      requireUnansweredError,
    );
    const milliseconds = Math.round(performance.now() - start);
    const fault = findAnswerFault(answer, toMap(toMap(review).request).uid);
    if (fault === undefined)
      return { ok: true, milliseconds, sentence: hideUrlKeys(`${url} answers in ${milliseconds} ms`) };
    const mayPass = !("status" in answer) || answer.status >= 500 || answer.status === 429;
    const isSpreading = spreadingUntil > begun && mayBeSpreading(answer, hasNewRights);
    if (isSpreading ? Date.now() >= spreadingUntil : !mayPass || attempt >= tries) {
      const seconds = Math.round((Date.now() - begun) / 1000);
      const others = isSpreading ? ` (the last of ${attempt} answers in ${seconds} s)` : "";
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
 * The number of endpoints that are probed at once, also if several clusters are updated side by side: a new account
 * runs only 10 functions at once.
 */
const maxParallelProbes = 5;
let running = 0;
const waiting: (() => void)[] = [];

const takeTurn = async <T>(act: () => Promise<T>): Promise<T> => {
  if (running >= maxParallelProbes) await new Promise<void>((resolve) => waiting.push(resolve));
  else running += 1;
  try {
    return await act();
  } finally {
    // The turn passes to the next one that waits.
    const next = waiting.shift();
    if (next) next();
    else running -= 1;
  }
};

export const probeEntries = async (
  entries: readonly WebhookEntry[],
  patience: Partial<EndpointProbeLimits> = {},
): Promise<WebhookEntryProbe[]> => {
  // The entries share new connections: a connection from before wouldn't check the present certificate.
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

/**
 * Probes the endpoints of entries after changes in AWS, and waits until the changes have spread. Returns the results of
 * those that fail.
 */
export const probeForFailingEntries = async (
  entries: readonly WebhookEntry[],
  { hasNewRights = false } = {},
): Promise<WebhookEntryProbe[]> => {
  const patience = hasNewRights ? accessMilliseconds : spreadMilliseconds;
  const found = await probeEntries(entries, { spreadingUntil: Date.now() + patience, hasNewRights });
  return found.filter(({ ok }) => !ok);
};

/**
 * Reports whether an endpoint may answer so only until a change in AWS has spread: without its permission or route, API
 * Gateway answers 500 or 404 and a function URL 403; a version that an alias has just left may not know a key; and a
 * function that can't read its cluster answers 503.
 */
const mayBeSpreading = (answer: HttpsAnswer | UnansweredError, hasNewRights: boolean): boolean =>
  "status" in answer &&
  ([403, 404].includes(answer.status) ||
    (answer.status === 503 && hasNewRights) ||
    (answer.status === 500 && toMap(parseJson(answer.body)).kind !== "Status"));

/**
 * Describes what is wrong with an endpoint's answer to a probe; undefined if nothing is. A refusal is a valid answer.
 */
const findAnswerFault = (answer: HttpsAnswer | UnansweredError, uid: unknown): string | undefined => {
  if (!("status" in answer)) return `it can't be reached: ${toSentence(answer)}`;
  const { status, body } = answer;
  const content = toMap(parseJson(body));
  // Function URLs of AWS write `Message`.
  const { Message, message = Message } = content;
  const text = toSentence(typeof message === "string" ? message : body.slice(0, 200));
  if (status === 404 && content.kind === "Status") return "the endpoint doesn't know this cluster's key, or the rule";
  if (status !== 200) return `it answers ${status}${text && `: ${text}`}`;
  const { kind, apiVersion, response } = content;
  const isReview = kind === "AdmissionReview" && apiVersion === "admission.k8s.io/v1";
  const isOurs = toMap(response).uid === uid && typeof toMap(response).allowed === "boolean";
  return isReview && isOurs ? undefined : `its answer is not an AdmissionReview for this request: ${text}`;
};

/** Subresources whose requests carry another kind than the parent's. */
const subresourceKinds: Record<string, { group: string; version: string; kind: string }> = {
  binding: { group: "", version: "v1", kind: "Binding" },
  exec: { group: "", version: "v1", kind: "PodExecOptions" },
  attach: { group: "", version: "v1", kind: "PodAttachOptions" },
  portforward: { group: "", version: "v1", kind: "PodPortForwardOptions" },
  proxy: { group: "", version: "v1", kind: "PodProxyOptions" },
  eviction: { group: "policy", version: "v1", kind: "Eviction" },
  scale: { group: "autoscaling", version: "v1", kind: "Scale" },
};

/** Returns a well-formed review for a probe: a request that the first of a webhook entry's rules matches. */
export const buildProbeReview = ([match]: readonly RequestMatch[]) => {
  const { apiGroups = [], apiVersions = [], resources = [], operations = [] } = match ?? {};
  const [path = "*"] = resources;
  const isAny = path.startsWith("*");
  const group = findLiteral(apiGroups) ?? "";
  const version = findLiteral(apiVersions) ?? "v1";
  const [resource = "", subResource = ""] = isAny
    ? ["configmaps"]
    : path.split("/").map((part) => part.replace("*", ""));
  const known = standardKinds.find((candidate) => candidate.resource.resource === resource);
  const kind = {
    group,
    version,
    kind: known?.kind.kind ?? resource.replace(/^./, (first) => first.toUpperCase()).replace(/s$/, ""),
  };
  const requestKind = subresourceKinds[subResource] ?? kind;
  const operation: Operation = operations.some((verb) => verb === "*" || verb === "CREATE")
    ? "CREATE"
    : (findLiteral(operations) ?? "CREATE");
  const name = "postern-probe";
  const namespace = known?.namespaced === false ? undefined : "default";
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

import { setTimeout as wait } from "node:timers/promises";
import {
  createUnconnectedCapabilities,
  interceptCalls,
  toAccessAnswer,
  unavailableLedger,
} from "../core/capabilities.ts";
import { Failure, getErrorMessage } from "../failure.ts";
import { freezeDeep, isMap, isObject, type JsonMap, parseJson, toMap } from "../json.ts";
import { createMemoryLedger, type Ledger, openRuleLedger } from "../ledger.ts";
import { printMetrics } from "../metrics.ts";
import type { AccessAnswer, Capabilities, OpenCapabilities, ResourceType, ServedResource } from "../needs.ts";
import { joinApiVersion, toApiPath } from "../objects/api-version.ts";
import { formatLabelSelector } from "../objects/selection.ts";
import type { KubernetesObject, Status } from "../review.ts";
import { type AnswerCache, askThroughSharedCache, type CacheableAnswer, createAnswerCache } from "./answer-cache.ts";
import {
  type ApiServerConnection,
  type AskApiServer,
  createApiServerRequester,
  longestApiServerReadMilliseconds,
  parseAnswerUnlessNotFound,
} from "./api-server.ts";
import { awaitUntil, type HttpsAnswer, maximumHttpsAnswerBytes, sendRequest } from "./https-request.ts";
import { createOutsideServiceCapabilities, type ReviewCapabilityState } from "./outside.ts";
import { readApiServerListPages } from "./pages.ts";

/** For how many seconds a cluster's answer is cached if a rule sets no maxAge. */
const defaultMaxAge = 10;
/** For how many seconds the answer to a discovery is cached. */
const discoveryMaxAge = 30;
/** The number of objects on a page of a list. */
const pageSize = 500;
/** Milliseconds before an object that was not found is read again. */
const rereadPause = 150;
/**
 * The longest random pause after the first conflict of a review's updates with those of other clients, in milliseconds.
 * It doubles with each further conflict, up to `maxUpdatePause`.
 */
const firstUpdatePause = 20;
const maxUpdatePause = 500;
/** The milliseconds that another try of an update needs. */
const retryTime = 300;
/** The most values that rules keep with `processLedger`. */
const processLedgerLimit = 10_000;

/** Creates the capability to read lists of one cluster page by page. */
export type CreateListPage = (
  review: ReviewCapabilityState,
  findServer: () => AskApiServer | undefined,
) => Pick<Capabilities, "listPage">;

type Connections = Record<string, ApiServerConnection>;

interface LiveCapabilitiesOptions {
  /** The cache of the answers of all clusters. */
  cache?: AnswerCache;
  /** Opens the ledger, in which rules keep values from one review to another, for a review until `deadline`. */
  openLedger?: ((deadline: number) => Ledger) | undefined;
  /** Prints the events that rules count. */
  print?: typeof printMetrics;
  /** Sends a request to an API server. */
  send?: typeof sendRequest;
  /** Creates the capability `listPage`. It is an option, because few bundles need its code. */
  createPages?: CreateListPage | undefined;
}

/**
 * Returns a function that makes the capabilities for a cluster. Clusters share no connections, tokens or answers. If a
 * cluster has no connection, services outside it can be called all the same. `connections` may be a function; it is
 * called when a cluster is first asked, so that a cold start doesn't wait for it.
 */
export const createLiveCapabilities = (
  connections: Connections | (() => Connections),
  {
    cache = createAnswerCache(),
    openLedger = () => unavailableLedger,
    print = printMetrics,
    send = sendRequest,
    createPages,
  }: LiveCapabilitiesOptions = {},
): OpenCapabilities => {
  const servers = new Map<string, AskApiServer | undefined>();
  const findServer = (cluster: string): AskApiServer | undefined => {
    if (servers.has(cluster)) return servers.get(cluster);
    const connectionsByCluster = typeof connections === "function" ? connections() : connections;
    const connection = Object.hasOwn(connectionsByCluster, cluster) ? connectionsByCluster[cluster] : undefined;
    const server = connection && createApiServerRequester(connection, { send });
    servers.set(cluster, server);
    return server;
  };
  const processLedger = createMemoryLedger(processLedgerLimit);
  /**
   * Opens the capabilities for an evaluation of a rule. If a rule refuses because of cached answers, it is evaluated a
   * second time. `anew` opens the capabilities for that: they use no answers from before the time `freshSince`.
   */
  const open = (cluster: string, deadline: number, freshSince?: number): Capabilities => {
    const started = freshSince ?? Date.now();
    const review = { cluster, cache, deadline, freshSince, started, usedCache: false, conflicts: 0 };
    const clusterCapabilities = interceptCalls(
      createUnconnectedCapabilities(cluster),
      async (verb, args, failUnconnected) => {
        const ask = findServer(cluster);
        const connected: Partial<Capabilities> = ask
          ? { ...createReads(review, ask), ...createPosts(review, ask), ...createStatusUpdates(review, ask) }
          : {};
        const answer = connected[verb] as ((...args: readonly unknown[]) => Promise<unknown>) | undefined;
        return answer ? answer(...args) : failUnconnected();
      },
    );
    return {
      ...clusterCapabilities,
      // Adds `listPage`, which reads lists page by page for work on a schedule, if the function has its code.
      ...createPages?.(review, () => findServer(cluster)),
      ...createOutsideServiceCapabilities(review),
      // A CUE script is stopped 100 ms before the review's deadline, so that the error names the script.
      cue: (source, evaluate) => evaluate(source, deadline - 100),
      ledger: (rule, reach) =>
        openRuleLedger(
          reach === "process" ? processLedger : openLedger(deadline),
          rule,
          reach === "clusters" ? undefined : cluster,
        ),
      count: (counts) => print(cluster, counts),
      ...(freshSince === undefined && {
        anew: () => (review.usedCache ? open(cluster, deadline, review.started) : undefined),
      }),
    };
  };
  return (cluster, milliseconds) => open(cluster, Date.now() + milliseconds);
};

/** Returns the functions with which a rule reads the cluster, through the cache of answers. */
const createReads = (
  review: ReviewCapabilityState,
  ask: AskApiServer,
): Pick<Capabilities, "get" | "list" | "discover"> => {
  const { cluster, cache, deadline, freshSince, started } = review;
  /** Returns an answer of the API server: a new one, or one requested at most `maxAge` seconds before this review. */
  const read = async <T>(
    what: string,
    key: string,
    maxAge: number,
    search: () => Promise<CacheableAnswer>,
  ): Promise<T> => {
    // If a rule refuses because of cached answers, it is evaluated a second time, with `freshSince` and newer answers.
    const earliest = freshSince ?? started - maxAge * 1000;
    const found = await askThroughSharedCache(cache, `${cluster} ${key}`, earliest, deadline, search).catch(
      createFailure(`read ${what} of`, cluster),
    );
    if (found.sent < started) review.usedCache = true;
    return found.content as T;
  };
  const fetch = async (path: string) => parseAnswerUnlessNotFound(await ask(path, deadline));

  return {
    get: async (kind, name, namespace, { maxAge = defaultMaxAge, patience = 0 } = {}) => {
      // No object has an invalid name. A name with a slash would make the path of another object.
      if (!isName(name) || (namespace !== undefined && !isName(namespace))) return undefined;
      const path = `${buildObjectPath(kind, namespace)}/${encodeURIComponent(name)}`;
      const search = async (): Promise<CacheableAnswer> => {
        const found = await fetch(path);
        if (found && typeof toMap(found.content).kind !== "string") throw new Error("the answer is not an object");
        // That an object is absent isn't cached: a client may create the object now, and send a review that needs it.
        return found ?? absent;
      };
      // The first evaluation has waited for the object to appear, so the second one doesn't wait again. Two pauses are
      // the time that remains for the last answer and the rule's decision.
      const end = freshSince === undefined ? Math.min(started + patience * 1000, deadline - 2 * rereadPause) : 0;
      for (;;) {
        const what = `${kind.resource} "${name}"${describeNamespace(namespace)}`;
        const found = await read<KubernetesObject | undefined>(what, path, maxAge, search);
        if (found !== undefined || Date.now() + rereadPause > end) return found;
        await wait(rereadPause);
      }
    },
    list: async (kind, namespace, { maxAge = defaultMaxAge, most = Number.POSITIVE_INFINITY, labels } = {}) => {
      if (namespace !== undefined && !isName(namespace)) return [];
      const path = buildObjectPath(kind, namespace);
      const selector = labels ? formatLabelSelector(labels) : "";
      if (selector === undefined) return [];
      const search = () => readList((query) => fetch(`${path}?${query}`), most, selector);
      return read(`${kind.resource}${describeNamespace(namespace)}`, `${path}/${most}?${selector}`, maxAge, search);
    },
    discover: async (groupVersion) => {
      if (!isGroupVersion(groupVersion)) return undefined;
      const path = toApiPath(groupVersion);
      return read(`the kinds in ${groupVersion}`, path, discoveryMaxAge, async () => {
        const answer = await ask(path, deadline);
        if (answer.status === 404) return absent;
        const found = parseAnswerUnlessNotFound(answer);
        if (toMap(found?.content).kind !== "APIResourceList") throw new Error("the answer is not a list of resources");
        return { content: parseServedResources(found?.content), bytes: found?.bytes };
      });
    },
  };
};

const absent: CacheableAnswer = { content: undefined, bytes: undefined };

/** Reads the pages of a list, up to `most` objects. */
const readList = async (
  fetch: (query: URLSearchParams) => Promise<CacheableAnswer | undefined>,
  most: number,
  labelSelector: string,
): Promise<CacheableAnswer> => {
  const end = Date.now() + longestApiServerReadMilliseconds;
  const items: object[] = [];
  let bytes = 0;
  const readPage = async (query: URLSearchParams) => {
    const found = await fetch(query);
    bytes += found?.bytes ?? 0;
    return found?.content;
  };
  const limit = () => Math.min(pageSize, most - items.length);
  for await (const { items: listed, apiVersion, kind } of readApiServerListPages(
    readPage,
    limit,
    labelSelector === "" ? {} : { labelSelector },
  )) {
    if (kind === undefined || !Array.isArray(listed) || !listed.every(isObject))
      throw new Error("the answer is not a list");
    for (const item of listed) items.push(freezeDeep({ apiVersion, kind, ...item }));
    if (bytes > maximumHttpsAnswerBytes) throw new Error(`its list has more than ${maximumHttpsAnswerBytes} bytes`);
    if (Date.now() > end) throw new Error("it did not answer in time");
    if (items.length >= most) break;
  }
  return { content: Object.freeze(items.slice(0, most)), bytes };
};

/** Returns the functions with which a rule asks for rights and creates objects. */
const createPosts = (
  { cluster, deadline }: ReviewCapabilityState,
  ask: AskApiServer,
): Pick<Capabilities, "may" | "create"> => ({
  may: async ({ user, verb, path: url, group = "", ...rest }) => {
    const { username, uid, groups, extra } = user;
    const attributes =
      url === undefined
        ? { resourceAttributes: { verb, group, ...rest } }
        : { nonResourceAttributes: { path: url, verb } };
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      spec: { user: username, uid, groups, extra, ...attributes },
    };
    const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    const permission = ask(path, deadline, { body: review }).then((answer) => {
      const status = toMap(toMap(parseAnswerUnlessNotFound(answer)?.content).status);
      if (typeof status.allowed !== "boolean") throw new Error("the answer is not a SubjectAccessReview");
      return toAccessAnswer(status as JsonMap & AccessAnswer);
    });
    return awaitUntil(deadline, permission).catch(
      createFailure(`ask for the right to ${verb} ${url ?? rest.resource} in`, cluster),
    );
  },
  create: async (kind, object) => {
    const { name, namespace } = object.metadata ?? {};
    if (namespace !== undefined && !isName(namespace))
      throw new Failure(500, `"${namespace.slice(0, 253)}" is no namespace to create ${kind.resource} in`);
    const creation = ask(buildObjectPath(kind, namespace), deadline, { body: object, repeat: "never" }).then(
      (answer) => {
        if (answer.status === 409 && toMap(parseJson(answer.body)).reason === "AlreadyExists") return "exists" as const;
        const refused = findRefusal(answer);
        if (refused) return { refused };
        // Throws if the creation failed for another reason. A 404 of a missing namespace was returned as `refused`.
        parseAnswerUnlessNotFound(answer);
        return "created" as const;
      },
    );
    return awaitUntil(deadline, creation).catch(createFailure(`create ${kind.resource} "${name}" in`, cluster));
  },
});

/** Returns the function with which a rule updates the status of an object. */
const createStatusUpdates = (review: ReviewCapabilityState, ask: AskApiServer): Pick<Capabilities, "updateStatus"> => ({
  updateStatus: async (kind, object) => {
    const { cluster, deadline } = review;
    const { name = "", namespace } = object.metadata ?? {};
    const path = `${buildObjectPath(kind, namespace)}/${encodeURIComponent(name)}/status`;
    const put = { method: "PUT", body: object, repeat: "never" } as const;
    const update = ask(path, deadline, put).then(async (answer) => {
      // 403 isn't among the codes: for a named object, a missing right and a plugin's refusal have the same form.
      const refused = findRefusal(answer, [404, 409, 422]);
      if (!refused) {
        // Throws if the update failed for another reason, such as a missing right.
        parseAnswerUnlessNotFound(answer);
        return "updated";
      }
      if (refused.code === 422) return { refused };
      // After a 409 or 404, another client has changed or deleted the object, so the rule must read it again.
      const pause = Math.random() * Math.min(firstUpdatePause * 2 ** review.conflicts++, maxUpdatePause);
      if (Date.now() + pause + retryTime > deadline) return { refused };
      await wait(pause);
      // Answers that were read before the conflict are outdated, even those that this review has read.
      review.started = Date.now();
      return "changed";
    });
    return awaitUntil(deadline, update).catch(createFailure(`update ${kind.resource} "${name}" in`, cluster));
  },
});

export const createFailure = (action: string, cluster: string) => (error: unknown) => {
  throw new Failure(503, `could not ${action} cluster "${cluster}": ${getErrorMessage(error)}`, { cause: error });
};

export const buildObjectPath = ({ group, resource, version = "v1" }: ResourceType, namespace?: string) => {
  const namespacePath = namespace === undefined ? "" : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${toApiPath(joinApiVersion({ group, version }))}${namespacePath}/${resource}`;
};
const describeNamespace = (namespace: string | undefined) =>
  namespace === undefined ? "" : ` in namespace "${namespace}"`;

/** Returns the Status with which validation or admission refuses an object; undefined if a right is missing. */
const findRefusal = (
  { status, body }: HttpsAnswer,
  codes: readonly number[] = [400, 403, 404, 422],
): Status | undefined => {
  const { kind: answerKind, reason, message, details } = toMap(parseJson(body));
  if (answerKind !== "Status" || typeof message !== "string" || !codes.includes(status)) return undefined;
  const { kind, name } = toMap(details);
  // If an answer has no object's name, then a 404 says that the resource isn't served, and a 403 that has a kind says
  // that a right is missing. A webhook that refuses an object may answer 403 without a kind and a name.
  if (name === undefined && (status === 404 || (status === 403 && kind !== undefined))) return undefined;
  return { code: status, reason, message, ...(isMap(details) && { details }) } as Status;
};

const isName = (name: string) =>
  name !== "" && name !== "." && name !== ".." && name.length <= 253 && name.isWellFormed() && !/[/%]/.test(name);

export const parseServedResources = (list: unknown): ServedResource[] => {
  const served = (toMap(list).resources ?? []) as { name: string; kind: string; namespaced: boolean }[];
  return served.map(({ name, kind, namespaced }) => ({ resource: name, kind, namespaced }));
};

/** Reports whether a text has the form of an apiVersion. Any other text might be another path of the API server. */
export const isGroupVersion = (text: string): boolean => /^[a-z0-9.-]+(\/[a-z0-9]+)?$/.test(text);

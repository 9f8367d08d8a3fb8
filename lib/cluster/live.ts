import type { Agent } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import { createUnconnectedCapabilities, unavailableLedger } from "../capabilities.ts";
import { Failure, getErrorMessage } from "../failure.ts";
import { freezeDeep, isObject, parseJson } from "../json.ts";
import { type Ledger, within } from "../ledger.ts";
import { printCounts } from "../metrics.ts";
import type { AccessAnswer, Capabilities, ResourceType, ServedResource } from "../needs.ts";
import { joinApiVersion, rootOf } from "../objects/api-version.ts";
import { selectionOf } from "../objects/selection.ts";
import type { KubernetesObject, Status } from "../review.ts";
import { type Found, type Memory, memoryOf } from "./answer-cache.ts";
import { type Credentials, tokens } from "./credentials.ts";
import {
  before,
  type HttpsAnswer,
  loadHttps,
  longest,
  sendRequest,
  toUnanswered,
  UnansweredError,
} from "./https-request.ts";
import { outside } from "./outside.ts";
import { pagesOf } from "./pages.ts";
import { shared } from "./shared-questions.ts";

export interface Connection {
  /** https://…, without a path */
  server: string;
  /** PEM; with several certificates, a new one is trusted before the old one is removed. */
  ca?: string;
  credentials: Credentials;
}

/** The most seconds since an answer was read, if a rule doesn't set it. */
const usualAge = 10;
const discoveryAge = 30;
const page = 500;
const longestRead = 10_000;
/** Milliseconds between two reads of an absent object. */
const glance = 150;

/** Returns the capabilities of each cluster; clusters share no connections, tokens or answers. */
export const createLiveCapabilities = (
  connections: Record<string, Connection>,
  memory = memoryOf(),
  ledger = unavailableLedger,
  tell = printCounts,
  send: typeof sendRequest = sendRequest,
) => {
  const known = Object.entries(connections).map(
    ([name, connection]) => [name, live(name, connection, memory, ledger, tell, send)] as const,
  );
  const byName = new Map(known);
  return (cluster: string, milliseconds: number): Capabilities =>
    byName.get(cluster)?.(milliseconds) ?? apart(cluster, Date.now() + milliseconds, memory, ledger, tell);
};

/** Ends a script shortly before the review, so that the error names the script. */
const scripting =
  (deadline: number): Capabilities["cue"] =>
  (source, evaluate) =>
    evaluate(source, deadline - 100);

/** The capabilities for a cluster without a connection: services outside can be asked all the same. */
const apart = (
  cluster: string,
  deadline: number,
  memory: Memory,
  ledger: Ledger,
  tell: typeof printCounts,
  since?: number,
): Capabilities => {
  const started = since ?? Date.now();
  const { isRemembered, ...services } = outside(cluster, memory, deadline, since);
  const anew = () => (isRemembered() ? apart(cluster, deadline, memory, ledger, tell, started) : undefined);
  return {
    ...createUnconnectedCapabilities(cluster),
    ...services,
    cue: scripting(deadline),
    ledger: (rule) => within(ledger, `${cluster} ${rule}`),
    count: (counts) => tell(cluster, counts),
    ...(since === undefined && { anew }),
  };
};

const live = (
  cluster: string,
  connection: Connection,
  memory: Memory,
  ledger: Ledger,
  tell: typeof printCounts,
  send: typeof sendRequest,
) => {
  const { server, ca, credentials } = connection;
  const { token, refused } = tokens(credentials);
  let agent: Agent | undefined;
  const trust = { ...(ca && { ca }), ...("cert" in credentials && credentials) };
  const kept = () => {
    agent ??= new (loadHttps().Agent)({ keepAlive: true, maxSockets: 8, ...trust });
    return { agent };
  };

  /** Repeats a request where that is safe and may help. A read may outlive its review: others wait for it. */
  const call = async (path: string, deadline: number, body?: object, isSafe = true) => {
    let isFresh = false;
    for (let attempt = 1; ; attempt++) {
      const latest = Date.now() + longestRead;
      const bearer = await before(body ? deadline : latest, token(latest));
      const headers = {
        accept: "application/json",
        "accept-encoding": "gzip",
        "user-agent": "postern",
        ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
        ...(body && { "content-type": "application/json" }),
      };
      const answer = await send(
        `${server}${path}`,
        { method: body ? "POST" : "GET", headers, ...(isFresh ? { agent: false, ...trust } : kept()) },
        body && JSON.stringify(body),
        body ? deadline : latest,
      ).catch(toUnanswered);
      const again = attempt < 3 ? pauseAfter(answer, isSafe, attempt) : undefined;
      if (answer instanceof UnansweredError) {
        if (again === undefined) throw answer;
        // If one kept connection was dead, the others may be, too.
        isFresh = true;
      } else {
        if (answer.status === 401 && bearer !== undefined) await refused(bearer);
        if (again === undefined || Date.now() + again >= deadline) return answer;
      }
      if (again) await wait(again);
    }
  };

  const failing = (what: string) => (error: unknown) => {
    const why = getErrorMessage(error);
    throw new Failure(503, `could not ${what} cluster "${cluster}": ${why}`, { cause: error });
  };

  /** Returns the content; undefined for a 404 of an object that could exist. */
  const parsed = ({ status, body }: HttpsAnswer): { content: unknown; bytes: number } | undefined => {
    const content = parseJson(body);
    if (status < 300 && content !== undefined) return { content: freezeDeep(content), bytes: body.length };
    // A 404 for an unserved resource names no object.
    if (status === 404 && Object(Object(content).details).name !== undefined) return undefined;
    throw new Error(
      `the API server answers ${status}: ${sentenceIn(content, body)}${status === 403 ? `; ${remedy}` : ""}`,
    );
  };

  const world = (deadline: number, since?: number): Capabilities => {
    const started = since ?? Date.now();
    const { isRemembered: isOutsideRemembered, ...services } = outside(cluster, memory, deadline, since);
    let isRemembered = false;

    /** Returns what was read for this review, or at most `maxAge` seconds before it. */
    const read = async (what: string, key: string, maxAge: number, search: () => Promise<Found>): Promise<unknown> => {
      const earliest = since ?? started - maxAge * 1000;
      const found = await shared(memory, `${cluster} ${key}`, earliest, deadline, search).catch(
        failing(`read ${what} of`),
      );
      if (found.since < started) isRemembered = true;
      return found.content;
    };

    const pathOf = ({ group, resource, version = "v1" }: ResourceType, namespace?: string) =>
      [
        rootOf(joinApiVersion({ group, version })),
        ...(namespace === undefined ? [] : ["namespaces", encodeURIComponent(namespace)]),
        resource,
      ].join("/");

    const one = async (path: string): Promise<Found> => {
      const found = parsed(await call(path, deadline));
      if (found && typeof Object(found.content).kind !== "string") throw new Error("it answers no object");
      // Absence isn't cached: a client that creates the object now will ask right after.
      return found ?? { content: undefined, bytes: undefined };
    };

    const all = async (path: string, most: number, selection: Record<string, string>): Promise<Found> => {
      const end = Date.now() + longestRead;
      const items: object[] = [];
      let bytes = 0;
      const readPage = async (query: URLSearchParams) => {
        const found = parsed(await call(`${path}?${query}`, deadline));
        bytes += found?.bytes ?? 0;
        return found?.content;
      };
      const limit = () => Math.min(page, most - items.length);
      for await (const { items: listed, apiVersion, kind } of pagesOf(readPage, limit, selection)) {
        if (kind === undefined || !isListOfObjects(listed)) throw new Error("it answers no list");
        for (const item of listed) items.push(freezeDeep({ apiVersion, kind, ...item }));
        if (bytes > longest) throw new Error(`its list has more than ${longest} bytes`);
        if (Date.now() > end) throw new Error("it did not answer in time");
        if (items.length >= most) break;
      }
      return { content: Object.freeze(items.slice(0, most)), bytes };
    };

    return {
      get: async (kind, name, namespace, freshness) => {
        // No object has such a name, and its path would be another object's.
        if (!isName(name) || (namespace !== undefined && !isName(namespace))) return undefined;
        const path = `${pathOf(kind, namespace)}/${encodeURIComponent(name)}`;
        const what = `${kind.resource} "${name}"${namespace === undefined ? "" : ` in namespace "${namespace}"`}`;
        const { maxAge = usualAge, patience = 0 } = freshness ?? {};
        // `since` is set when a rule decides again before a refusal; it has waited already.
        const end = since === undefined ? Math.min(started + patience * 1000, deadline - 2 * glance) : 0;
        for (;;) {
          const found = await read(what, path, maxAge, () => one(path));
          if (found !== undefined || Date.now() + glance > end) return found as KubernetesObject | undefined;
          await wait(glance);
        }
      },
      list: async (kind, namespace, freshness) => {
        if (namespace !== undefined && !isName(namespace)) return [];
        const path = pathOf(kind, namespace);
        const what = `${kind.resource}${namespace === undefined ? "" : ` in namespace "${namespace}"`}`;
        const { maxAge = usualAge, most = Number.POSITIVE_INFINITY, labels } = freshness ?? {};
        const text = labels && selectionOf(labels);
        if (labels && text === undefined) return [];
        const selection: Record<string, string> = text ? { labelSelector: text } : {};
        const search = () => all(path, most, selection);
        return read(what, `${path}/${most}?${text ?? ""}`, maxAge, search) as Promise<KubernetesObject[]>;
      },
      discover: async (groupVersion) => {
        if (!isGroupVersion(groupVersion)) return undefined;
        const path = rootOf(groupVersion);
        return read(`the kinds in ${groupVersion}`, path, discoveryAge, async () => {
          const answer = await call(path, deadline);
          if (answer.status === 404) return { content: undefined, bytes: undefined };
          const found = parsed(answer);
          return { content: served(found?.content), bytes: found?.bytes };
        }) as Promise<ServedResource[] | undefined>;
      },
      may: async ({ user, verb, name, namespace, group = "", version, resource, subresource }) => {
        const { username, uid, groups, extra } = user;
        const attributes = { verb, group, version, resource, subresource, namespace, name };
        const review = {
          apiVersion: "authorization.k8s.io/v1",
          kind: "SubjectAccessReview",
          spec: { user: username, uid, groups, extra, resourceAttributes: attributes },
        };
        const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        const asked = call(path, deadline, review).then((answer): AccessAnswer => {
          const { allowed, reason, evaluationError } = Object(Object(parsed(answer)?.content).status);
          if (typeof allowed !== "boolean") throw new Error("it answers no access review");
          return { allowed, ...(reason && { reason }), ...(evaluationError && { evaluationError }) };
        });
        return before(deadline, asked).catch(failing(`ask who may ${verb} ${resource} of`));
      },
      create: async (kind, object) => {
        const { name, namespace } = object.metadata ?? {};
        if (namespace !== undefined && !isName(namespace))
          throw new Failure(500, `"${namespace.slice(0, 253)}" is no namespace to create ${kind.resource} in`);
        const path = pathOf(kind, namespace);
        const made = call(path, deadline, object, false).then((answer) => {
          if (answer.status === 409 && Object(parseJson(answer.body)).reason === "AlreadyExists")
            return "exists" as const;
          const refused = objectionIn(answer);
          if (refused) return { refused };
          parsed(answer);
          return "created" as const;
        });
        return before(deadline, made).catch(failing(`create ${kind.resource} "${name}" in`));
      },
      ...services,
      cue: scripting(deadline),
      ledger: (rule) => within(ledger, `${cluster} ${rule}`),
      count: (counts) => tell(cluster, counts),
      ...(since === undefined && {
        anew: () => (isRemembered || isOutsideRemembered() ? world(deadline, started) : undefined),
      }),
    };
  };
  return (milliseconds: number) => world(Date.now() + milliseconds);
};

const remedy = "npx postern manifests prints the ClusterRole that allows it";

/** Returns milliseconds until a retry; undefined if a retry would be wrong or useless. */
const pauseAfter = (answer: HttpsAnswer | UnansweredError, isSafe: boolean, attempt: number): number | undefined => {
  // A kept connection may have been closed while Lambda froze the process: the request never arrived.
  if (answer instanceof UnansweredError) return answer.unsent && isSafe ? 0 : undefined;
  if (answer.status === 401 && attempt === 1) return 0;
  // A server that answers 429 did not begin the request, so that any verb can be repeated.
  if (answer.status === 429) return (answer.retryAfter ?? 1) * 1000;
  return isSafe && [500, 502, 503, 504].includes(answer.status) ? (answer.retryAfter ?? 0.1) * 1000 : undefined;
};

/** Returns why the API server refuses an object, by validation or admission, and not for want of a right. */
const objectionIn = ({ status, body }: HttpsAnswer): Status | undefined => {
  const content = parseJson(body);
  const { kind: what, reason, message, details } = Object(content);
  if (what !== "Status" || typeof message !== "string" || ![400, 403, 404, 422].includes(status)) return undefined;
  const { kind, name } = Object(details);
  // A Status about a missing right or an unserved resource names no object.
  if (name === undefined && (status === 404 || (status === 403 && kind !== undefined))) return undefined;
  return { code: status, reason, message, ...(details && { details }) };
};

const isName = (name: string) =>
  name !== "" && name !== "." && name !== ".." && name.length <= 253 && name.isWellFormed() && !/[/%]/.test(name);

const isListOfObjects = (value: unknown): value is object[] => Array.isArray(value) && value.every(isObject);

const sentenceIn = (content: unknown, body: string): string => {
  const { message } = Object(content);
  return typeof message === "string" ? message : body.slice(0, 200);
};

const served = (list: unknown): ServedResource[] => {
  if (Object(list).kind !== "APIResourceList") throw new Error("it answers no list of resources");
  return servedIn(list);
};

export const servedIn = (list: unknown): ServedResource[] =>
  (Object(list).resources ?? []).map(
    ({ name, kind, namespaced }: Omit<ServedResource, "resource"> & { name: string }) => {
      return { resource: name, kind, namespaced };
    },
  );

/** Reports whether a text may be an apiVersion; any other could lead to another path. */
export const isGroupVersion = (text: string): boolean => /^[a-z0-9.-]+(\/[a-z0-9]+)?$/.test(text);

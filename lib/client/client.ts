// The client (`postern/client`) applies policies and rules to a program's writes to Kubernetes, before they are sent.
// README.md is for its users. interception.ts handles a request, target.ts parses its URL, and request-body.ts its
// body. write.ts and patch-requests.ts find the object that would be stored. chain.ts evaluates the rules in order.
// responses.ts builds the response. program-capabilities.ts reads the cluster with the program's credentials. No other
// folder of lib imports this folder.
import { isObject, toMap } from "../json.ts";
import type { Capabilities } from "../needs.ts";
import type { UserInfo } from "../review.ts";
import type { GuardOutcome } from "./chain.ts";
import { createGuardEntries, type GuardRule } from "./guard-entries.ts";
import { applyRulesToHttpLibrary, type HttpLibrary } from "./http-library.ts";
import { createWriteInterceptor, type GuardContext } from "./interception.ts";
import { createPolicyRules, type Policies, type References } from "./policies.ts";
import type { SendWithProgramOptions } from "./program-capabilities.ts";
import { readBody } from "./request-body.ts";
import { isWritingMethod } from "./target.ts";

export { type Rule, rule } from "../rule.ts";
export type { GuardOutcome } from "./chain.ts";
export type { GuardRule } from "./guard-entries.ts";
export type { HttpLibrary } from "./http-library.ts";
export { type Policies, type References, readClusterPolicies } from "./policies.ts";

/** The options of a guard: the policies and rules for a program's writes, and how they are evaluated. */
export interface Guard {
  /** Policies of the policy engine kinitiras. `readClusterPolicies` reads those that are stored in a cluster. */
  policies?: Policies;
  /** Which hosts policies may call, which Secrets they may read, and whether they may contain scripts. */
  references?: References;
  rules?: Record<string, GuardRule>;
  /**
   * The API server's URL, including a path before /api and /apis. Without it, each URL with an API path is treated as
   * one of an API server.
   */
  server?: string | URL;
  /** The cluster's minor version of Kubernetes, such as `1.35`. By default, the newest. */
  kubernetes?: string;
  /** The user in the requests that rules evaluate. By default, a user without a name and groups. */
  user?: UserInfo;
  /** If a rule in mode enforce fails for a write: Fail (the default) returns an error, Ignore sends the write. */
  failurePolicy?: "Fail" | "Ignore";
  /** Returns capabilities for a rule, whose calls fail after the timeout; by default with the program's credentials. */
  capabilities?(timeoutMilliseconds: number): Capabilities;
  now?(): Date;
  /** Is called with the outcome of each evaluated rule, independently of the rule's mode. */
  onOutcome?(outcome: GuardOutcome): void;
}

/** Returns the program's options with defaults for those that it left out. */
const createContext = (guard: Guard): GuardContext => {
  const {
    policies,
    references,
    rules = {},
    server,
    kubernetes,
    user = {},
    failurePolicy = "Fail",
    capabilities,
  } = guard;
  if (server !== undefined && !URL.canParse(String(server)))
    throw new Error("server must be a URL such as https://host:6443");
  return {
    entries: createGuardEntries({ ...(policies && createPolicyRules(policies, references)), ...rules }),
    server: server === undefined ? undefined : new URL(server),
    kubernetes,
    user,
    failurePolicy,
    capabilities,
    now: guard.now ?? (() => new Date()),
    report: guard.onOutcome ?? (() => {}),
  };
};

/**
 * Returns a `fetch` that applies policies and rules to writes to Kubernetes, before it sends them. If a rule refuses,
 * returns the response that the API server would send. A request that no rule matches is sent unchanged.
 */
export const guard = (send: typeof fetch, options: Guard): typeof fetch => {
  const intercept = createWriteInterceptor(createContext(options));
  return async (input, init) => {
    const source = isRequest(input) ? input : undefined;
    const method = (init?.method ?? source?.method ?? "GET").toUpperCase();
    const address = source?.url ?? String(input);
    if (!isWritingMethod(method)) return send(input, init);
    const open = () => {
      // `Request` also sets headers that follow from the body's type; a body that is a stream requires `duplex`.
      const request =
        init?.body == null && source
          ? source
          : new Request(address, { ...init, method, duplex: "half" } as RequestInit);
      const headers = new Headers(init?.headers ?? request.headers);
      const type = request.headers.get("content-type");
      if (type !== null && !headers.has("content-type")) headers.set("content-type", type);
      return { headers, read: () => readBody(request.body) };
    };
    const response = await intercept({ method, address, send: createSender(send, source, init), open });
    // If the caller has aborted the request, it gets the abort error, not a response or an error that results from it.
    for (const signal of [init?.signal, source?.signal]) signal?.throwIfAborted();
    return response ?? send(input, init);
  };
};

const isRequest = (input: unknown): input is Request => isObject(input) && "method" in input;

/** Returns a function that sends a request with the options of the program's own request. */
const createSender =
  (send: typeof fetch, source: Request | undefined, init: RequestInit | undefined): SendWithProgramOptions =>
  (method, url, headers, body, signal) => {
    const signals = [init?.signal, source?.signal, signal].filter((value) => value != null);
    const sourceOptions = source && { redirect: source.redirect, credentials: source.credentials, cache: source.cache };
    const aborted = signals.length > 0 && { signal: AbortSignal.any(signals) };
    return send(url, { ...sourceOptions, ...init, method, headers, body: body ?? null, ...aborted });
  };

/** Wraps an HTTP library of @kubernetes/client-node, for `createConfiguration`. `library` sends the requests. */
export const guardLibrary = (library: HttpLibrary, options: Guard): HttpLibrary =>
  applyRulesToHttpLibrary(library, createContext(options));

/** The part of @kubernetes/client-node's KubeConfig that is used. `never` allows any type of API class. */
interface Config {
  makeApiClient(api: never): unknown;
}
type Api = new (configuration: never) => object;

/**
 * Wraps a KubeConfig of @kubernetes/client-node. API clients that are made from it apply the rules to their writes.
 * They send requests with their own connections and credentials.
 */
export const guardConfig = <C extends Config>(config: C, options: Guard): C => {
  const context = createContext(options);
  return new Proxy(config, {
    get: (target, key) => {
      if (key === "makeApiClient") return (api: Api) => target.makeApiClient(guardApi(api, context) as never);
      const value: unknown = Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
};

const isHttpLibrary = (value: unknown): value is HttpLibrary => typeof toMap(value).send === "function";

/** Returns an API class of the Kubernetes client whose objects send their requests through the rules. */
const guardApi = (api: Api, context: GuardContext): Api =>
  new Proxy(api, {
    construct: (target, [configuration], newTarget) => {
      const { httpApi: library } = toMap(configuration);
      if (!isHttpLibrary(library)) throw new Error("the configuration of an API client must have an httpApi");
      const httpApi = applyRulesToHttpLibrary(library, context);
      return Reflect.construct(target, [{ ...configuration, httpApi }], newTarget);
    },
  });

// The client package applies policies and rules to a program's writes to Kubernetes before they are sent. README.md is for
// its users. A write goes through gate.ts (target.ts parses its URL, body.ts its body), write.ts and patches.ts (the object
// that would be stored), chain.ts (evaluates the rules in order) and answers.ts (builds the response). world.ts reads the
// cluster with the program's own credentials. Nothing else in lib imports this folder.
import { isObject } from "../json.ts";
import type { Capabilities } from "../needs.ts";
import type { UserInfo } from "../review.ts";
import { guardedLibrary, type HttpLibrary } from "./api.ts";
import { read } from "./body.ts";
import type { Told } from "./chain.ts";
import { gate } from "./gate.ts";
import { plansOf, type Ruled } from "./plans.ts";
import { applying, type Policies, type References } from "./policies.ts";
import { isWrite } from "./target.ts";
import type { Send } from "./world.ts";
import type { Setup } from "./write.ts";

export type { Told } from "./chain.ts";
export type { Ruled } from "./plans.ts";
export type { Policies, References } from "./policies.ts";

export interface Guard {
  /** Policies of kinitiras' kinds; `policiesFrom` reads those stored in a cluster. */
  policies?: Policies;
  references?: References;
  rules?: Record<string, Ruled>;
  /** The API server's URL, with any path before /api and /apis. Without it, every URL with an API path is an API server's. */
  server?: string | URL;
  /** The user in the requests that rules see; by default a user without name or groups. */
  user?: UserInfo;
  /** What happens to a write that a rule in mode enforce can't evaluate. By default Fail: the write gets an error. */
  failurePolicy?: "Fail" | "Ignore";
  /** Returns the capabilities of rules. By default rules read the cluster with the program's credentials. */
  world?(milliseconds: number): Capabilities;
  now?(): Date;
  onOutcome?(told: Told): void;
}

const setupOf = (guard: Guard): Setup => {
  const { policies, references, rules = {}, server, user = {}, failurePolicy = "Fail" } = guard;
  if (server !== undefined && !URL.canParse(String(server)))
    throw new Error("server must be an address such as https://host:6443");
  return {
    plans: plansOf({ ...(policies && applying(policies, references)), ...rules }),
    server: server === undefined ? undefined : new URL(server),
    ...{ user, failurePolicy, world: guard.world },
    now: guard.now ?? (() => new Date()),
    tell: guard.onOutcome ?? (() => {}),
  };
};

/**
 * Returns a `fetch` that applies policies and rules to writes to Kubernetes before it sends them. A refusal is a
 * response like the API server's. A request that no rule matches is sent unchanged.
 */
export const guard = (send: typeof fetch, options: Guard): typeof fetch => {
  const judged = gate(setupOf(options));
  return async (input, init) => {
    const given = isRequest(input) ? input : undefined;
    const method = (init?.method ?? given?.method ?? "GET").toUpperCase();
    const address = given?.url ?? String(input);
    if (!isWrite(method)) return send(input, init);

    const response = await judged({
      ...{ method, address, send: sender(send, given, init) },
      open: () => {
        // Request also sets the headers that follow from the body's type.
        const made = given && init?.body == null ? given : new Request(address, { ...init, method, ...half(init) });
        const headers = new Headers(init?.headers ?? made.headers);
        const type = made.headers.get("content-type");
        if (type !== null && !headers.has("content-type")) headers.set("content-type", type);
        return { headers, read: () => read(made.body) };
      },
    });
    // A caller that aborted gets the abort error, not a response or an error that resulted from it.
    for (const one of [init?.signal, given?.signal]) one?.throwIfAborted();
    return response ?? send(input, init);
  };
};

const isRequest = (input: unknown): input is Request => isObject(input) && "method" in input;

/** `fetch` requires `duplex` if the body is a stream. */
const half = (init: RequestInit | undefined) => (init?.body == null ? {} : { duplex: "half" as const });

const sender =
  (send: typeof fetch, given: Request | undefined, init: RequestInit | undefined): Send =>
  (method, url, headers, body, signal) => {
    const signals = [init?.signal, given?.signal, signal].filter((one) => one !== undefined && one !== null);
    const how = { redirect: given?.redirect, credentials: given?.credentials, cache: given?.cache };
    return send(url, {
      ...(given && how),
      ...init,
      ...{ method, headers, body: body ?? null },
      ...(signals.length > 0 && { signal: AbortSignal.any(signals) }),
    });
  };

/** Wraps an HTTP library of @kubernetes/client-node, for `createConfiguration`. `library` still sends the requests. */
export const guardLibrary = (library: HttpLibrary, options: Guard): HttpLibrary =>
  guardedLibrary(library, setupOf(options));

/**
 * Wraps a KubeConfig of @kubernetes/client-node: API clients made from it apply the rules to their writes. The module
 * still sends them, with its own connections and credentials.
 */
export const guardConfig = <C extends Config>(config: C, options: Guard): C => {
  const setup = setupOf(options);
  return new Proxy(config, {
    get: (target, key) => {
      if (key === "makeApiClient") return (api: Api) => target.makeApiClient(guarded(api, setup) as never);
      const value: unknown = Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
};

interface Config {
  makeApiClient(api: never): unknown;
}
type Api = new (configuration: never) => object;

const guarded = (api: Api, setup: Setup): Api =>
  new Proxy(api, {
    construct: (target, [configuration], as) => {
      const library: Partial<HttpLibrary> | undefined = Object(configuration).httpApi;
      if (typeof library?.send !== "function")
        throw new Error("an API client is made with a configuration that has an httpApi");
      const httpApi = guardedLibrary(library as HttpLibrary, setup);
      return Reflect.construct(target, [{ ...configuration, httpApi }], as);
    },
  });

export { type Rule, rule } from "../rule.ts";
export type { HttpLibrary } from "./api.ts";
export { policiesFrom } from "./policies.ts";

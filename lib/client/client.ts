// The client package: policies and rules on what a program writes to Kubernetes, before it leaves. README.md is for its users.
// A write goes through gate.ts (target.ts tells what it is about, body.ts reads it), write.ts and patches.ts (what would be
// stored), chain.ts (asks the rules in order) and answers.ts (what the program is told). world.ts reads the cluster with the
// program's own rights. Nothing else in lib imports this folder.
import { isObject } from "../json.ts";
import type { World } from "../needs.ts";
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

/** What is applied to a program's writes before they leave it. */
export interface Guard {
  /** Those of kinitiras' kinds; `policiesFrom` finds those that the cluster keeps. */
  policies?: Policies;
  /** What these policies may reach. */
  references?: References;
  /** Rules of the catalogue, by name. */
  rules?: Record<string, Ruled>;
  /** Where the API server is, with whatever stands before /api and /apis; without it, wherever a path looks like theirs. */
  server?: string | URL;
  /** As whom rules see the program; as nobody, if not said. */
  user?: UserInfo;
  /** What becomes of a write that a rule in mode enforce can't judge: an error, if not said. */
  failurePolicy?: "Fail" | "Ignore";
  /** Where rules get their answers, for so many milliseconds; the cluster itself with the program's rights, if not said. */
  world?(milliseconds: number): World;
  /** The time, as rules see it. */
  now?(): Date;
  /** Hears what every rule says to every write. */
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
 * A `fetch` that applies policies and rules to what it writes to Kubernetes, before it leaves. A refusal is an answer such
 * as the API server's; what no rule is about goes through untouched.
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
        // It has the headers that follow from a body's type, too.
        const made = given && init?.body == null ? given : new Request(address, { ...init, method, ...half(init) });
        const headers = new Headers(init?.headers ?? made.headers);
        const type = made.headers.get("content-type");
        if (type !== null && !headers.has("content-type")) headers.set("content-type", type);
        return { headers, read: () => read(made.body) };
      },
    });
    // Whoever is no longer waited for hears of that, and of nothing that followed from it.
    for (const one of [init?.signal, given?.signal]) one?.throwIfAborted();
    return response ?? send(input, init);
  };
};

const isRequest = (input: unknown): input is Request => isObject(input) && "method" in input;

/** What fetch wants to be told of a body that is a stream. */
const half = (init: RequestInit | undefined) => (init?.body == null ? {} : { duplex: "half" as const });

/** Sends another request as the program sends this one. */
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

/** An HTTP library of @kubernetes/client-node, for `createConfiguration`: what really sends stays the one given. */
export const guardLibrary = (library: HttpLibrary, options: Guard): HttpLibrary =>
  guardedLibrary(library, setupOf(options));

/**
 * A KubeConfig of @kubernetes/client-node as it is, but that the writes of the API clients made by it are judged. The
 * module sends them, with its own connections and credentials.
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

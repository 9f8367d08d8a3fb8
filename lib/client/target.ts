import { Failure } from "../failure.ts";
import type { Operation } from "../review.ts";

export interface Target {
  operation: Operation;
  group: string;
  version: string;
  resource: string;
  subResource?: string;
  /** For a Namespace, its own name, as in the API server's requests. */
  namespace?: string;
  name?: string;
  dryRun: boolean;
  /** The URL before the API's own paths: `https://host:6443`, or with a path behind a gateway. */
  server: string;
}

const operations: Record<string, Operation> = { POST: "CREATE", PUT: "UPDATE", PATCH: "UPDATE", DELETE: "DELETE" };

export const isWrite = (method: string): boolean => Object.hasOwn(operations, method);

/** Subresources that open a connection: admission doesn't see what is sent over it. */
const connections = new Set(
  ["exec", "attach", "portforward", "proxy"].flatMap((one) =>
    ["pods", "services", "nodes"].map((of) => `${of}/${one}`),
  ),
);

/** Path segments after a Namespace's name that belong to the Namespace itself; any other is a resource in it. */
const ofNamespaces = new Set([undefined, "status", "finalize"]);

/**
 * Returns what a write is about; undefined if it writes no object, or goes to another server. Throws a Failure for an
 * ambiguous path, because the API server might read it differently.
 */
export const targetOf = (method: string, url: URL, server?: URL): Target | undefined => {
  const operation = isWrite(method) ? operations[method] : undefined;
  if (operation === undefined) return undefined;
  if (server !== undefined && url.origin !== server.origin) return undefined;
  const path = decoded(url.pathname);
  const base = server === undefined ? undefined : decoded(server.pathname).replace(/\/+$/, "");
  const isOdd = (steps: string[]) => steps.some((step) => step === "" || step === "." || step === "..");
  const odd = () =>
    new Failure(400, `the path ${JSON.stringify(path.slice(0, 200))} must name a resource without empty steps`);
  // Checked before `base`: a server that removes such segments may find a path below `base`.
  if (api.test(path) && isOdd(path.replace(/\/+$/, "").split("/").slice(1))) throw odd();
  if (base !== undefined && !path.startsWith(`${base}/`)) return undefined;

  const [, before = "", core, group = "", groupVersion, rest = ""] = api.exec(path.slice(base?.length ?? 0)) ?? [];
  const version = core ?? groupVersion;
  if (version === undefined || (base !== undefined && before !== "")) return undefined;

  const steps = rest.replace(/\/+$/, "").split("/");
  if (isOdd(steps)) throw odd();
  const isInside = steps[0] === "namespaces" && !ofNamespaces.has(steps[2]);
  const [resource = "", name, subResource, ...more] = isInside ? steps.slice(2) : steps;
  if (resource === "watch" || resource === "proxy" || connections.has(`${resource}/${subResource}`)) return undefined;
  // The API server runs admission on each object of a deleted collection; this request names none of them.
  if (more.length > 0 || (operation === "CREATE") !== (name === undefined || subResource !== undefined)) {
    const isSubresource = operation !== "CREATE" && subResource !== undefined && more.length === 0;
    if (!isSubresource) return undefined;
  }
  const namespace = isInside ? steps[1] : group === "" && resource === "namespaces" ? name : undefined;
  return {
    ...{ operation, group, version, resource },
    ...(subResource !== undefined && { subResource }),
    ...(namespace !== undefined && { namespace }),
    ...(name !== undefined && { name }),
    dryRun: url.searchParams.getAll("dryRun").includes("All"),
    server: `${url.origin}${server === undefined ? before : base}`,
  };
};

const api = /^(.*?)\/(?:api\/(v1)|apis\/([^/]+)\/([^/]+))\/(.*)$/s;

/**
 * Parses a request's URL. Returns undefined for an incomplete URL that writes nothing. Throws a Failure for an
 * incomplete URL that writes: the sender may complete it to the API server's.
 */
export const addressOf = (method: string, address: string): URL | undefined => {
  const url = URL.parse(address);
  if (url !== null) return url;
  const relative = URL.parse(address, "http://relative");
  if (relative !== null && targetOf(method, relative) !== undefined)
    throw new Failure(
      400,
      `the address ${JSON.stringify(address.slice(0, 200))} must begin with https:// to be judged`,
    );
  return undefined;
};

/** Decodes a path as the API server does before it splits the path: `%2F` separates segments, too. */
const decoded = (path: string): string => {
  try {
    return decodeURIComponent(path);
  } catch {
    throw new Failure(400, `the path ${JSON.stringify(path.slice(0, 200))} is not encoded as a URL's must be`);
  }
};

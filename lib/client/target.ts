import { Failure } from "../failure.ts";
import type { Operation } from "../review.ts";

/** What a request to the API server is about, as its method and address tell. */
export interface Target {
  operation: Operation;
  group: string;
  version: string;
  resource: string;
  subResource?: string;
  /** A Namespace's own, too, as the API server has it. */
  namespace?: string;
  name?: string;
  dryRun: boolean;
  /** What stands before the API's own paths: `https://host:6443`, or more behind a gateway. */
  server: string;
}

const operations: Record<string, Operation> = { POST: "CREATE", PUT: "UPDATE", PATCH: "UPDATE", DELETE: "DELETE" };

/** Whether a method may write. */
export const isWrite = (method: string): boolean => Object.hasOwn(operations, method);

/** To these one connects; what is then said, no admission hears. */
const connections = new Set(
  ["exec", "attach", "portforward", "proxy"].flatMap((one) =>
    ["pods", "services", "nodes"].map((of) => `${of}/${one}`),
  ),
);

/** Of a Namespace itself; everything else in its path is in it. */
const ofNamespaces = new Set([undefined, "status", "finalize"]);

/**
 * What a write is about; undefined where it is none of an object, or not to this server. What can't be told for certain is
 * a failure: the API server might read it otherwise.
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
  // Whoever takes such steps out finds what is below the server's path, after all.
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
  // A collection is deleted object by object, each of which admission sees; here it is one request without any.
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
 * A request's address; undefined where it is no whole one and nothing is written there. Whoever sends it may know what is
 * missing, so that it leads to the API server all the same.
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

/** The API server reads what is encoded before it takes the path apart: `%2F` is a step's end there. */
const decoded = (path: string): string => {
  try {
    return decodeURIComponent(path);
  } catch {
    throw new Failure(400, `the path ${JSON.stringify(path.slice(0, 200))} is not encoded as a URL's must be`);
  }
};

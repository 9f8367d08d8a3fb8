import { Failure } from "../failure.ts";
import type { Operation } from "../review.ts";

/** What a write to the API server is about, as parsed from its method and URL. */
export interface WriteTarget {
  operation: Operation;
  group: string;
  version: string;
  resource: string;
  subResource?: string;
  /**
   * The request's namespace. If the object is a Namespace, its own name, as in the API server's admission requests.
   */
  namespace?: string;
  name?: string;
  dryRun: boolean;
  /** The API server's URL before the API's own paths: `https://host:6443`, or with a path behind a gateway. */
  server: string;
}

const operations: Record<string, Operation> = { POST: "CREATE", PUT: "UPDATE", PATCH: "UPDATE", DELETE: "DELETE" };

/** Reports whether an HTTP method writes objects. */
export const isWritingMethod = (method: string): boolean => Object.hasOwn(operations, method);

/** Subresources that open a connection: admission doesn't see what is sent over it. */
const connections = new Set(
  ["exec", "attach", "portforward", "proxy"].flatMap((name) =>
    ["pods", "services", "nodes"].map((resource) => `${resource}/${name}`),
  ),
);

/** Path segments after a Namespace's name that belong to the Namespace itself; any other is a resource in it. */
const namespaceSegments = new Set([undefined, "status", "finalize"]);

/**
 * Returns what a write is about; undefined if it writes no object, or goes to another server. Throws a Failure for an
 * ambiguous path, because the API server might read it differently.
 */
export const parseTarget = (method: string, url: URL, server?: URL): WriteTarget | undefined => {
  const operation = isWritingMethod(method) ? operations[method] : undefined;
  if (operation === undefined) return undefined;
  if (server !== undefined && url.origin !== server.origin) return undefined;
  const path = decodePath(url.pathname);
  const base = server === undefined ? undefined : decodePath(server.pathname).replace(/\/+$/, "");
  const requirePlainSegments = (segments: string[]) => {
    if (segments.some((segment) => ["", ".", ".."].includes(segment)))
      throw new Failure(
        400,
        `the path ${JSON.stringify(path.slice(0, 200))} must not have empty segments, "." or ".."`,
      );
  };
  // Segments such as `..` are refused first: a server that resolves them may find a path below `base`.
  if (apiPath.test(path)) requirePlainSegments(path.replace(/\/+$/, "").split("/").slice(1));
  if (base !== undefined && !path.startsWith(`${base}/`)) return undefined;

  const [, before = "", core, group = "", groupVersion, rest = ""] = apiPath.exec(path.slice(base?.length ?? 0)) ?? [];
  const version = core ?? groupVersion;
  if (version === undefined || (base !== undefined && before !== "")) return undefined;

  const segments = rest.replace(/\/+$/, "").split("/");
  requirePlainSegments(segments);
  const isNamespaced = segments[0] === "namespaces" && !namespaceSegments.has(segments[2]);
  const [resource = "", name, subResource, ...more] = isNamespaced ? segments.slice(2) : segments;
  if (resource === "watch" || resource === "proxy" || connections.has(`${resource}/${subResource}`)) return undefined;
  if (more.length > 0) return undefined;
  // The deletion of a collection is not intercepted: the API server admits each object, but the request names none.
  const takesPost = name === undefined || subResource !== undefined;
  if (operation === "CREATE" ? !takesPost : name === undefined) return undefined;
  const namespace = isNamespaced ? segments[1] : group === "" && resource === "namespaces" ? name : undefined;
  return {
    operation,
    group,
    version,
    resource,
    ...(subResource !== undefined && { subResource }),
    ...(namespace !== undefined && { namespace }),
    ...(name !== undefined && { name }),
    dryRun: url.searchParams.getAll("dryRun").includes("All"),
    server: `${url.origin}${server === undefined ? before : base}`,
  };
};

const apiPath = /^(.*?)\/(?:api\/(v1)|apis\/([^/]+)\/([^/]+))\/(.*)$/s;

/**
 * Parses a request's URL. Returns undefined for an incomplete URL that writes nothing. Throws a Failure for an
 * incomplete URL that writes: the sender may complete it to the API server's.
 */
export const parseWriteUrl = (method: string, address: string): URL | undefined => {
  const url = URL.parse(address);
  if (url !== null) return url;
  const relative = URL.parse(address, "http://relative");
  if (relative !== null && parseTarget(method, relative) !== undefined)
    throw new Failure(400, `the address ${JSON.stringify(address.slice(0, 200))} must begin with https://`);
  return undefined;
};

/** Decodes a path as the API server does before it splits the path: `%2F` separates segments, too. */
const decodePath = (path: string): string => {
  try {
    return decodeURIComponent(path);
  } catch {
    throw new Failure(400, `the path ${JSON.stringify(path.slice(0, 200))} has invalid percent encoding`);
  }
};

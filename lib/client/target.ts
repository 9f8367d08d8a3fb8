import { Failure } from "../failure.ts";
import type { Operation } from "../review.ts";

/** The operation and the object of a write to the API server, parsed from its method and URL. */
export interface WriteTarget {
  operation: Operation;
  group: string;
  version: string;
  resource: string;
  subResource?: string;
  /** The request's namespace. For a Namespace, it is its own name, as in the API server's admission requests. */
  namespace?: string;
  name?: string;
  dryRun: boolean;
  /** The part of the URL before /api or /apis, such as `https://host:6443`. Behind a gateway, it may have a path. */
  server: string;
}

const operations: Record<string, Operation> = { POST: "CREATE", PUT: "UPDATE", PATCH: "UPDATE", DELETE: "DELETE" };

/** Reports whether an HTTP method writes objects. */
export const isWritingMethod = (method: string): boolean => Object.hasOwn(operations, method);

/** Subresources that open a connection. Rules can't evaluate data that is sent through a connection. */
const connections = new Set(
  ["exec", "attach", "portforward", "proxy"].flatMap((name) =>
    ["pods", "services", "nodes"].map((resource) => `${resource}/${name}`),
  ),
);

/** The path segments after a Namespace's name that belong to the Namespace. Any other is a resource in a namespace. */
const segmentsAfterTargetedNamespace = new Set([undefined, "status", "finalize"]);

/**
 * Parses the target of a write; undefined if it writes no object, or goes to another server. Throws a Failure for an
 * ambiguous path, because the API server might parse it differently.
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
  // Segments like `..` are refused before `base` is compared: a server that resolves them may find a path below `base`.
  if (apiPath.test(path)) requirePlainSegments(path.replace(/\/+$/, "").split("/").slice(1));
  if (base !== undefined && !path.startsWith(`${base}/`)) return undefined;

  const [, before = "", core, group = "", groupVersion, rest = ""] = apiPath.exec(path.slice(base?.length ?? 0)) ?? [];
  const version = core ?? groupVersion;
  if (version === undefined || (base !== undefined && before !== "")) return undefined;

  const segments = rest.replace(/\/+$/, "").split("/");
  requirePlainSegments(segments);
  // In namespaces/a and namespaces/a/status, the Namespace is the target; in namespaces/a/pods, the target is in it.
  const isNamespaced = segments[0] === "namespaces" && !segmentsAfterTargetedNamespace.has(segments[2]);
  const [resource = "", name, subResource, ...more] = isNamespaced ? segments.slice(2) : segments;
  if (resource === "watch" || resource === "proxy" || connections.has(`${resource}/${subResource}`)) return undefined;
  if (more.length > 0) return undefined;
  // The deletion of a collection is not intercepted, because the request names no object.
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

/** The part before the API, the version of /api/v1 or the group and version of /apis/…, and the rest of the path. */
const apiPath = /^(.*?)\/(?:api\/(v1)|apis\/([^/]+)\/([^/]+))\/(.*)$/s;

/**
 * Parses a request's URL. Returns undefined for an incomplete URL that writes no object. Throws a Failure for an
 * incomplete URL that writes one, because the sender may complete it to a URL of the API server.
 */
export const parseWriteUrl = (method: string, address: string): URL | undefined => {
  const url = URL.parse(address);
  if (url !== null) return url;
  const relative = URL.parse(address, "http://relative");
  if (relative !== null && parseTarget(method, relative) !== undefined)
    throw new Failure(400, `the address ${JSON.stringify(address.slice(0, 200))} must begin with https://`);
  return undefined;
};

/** Decodes a path. The API server decodes a path before it splits it, so `%2F` separates segments, too. */
const decodePath = (path: string): string => {
  try {
    return decodeURIComponent(path);
  } catch {
    throw new Failure(400, `the path ${JSON.stringify(path.slice(0, 200))} has invalid percent encoding`);
  }
};

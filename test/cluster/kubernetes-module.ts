import { isDeepStrictEqual } from "node:util";
import { exactJson } from "#lib/exact-json.ts";
import { type JsonMap, toList, toMap } from "#lib/json.ts";
import { toApiPath } from "#lib/objects/api-version.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { KindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import type { Kubernetes } from "../../infra/kubernetes/kubernetes.ts";
import type { KubernetesAnswer, KubernetesRequest } from "../../infra/kubernetes/requests.ts";
import type { TestClusterClient, TestClusterResponse } from "../control-plane/client.ts";
import { formatAnswerDiff } from "../parity/compare.ts";

/** An object that is sent to an API server and to the module, which runs Kubernetes' handlers in this process. */
export interface ComparedRequest {
  verb: "create" | "update" | "delete";
  /** The object that is sent. For a deletion, these are the DeleteOptions, which contain `dryRun`. */
  object: KubernetesObject;
  /** The stored object, which only the module gets. */
  oldObject?: KubernetesObject;
  subresource?: string;
}

/** The comparison of the API server's answer with the module's. */
export interface ComparedAnswers {
  /** True if the API server refuses the request. */
  isRefused: boolean;
  /** `equal`, `unknown`, or the known reason of the difference, such as `the name is taken in the cluster`. */
  cause: string;
  /** The differences. */
  text: string;
}

/** Sends requests to an API server. */
export const createSender = (admin: TestClusterClient, kinds: KindIndex) => {
  /** Returns the resource of an object's kind, and its namespace if the kind is namespaced. */
  const locate = ({ apiVersion = "", kind = "", metadata }: KubernetesObject) => {
    const kindEntry = kinds.of(apiVersion, kind);
    const { namespace = "default" } = Object(metadata);
    const isNamed = typeof namespace === "string" && namespace !== "";
    return {
      resource: kindEntry?.resource.resource,
      namespace: kindEntry?.namespaced && isNamed ? namespace : undefined,
    };
  };
  const getPath = (object: KubernetesObject, { verb, subresource }: ComparedRequest): string => {
    const { resource, namespace } = locate(object);
    const name = verb !== "create" ? `/${object.metadata?.name}${subresource ? `/${subresource}` : ""}` : "";
    return `${toApiPath(object.apiVersion ?? "")}${namespace ? `/namespaces/${namespace}` : ""}/${resource}${name}`;
  };
  const send = async (request: ComparedRequest, query = "&dryRun=All"): Promise<TestClusterResponse> => {
    const path = getPath(request.oldObject ?? request.object, request);
    const method = ({ create: "POST", update: "PUT", delete: "DELETE" } as const)[request.verb];
    return admin({ method, path: `${path}?fieldValidation=Strict${query}`, body: request.object });
  };
  const read = async (object: KubernetesObject): Promise<KubernetesObject> =>
    (await admin({ method: "GET", path: getPath(object, { verb: "update", object }) })).body as KubernetesObject;
  return { locate, send, read };
};

/**
 * Sends requests to an API server and to the module, and compares the answers. If the server runs an `olderMinor`, the
 * module emulates it with the newest code: only the verdicts must be equal, and other differences get a cause. If the
 * server panics at a request, it breaks the connection; this counts as a refusal.
 */
export const createComparison = (
  admin: TestClusterClient,
  module: Kubernetes,
  kinds: KindIndex,
  olderMinor?: string,
) => {
  const { locate, send, read } = createSender(admin, kinds);
  const callModule = ({ verb, object, oldObject, subresource }: ComparedRequest): Promise<KubernetesAnswer> => {
    const { namespace } = locate(oldObject ?? object);
    const { apiVersion = "", kind = "" } = oldObject ?? object;
    return module.handle({
      verb,
      apiVersion,
      kind,
      ...(subresource && { subresource }),
      ...(namespace && { namespace }),
      ...(oldObject?.metadata?.name && { name: oldObject.metadata.name }),
      fieldValidation: "Strict",
      user: { username: "admin", uid: "0", groups: ["system:authenticated"] },
      object,
      ...(oldObject && { oldObject: exactJson.stringify(oldObject) }),
    } satisfies KubernetesRequest);
  };
  const compare = async (request: ComparedRequest): Promise<ComparedAnswers> => {
    const sent = send(request).catch((error) => {
      if (olderMinor !== undefined && error.code === "ECONNRESET") return undefined;
      throw error;
    });
    const [server, moduleAnswer] = await Promise.all([sent, callModule(request)]);
    if (server === undefined) return { isRefused: true, cause: "an older minor panics", text: "" };
    return compareAnswers(request, server, moduleAnswer, olderMinor);
  };
  return { send, read, compare };
};

/** Fields that a server sets from its clock or its storage, or at random. */
const serverFields = ["uid", "creationTimestamp", "deletionTimestamp", "resourceVersion", "managedFields", "selfLink"];

interface ComparedAnswer {
  code: number;
  warnings: readonly string[];
  body: JsonMap;
}

/** Reduces a refusal to its reason and fields: an older minor repeats causes, and prints Go's values in another way. */
const reduceAnswer = ({ body, ...answer }: ComparedAnswer): ComparedAnswer => {
  const causes = toList(toMap(body.details).causes);
  const fields = [...new Set(causes.map(toField))].sort();
  return { ...answer, body: causes.length > 0 ? { reason: body.reason, fields } : body };
};

/**
 * Returns how the answer of an API server of an older minor (`wanted`) differs, if both answers have the same verdict.
 * `actual` has the parts of the module's answer that are compared.
 */
const findOlderCause = (
  wanted: ComparedAnswer,
  actual: ComparedAnswer,
  moduleAnswer: KubernetesAnswer,
): string | undefined => {
  if (wanted.code >= 300) return moduleAnswer.status && "an older minor refuses it with other fields";
  if (moduleAnswer.object === undefined) return undefined;
  const isSameObject = isDeepStrictEqual(actual.body, wanted.body);
  return isSameObject ? "an older minor warns otherwise" : "an older minor stores other fields";
};

/** Compares the API server's answer with the module's answer, and finds the cause of a difference. */
const compareAnswers = (
  { object }: ComparedRequest,
  server: TestClusterResponse,
  moduleAnswer: KubernetesAnswer,
  olderMinor: string | undefined,
): ComparedAnswers => {
  // An older API server has other texts for the causes of a refusal, so only its reason and fields are compared.
  const selectCompared = olderMinor ? reduceAnswer : (answer: ComparedAnswer) => answer;
  const wanted = selectCompared({ code: server.code, warnings: server.warnings, body: normalize(server.body, object) });
  const isRefused = server.code >= 300;
  // The module states no code for an object, because 200 or 201 depends on the request.
  const successCode = isRefused ? 200 : server.code;
  const actual = selectCompared({
    code: moduleAnswer.object ? successCode : (moduleAnswer.status?.code ?? 0),
    warnings: [...moduleAnswer.warnings],
    body: normalize({ ...(moduleAnswer.object ?? moduleAnswer.status ?? moduleAnswer) }, object),
  });
  if (isDeepStrictEqual(actual, wanted)) return { isRefused, cause: "equal", text: "" };
  // With an equal verdict, findOlderCause says what differs: refused fields, stored fields or warnings. Otherwise, the
  // texts show the cause.
  const cause =
    (olderMinor && findOlderCause(wanted, actual, moduleAnswer)) ||
    findCause(JSON.stringify(server.body), String(moduleAnswer.status?.message), olderMinor);
  if (actual.code === wanted.code)
    return { isRefused, cause, text: formatAnswerDiff(toMutable(wanted), toMutable(actual)) };
  const ourMessage = moduleAnswer.status?.message ?? moduleAnswer.undecided;
  return { isRefused, cause, text: `- ${wanted.code} ${server.body.message}\n+ ${actual.code} ${ourMessage}` };
};

/** Returns the known reason why the API server's answer (as JSON) differs from the module's message, or "unknown". */
const findCause = (server: string, ours: string, olderMinor: string | undefined): string => {
  if (olderMinor && /unknown field/.test(server)) return "an older minor doesn't know a field";
  if (/already exists/.test(server)) return "the name is taken in the cluster";
  if (/\b(?:allocate|range)\b|nodePort: Duplicate/.test(server) || /\ballocate\b/.test(ours))
    return "addresses and ports of the cluster";
  if (/provided port is not in the valid range/.test(ours)) return "a dry run accepts each node port";
  if (/not found/.test(server)) return "the cluster lacks another object";
  if (/invalid bearer token/.test(server)) return "the tokens of the cluster";
  return "unknown";
};

/** Returns the field of a cause. If there are several causes, `normalize` has turned each into JSON. */
const toField = (cause: unknown) => String(toMap(typeof cause === "string" ? JSON.parse(cause) : cause).field);

const toMutable = (answer: ComparedAnswer) => ({ ...answer, warnings: [...answer.warnings] });

/** Returns an answer's body with random and server-set values removed or replaced by words such as UID. */
const normalize = (body: Record<string, unknown>, requested: KubernetesObject): JsonMap => {
  const uid = String(Object(body.metadata).uid ?? "");
  const text = JSON.stringify(body, (_, value) => (typeof value === "bigint" ? String(value) : value));
  const { name, generateName } = Object(requested.metadata);
  // A server gives a LimitRange without a name a uid as its name.
  const serverName = name || generateName ? undefined : Object(body.metadata).name;
  // Matches a generated name, such as web-x7k2p. Without a generateName, \0 makes it match nothing.
  const prefix = typeof generateName === "string" ? generateName : "\0";
  const generatedName = new RegExp(`${RegExp.escape(prefix)}[a-z0-9]{5}\\b`, "g");
  const copy = JSON.parse(
    text
      .replaceAll(generatedName, "RANDOM")
      .replaceAll(uid || "UID", "UID")
      .replaceAll(typeof serverName === "string" ? serverName : "NAME", "NAME")
      .replaceAll(/"(last(?:Phase)?TransitionTime|timeAdded)":"[^"]*"/g, '"$1":"now"'),
  );
  if (copy.metadata !== undefined && copy.kind !== "Status") {
    for (const field of serverFields) delete copy.metadata[field];
    // A deletion adds finalizers in a random order.
    if (requested.kind === "DeleteOptions") copy.metadata.finalizers?.sort();
  }
  // Causes about labels have the random order of Go's maps.
  if (copy.details?.causes?.length > 1) {
    copy.details.causes = copy.details.causes.map((cause: unknown) => JSON.stringify(cause)).sort();
    copy.message = String(copy.message)
      .replace(/[[\]]/g, "")
      .split(/(?<=invalid:)|, /)
      .sort();
  }
  // Addresses and node ports that the request doesn't state are allocated at random.
  if (copy.kind === "Service" && copy.spec) {
    for (const field of ["clusterIP", "clusterIPs", "healthCheckNodePort"])
      if (!Object.hasOwn(Object(Reflect.get(requested, "spec")), field)) delete copy.spec[field];
    for (const [index, port] of Object.entries<Record<string, unknown>>(copy.spec.ports ?? []))
      if (!Object(Reflect.get(requested, "spec")?.ports?.[index]).nodePort) delete port.nodePort;
  }
  return copy;
};

import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { type AccessQuestion, asksCluster, type Capabilities } from "#lib/needs.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionReview, KubernetesObject } from "#lib/review.ts";
import { buildReview, evaluateCase, readCases } from "../../../infra/catalogue/cases.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import type { ServerCertificate } from "../../../infra/keys/keys.ts";

/** A case of a rule, and its review as the API server would send it. */
export interface CaseWithReview {
  entry: Case;
  review: AdmissionReview;
}

/** Returns the first case in which a rule reads the cluster. */
export const findClusterAskingCase = async (listed: CatalogueRule): Promise<CaseWithReview | undefined> => {
  for (const entry of asksCluster(listed.rule) ? await readCases(listed) : []) {
    const review = buildReview(listed, entry);
    let hasAsked = false;
    const recorded = createRecordedCapabilities(entry.needs ?? {});
    // Each capability is wrapped, so that its calls are noticed. Calls of `cue` and `count` read no server.
    const wrapped = Object.entries(recorded).map(([verb, ask]) => [
      verb,
      (...args: unknown[]) => {
        hasAsked ||= verb !== "cue" && verb !== "count";
        return Reflect.apply(ask, recorded, args);
      },
    ]);
    const capabilities: Capabilities = Object.fromEntries(wrapped);
    const isFound = await evaluateCase(listed, entry, review, capabilities).then(
      () => hasAsked,
      () => false,
    );
    if (isFound) return { entry, review };
  }
  return undefined;
};

/** Serves recorded answers as API servers would. The first segment of a path is the key of the recording. */
export const serveRecordedAnswers = async (
  { cert, key }: ServerCertificate,
  recordings: ReadonlyMap<string, Capabilities>,
) => {
  const server = createServer({ cert, key }, (request, response) => {
    const [, name = "", ...path] = (request.url ?? "").split("?")[0]?.split("/").map(decodeURIComponent) ?? [];
    const recording = recordings.get(name);
    const answering = recording ? answer(recording, path, request) : Promise.resolve(undefined);
    answering.then(
      (found) => reply(response, found === undefined ? 404 : 200, found ?? notFound),
      (error) => reply(response, 500, { kind: "Status", message: String(error) }),
    );
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  // The cast is safe: the address of a server that listens on TCP is an object with a port.
  const { port } = server.address() as AddressInfo;
  return {
    url: `https://127.0.0.1:${port}`,
    stop: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
};

const notFound = { kind: "Status", code: 404, details: { name: "it" } };

const reply = (response: ServerResponse, code: number, body: object) =>
  response.writeHead(code, { "content-type": "application/json" }).end(JSON.stringify(body));

/**
 * Answers a request to an imitated API server: a get, a list, a discovery, a creation or a SubjectAccessReview. Paths
 * begin with `/api/v1` or `/apis/GROUP/VERSION`. Clients ignore the member `created`.
 */
const answer = async (
  recording: Capabilities,
  path: string[],
  request: IncomingMessage,
): Promise<object | undefined> => {
  const [group = "", version = "", ...rest] = path[0] === "api" ? ["", ...path.slice(1)] : path.slice(1);
  const isNamespaced = rest[0] === "namespaces" && rest.length > 2;
  const [namespace, [resource, name]] = isNamespaced ? [rest[1], rest.slice(2)] : [undefined, rest];
  const kind = { group, version, resource: resource ?? "" };
  if (resource === undefined) {
    // A starting function reads the kinds of the group authorization.k8s.io, which recordings don't have.
    const discovered =
      group === "authorization.k8s.io" ? [] : await recording.discover(joinApiVersion({ group, version }));
    return (
      discovered && {
        kind: "APIResourceList",
        resources: discovered.map(({ resource, ...rest }) => ({ ...rest, name: resource })),
      }
    );
  }
  if (name !== undefined) return recording.get(kind, name, namespace);
  if (request.method === "GET") return { kind: "List", metadata: {}, items: await recording.list(kind, namespace) };
  const body = (await json(request)) as KubernetesObject & { spec?: object };
  if (resource !== "subjectaccessreviews") return { ...body, created: await recording.create(kind, body) };
  const { user: username, uid, groups, extra, resourceAttributes } = body.spec as SubjectAccess;
  const user = JSON.parse(JSON.stringify({ username, uid, groups, extra }));
  return { ...body, status: await recording.may({ user, ...resourceAttributes }) };
};

interface SubjectAccess {
  user: string;
  uid?: string;
  groups?: string[];
  extra?: Record<string, string[]>;
  resourceAttributes: Omit<AccessQuestion, "user">;
}

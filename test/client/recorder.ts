import jsonPatch from "fast-json-patch";
import { isMap } from "#lib/json.ts";

/** A request that reached the recorded API server, with its body as text and, if that is JSON, parsed. */
export interface Arrival {
  method: string;
  url: string;
  headers: Headers;
  text: string;
  body: unknown;
}

type Fields = Record<string, unknown>;

/**
 * Returns a `fetch` (`send`) to a minimal API server, which has these objects by path, accepts every write, and records
 * all requests in `arrivals`.
 */
export const createRecorder = (objects: Record<string, unknown> = {}) => {
  const stored = new Map(Object.entries(objects));
  const arrivals: Arrival[] = [];
  /** Responses that are sent instead of the server's own, each to the next request with its method. */
  const scripted: { method: string; answer: Response }[] = [];
  const send: typeof fetch = async (input, init) => {
    const request = new Request(input, { ...init, ...(init?.body ? { duplex: "half" } : {}) });
    const { method, url, headers } = request;
    const text = await request.text();
    const arrival = { method, url, headers, text, body: parseOrKeep(text) };
    arrivals.push(arrival);
    const index = scripted.findIndex((one) => one.method === method);
    const [response] = index < 0 ? [] : scripted.splice(index, 1);
    if (response) return response.answer;

    const { pathname, searchParams } = new URL(url);
    const present = stored.get(decodeURIComponent(pathname));
    if (method === "POST") return respond(201, arrival.body);
    if (present === undefined) return respond(404, { kind: "Status", code: 404, details: { name: "it" } });
    let result: unknown = present;
    if (method === "PUT") result = arrival.body;
    if (method === "PATCH") result = applyPatch(present, arrival);
    if (result === undefined) return respond(422, failedPatchStatus);
    if (!searchParams.has("dryRun") && method !== "GET") stored.set(decodeURIComponent(pathname), result);
    return respond(200, result);
  };
  /** Returns the requests that were neither reads nor dry runs of a patch. */
  const writes = () =>
    arrivals.filter(({ method, url }) => method !== "GET" && !(method === "PATCH" && url.includes("dryRun=All")));
  return { send, stored, arrivals, writes, scripted };
};

/** The API server's answer to a JSON patch that can't be applied. */
export const failedPatchStatus = {
  kind: "Status",
  apiVersion: "v1",
  metadata: {},
  status: "Failure",
  reason: "Invalid",
  details: {},
  code: 422,
  message: "the server rejected our request due to an error in our request",
};

const respond = (status: number, body: unknown) =>
  new Response(JSON.stringify(body ?? {}), { status, headers: { "content-type": "application/json" } });

const parseOrKeep = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};

/** Applies a request with a JSON patch or a merge patch to an object; returns undefined if the JSON patch fails. */
const applyPatch = (present: unknown, { headers, body }: Arrival): unknown => {
  if (headers.get("content-type") !== "application/json-patch+json") return mergePatch(present, body);
  try {
    // The cast is safe: applyPatch validates the operations, and throws if one is invalid or a test fails.
    const validates = true;
    return jsonPatch.applyPatch(structuredClone(present), body as jsonPatch.Operation[], validates).newDocument;
  } catch {
    return undefined;
  }
};

const mergePatch = (present: unknown, patch: unknown): unknown => {
  if (!isMap(patch)) return patch;
  const result: Fields = isMap(present) ? { ...present } : {};
  for (const [key, value] of Object.entries(patch))
    if (value === null) delete result[key];
    else result[key] = mergePatch(result[key], value);
  return result;
};

import jsonPatch from "fast-json-patch";
import { isMap } from "#lib/json.ts";

/** A request that reached the API server. */
export interface Arrival {
  method: string;
  url: string;
  headers: Headers;
  text: string;
  body: unknown;
}

type Fields = Record<string, unknown>;

/**
 * Returns a `fetch` to a minimal API server: it has these objects by path and accepts every write. It stores all
 * requests.
 */
export const createRecorder = (objects: Record<string, unknown> = {}) => {
  const stored = new Map(Object.entries(objects));
  const arrivals: Arrival[] = [];
  /** Responses to send instead of the next ones, by method. */
  const instead: { method: string; answer: Response }[] = [];
  const send: typeof fetch = async (input, init) => {
    const request = new Request(input, { ...init, ...(init?.body ? { duplex: "half" } : {}) });
    const { method, url, headers } = request;
    const text = await request.text();
    const arrival = { method, url, headers, text, body: parsed(text) };
    arrivals.push(arrival);
    const index = instead.findIndex((one) => one.method === method);
    const [other] = index < 0 ? [] : instead.splice(index, 1);
    if (other) return other.answer;

    const { pathname, searchParams } = new URL(url);
    const present = stored.get(decodeURIComponent(pathname));
    if (method === "POST") return json(201, arrival.body);
    if (present === undefined) return json(404, { kind: "Status", code: 404, details: { name: "it" } });
    const next = method === "PATCH" ? patched(present, arrival) : method === "PUT" ? arrival.body : present;
    if (next === undefined) return json(422, failedPatchStatus);
    if (!searchParams.has("dryRun") && method !== "GET") stored.set(decodeURIComponent(pathname), next);
    return json(200, next);
  };
  /** Returns the requests that were neither reads nor dry runs of a patch. */
  const writes = () =>
    arrivals.filter(({ method, url }) => method !== "GET" && !(method === "PATCH" && url.includes("dryRun=All")));
  return { send, stored, arrivals, writes, instead };
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

const json = (status: number, body: unknown) =>
  new Response(JSON.stringify(body ?? {}), { status, headers: { "content-type": "application/json" } });

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};

const patched = (present: unknown, { headers, body }: Arrival): unknown => {
  if (headers.get("content-type") !== "application/json-patch+json") return merged(present, body);
  try {
    // The body was sent by the guard.
    return jsonPatch.applyPatch(structuredClone(present), body as jsonPatch.Operation[], true).newDocument;
  } catch {
    return undefined;
  }
};

const merged = (present: unknown, patch: unknown): unknown => {
  if (!isMap(patch)) return patch;
  const result: Fields = isMap(present) ? { ...present } : {};
  for (const [key, value] of Object.entries(patch))
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  return result;
};

import { Failure } from "../failure.ts";
import { hasRepeatedKey, isDeeper, isMap, parseJson } from "../json.ts";
import type { KubernetesObject } from "../review.ts";

/** The API server's limit of a request body, in bytes. */
const longest = 3 * 1024 * 1024;

export const read = async (
  body: ReadableStream<Uint8Array> | null,
  most = longest,
): Promise<Uint8Array<ArrayBuffer>> => {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.length;
    if (bytes > most) throw new Failure(413, `Request entity too large: limit is ${most}`);
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
};

/** Returns the media type of Content-Type without parameters; JSON if the header is missing, as for the API server. */
export const mediaType = (headers: Headers): string =>
  (headers.get("content-type") ?? json).split(";")[0]?.trim().toLowerCase() ?? "";

export const json = "application/json";

/** Parses a JSON body of one of these media types. Throws a Failure if the body can be read in more than one way. */
export const parsed = (bytes: Uint8Array, headers: Headers, accepted: readonly string[]): unknown => {
  const type = mediaType(headers);
  const encoding = headers.get("content-encoding") ?? "identity";
  if (!accepted.includes(type) || encoding !== "identity")
    throw new Failure(
      415,
      `what is written as ${encoding === "identity" ? type : `${type} in ${encoding}`} can't be judged before it leaves; send JSON as ${accepted.join(" or ")}`,
    );
  const text = textIn(bytes);
  const value = text === undefined ? undefined : parseJson(text);
  if (text === undefined || value === undefined)
    throw new Failure(400, `the body is no JSON, which ${type} must be here to be judged before it leaves`);
  if (isDeeper(value, deepest - 1)) throw new Failure(400, `the body nests deeper than ${deepest} levels`);
  if (hasRepeatedKey(text, value))
    throw new Failure(400, "the body has a key twice in one object, which can be read in more than one way");
  return value;
};

const textIn = (bytes: Uint8Array): string | undefined => {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
};

/** Recursive functions would overflow the stack on deeper values. */
const deepest = 1000;

export const objectIn = (
  bytes: Uint8Array,
  headers: Headers,
  accepted: readonly string[] = [json],
): KubernetesObject => {
  const value = parsed(bytes, headers, accepted);
  if (!isMap(value)) throw new Failure(400, "the body must be a Kubernetes object as JSON");
  const { apiVersion = "", kind = "", metadata = {} } = value;
  for (const [name, text] of Object.entries({ apiVersion, kind }))
    if (typeof text !== "string") throw new Failure(400, `${name} must be a text`);
  if (metadata !== null && !isMap(metadata)) throw new Failure(400, "metadata must be an object");
  return value;
};

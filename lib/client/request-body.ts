import { isUtf8 } from "node:buffer";
import { Failure } from "../failure.ts";
import { hasMisreadKey, hasRepeatedKey, isDeeper, isMap, parseJson } from "../json.ts";
import type { KubernetesObject } from "../review.ts";

/** The API server's limit of a request body, in bytes. */
const defaultLimit = 3 * 1024 * 1024;

/** Reads the body of a request or a response. Throws a Failure with code 413 if it has more than `maxBytes` bytes. */
export const readBody = async (
  body: ReadableStream<Uint8Array> | null,
  maxBytes = defaultLimit,
): Promise<Uint8Array<ArrayBuffer>> => {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new Failure(413, `Request entity too large: limit is ${maxBytes}`);
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
};

export const jsonContentType = "application/json";

/** Returns the media type of Content-Type without parameters. As in the API server, JSON is the default. */
export const getMediaType = (headers: Headers): string =>
  (headers.get("content-type") ?? jsonContentType).split(";")[0]?.trim().toLowerCase() ?? "";

/** Parses a JSON body of one of these media types. Throws a Failure if other JSON parsers could read it differently. */
export const parseBody = (bytes: Uint8Array, headers: Headers, accepted: readonly string[]): unknown => {
  const type = getMediaType(headers);
  const encoding = headers.get("content-encoding") ?? "identity";
  if (!accepted.includes(type) || encoding !== "identity") {
    const bodyType = encoding === "identity" ? type : `${type} in ${encoding}`;
    throw new Failure(415, `a body of ${bodyType} can't be evaluated; send JSON as ${accepted.join(" or ")}`);
  }
  const text = isUtf8(bytes) ? new TextDecoder().decode(bytes) : "";
  const value = parseJson(text);
  if (value === undefined) throw new Failure(400, `the body is not JSON; rules evaluate ${type} only as JSON`);
  if (isDeeper(value, maxDepth - 1)) throw new Failure(400, `the body nests deeper than ${maxDepth} levels`);
  if (hasRepeatedKey(text, value))
    throw new Failure(400, "the body has a key twice in one object, so that parsers may read it differently");
  if (hasMisreadKey(text, value))
    throw new Failure(400, "the body has a key with an escape that Node.js misreads; write the key without escapes");
  return value;
};

/** The greatest depth of a request's body. Recursive functions would overflow the stack with deeper values. */
const maxDepth = 1000;

/** Returns the object in a request's body. A Failure says what is wrong with the body. */
export const parseKubernetesObjectBody = (
  bytes: Uint8Array,
  headers: Headers,
  accepted: readonly string[] = [jsonContentType],
): KubernetesObject => {
  const value = parseBody(bytes, headers, accepted);
  if (!isMap(value)) throw new Failure(400, "the body must be a Kubernetes object as JSON");
  const { apiVersion = "", kind = "", metadata = {} } = value;
  for (const [name, text] of Object.entries({ apiVersion, kind }))
    if (typeof text !== "string") throw new Failure(400, `${name} must be a string`);
  if (metadata !== null && !isMap(metadata)) throw new Failure(400, "metadata must be an object");
  return value;
};

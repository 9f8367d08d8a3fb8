import { createHash, createHmac } from "node:crypto";

export interface AwsKeys {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string | undefined;
}

/** The parts of an HTTP request that AWS Signature Version 4 signs. */
export interface AwsSignableRequest {
  method: string;
  host: string;
  path: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: string;
  service: string;
  region: string;
}

/** Computes the signature as AWS Signature Version 4 defines it. `stamp` is the time, such as 20260131T120000Z. */
const computeSignature = (
  { method, path, query = {}, headers = {}, host, body = "", service, region }: AwsSignableRequest,
  { secretAccessKey }: AwsKeys,
  stamp: string,
): string => {
  const canonical = [
    method,
    path,
    formatQuery(query),
    ...listHeaders(headers, host).map(([name, value]) => `${name}:${value.trim()}`),
    "",
    formatHeaderNames(headers, host),
    hashText(body),
  ].join("\n");
  const scope = buildScope(stamp, region, service);
  const key = scope.split("/").reduce<string | Buffer>((key, part) => computeHmac(key, part), `AWS4${secretAccessKey}`);
  return computeHmac(key, ["AWS4-HMAC-SHA256", stamp, scope, hashText(canonical)].join("\n")).toString("hex");
};

/** Returns the request's headers with AWS's Signature Version 4. */
export const signHeaders = (request: AwsSignableRequest, identity: AwsKeys, now: Date): Record<string, string> => {
  const stamp = formatStamp(now);
  const { sessionToken } = identity;
  const headers = {
    ...request.headers,
    "x-amz-date": stamp,
    ...(sessionToken && { "x-amz-security-token": sessionToken }),
  };
  const signature = computeSignature({ ...request, headers }, identity, stamp);
  const credential = `${identity.accessKeyId}/${buildScope(stamp, request.region, request.service)}`;
  const names = formatHeaderNames(headers, request.host);
  const authorization = `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${names}, Signature=${signature}`;
  return { ...headers, authorization };
};

/** Returns a presigned URL. Any holder can send the request with the same headers for `seconds` seconds. */
export const presignUrl = (request: AwsSignableRequest, identity: AwsKeys, now: Date, seconds: number): string => {
  const stamp = formatStamp(now);
  const { sessionToken } = identity;
  const query = {
    ...request.query,
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": `${identity.accessKeyId}/${buildScope(stamp, request.region, request.service)}`,
    "X-Amz-Date": stamp,
    "X-Amz-Expires": String(seconds),
    "X-Amz-SignedHeaders": formatHeaderNames(request.headers, request.host),
    ...(sessionToken && { "X-Amz-Security-Token": sessionToken }),
  };
  const signature = computeSignature({ ...request, query }, identity, stamp);
  return `https://${request.host}${request.path}?${formatQuery(query)}&X-Amz-Signature=${signature}`;
};

const listHeaders = (headers: Record<string, string>, host: string) =>
  Object.entries({ ...headers, host })
    .map(([name, value]) => [name.toLowerCase(), value] as const)
    .sort(([left], [right]) => (left < right ? -1 : 1));

const formatHeaderNames = (headers: Record<string, string> = {}, host: string) =>
  listHeaders(headers, host)
    .map(([name]) => name)
    .join(";");

const formatQuery = (query: Record<string, string>) =>
  Object.entries(query)
    .map(([name, value]) => `${encodeComponent(name)}=${encodeComponent(value)}`)
    .sort()
    .join("&");

const encodeComponent = (text: string) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);

const formatStamp = (now: Date) => now.toISOString().replace(/[-:]|\.\d+/g, "");
const buildScope = (stamp: string, region: string, service: string) =>
  `${stamp.slice(0, 8)}/${region}/${service}/aws4_request`;
const hashText = (text: string) => createHash("sha256").update(text).digest("hex");
const computeHmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest();

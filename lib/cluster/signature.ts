import { createHash, createHmac } from "node:crypto";

export interface Identity {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string | undefined;
}

export interface Signable {
  method: string;
  host: string;
  path: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: string;
  service: string;
  region: string;
}

const signatureOf = (
  { method, path, query = {}, headers = {}, host, body = "", service, region }: Signable,
  { secretAccessKey }: Identity,
  stamp: string,
): string => {
  const all = namesOf(headers, host);
  const canonical = [
    method,
    path,
    parameters(query),
    ...all.map(([name, value]) => `${name}:${value.trim()}`),
    "",
    all.map(([name]) => name).join(";"),
    sha256(body),
  ].join("\n");
  const scope = scopeOf(stamp, region, service);
  const key = scope.split("/").reduce<string | Buffer>((key, part) => hmac(key, part), `AWS4${secretAccessKey}`);
  return hmac(key, ["AWS4-HMAC-SHA256", stamp, scope, sha256(canonical)].join("\n")).toString("hex");
};

export const signed = (request: Signable, identity: Identity, now: Date): Record<string, string> => {
  const stamp = stampOf(now);
  const { sessionToken } = identity;
  const headers = {
    ...request.headers,
    "x-amz-date": stamp,
    ...(sessionToken && { "x-amz-security-token": sessionToken }),
  };
  const signature = signatureOf({ ...request, headers }, identity, stamp);
  const credential = `${identity.accessKeyId}/${scopeOf(stamp, request.region, request.service)}`;
  const names = namesOf(headers, request.host).map(([name]) => name);
  const authorization = `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${names.join(";")}, Signature=${signature}`;
  return { ...headers, authorization };
};

/** Returns a presigned URL: any holder can send the request for this many seconds, with these headers. */
export const presigned = (request: Signable, identity: Identity, now: Date, seconds: number): string => {
  const stamp = stampOf(now);
  const { sessionToken } = identity;
  const query = {
    ...request.query,
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": `${identity.accessKeyId}/${scopeOf(stamp, request.region, request.service)}`,
    "X-Amz-Date": stamp,
    "X-Amz-Expires": String(seconds),
    "X-Amz-SignedHeaders": namesOf(request.headers ?? {}, request.host)
      .map(([name]) => name)
      .join(";"),
    ...(sessionToken && { "X-Amz-Security-Token": sessionToken }),
  };
  const signature = signatureOf({ ...request, query }, identity, stamp);
  return `https://${request.host}${request.path}?${parameters(query)}&X-Amz-Signature=${signature}`;
};

const namesOf = (headers: Record<string, string>, host: string) =>
  Object.entries({ ...headers, host })
    .map(([name, value]) => [name.toLowerCase(), value] as const)
    .sort(([one], [other]) => (one < other ? -1 : 1));

const parameters = (query: Record<string, string>) =>
  Object.entries(query)
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .sort()
    .join("&");

const encoded = (text: string) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);

const stampOf = (now: Date) => now.toISOString().replace(/[-:]|\.\d+/g, "");
const scopeOf = (stamp: string, region: string, service: string) =>
  `${stamp.slice(0, 8)}/${region}/${service}/aws4_request`;
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest();

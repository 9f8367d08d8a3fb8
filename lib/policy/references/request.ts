import { isMap } from "../../json.ts";

/** Parses a URL, and adds `params` to its query, sorted and encoded as Go does. Errors name the `field` of the URL. */
export const buildReferenceUrl = (text: unknown, field: string, params?: unknown): URL => {
  const url = typeof text === "string" ? URL.parse(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new Error(`${field} must be an address that begins with https:// or http://`);
  const query = new URLSearchParams(parseTextEntries(params ?? {}, "params").sort(compareNames));
  const queryText = String(query).replaceAll("*", "%2A").replaceAll("%7E", "~");
  if (queryText !== "") url.search = url.search === "" ? queryText : `${url.search}&${queryText}`;
  return url;
};

const compareNames = ([left]: [string, string], [right]: [string, string]) => (left < right ? -1 : 1);

/** Lists the entries of a map of texts without nulls, as Go does. `have one as KEY`: KEY's value must be a text. */
export const parseTextEntries = (value: unknown, field: string): [string, string][] => {
  if (!isMap(value)) throw new Error(`${field} must be a map of texts`);
  return Object.entries(value).flatMap(([key, text]): [string, string][] => {
    if (text === null || text === undefined) return [];
    if (typeof text !== "string") throw new Error(`${field} must be a map of texts, and have one as ${key}`);
    return [[key, text]];
  });
};

export const parseMethod = <const Method extends string>(text: unknown, known: readonly Method[]): Method | "GET" => {
  if (text === undefined || text === "") return "GET";
  const found = known.find((method) => typeof text === "string" && method === text.toUpperCase());
  if (found === undefined) throw new Error(`method must be one of ${known.join(", ")}`);
  return found;
};

/** Returns a request's body as JSON; undefined for an absent or null value. */
export const toJsonRequestBody = (value: unknown): string | undefined =>
  value === undefined || value === null ? undefined : JSON.stringify(value);

/** Headers that policies must not set, because they follow from the connection, the address and the body. */
const forbiddenHeaders =
  /^(host|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|content-length|expect|http2-settings)$/;

/** Returns headers with names in lower case. Adds content-length, which Node leaves out of a GET. */
export const buildPolicyRequestHeaders = (
  value: unknown,
  body: string | Uint8Array | undefined,
): Record<string, string> => {
  const headers = parseTextEntries(value, "header").map(([name, value]): [string, string] => [
    name.toLowerCase(),
    value,
  ]);
  const forbidden = headers.find(([name]) => forbiddenHeaders.test(name));
  if (forbidden) throw new Error(`header must not set ${forbidden[0]}, which follows from the address and the body`);
  if (body !== undefined) headers.push(["content-length", String(Buffer.byteLength(body))]);
  return Object.fromEntries(headers);
};

/** An allowed host. With `isEnding`, `name` is an ending, as `.example.com`. An empty `port` is the default port. */
interface AllowedHost {
  name: string;
  isEnding: boolean;
  port: string;
}

/** Parses an allowed host such as `api.example.com`, `api.example.com:8443` or `*.example.com`. */
const parseHost = (text: string): AllowedHost | undefined => {
  const [, star, host = "", port = ""] = /^(\*\.)?([^\s:/@?#\\*]+|\[[^\]\s]+\])(?::(\d{1,5}))?$/.exec(text) ?? [];
  const url = `http://${host}/`;
  if (host === "" || Number(port) > 65_535 || !URL.canParse(url)) return undefined;
  // The host is normalized as in the URL that it is compared with.
  const { hostname } = new URL(url);
  return { name: star ? `.${hostname}` : hostname, isEnding: star !== undefined, port };
};

export const isHostEntry = (text: string): boolean => parseHost(text) !== undefined;

const defaultPorts: Record<string, string> = { "http:": "80", "https:": "443" };

/** Reports whether a URL's host is among the allowed ones. An entry without a port allows only the default port. */
export const isAllowedHost = (allowedHosts: readonly string[], { protocol, hostname, port }: URL): boolean =>
  allowedHosts.some((text) => {
    const host = parseHost(text);
    if (host === undefined || (host.isEnding ? !hostname.endsWith(host.name) : hostname !== host.name)) return false;
    const defaultPort = defaultPorts[protocol] ?? "";
    return (port || defaultPort) === (host.port === "" ? defaultPort : String(Number(host.port)));
  });

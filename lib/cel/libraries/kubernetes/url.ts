import { quoteAsGo } from "../../../objects/go/quoted.ts";
import { countReading } from "../../cost-formulas.ts";
import { declareFunction, declareMethod, type FunctionDeclaration } from "../../functions.ts";
import { bool, listOf, mapOf, string, struct } from "../../types.ts";
import { CelMap, EvaluationError, LibraryObject, toMapKey, type Value } from "../../values.ts";
import { ignoreErrors, reportParsing, rewordErrors } from "../errors.ts";
import { parseAddress } from "./ip.ts";

const type = struct("kubernetes.URL");

/**
 * The parts of a URL, as Go's net/url parses them. Go doesn't normalize the URL, as JavaScript's class URL does. In all
 * texts, each character stands for a byte of UTF-8.
 */
interface Parts {
  readonly scheme: string;
  /** The text after the scheme, if it doesn't begin with a slash, as in `mailto:a@b`. */
  readonly opaque: string;
  readonly user: string | undefined;
  readonly host: string;
  /** Go's OmitHost: whether the text has a scheme and a path, but no `//` between them. */
  readonly omitsHost: boolean;
  readonly path: string;
  readonly query: string;
  readonly hasEmptyQuery: boolean;
  readonly fragment: string;
}

/** The value of the function `url`. */
class Url extends LibraryObject {
  readonly type = type;
  readonly parts: Parts;
  constructor(parts: Parts) {
    super();
    this.parts = parts;
  }
  override toString(): string {
    return toText(formatUrl(this.parts));
  }
  equals(other: this): boolean {
    return formatUrl(this.parts) === formatUrl(other.parts);
  }
}

const toBytes = (text: string): string => Buffer.from(text).toString("latin1");
const toText = (bytes: string): string => decode(bytes, () => "\ufffd");

/** Decodes UTF-8. As in Go, each byte that is no part of a valid character is replaced: by the text of `replace`. */
const decode = (bytes: string, replace: (byte: string) => string): string =>
  bytes.replace(
    /[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}|[\x80-\xff]/g,
    (sequence) => {
      const character = Buffer.from(sequence, "latin1").toString();
      const isValid = sequence === "\xef\xbf\xbd" || !character.includes("\ufffd");
      return isValid ? character : [...sequence].map(replace).join("");
    },
  );

/** Decodes UTF-8. A byte that is no part of a valid character becomes half a surrogate pair, for showMarkedBytes. */
const toTextWithMarkedBytes = (bytes: string): string =>
  decode(bytes, (byte) => String.fromCharCode(0xdc00 + byte.charCodeAt(0)));

/** Replaces the escapes of halves of surrogate pairs in a quoted text by escapes of bytes, as Go's %q writes them. */
const showMarkedBytes = (quotation: string): string => quotation.replace(/\\udc([89a-f][\da-f])/g, "\\x$1");

/** The bytes that must be escaped in each part of a URL. */
const escapedBytes = {
  path: /[^-\w.~$&+,/:;=@]/g,
  host: /[^-\w.~!$&'()*+,;=:[\]<>"]/g,
  user: /[^-\w.~$&+,;=]/g,
  fragment: /[^-\w.~$&+,/:;=?@!()*]/g,
};

const escapeBytes = (bytes: string, part: keyof typeof escapedBytes): string =>
  bytes.replace(escapedBytes[part], (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);

/** Replaces escapes such as `%41` by their bytes. Throws if one is invalid. */
const unescapeBytes = (bytes: string): string => bytes.replace(/%.{0,2}/gs, (found) => unescapeByte(found));

const unescapeByte = (text: string, isAllowed = (_byte: string) => true): string => {
  const byte = String.fromCharCode(Number.parseInt(text.slice(1), 16));
  if (/^%[\da-f]{2}$/i.test(text) && isAllowed(byte)) return byte;
  throw new EvaluationError(`invalid URL escape ${quote(text)}`);
};

/**
 * Replaces escapes in a host. Only bytes that are not ASCII may be escaped; in an IPv6 zone, only spaces and bytes that
 * a host may also have without an escape.
 */
const unescapeHost = (bytes: string, isZone = false): string =>
  bytes.replace(/%.{0,2}|[^-\w.~!$&'()*+,;=:[\]<>"\x80-\xff]/gs, (found) => {
    // Go allows %25 in each host, because it begins the zone of an IPv6 address (RFC 6874).
    if (found === "%25") return "%";
    if (found.startsWith("%"))
      return unescapeByte(found, (byte) =>
        isZone ? byte === " " || byte.search(escapedBytes.host) < 0 : byte >= "\x80",
      );
    throw new EvaluationError(`invalid character ${quoteAsGo(found)} in host name`);
  });

const quote = (bytes: string): string => showMarkedBytes(quoteAsGo(toTextWithMarkedBytes(bytes)));

/** Returns a path or a fragment unchanged if all its bytes are allowed. Otherwise, escapes it as Go does. */
const normalizeEscapes = (bytes: string, part: "path" | "fragment"): string => {
  return /^[-\w.~!$&'()*+,;=:@[\]%/?]*$/.test(bytes) ? bytes : escapeBytes(unescapeBytes(bytes), part);
};

/** Parses a URL without a fragment. With `isRequest`, it must be valid in a request. */
const parseParts = (bytes: string, isRequest: boolean): Omit<Parts, "fragment"> => {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is refused.
  if (/[\0-\x1f\x7f]/.test(bytes)) throw new EvaluationError("net/url: invalid control character in URL");
  if (bytes === "" && isRequest) throw new EvaluationError("empty url");
  const [colon, name = ""] = /^([a-z][-a-z\d+.]*)?:/i.exec(bytes) ?? [];
  if (colon === ":") throw new EvaluationError("missing protocol scheme");
  const scheme = name.toLowerCase();
  const [beforeQuery, query] = cut(colon === undefined ? bytes : bytes.slice(colon.length), "?");
  const parts = {
    scheme,
    opaque: "",
    user: undefined,
    host: "",
    omitsHost: false,
    path: "",
    query: query ?? "",
    hasEmptyQuery: query === "",
  };
  if (bytes === "*") return { ...parts, path: "*" };
  if (!beforeQuery.startsWith("/")) {
    if (scheme !== "") return { ...parts, opaque: beforeQuery };
    if (isRequest) throw new EvaluationError("invalid URI for request");
  }
  // Without a scheme, `//` begins a host only if the URL isn't a request's, and `///` never does.
  const isAuthority = beforeQuery.startsWith("//") && (scheme !== "" || !(isRequest || beforeQuery.startsWith("///")));
  if (!isAuthority) return { ...parts, path: requireEscapes(beforeQuery), omitsHost: scheme !== "" };
  const [authority] = cut(beforeQuery.slice(2), "/");
  const at = authority.lastIndexOf("@");
  const host = parseHost(scheme, authority.slice(at + 1));
  const user = at < 0 ? undefined : parseUser(authority.slice(0, at));
  const path = requireEscapes(beforeQuery.slice(2 + authority.length));
  return { ...parts, user, host, path };
};

/** Returns a path or a fragment unchanged. Throws if an escape in it is invalid. */
const requireEscapes = (bytes: string): string => {
  unescapeBytes(bytes);
  return bytes;
};

/** Splits a text at the first separator. */
const cut = (text: string, separator: string): [before: string, after: string | undefined] => {
  const index = text.indexOf(separator);
  return index < 0 ? [text, undefined] : [text.slice(0, index), text.slice(index + 1)];
};

const parseUser = (bytes: string): string => {
  if (!/^[-\w.:~!$&'()*+,;=%@]*$/.test(bytes)) throw new EvaluationError("net/url: invalid userinfo");
  const [name, password] = cut(bytes, ":");
  const escaped = escapeBytes(unescapeBytes(name), "user");
  return password === undefined ? escaped : `${escaped}:${escapeBytes(unescapeBytes(password), "user")}`;
};

const requirePort = (port: string): void => {
  if (!/^(:\d*)?$/.test(port)) throw new EvaluationError(`invalid port ${quote(port)} after host`);
};

/** Parses a host with an optional port. An IPv6 address has brackets, and may have a zone after `%25`. */
const parseHost = (scheme: string, bytes: string): string => {
  const bracket = bytes.lastIndexOf("[");
  if (bracket > 0) throw new EvaluationError("invalid IP-literal");
  if (bracket < 0) {
    // Schemes other than http and https can have several hosts with ports, so the last colon counts.
    const colon = /^https?$/.test(scheme) ? bytes.indexOf(":") : bytes.lastIndexOf(":");
    if (colon >= 0) requirePort(bytes.slice(colon));
    return unescapeHost(bytes);
  }
  const end = bytes.lastIndexOf("]");
  if (end < 0) throw new EvaluationError("missing ']' in host");
  const port = bytes.slice(end + 1);
  requirePort(port);
  const name = bytes.slice(1, end);
  const zone = name.indexOf("%25");
  const address =
    zone < 0
      ? unescapeHost(name)
      : unescapeHost(name.slice(0, zone)) + unescapeHost(name.slice(zone), /* isZone */ true);
  // Each character of `address` stands for a byte. parseAddress gets the decoded text, in which bytes that are no UTF-8
  // are marked, so that its error can show them as Go does.
  const { bits } = rewordErrors(
    () => parseAddress(toTextWithMarkedBytes(address)),
    (message) => showMarkedBytes(`invalid host: ${message}`),
  ).address;
  if (bits === 32) throw new EvaluationError("invalid IP-literal");
  return `[${address}]${port}`;
};

/** Calls `parse`. Its errors get the URL in their messages. */
const parseNamed = <Result>(url: string, parse: () => Result): Result =>
  rewordErrors(parse, (message) => `parse ${quoteAsGo(url)}: ${message}`);

/**
 * Parses a URL that is valid in a request, as Go's url.ParseRequestURI does: it has a scheme, or begins with a slash.
 * Errors contain the URL.
 */
export const parseRequestUrl = (text: string) =>
  parseNamed(text, () => parseParts(toBytes(text), /* isRequest */ true));

/** Parses a URL with an optional fragment. Errors have upstream's texts. */
const parseUrl = (text: string): Url =>
  rewordErrors(
    () => {
      parseRequestUrl(text);
      const [beforeFragment, fragment = ""] = cut(text, "#");
      // Upstream parses the URL twice: first as a request's, in which `#` begins no fragment; then with a fragment. The
      // errors of the second time contain the text before the fragment, or the whole text if the fragment is wrong.
      const parts = parseNamed(beforeFragment, () => parseParts(toBytes(beforeFragment), /* isRequest */ false));
      return new Url({ ...parts, fragment: parseNamed(text, () => requireEscapes(toBytes(fragment))) });
    },
    (message) => `URL parse error during conversion from string: ${message}`,
  );

/** Formats the parts of a URL as Go does. */
const formatUrl = ({ scheme, opaque, user, host, omitsHost, path, query, hasEmptyQuery, fragment }: Parts) => {
  const hasAuthority = host !== "" || user !== undefined || (scheme !== "" && path !== "" && !omitsHost);
  const authority = hasAuthority ? `//${user === undefined ? "" : `${user}@`}${escapeBytes(host, "host")}` : "";
  return [
    scheme && `${scheme}:`,
    opaque || authority + normalizeEscapes(path, "path"),
    (query !== "" || hasEmptyQuery) && `?${query}`,
    fragment && `#${normalizeEscapes(fragment, "fragment")}`,
  ]
    .filter(Boolean)
    .join("");
};

/** Returns the name and the port of a host. The name of an IPv6 address has no brackets. */
const splitHost = ({ parts: { host } }: Url): [name: string, port: string] => {
  const [colon = "", port = ""] = /:(\d*)$/.exec(host) ?? [];
  const name = host.slice(0, host.length - colon.length);
  return [toText(name.replace(/^\[(.*)\]$/s, "$1")), port];
};

const getEscapedPath = ({ parts: { path } }: Url) => toText(normalizeEscapes(path, "path"));

/** The most parameters of a query in Go. A query with more counts as empty. */
const maxParameters = 10_000;

/** Returns the values of each parameter in the query of a URL. */
const parseQuery = ({ parts: { query } }: Url): CelMap => {
  const entries = new Map<string, [key: Value, values: string[]]>();
  const parameters = query.split("&");
  // As in Go, a query with too many parameters counts as empty.
  for (const parameter of parameters.length > maxParameters ? [] : parameters) {
    if (parameter === "" || parameter.includes(";")) continue;
    // Upstream leaves out parameters with invalid escapes.
    const [key, value = ""] = ignoreErrors(() => cut(parameter, "=").map(unescapeQuery)) ?? [];
    if (key === undefined) continue;
    const text = `${toMapKey(key)}`;
    const [, values] = entries.get(text) ?? [];
    if (values) values.push(value);
    else entries.set(text, [key, [value]]);
  }
  return new CelMap(entries);
};

const unescapeQuery = (bytes = "") => toText(unescapeBytes(bytes.replaceAll("+", " ")));

const parameters = mapOf(string, listOf(string));
/** The functions of Kubernetes' CEL library for URLs. */
export const urlFunctions: readonly FunctionDeclaration[] = [
  declareFunction("url", "string_to_url", [string], type, parseUrl, countReading),
  // Upstream's isURL calls only url.ParseRequestURI, so it doesn't test the fragment. Its cost is 1.
  declareFunction("isURL", "is_url_string", [string], bool, reportParsing(parseRequestUrl)),
  declareMethod("getScheme", "url_get_scheme", [type], string, ({ parts }: Url) => parts.scheme),
  declareMethod("getHost", "url_get_host", [type], string, ({ parts }: Url) => toText(parts.host)),
  declareMethod("getHostname", "url_get_hostname", [type], string, (url) => splitHost(url)[0]),
  declareMethod("getPort", "url_get_port", [type], string, (url) => splitHost(url)[1]),
  declareMethod("getEscapedPath", "url_get_escaped_path", [type], string, getEscapedPath),
  declareMethod("getQuery", "url_get_query", [type], parameters, parseQuery),
];

import type { SecureContext, SecureContextOptions } from "node:tls";
import { addressIn, admitting, isRange, lookupOf } from "../../cluster/addresses.ts";
import { getErrorMessage } from "../../failure.ts";
import { isMap } from "../../json.ts";
import { type HttpsRequest, type HttpsResponse, parseAnswer, type SecretPlace } from "../../needs.ts";
import { isRegion, tokenOf } from "../../service-settings.ts";
import type {
  HttpReference,
  HttpReferenceAuth,
  HttpReferenceResponse,
  PolicyCapabilities,
  ScriptHttpRequest,
} from "../types.ts";
import { addressOf, bodyOf, headersOf, isAmong, isHost, methodOf, texts } from "./request.ts";
import { basicOf, keeping, tokenIn } from "./tokens.ts";

/** A credential for a host and where it is kept: a password if there is a username, else a token. */
export interface HttpCredential {
  host: string;
  username?: string;
  secret?: string;
  parameter?: string;
  region?: string;
}

export interface HttpSettings {
  /** The only allowed hosts: `api.example.com`, `api.example.com:8443`, `*.example.com`. */
  hosts: readonly string[];
  /** PEM; trusted in addition to Node's root certificates. */
  ca: string;
  /** Allowed addresses that are not public: `10.0.0.0/8`. */
  addresses: readonly string[];
  credentials: readonly HttpCredential[];
}

export const httpSettings: HttpSettings = { hosts: [], ca: "", addresses: [], credentials: [] };

type Ask = (request: HttpsRequest) => Promise<HttpsResponse>;

const second = 1000;
const longest = { reference: second, script: 3 * second, token: second };
const most = { answer: 1024 * 1024, token: 64 * 1024 };

export const httpReach = (settings: HttpSettings, ask: Ask): Pick<PolicyCapabilities, "fetch" | "process"> => {
  const { isAdmitted, lookup, secureContext } = boundsOf(settings);

  const sent = async (url: URL, request: Omit<HttpsRequest, "url">, trust = secureContext): Promise<HttpsResponse> => {
    if (!isAmong(settings.hosts, url)) throw new Error(`${url.host} may not be asked: http.hosts does not list it`);
    const address = addressIn(url);
    if (address !== undefined && !isAdmitted(address))
      throw new Error(`${url.host} may not be asked: http.addresses does not list it, and it is no public address`);
    // A pooled connection may lead to an address that was not checked.
    const connect = { agent: false, lookup, ...(url.protocol === "https:" && { secureContext: trust() }) };
    return ask({ most: most.answer, ...request, url: url.href, connect }).catch((error: Error) => {
      throw new Error(error.message, { cause: error });
    });
  };

  /** Requests a token with the policy's own password or, without one, a credential of the settings. */
  const exchanged = async (auth: HttpReferenceAuth, authUrl: string, refused?: string): Promise<string> => {
    const url = addressOf(authUrl, "auth.authUrl");
    const answer = await sent(url, {
      ...{ method: "POST", milliseconds: longest.token, most: most.token, isLasting: true },
      ...{ headers: { ...basicOf(auth), "content-length": "0" }, keep: keeping(auth, refused) },
      ...(!auth.password && credentialsFor(settings, url, auth.username)),
    });
    const { token } = tokenIn(answer) ?? {};
    if (token !== undefined) return token;
    const { status } = answer;
    throw new Error(`${url.host} answers ${status} to a request for a token${status < 300 ? ", and no token" : ""}`);
  };

  return {
    fetch: async (reference): Promise<HttpReferenceResponse> => {
      const { request, url, auth } = described(reference);
      const asked = (token: string | undefined, kept: Kept = {}) => {
        const headers = { ...request.headers, ...(token !== undefined && { authorization: `Bearer ${token}` }) };
        return sent(url, { ...request, ...kept, headers });
      };
      if (auth === undefined) return replyOf(await asked(undefined), url);

      const { staticToken, authUrl } = auth;
      if (staticToken) return replyOf(await asked(staticToken), url);
      const own = auth.token && !isOver(auth.expireAt) ? auth.token : undefined;
      if (!authUrl && own === undefined) {
        const kept = credentialsFor(settings, url, auth.username);
        if (kept === undefined) throw new Error(needOf(auth, url));
        return replyOf(await asked(undefined, kept), url);
      }
      const token = own ?? (await exchanged(auth, authUrl ?? ""));
      const answer = await asked(token);
      if (answer.status !== 401 || !authUrl) return replyOf(answer, url);
      return replyOf(await asked(await exchanged(auth, authUrl, token)), url);
    },

    process: async ({ method, url: address, request = {}, tls_config: tls }: ScriptHttpRequest) => {
      const url = addressOf(address, "url");
      const text = request.body ?? undefined;
      if (text !== undefined && typeof text !== "string") throw new Error("request.body must be a text, or bytes");
      const body = text !== undefined && request.bodyIsBytes ? Buffer.from(text, "base64") : text;
      const headers = headersOf(request.header ?? { "Content-Type": "application/json" }, body);
      const asked = { method: methodOf(method, every), headers, milliseconds: longest.script };
      const trust = tls && (() => contextOf(settings, tls));
      return objectIn(await sent(url, { ...asked, ...(body !== undefined && { body }) }, trust), url);
    },
  };
};

const every = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const;

const described = ({ url: text, method, header, params, body: given, auth }: HttpReference) => {
  const url = addressOf(text, "url", params);
  const body = bodyOf(given);
  const ofBody: Record<string, string> = body === undefined ? {} : { "content-type": "application/json" };
  const request: Omit<HttpsRequest, "url"> = {
    ...{ method: methodOf(method, ["GET", "POST"]), milliseconds: longest.reference, isWhole: true },
    headers: { ...ofBody, ...headersOf(header ?? {}, body) },
    ...(body !== undefined && { body }),
  };
  return { request, url, auth: authOf(auth) };
};

const authOf = (auth: HttpReferenceAuth | undefined): HttpReferenceAuth | undefined =>
  auth === undefined || auth === null ? undefined : Object.fromEntries(texts(auth, "auth"));

const isOver = (expireAt: string | undefined) => expireAt !== undefined && Date.parse(expireAt) <= Date.now();

const needOf = ({ token }: HttpReferenceAuth, { host }: URL) =>
  `auth must have ${token ? "a token that is not over" : "a staticToken, a token"} or an authUrl, or http.credentials must list ${host}`;

type Kept = Pick<HttpsRequest, "bearer" | "username">;

const credentialsFor = ({ credentials }: HttpSettings, url: URL, name = ""): Kept | undefined => {
  const found = credentials.find(
    ({ host, username = "" }) => isAmong([host], url) && (name === "" || name === username),
  );
  const bearer = found && placeOf(found);
  if (bearer === undefined) return undefined;
  if (url.protocol !== "https:") throw new Error(`${url.host} is told what http.credentials keep over https:// alone`);
  return { bearer, ...(found?.username && { username: found.username }) };
};

const placeOf = ({ secret = "", parameter = "", region = "" }: HttpCredential): SecretPlace | undefined =>
  tokenOf({ tokenSecret: secret, tokenParameter: parameter, region });

export const httpPlaces = ({ credentials }: HttpSettings): SecretPlace[] =>
  credentials.flatMap((one) => placeOf(one) ?? []);

const boundsOf = (settings: HttpSettings) => {
  const known = bounds.get(settings);
  if (known) return known;
  const isAdmitted = admitting(settings.addresses);
  let context: SecureContext | undefined;
  const secureContext = () => {
    context ??= contextOf(settings, {});
    return context;
  };
  const found = { isAdmitted, lookup: lookupOf(isAdmitted), secureContext };
  bounds.set(settings, found);
  return found;
};
const bounds = new WeakMap<
  HttpSettings,
  { isAdmitted(address: string): boolean; lookup: ReturnType<typeof lookupOf>; secureContext(): SecureContext }
>();

/** Builds the TLS context. A script's `ca` replaces all other trusted certificates. */
const contextOf = (
  { ca }: HttpSettings,
  { ca: own, client_crt: cert, client_key: key }: Partial<NonNullable<ScriptHttpRequest["tls_config"]>>,
): SecureContext => {
  const { createSecureContext, rootCertificates } = process.getBuiltinModule("node:tls");
  const trusted = own ? { ca: own } : ca ? { ca: [...rootCertificates, ca] } : {};
  const options: SecureContextOptions = { ...trusted, ...(cert && { cert }), ...(key && { key }) };
  try {
    return createSecureContext(options);
  } catch (error) {
    const why = getErrorMessage(error);
    throw new Error(`${own || cert || key ? "tls_config" : "http.ca"} can't be used: ${why}`);
  }
};

const replyOf = (answer: HttpsResponse, url: URL): HttpReferenceResponse => {
  const body = objectIn(answer, url);
  return { body, header: named(answer.headers), trailer: named(answer.trailers) };
};

const objectIn = (answer: HttpsResponse, { host }: URL): Record<string, unknown> => {
  const { status } = answer;
  if (status >= 300 && status < 400) throw new Error(`${host} answers ${status}, and redirects are not followed`);
  if (status < 200 || status > 299) throw new Error(`${host} answers ${status}`);
  const content = parseAnswer(answer);
  if (!isMap(content)) throw new Error(`${host} must answer a JSON object`);
  return content;
};

/** Writes header names as Go does. Leaves out those of the transfer, which Go doesn't expose. */
const named = (headers: NodeJS.Dict<string[]> = {}): Record<string, string[]> =>
  Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => !/^(transfer-encoding|trailer)$/i.test(name))
      .map(([name, values = []]) => [
        name.toLowerCase().replace(/(^|-)[a-z]/g, (start) => start.toUpperCase()),
        [values].flat(),
      ]),
  );

export const unfitHttp = ({ hosts, ca, addresses, credentials }: HttpSettings): string | undefined => {
  const shown = (value: unknown) => JSON.stringify(value)?.slice(0, 100);
  const host = hosts.find((one) => typeof one !== "string" || !isHost(one));
  if (host !== undefined)
    return `must have hosts such as api.example.com, api.example.com:8443 or *.example.com in http.hosts, not ${shown(host)}`;
  if (ca !== "" && !ca.includes("-----BEGIN CERTIFICATE-----"))
    return "must have a certificate in PEM as http.ca, or nothing";
  const address = addresses.find((one) => typeof one !== "string" || !isRange(one));
  if (address !== undefined)
    return `must have addresses or ranges such as 10.0.0.0/8 in http.addresses, not ${shown(address)}`;
  for (const [index, credential] of credentials.entries()) {
    const what = unfitCredential(credential);
    if (what !== undefined) return `must have ${what} in http.credentials[${index}]`;
  }
};

const fields = ["host", "username", "secret", "parameter", "region"];

const unfitCredential = (credential: HttpCredential): string | undefined => {
  if (!isMap(credential) || Object.values(credential).some((value) => typeof value !== "string")) return "texts alone";
  const unknown = Object.keys(credential).find((key) => !fields.includes(key));
  if (unknown !== undefined) return `${fields.join(", ")} alone, and no ${unknown},`;
  const { host = "", username = "", secret = "", parameter = "" } = credential;
  if (!isHost(host)) return "a host such as auth.example.com";
  if (username.includes(":")) return "a username without a colon";
  if ((secret === "") === (parameter === "")) return "one of secret and parameter";
  return isRegion(placeOf(credential)?.region ?? "") ? undefined : "a region such as eu-west-1";
};

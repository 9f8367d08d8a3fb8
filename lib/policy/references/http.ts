import type { SecureContext, SecureContextOptions } from "node:tls";
import {
  createFilteredDnsLookup,
  createPublicOrListedAddressCheck,
  getUrlIpAddress,
  isIpAddressOrRange,
} from "../../cluster/addresses.ts";
import { getErrorMessage } from "../../failure.ts";
import { isMap } from "../../json.ts";
import { type HttpsRequest, type HttpsResponse, parseAnswer, type SecretPlace } from "../../needs.ts";
import { findTokenPlace, isRegion } from "../../service-settings.ts";
import type {
  HttpReference,
  HttpReferenceAuth,
  HttpReferenceResponse,
  PolicyCapabilities,
  ScriptHttpRequest,
} from "../types.ts";
import {
  buildPolicyRequestHeaders,
  buildReferenceUrl,
  isAllowedHost,
  isHostEntry,
  parseMethod,
  parseTextEntries,
  toJsonRequestBody,
} from "./request.ts";
import { buildBasicAuthHeaders, computeTokenCacheSeconds, parseTokenResponse } from "./tokens.ts";

/** The place of a credential for a host. The credential is a password if there is a username, else a token. */
interface HttpCredential {
  host: string;
  username?: string;
  secret?: string; // the name of a secret in AWS Secrets Manager
  parameter?: string; // instead of a secret: the name of a parameter in AWS Parameter Store
  region?: string;
}

/** The settings that say which hosts and addresses policies may call, and with which credentials. */
export interface PolicyHttpSettings {
  /** The only hosts that policies may call, such as `api.example.com`, `api.example.com:8443`, `*.example.com`. */
  hosts: readonly string[];
  /** CA certificates in PEM that policies' requests trust in addition to Node's root certificates. */
  ca: string;
  /** Addresses and ranges that policies may call although they are not public, such as `10.0.0.0/8`. */
  addresses: readonly string[];
  credentials: readonly HttpCredential[];
}

export const defaultHttpSettings: PolicyHttpSettings = { hosts: [], ca: "", addresses: [], credentials: [] };

type SendRequest = (request: HttpsRequest) => Promise<HttpsResponse>;

const secondInMilliseconds = 1000;
const timeouts = { reference: secondInMilliseconds, script: 3 * secondInMilliseconds, token: secondInMilliseconds };
const maximumBytes = { answer: 1024 * 1024, token: 64 * 1024 };

/** Builds the functions that send the HTTP requests of policies and scripts, within the limits of the settings. */
export const createPolicyHttpCapabilities = (
  settings: PolicyHttpSettings,
  send: SendRequest,
): Pick<PolicyCapabilities, "fetchReference" | "sendScriptRequest"> => {
  const { isAdmitted, lookup, secureContext: getSecureContext } = createLimits(settings);

  const sendAllowed = async (
    url: URL,
    request: Omit<HttpsRequest, "url">,
    openContext = getSecureContext,
  ): Promise<HttpsResponse> => {
    if (!isAllowedHost(settings.hosts, url))
      throw new Error(`${url.host} must not be called: http.hosts doesn't list it`);
    const address = getUrlIpAddress(url);
    if (address !== undefined && !isAdmitted(address))
      throw new Error(`${url.host} must not be called: http.addresses doesn't list it, and it is not a public address`);
    // Each request opens a new connection: a reused one may lead to an IP address that was not checked.
    const connect = { agent: false, lookup, ...(url.protocol === "https:" && { secureContext: openContext() }) };
    return send({ maximumBytes: maximumBytes.answer, ...request, url: url.href, connect }).catch((error: Error) => {
      throw new Error(error.message, { cause: error });
    });
  };

  /**
   * Requests a token with the policy's own password; without one, with a credential of the settings. `refused` is an
   * older token, which the service has refused.
   */
  const requestToken = async (auth: HttpReferenceAuth, authUrl: string, refused?: string): Promise<string> => {
    const url = buildReferenceUrl(authUrl, "auth.authUrl");
    const answer = await sendAllowed(url, {
      method: "POST",
      headers: { ...buildBasicAuthHeaders(auth), "content-length": "0" },
      milliseconds: timeouts.token,
      maximumBytes: maximumBytes.token,
      isLasting: true,
      keep: computeTokenCacheSeconds(auth, refused),
      ...(!auth.password && findCredential(settings, url, auth.username)),
    });
    const { token } = parseTokenResponse(answer) ?? {};
    if (token !== undefined) return token;
    const { status } = answer;
    throw new Error(`${url.host} answers ${status} to a request for a token${status < 300 ? ", and no token" : ""}`);
  };

  return {
    fetchReference: async (reference): Promise<HttpReferenceResponse> => {
      const { request, url, auth } = buildReferenceRequest(reference);
      const sendWithToken = (token: string | undefined, credential: StoredCredential = {}) => {
        const headers = { ...request.headers, ...(token !== undefined && { authorization: `Bearer ${token}` }) };
        return sendAllowed(url, { ...request, ...credential, headers });
      };
      if (auth === undefined) return toReferenceResponse(await sendWithToken(undefined), url);

      const { staticToken, authUrl } = auth;
      if (staticToken) return toReferenceResponse(await sendWithToken(staticToken), url);
      const givenToken = auth.token && !hasExpired(auth.expireAt) ? auth.token : undefined;
      if (!authUrl && givenToken === undefined) {
        const credential = findCredential(settings, url, auth.username);
        if (credential === undefined) throw new Error(describeMissingToken(auth, url));
        return toReferenceResponse(await sendWithToken(undefined, credential), url);
      }
      const token = givenToken ?? (await requestToken(auth, authUrl ?? ""));
      const answer = await sendWithToken(token);
      // After a 401, the request is repeated once with a new token.
      if (answer.status !== 401 || !authUrl) return toReferenceResponse(answer, url);
      return toReferenceResponse(await sendWithToken(await requestToken(auth, authUrl, token)), url);
    },

    sendScriptRequest: async ({ method, url: address, request = {}, tls_config: tls }: ScriptHttpRequest) => {
      const url = buildReferenceUrl(address, "url");
      const text = request.body ?? undefined;
      if (text !== undefined && typeof text !== "string") throw new Error("request.body must be a text, or bytes");
      const body = text !== undefined && request.bodyIsBytes ? Buffer.from(text, "base64") : text;
      const headers = buildPolicyRequestHeaders(request.header ?? { "Content-Type": "application/json" }, body);
      const options = { method: parseMethod(method, scriptMethods), headers, milliseconds: timeouts.script };
      const openContext = tls && (() => createTlsContext(settings, tls));
      const answer = await sendAllowed(url, { ...options, ...(body !== undefined && { body }) }, openContext);
      return parseJsonObject(answer, url);
    },
  };
};

const scriptMethods = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const;

/** Converts a reference to an HTTP request. */
const buildReferenceRequest = ({ url: text, method, header, params, body: content, auth }: HttpReference) => {
  const url = buildReferenceUrl(text, "url", params);
  const body = toJsonRequestBody(content);
  const bodyHeaders: Record<string, string> = body === undefined ? {} : { "content-type": "application/json" };
  const request: Omit<HttpsRequest, "url"> = {
    method: parseMethod(method, ["GET", "POST"]),
    milliseconds: timeouts.reference,
    withHeaders: true,
    headers: { ...bodyHeaders, ...buildPolicyRequestHeaders(header ?? {}, body) },
    ...(body !== undefined && { body }),
  };
  return { request, url, auth: parseAuth(auth) };
};

const parseAuth = (auth: HttpReferenceAuth | undefined): HttpReferenceAuth | undefined =>
  auth === undefined || auth === null ? undefined : Object.fromEntries(parseTextEntries(auth, "auth"));

const hasExpired = (expireAt: string | undefined) => expireAt !== undefined && Date.parse(expireAt) <= Date.now();

const describeMissingToken = ({ token }: HttpReferenceAuth, { host }: URL) =>
  `auth must have ${token ? "a token that has not expired" : "a staticToken, a token"} or an authUrl, or http.credentials must list ${host}`;

type StoredCredential = Pick<HttpsRequest, "bearer" | "username">;

/** Finds the credential of the settings for a URL's host, and for the username `name`, if given. */
const findCredential = ({ credentials }: PolicyHttpSettings, url: URL, name = ""): StoredCredential | undefined => {
  const found = credentials.find(
    ({ host, username = "" }) => isAllowedHost([host], url) && (name === "" || name === username),
  );
  const secretPlace = found && locateCredential(found);
  if (secretPlace === undefined) return undefined;
  if (url.protocol !== "https:")
    throw new Error(`${url.host} gets a credential of http.credentials only over https://`);
  // With a username, the secret is sent as its password; without one, as a bearer token.
  return { bearer: secretPlace, ...(found?.username && { username: found.username }) };
};

const locateCredential = ({ secret = "", parameter = "", region = "" }: HttpCredential): SecretPlace | undefined =>
  findTokenPlace({ tokenSecret: secret, tokenParameter: parameter, region });

export const listSecretPlaces = ({ credentials }: PolicyHttpSettings): SecretPlace[] =>
  credentials.flatMap((credential) => locateCredential(credential) ?? []);

/** Returns the functions that limit connections under these settings. They are cached by the settings. */
const createLimits = (settings: PolicyHttpSettings) => {
  const cached = limitsBySettings.get(settings);
  if (cached) return cached;
  const isAdmitted = createPublicOrListedAddressCheck(settings.addresses);
  let context: SecureContext | undefined;
  const getSecureContext = () => {
    context ??= createTlsContext(settings, {});
    return context;
  };
  const limits = { isAdmitted, lookup: createFilteredDnsLookup(isAdmitted), secureContext: getSecureContext };
  limitsBySettings.set(settings, limits);
  return limits;
};

/** What follows from the settings for HTTP references, computed once for each settings object. */
const limitsBySettings = new WeakMap<
  PolicyHttpSettings,
  {
    isAdmitted(address: string): boolean;
    lookup: ReturnType<typeof createFilteredDnsLookup>;
    secureContext(): SecureContext;
  }
>();

/** Builds the TLS context of a policy's HTTP request. The `ca` of a script replaces all other trusted certificates. */
const createTlsContext = (
  { ca }: PolicyHttpSettings,
  { ca: scriptCa, client_crt: cert, client_key: key }: Partial<NonNullable<ScriptHttpRequest["tls_config"]>>,
): SecureContext => {
  const { createSecureContext, rootCertificates } = process.getBuiltinModule("node:tls");
  const trusted = scriptCa || (ca && [...rootCertificates, ca]);
  const options: SecureContextOptions = { ...(trusted && { ca: trusted }), ...(cert && { cert }), ...(key && { key }) };
  try {
    return createSecureContext(options);
  } catch (error) {
    const why = getErrorMessage(error);
    throw new Error(`${scriptCa || cert || key ? "tls_config" : "http.ca"} can't be used: ${why}`);
  }
};

const toReferenceResponse = (answer: HttpsResponse, url: URL): HttpReferenceResponse => {
  const body = parseJsonObject(answer, url);
  return { body, header: toGoHeaders(answer.headers), trailer: toGoHeaders(answer.trailers) };
};

/** Returns the JSON object in a response. Throws if the response is no success, or no object. */
const parseJsonObject = (answer: HttpsResponse, { host }: URL): Record<string, unknown> => {
  const { status } = answer;
  if (status >= 300 && status < 400) throw new Error(`${host} answers ${status}, and redirects are not followed`);
  if (status < 200 || status > 299) throw new Error(`${host} answers ${status}`);
  const content = parseAnswer(answer);
  if (!isMap(content)) throw new Error(`${host} must answer a JSON object`);
  return content;
};

/**
 * Returns response headers with names in Go's form, such as `Content-Type`. As Go does, leaves out the headers
 * transfer-encoding and trailer.
 */
const toGoHeaders = (headers: NodeJS.Dict<string[]> = {}): Record<string, string[]> =>
  Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => !/^(transfer-encoding|trailer)$/i.test(name))
      .map(([name, values = []]) => [
        name.toLowerCase().replace(/(^|-)[a-z]/g, (start) => start.toUpperCase()),
        // In a case or a recording that a user writes, the value may be one text instead of a list.
        [values].flat(),
      ]),
  );

/** Returns what is wrong with the settings for HTTP references; undefined if nothing is wrong. */
export const findPolicyHttpSettingsFault = ({
  hosts,
  ca,
  addresses,
  credentials,
}: PolicyHttpSettings): string | undefined => {
  const quoteStart = (value: unknown) => JSON.stringify(value)?.slice(0, 100);
  const host = hosts.find((entry) => typeof entry !== "string" || !isHostEntry(entry));
  if (host !== undefined)
    return `must have hosts such as api.example.com, api.example.com:8443 or *.example.com in http.hosts, not ${quoteStart(host)}`;
  if (ca !== "" && !ca.includes("-----BEGIN CERTIFICATE-----"))
    return "must have a certificate in PEM as http.ca, or nothing";
  const address = addresses.find((entry) => typeof entry !== "string" || !isIpAddressOrRange(entry));
  if (address !== undefined)
    return `must have addresses or ranges such as 10.0.0.0/8 in http.addresses, not ${quoteStart(address)}`;
  for (const [index, credential] of credentials.entries()) {
    const what = describeCredentialFault(credential);
    if (what !== undefined) return `must have ${what} in http.credentials[${index}]`;
  }
};

const credentialFields = ["host", "username", "secret", "parameter", "region"];

/** Returns what an invalid credential must have, as a part of the sentence `must have … in FIELD`. */
const describeCredentialFault = (credential: HttpCredential): string | undefined => {
  if (!isMap(credential) || Object.values(credential).some((value) => typeof value !== "string")) return "texts alone";
  const unknown = Object.keys(credential).find((key) => !credentialFields.includes(key));
  if (unknown !== undefined) return `${credentialFields.join(", ")} alone, and no ${unknown},`;
  const { host = "", username = "", secret = "", parameter = "" } = credential;
  if (!isHostEntry(host)) return "a host such as auth.example.com";
  if (username.includes(":")) return "a username without a colon";
  if ((secret === "") === (parameter === "")) return "one of secret and parameter";
  // The region is taken from an ARN in `secret` or `parameter`; with a name instead, `region` must be set.
  return isRegion(locateCredential(credential)?.region ?? "") ? undefined : "a region such as eu-west-1";
};

import type { CredentialPlace, SecretPlace } from "../needs.ts";
import { type HttpsAnswer, sendRequest } from "./https-request.ts";
import { type AwsKeys, presignUrl, signHeaders } from "./signature.ts";

/** The credentials that a request sends to an API server. They are secret, so they are never put into a bundle. */
export interface ClusterCredentials {
  token?: string;
  cert?: string;
  key?: string;
}

/** Where the credentials for a cluster come from. */
export type ClusterCredentialSource =
  /** The function's IAM role; an access entry of the EKS cluster admits it. */
  | { eks: string; region: string }
  /** The secret or parameter in AWS whose text is a ServiceAccount's token. */
  | SecretPlace
  | ClusterCredentials
  | RenewedSource<ClusterCredentials>;

/** The source of a value that expires. The value is fetched again after it expired, or after a server refused it. */
export interface RenewedSource<T> {
  read(deadline: number): Promise<T>;
  /** Must be called after a server refused a value. If it is the current value, the next `read` fetches a new one. */
  refused(value: T): Promise<void>;
}

/** A fetched value, and when it expires, in milliseconds since 1970. */
interface Renewed<T> {
  value: T;
  until: number;
}

/** In milliseconds. */
const minute = 60_000;

/** `identity` returns the AWS keys that sign requests to AWS; `ask` sends these requests. */
interface CredentialSources {
  identity(): AwsKeys | Promise<AwsKeys>;
  ask: typeof sendRequest;
}

/** Keeps a value, such as a token, and fetches a new one when it has expired or was refused. */
export const createRenewedSource = <T>(fetch: (deadline: number) => Promise<Renewed<T>>): RenewedSource<T> => {
  let current: Promise<Renewed<T>> | undefined;
  let until = 0;
  return {
    read: async (deadline) => {
      if (!current || until <= Date.now()) {
        // While the value is fetched, it counts as valid, so that other callers wait for it and don't fetch it, too.
        until = Number.POSITIVE_INFINITY;
        current = fetch(deadline);
        current.then(
          (fetched) => {
            until = fetched.until;
          },
          () => {
            until = 0;
          },
        );
      }
      return (await current).value;
    },
    refused: async (value) => {
      if ((await current?.catch(() => undefined))?.value === value) until = 0;
    },
  };
};

type TokenPlace = { eks: string; region: string } | CredentialPlace;

/** Returns a source of tokens, which renews a token before it expires and after a server refused it. */
export const createTokenSource = (place: TokenPlace, sources: CredentialSources = ownSources): RenewedSource<string> =>
  createRenewedSource((deadline) => fetchToken(place, sources, deadline));

/** Returns the source of a cluster's credentials: the given one, tokens from AWS (with a `region`), or fixed ones. */
export const createCredentialSource = (
  credentials: ClusterCredentialSource,
  sources?: CredentialSources,
): RenewedSource<ClusterCredentials> => {
  if ("read" in credentials) return credentials;
  if (!("region" in credentials)) return { read: async () => credentials, refused: async () => {} };
  const tokens = createTokenSource(credentials, sources);
  return {
    read: async (deadline) => ({ token: await tokens.read(deadline) }),
    refused: ({ token = "" }) => tokens.refused(token),
  };
};

/** Fetches a token from its place, and says when it must be renewed. */
const fetchToken = async (
  place: TokenPlace,
  sources: CredentialSources,
  deadline: number,
): Promise<Renewed<string>> => {
  // EKS accepts a token for 15 minutes. It is renewed after 10 minutes.
  if ("eks" in place)
    return { value: createEksToken(place, await sources.identity(), new Date()), until: Date.now() + 10 * minute };
  const value =
    "file" in place
      ? (await process.getBuiltinModule("node:fs/promises").readFile(place.file, "utf8")).trim()
      : await readStoredToken(place, sources, deadline);
  return { value, until: Date.now() + 5 * minute };
};

/** Returns a token for EKS: a presigned request. The cluster sends it to STS, and STS answers the function's role. */
export const createEksToken = (
  { eks, region }: { eks: string; region: string },
  identity: AwsKeys,
  now: Date,
): string => {
  const url = presignUrl(
    {
      method: "GET",
      host: `sts.${region}.${getAwsDomain(region)}`,
      path: "/",
      service: "sts",
      region,
      query: { Action: "GetCallerIdentity", Version: "2011-06-15" },
      headers: { "x-k8s-aws-id": eks },
    },
    identity,
    now,
    60,
  );
  return `k8s-aws-v1.${Buffer.from(url).toString("base64url")}`;
};

/** Reads a token or a private key from Secrets Manager or from an SSM parameter. */
const readStoredToken = async (
  credentials: SecretPlace,
  sources: CredentialSources,
  deadline: number,
): Promise<string> => {
  const isSecret = "secret" in credentials;
  const { region } = credentials;
  const [service, target, body] = isSecret
    ? (["secretsmanager", "secretsmanager.GetSecretValue", { SecretId: credentials.secret }] as const)
    : (["ssm", "AmazonSSM.GetParameter", { Name: credentials.parameter, WithDecryption: true }] as const);
  const call = { service, region, target, protocol: "1.1", body } as const;
  const { status, body: text } = await callAwsJsonApi(call, deadline, sources);
  const where = isSecret ? `the secret ${credentials.secret}` : `the parameter ${credentials.parameter}`;
  if (status !== 200)
    throw new Error(`${where} could not be read: ${service} answers ${status}${describeAwsFault(text)}`);
  const { SecretString, Parameter } = JSON.parse(text);
  const value: unknown = isSecret ? SecretString : Parameter?.Value;
  if (typeof value !== "string" || !(isHeaderSafeToken(value.trim()) || value.includes("-----BEGIN ")))
    throw new Error(`${where} holds neither a token nor a key in PEM`);
  return value.trim();
};

/** Returns the name of an AWS error after a comma, such as `, AccessDeniedException`. Its message may be long. */
const describeAwsFault = (text: string): string => {
  const [, name] = /"__type"\s*:\s*"(?:[^"]*#)?(\w+)"/.exec(text) ?? [];
  return name === undefined ? "" : `, ${name}`;
};

/** A call of an AWS service with a JSON body. */
interface AwsJsonCall {
  service: keyof typeof endpointVariables;
  region: string;
  /** The operation, with the prefix of its service, such as `secretsmanager.GetSecretValue`. */
  target: string;
  /** The version of AWS's JSON protocol that the service uses. */
  protocol: "1.0" | "1.1";
  body: object;
}

/** Calls an operation of AWS's API, without retries. */
export const callAwsJsonApi = async (
  { target, protocol, body: parameters, ...to }: AwsJsonCall,
  deadline: number,
  { identity, ask }: CredentialSources = ownSources,
): Promise<HttpsAnswer> => {
  const { origin, host } = getAwsServiceUrl(to.service, to.region);
  const headers = { "content-type": `application/x-amz-json-${protocol}`, "x-amz-target": target };
  const request = { ...to, method: "POST", host, path: "/", headers, body: JSON.stringify(parameters) };
  const signed = signHeaders(request, await identity(), new Date());
  return ask(`${origin}/`, { method: "POST", headers: signed }, request.body, deadline);
};

export const buildBasicAuthorization = (username: string, password: string): string =>
  `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;

/** Reports whether a token consists only of characters that an HTTP header may have. */
export const isHeaderSafeToken = (text: string) => /^[\x21-\x7e]+$/.test(text);

/** Returns a service's address as AWS's SDKs do: from environment variables, or else the usual address. */
export const getAwsServiceUrl = (service: keyof typeof endpointVariables, region: string): URL =>
  new URL(
    process.env[endpointVariables[service]] ??
      process.env.AWS_ENDPOINT_URL ??
      `https://${service}.${region}.${getAwsDomain(region)}`,
  );
const endpointVariables = {
  dynamodb: "AWS_ENDPOINT_URL_DYNAMODB",
  ec2: "AWS_ENDPOINT_URL_EC2",
  secretsmanager: "AWS_ENDPOINT_URL_SECRETS_MANAGER",
  ssm: "AWS_ENDPOINT_URL_SSM",
};

/** Returns the domain of AWS's services in a region. Some partitions have their own domains, such as China. */
export const getAwsDomain = (region: string): string =>
  domains[/^(cn|eusc|[a-z]+-iso[bef]?)-/.exec(region)?.[1] ?? ""] ?? "amazonaws.com";

/** The domains of AWS's partitions, by the prefix of their regions. GovCloud has the usual domain. */
const domains: Record<string, string> = {
  cn: "amazonaws.com.cn",
  eusc: "amazonaws.eu",
  "us-iso": "c2s.ic.gov",
  "us-isob": "sc2s.sgov.gov",
  "eu-isoe": "cloud.adc-e.uk",
  "us-isof": "csp.hci.ic.gov",
};

/** Returns the AWS access keys in the environment variables; throws if there are none. */
export const readAwsKeysFromEnvironment = (): AwsKeys => {
  const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN } = process.env;
  if (!AWS_ACCESS_KEY_ID || !AWS_SECRET_ACCESS_KEY)
    throw new Error("there is no AWS identity: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set");
  return {
    accessKeyId: AWS_ACCESS_KEY_ID,
    secretAccessKey: AWS_SECRET_ACCESS_KEY,
    sessionToken: AWS_SESSION_TOKEN,
  };
};

const ownSources: CredentialSources = { identity: readAwsKeysFromEnvironment, ask: sendRequest };

import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, resolve } from "node:path";
import { parseDocument } from "yaml";
import type { ApiServerConnection } from "#lib/cluster/api-server.ts";
import { isHeaderSafeToken } from "#lib/cluster/credentials.ts";
import { isMap } from "#lib/json.ts";
import { asksCluster } from "#lib/needs.ts";
import { isRegion } from "#lib/service-settings.ts";
import { createManifestCluster, type ManifestCluster, readManifestFolder } from "../apiserver/manifest-cluster.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toSentence } from "../cli/complaint.ts";
import { createMapShape, type InputShape } from "../cli/shape.ts";
import type { ClusterConfig, ClusterConnectConfig, PosternConfig } from "./config.ts";

const describeText = (description: string): InputShape => {
  return { expected: "a text", type: "string", minLength: 1, description };
};

/** The members of `connect` of which a cluster has exactly one. */
const credentialMembers = ["eks", "tokenSecret", "tokenParameter", "kubeconfig", "manifests"] as const;

export const connectShape: InputShape = {
  ...createMapShape({
    eks: describeText("the name of the EKS cluster; rules read it with the role of their function"),
    region: describeText("the region of the EKS cluster or of the token, unless an ARN has it"),
    server: describeText("the address of the cluster's API server, for instance https://203.0.113.7:6443"),
    ca: describeText("the CA certificates of the API server: PEM, or a file with PEM"),
    tokenSecret: describeText("the secret in Secrets Manager that contains a token, by name or ARN"),
    tokenParameter: describeText("the SSM parameter that contains a token"),
    kubeconfig: describeText("a kubeconfig, on this machine only"),
    context: describeText("the context of the kubeconfig; by default its current context"),
    manifests: describeText("a folder of manifests that rules read instead of a cluster, on this machine only"),
  } satisfies Record<keyof ClusterConnectConfig, InputShape>),
  description: "how rules read the cluster",
  checkedElsewhere: {
    oneOf: [...credentialMembers.map((member) => ({ type: "object", required: [member] })), { type: "null" }],
  },
};

/** Returns the fault of a `connect` setting in words that continue its name; undefined if it is valid. */
export const findConnectFault = (connect: ClusterConnectConfig): string | undefined => {
  const { eks, region, server, ca, kubeconfig, context, tokenSecret, tokenParameter, manifests } = connect;
  const ways = credentialMembers.filter((member) => connect[member] !== undefined);
  if (ways.length !== 1) return "must have one of eks, tokenSecret, tokenParameter, kubeconfig and manifests";
  if (manifests !== undefined)
    return (region ?? server ?? ca ?? context) ? "is a folder of manifests; nothing else can be set" : undefined;
  if (kubeconfig !== undefined)
    return (region ?? server ?? ca) ? "reads everything from the kubeconfig; only context can be set, too" : undefined;
  if (context !== undefined) return "has a context, which needs a kubeconfig";
  if (eks === undefined && server === undefined) return "must name the server, for instance https://203.0.113.7:6443";
  if (server !== undefined && !isAddress(server))
    return `must have an https:// address without a path as its server, not "${server}"`;
  if (eks !== undefined && server !== undefined && ca === undefined)
    return "must name the ca and not only the server, because EKS signs its certificates itself";
  const own = parseRegion(tokenSecret ?? tokenParameter);
  if (own !== undefined && region !== undefined && own !== region)
    return `is of region ${region}, but its token is kept in ${own}`;
  if (!isRegion(region ?? own ?? "")) return "must have a region, for instance eu-west-1";
  return undefined;
};

const isAddress = (text: string) => {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isBare = url?.pathname === "/" && !url.search && !url.hash && !url.username && !url.password;
  return url?.protocol === "https:" && isBare;
};

/** Returns the region in an ARN; undefined for a plain name. */
const parseRegion = (arn = ""): string | undefined => /^arn:aws[^:]*:[^:]+:([^:]+):/.exec(arn)?.[1];

/**
 * The parsed `connect` settings: for each cluster its API server, or the folder of manifests that rules read instead.
 */
export interface ParsedConnections {
  connections: Map<string, ApiServerConnection>;
  manifestClusters: Map<string, ManifestCluster>;
  faults: string[];
  /** Sentences to print about `connect` settings that are not mistakes, for instance what was assumed. */
  notes: string[];
}

/**
 * Reads the connections of all clusters, for rules on this machine ("here") or on Lambda ("aws"). Functions on Lambda
 * can't read kubeconfigs or folders of manifests, so "aws" leaves these out with a note.
 */
export const readClusterConnections = async (
  { clusters }: Pick<PosternConfig, "clusters">,
  catalogue: CatalogueRule[],
  file: string,
  where: "here" | "aws",
): Promise<ParsedConnections> => {
  const found: ParsedConnections = { connections: new Map(), manifestClusters: new Map(), faults: [], notes: [] };
  for (const [name, cluster] of clusters) {
    const asking = listRulesAskingCluster(catalogue, cluster);
    const { connect } = cluster;
    const here = `${basename(file)} clusters.${name}`;
    if (asking.length === 0) continue;
    if (connect === undefined) found.faults.push(`${here} ${describeMissingConnectSetting(asking)}`);
    else if (where === "aws" && (connect.kubeconfig ?? connect.manifests) !== undefined) {
      const what = connect.kubeconfig === undefined ? "a folder" : "a kubeconfig";
      found.notes.push(
        `${here}.connect is ${what}, which only works on this machine: functions can't read the cluster`,
      );
    } else if (connect.manifests !== undefined)
      await readManifestFolder(resolveConfigPath(connect.manifests, dirname(file))).then(
        (objects) => found.manifestClusters.set(name, createManifestCluster(objects)),
        (error) => found.faults.push(`${here}.connect: ${toSentence(error)}`),
      );
    else
      await buildConnection(connect, dirname(file)).then(
        (connection) => found.connections.set(name, connection),
        (error) => found.faults.push(`${here}.connect ${toSentence(error)}`),
      );
  }
  return found;
};

export const describeMissingConnectSetting = (asking: CatalogueRule[]) =>
  `has no connect, but ${asking.map(({ name }) => name).join(", ")} must read it; docs/clusters.md says how`;

/** Returns the rules that are on and ask the cluster. Rules that only ask other services are not included. */
export const listRulesAskingCluster = (
  catalogue: CatalogueRule[],
  { rules }: Pick<ClusterConfig, "rules"> = { rules: new Map() },
): CatalogueRule[] =>
  catalogue.filter(({ name, rule }) => {
    const { mode, settings } = rules.get(name) ?? { mode: "off" };
    return mode !== "off" && asksCluster(rule, settings);
  });

/** Resolves a path relative to the folder of postern.yaml, with `~/` as the home folder. */
export const resolveConfigPath = (path: string, folder: string) => resolve(folder, path.replace(/^~(?=\/)/, homedir()));

const buildConnection = async (connect: ClusterConnectConfig, folder: string): Promise<ApiServerConnection> => {
  const { eks, server, kubeconfig, tokenSecret, tokenParameter } = connect;
  if (kubeconfig !== undefined) return readKubeconfig(resolveConfigPath(kubeconfig, folder), connect.context);
  if (server === undefined)
    throw new Error(`must name server and ca of the EKS cluster; aws eks describe-cluster --name ${eks} prints them`);
  const ca = connect.ca === undefined ? undefined : await readCertificatesFromPemOrFile(connect.ca, folder);
  const region = connect.region ?? parseRegion(tokenSecret ?? tokenParameter) ?? "";
  const credentials =
    eks !== undefined
      ? { eks, region }
      : tokenSecret !== undefined
        ? { secret: tokenSecret, region }
        : { parameter: String(tokenParameter), region };
  return { server: new URL(server).origin, ...(ca && { ca }), credentials };
};

const certificates = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Returns only the certificates in a PEM text or file, not, for example, a private key beside them. */
export const readCertificatesFromPemOrFile = async (pemOrFile: string, folder: string): Promise<string> => {
  const isText = pemOrFile.includes("-----BEGIN");
  const where = isText ? "its ca" : pemOrFile;
  const found = (isText ? pemOrFile : await readFile(resolve(folder, pemOrFile), "utf8")).match(certificates) ?? [];
  if (found.length === 0) throw new Error(`finds no certificate in PEM in ${where}`);
  for (const certificate of found)
    try {
      new X509Certificate(certificate);
    } catch {
      throw new Error(`finds a certificate in ${where} that can't be read`);
    }
  return found.map((certificate) => `${certificate}\n`).join("");
};

interface Kubeconfig {
  "current-context"?: string;
  contexts?: { name: string; context: { cluster?: string; user?: string } }[] | undefined;
  clusters?: { name: string; cluster: Record<string, unknown> }[] | undefined;
  users?: { name: string; user: Record<string, unknown> }[] | undefined;
}

/** Reads a kubeconfig as kubectl does, but throws if a program would have to run for a token. */
export const readKubeconfig = async (
  file: string,
  contextName: string | undefined,
  fallbackContextName?: string,
): Promise<ApiServerConnection> => {
  const document = parseDocument(await readFile(file, "utf8"), { prettyErrors: false });
  // The YAML parser's own messages are left out: they quote the line, which may hold a token.
  if (document.errors.length > 0) throw new Error(`finds ${file} to be no YAML`);
  const config = toKubeconfig(document.toJS());
  if (config === undefined) throw new Error(`finds ${file} to be no kubeconfig`);
  const isThere = config.contexts?.some(({ name }) => name === fallbackContextName);
  const chosen = contextName ?? (isThere ? fallbackContextName : config["current-context"]);
  const context = config.contexts?.find(({ name }) => name === chosen)?.context;
  const cluster = config.clusters?.find(({ name }) => name === context?.cluster)?.cluster;
  const user = config.users?.find(({ name }) => name === context?.user)?.user;
  if (!context || !cluster || !user)
    throw new Error(`finds no context "${chosen}" with its cluster and user in ${file}`);
  const readText = async (holder: Record<string, unknown>, key: string): Promise<string | undefined> => {
    const data = holder[`${key}-data`];
    if (typeof data === "string") return Buffer.from(data, "base64").toString();
    const name = holder[key];
    return typeof name === "string" ? readFile(resolve(dirname(file), name), "utf8") : undefined;
  };
  const server = String(cluster.server ?? "");
  if (!isAddress(server))
    throw new Error(`names the server "${server}" in ${file}, which is no https:// address without a path`);
  const unknown = [
    ...["proxy-url", "tls-server-name"].filter((key) => cluster[key] !== undefined),
    ...["as", "as-uid", "as-groups", "as-user-extra"].filter((key) => user[key] !== undefined),
  ];
  if (unknown.length > 0) throw new Error(`would ignore ${unknown.join(", ")} in ${file}, which is not supported`);
  if (cluster["insecure-skip-tls-verify"] === true)
    throw new Error(`would trust any server, by insecure-skip-tls-verify in ${file}; name its certificate-authority`);
  if (user.exec !== undefined || user["auth-provider"] !== undefined)
    throw new Error(
      `would run a program for a token, by exec in ${file}; use a user with a token or a client certificate`,
    );
  const authority = await readText(cluster, "certificate-authority");
  const ca = authority === undefined ? undefined : await readCertificatesFromPemOrFile(authority, "");
  const [cert, key] = [await readText(user, "client-certificate"), await readText(user, "client-key")];
  const selected =
    user.token || (typeof user.tokenFile === "string" ? await readText({ file: user.tokenFile }, "file") : "");
  const token = typeof selected === "string" ? selected.trim() : "";
  if (token !== "" && !isHeaderSafeToken(token)) throw new Error(`finds a token in ${file} that no header can carry`);
  if (token === "" && (cert === undefined || key === undefined))
    throw new Error(`finds neither a token nor a client certificate for the user "${context.user}" in ${file}`);
  const credentials = token !== "" ? { token } : { cert: String(cert), key: String(key) };
  return { server: new URL(server).origin, ...(ca && { ca }), credentials };
};

const toKubeconfig = (value: unknown): Kubeconfig | undefined => {
  const isFit = ["context", "cluster", "user"].every((inner) => {
    const entries: unknown = Object(value)[`${inner}s`] ?? [];
    return Array.isArray(entries) && entries.every((entry) => isMap(Object(entry)[inner]));
  });
  // The deeper members of a kubeconfig are not checked, because no caller relies on their types.
  return isFit ? (Object(value) as Kubeconfig) : undefined;
};

import { homedir } from "node:os";
import { basename, dirname, resolve } from "node:path";
import type { ApiServerConnection } from "#lib/cluster/api-server.ts";
import { asksCluster } from "#lib/needs.ts";
import { isRegion } from "#lib/service-settings.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { formatPage } from "../catalogue/sources.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { createMapShape, describeFoundValue, type InputShape } from "../cli/shape.ts";
import type { ManifestCluster } from "../manifests/manifest-cluster.ts";
import type { ClusterConfig, ClusterConnectConfig, PosternConfig, RelayService } from "./config.ts";
import {
  isServerAddress,
  readCertificatesFromPemOrFile,
  readKubeconfig,
  readKubeconfigVariable,
} from "./kubeconfig.ts";

const describeText = (description: string): InputShape => {
  return { expected: "a text", type: "string", minLength: 1, description };
};

/** `connect` must have exactly one of these members. */
const credentialMembers = ["eks", "tokenSecret", "tokenParameter", "kubeconfig", "manifests"] as const;

/** The shape of `connect` in postern.yaml. */
export const connectShape: InputShape = {
  ...createMapShape({
    eks: describeText("the name of the EKS cluster; rules read it with the role of their function"),
    region: describeText("the region of the EKS cluster or of the token, unless an ARN has it"),
    role: describeText(
      "the ARN of the IAM role with which deploy and other commands reach an EKS cluster of another account",
    ),
    server: describeText("the address of the cluster's API server, for instance https://203.0.113.7:6443"),
    ca: describeText("the CA certificates of the API server: PEM, its base64 as AWS prints it, or a file with PEM"),
    tokenSecret: describeText("the secret in Secrets Manager that contains a token, by name or ARN"),
    tokenParameter: describeText("the SSM parameter that contains a token"),
    kubeconfig: describeText("a kubeconfig, on this machine only"),
    context: describeText("the context of the kubeconfig; by default its current context"),
    manifests: describeText("a folder of manifests that rules read instead of a cluster, on this machine only"),
  } satisfies Record<keyof ClusterConnectConfig, InputShape>),
  description: "how rules read the cluster",
  editorKeywords: {
    oneOf: [...credentialMembers.map((member) => ({ type: "object", required: [member] })), { type: "null" }],
  },
};

/** Parses a text such as `NAMESPACE/NAME` or `NAMESPACE/NAME:PORT`; returns undefined for other texts. */
export const parseServiceName = (text: string): Omit<RelayService, "ca"> | undefined => {
  const { namespace, name, port } = servicePattern.exec(text)?.groups ?? {};
  if (namespace === undefined || name === undefined || Number(port ?? 1) > 65_535) return undefined;
  return { namespace, name, ...(port !== undefined && { port: Number(port) }) };
};

const servicePattern =
  /^(?<namespace>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)\/(?<name>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)(:(?<port>[1-9]\d{0,4}))?$/;

export const serviceNameForm = "NAMESPACE/NAME or NAMESPACE/NAME:PORT, for instance postern-relay/postern-relay";

/** The shape of `service`, the relay of a cluster. */
export const serviceShape: InputShape = {
  ...createMapShape({
    name: {
      expected: serviceNameForm,
      type: "string",
      meetsCondition: (value) => parseServiceName(String(value)) !== undefined,
      description: "the Service of the relay: its namespace and name, and its port if that isn't 443",
      editorKeywords: { pattern: servicePattern.source.replaceAll(/\?<\w+>/g, "") },
    },
    ca: describeText("the CA certificates of the relay: PEM, its base64, or a file with PEM"),
  }),
  expected: "a map with name and ca",
  required: ["name", "ca"],
  description: "the relay of a cluster whose API server can't call out",
};

/** Returns the CA certificates of a cluster's relay in PEM; undefined without a relay. `file` is postern.yaml. */
export const readRelayCa = async (
  { service }: Pick<ClusterConfig, "service">,
  name: string,
  file: string,
): Promise<string | undefined> =>
  service &&
  readCertificatesFromPemOrFile(service.ca, dirname(file)).catch((error) => {
    throw new Complaint(`clusters.${name}.service ${toSentence(error)}`);
  });

/** Returns a mistake in `connect`, for instance "must name the server, …"; undefined if there is none. */
export const findConnectFault = (connect: ClusterConnectConfig): string | undefined => {
  const { eks, region, role, server, ca, kubeconfig, context, tokenSecret, tokenParameter, manifests } = connect;
  const credentials = credentialMembers.filter((member) => connect[member] !== undefined);
  if (credentials.length !== 1)
    return `must have exactly one of eks, tokenSecret, tokenParameter, kubeconfig and manifests, not ${credentials.join(" and ") || "none"}`;
  if (manifests !== undefined)
    return (region ?? role ?? server ?? ca ?? context)
      ? "is a folder of manifests; nothing else can be set"
      : undefined;
  if (kubeconfig !== undefined)
    return (region ?? role ?? server ?? ca)
      ? "reads everything from the kubeconfig; only context can be set, too"
      : undefined;
  if (context !== undefined) return "has a context, which needs a kubeconfig";
  if (role !== undefined && eks === undefined) return "has a role, which needs an EKS cluster";
  if (role !== undefined && !/^arn:aws[a-z-]*:iam::\d{12}:role\/[\w+=,.@/-]+$/.test(role))
    return `must have the ARN of an IAM role as its role, such as arn:aws:iam::111122223333:role/postern, not "${role}"`;
  if (eks === undefined && server === undefined) return "must name the server, for instance https://203.0.113.7:6443";
  if (server !== undefined && !isServerAddress(server))
    return `must have an https:// address without a path as its server, not "${server}"`;
  if (eks !== undefined && server !== undefined && ca === undefined)
    return "must name the ca and not only the server, because EKS signs its certificates itself";
  const tokenRegion = parseRegion(tokenSecret ?? tokenParameter);
  if (tokenRegion !== undefined && region !== undefined && tokenRegion !== region)
    return `is of region ${region}, but its token is kept in ${tokenRegion}`;
  if (!isRegion(region ?? tokenRegion ?? ""))
    return `must have a region, for instance eu-west-1${describeFoundValue({ value: region })}`;
  return undefined;
};

/** Returns the region in an ARN, for instance eu-west-1 in arn:aws:ssm:eu-west-1:…; undefined for a name. */
const parseRegion = (arn = ""): string | undefined => /^arn:aws[^:]*:[^:]+:([^:]+):/.exec(arn)?.[1];

/** How rules read the clusters of postern.yaml: each by its API server, or by a folder of manifests. */
export interface ParsedConnections {
  connections: Map<string, ApiServerConnection>;
  manifestClusters: Map<string, ManifestCluster>;
  /** Mistakes in `connect`, in sentences. */
  faults: string[];
  /** Sentences about clusters that rules can't read, which are no mistakes. */
  notes: string[];
}

/**
 * Reads the connections of all clusters that rules read, for rules on this machine ("here") or on Lambda ("aws"). On
 * Lambda, rules can't use a kubeconfig or a folder of manifests, so "aws" leaves these clusters out, with a note.
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
    const clusterPlace = `${basename(file)} clusters.${name}`;
    if (asking.length === 0) continue;
    // On this machine, a cluster without `connect` is read by the kubeconfigs in the variable KUBECONFIG, if any.
    const choice = where === "here" && connect === undefined ? readKubeconfigVariable(name) : undefined;
    if (choice !== undefined)
      await readKubeconfig(choice).then(
        (connection) => found.connections.set(name, connection),
        (error) => found.faults.push(`${clusterPlace}: KUBECONFIG ${toSentence(error)}`),
      );
    else if (connect === undefined) found.faults.push(`${clusterPlace} ${describeMissingConnectSetting(asking)}`);
    else if (where === "aws" && (connect.kubeconfig ?? connect.manifests) !== undefined) {
      const what = connect.kubeconfig === undefined ? "a folder" : "a kubeconfig";
      found.notes.push(
        `${clusterPlace}.connect is ${what}, which only works on this machine: functions can't read the cluster`,
      );
    } else if (connect.manifests !== undefined)
      await openManifestCluster(connect.manifests, dirname(file), cluster.kubernetes).then(
        (manifests) => found.manifestClusters.set(name, manifests),
        (error) => found.faults.push(`${clusterPlace}.connect: ${toSentence(error)}`),
      );
    else
      await buildConnection(connect, dirname(file)).then(
        (connection) => found.connections.set(name, connection),
        (error) => found.faults.push(`${clusterPlace}.connect ${toSentence(error)}`),
      );
  }
  return found;
};

/** Opens a folder of manifests. The module is imported only here, as it is large and most commands don't need it. */
const openManifestCluster = async (path: string, base: string, kubernetes?: string): Promise<ManifestCluster> =>
  (await import("../manifests/manifest-cluster.ts")).readManifestCluster(
    resolveConfigPath(path, base),
    kubernetes,
    base,
  );

export const describeMissingConnectSetting = (asking: CatalogueRule[]) =>
  `has no setting connect, but ${asking.map(({ name }) => name).join(", ")} must read this cluster; ${formatPage("how-to/connect-a-cluster.md")} says how`;

/** Returns the rules that are on in a cluster and read it. Rules that only call other services are left out. */
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

/** Returns the address and credentials of a cluster's API server, for rules. */
const buildConnection = async (connect: ClusterConnectConfig, folder: string): Promise<ApiServerConnection> => {
  const { eks, server, kubeconfig, tokenSecret, tokenParameter } = connect;
  if (kubeconfig !== undefined)
    return readKubeconfig({
      files: [resolveConfigPath(kubeconfig, folder)],
      mayRunExec: false,
      context: connect.context,
    });
  if (server === undefined)
    throw new Error(`must name server and ca of the EKS cluster; aws eks describe-cluster --name ${eks} prints them`);
  const ca = connect.ca === undefined ? undefined : await readCertificatesFromPemOrFile(connect.ca, folder);
  const region = connect.region ?? parseRegion(tokenSecret ?? tokenParameter) ?? "";
  const token = tokenSecret === undefined ? { parameter: String(tokenParameter) } : { secret: tokenSecret };
  const credentials = eks === undefined ? { ...token, region } : { eks, region };
  return { server: new URL(server).origin, ...(ca && { ca }), credentials };
};
